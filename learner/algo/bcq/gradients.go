package bcq

import (
	"fmt"

	"awarescale.dev/aware/learner/nn/graph"
)

// Gradients computes the gradients of the three losses for batches of one size.
// It is the seam between the algorithm and what differentiates: [Gorgonia] in
// production, [Hand] in tests and benchmarks. All slices but grad are read
// only; s is [batch][State], a [batch][Action].
type Gradients interface {
	// VAE is the loss mean((u - a)^2) + Divergence * KL and its gradient, where
	// u [batch][Action] is what the decoder makes of s and z = mean + deviation
	// * noise, and KL the mean over batch and latent numbers of the divergence
	// of the encoder's normal distribution from N(0, 1); noise [batch][Latent].
	VAE(theta, s, a, noise, grad []float64) (loss float64, err error)
	// Critic is the loss mean((Q(s, a) - y)^2) and its gradient; y [batch].
	Critic(theta, s, a, y, grad []float64) (loss float64, err error)
	// Perturbation is the loss mean(-Q(s, clip(a + Phi * xi(s, a)))) and its
	// gradient with respect to the perturbation's theta, for generated actions
	// a.
	Perturbation(theta, critic, s, a, grad []float64) (loss float64, err error)
}

type gorgonia struct {
	vae          *graph.Graph[float64]
	vaeState     graph.Input[float64]
	vaeAction    graph.Input[float64]
	noise        graph.Input[float64]
	critic       *graph.Graph[float64]
	criticState  graph.Input[float64]
	criticAction graph.Input[float64]
	y            graph.Input[float64]
	move         *graph.Graph[float64]
	moveState    graph.Input[float64]
	moveAction   graph.Input[float64]
	frozen       []float64 // the critic's parameters in move
}

// Gorgonia builds the graphs of the three losses for a shape.
func Gorgonia(c Config) (Gradients, error) {
	g := &gorgonia{frozen: make([]float64, c.Critic().Params())}
	var err error
	if g.vae, err = graph.Build(c.encoder()+c.Decoder().Params(), func(b *graph.Builder[float64]) *graph.Node {
		g.vaeState, g.vaeAction = b.Input("state", c.Batch, c.State), b.Input("action", c.Batch, c.Action)
		g.noise = b.Input("noise", c.Batch, c.Latent)
		trunk, latents := c.Trunk(), c.Latents()
		h := b.MLP("trunk", trunk, b.Join("state and action", g.vaeState.Node, g.vaeAction.Node), 0)
		mean := b.Dense("mean", latents, h, b.Params("mean/theta", trunk.Params(), latents.Params()))
		log := b.Dense("log", latents, h, b.Params("log/theta", trunk.Params()+latents.Params(), latents.Params()))
		log = b.Clamp("log", log, leastLog, mostLog)
		deviation := b.Exp(log)
		z := b.Add(mean, b.Mul(deviation, g.noise.Node))
		u := b.MLP("decoder", c.Decoder(), b.Join("state and latent", g.vaeState.Node, z), c.encoder())
		miss := b.MeanSquare(u, g.vaeAction.Node)
		// KL of N(m, d) from N(0, 1) is (m^2 + d^2 - 1)/2 - log d. Each term
		// has its mean taken alone.
		squares := b.Mean(b.Add(b.Square(mean), b.Square(deviation)))
		half := b.Scale("half", squares, 0.5*c.Divergence)
		logs := b.Scale("whole", b.Mean(log), c.Divergence)
		kl := b.Shift("rest", b.Sub(half, logs), -0.5*c.Divergence)
		return b.Add(miss, kl)
	}); err != nil {
		return nil, fmt.Errorf("generative model: %w", err)
	}
	if g.critic, err = graph.Build(c.Critic().Params(), func(b *graph.Builder[float64]) *graph.Node {
		g.criticState, g.criticAction = b.Input("state", c.Batch, c.State), b.Input("action", c.Batch, c.Action)
		g.y = b.Input("target", c.Batch, 1) // [batch][1], as Q: gorgonia refuses two shapes
		q := b.MLP("critic", c.Critic(), b.Join("state and action", g.criticState.Node, g.criticAction.Node), 0)
		return b.MeanSquare(q, g.y.Node)
	}); err != nil {
		return nil, fmt.Errorf("critic: %w", err)
	}
	if g.move, err = graph.Build(c.Perturbation().Params(), func(b *graph.Builder[float64]) *graph.Node {
		g.moveState, g.moveAction = b.Input("state", c.Batch, c.State), b.Input("action", c.Batch, c.Action)
		xi := b.MLP("perturbation", c.Perturbation(),
			b.Join("state and action", g.moveState.Node, g.moveAction.Node), 0)
		moved := b.Add(g.moveAction.Node, b.Scale("phi", xi, c.Phi))
		moved = b.Clamp("moved", moved, -1, 1)
		q := b.FrozenMLP("critic", c.Critic(), b.Join("state and moved action", g.moveState.Node, moved), g.frozen)
		return b.Neg(b.Mean(q))
	}); err != nil {
		return nil, fmt.Errorf("perturbation: %w", err)
	}
	return g, nil
}

func (g *gorgonia) VAE(theta, s, a, noise, grad []float64) (float64, error) {
	copy(g.vaeState.Data, s)
	copy(g.vaeAction.Data, a)
	copy(g.noise.Data, noise)
	return g.vae.Gradient(theta, grad)
}

func (g *gorgonia) Critic(theta, s, a, y, grad []float64) (float64, error) {
	copy(g.criticState.Data, s)
	copy(g.criticAction.Data, a)
	copy(g.y.Data, y)
	return g.critic.Gradient(theta, grad)
}

func (g *gorgonia) Perturbation(theta, critic, s, a, grad []float64) (float64, error) {
	copy(g.frozen, critic)
	copy(g.moveState.Data, s)
	copy(g.moveAction.Data, a)
	return g.move.Gradient(theta, grad)
}
