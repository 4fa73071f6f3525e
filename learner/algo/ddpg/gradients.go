package ddpg

import (
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Gradients computes the gradients of the two losses for batches of one size.
// It is the seam between the algorithm and what differentiates: [Gorgonia] in
// production, [Hand] in tests and benchmarks. All slices but grad are read
// only.
type Gradients interface {
	// Critic is the loss mean(weight * (Q(s, a) - y)^2) and its gradient; sa
	// [batch][State+Action], y and weight [batch].
	Critic(theta, sa, y, weight, grad []float64) (loss float64, err error)
	// Actor is the loss mean(-Q(s, mu(s))) and its gradient with respect to the
	// actor's theta; s [batch][State].
	Actor(theta, critic, s, grad []float64) (loss float64, err error)
}

type gorgonia struct {
	critic       *graph.Graph[float64]
	sa           graph.Input[float64]
	y            graph.Input[float64]
	w            graph.Input[float64]
	actor        *graph.Graph[float64]
	s            graph.Input[float64]
	criticFrozen []float64
}

// Gorgonia builds the graphs of the two losses for a shape.
func Gorgonia(c Config) (Gradients, error) {
	g := &gorgonia{}
	actor, critic := c.Actor(), c.Critic()
	var err error
	g.critic, err = graph.Build(critic.Params(), func(b *graph.Builder[float64]) *graph.Node {
		g.sa = b.Input("state and action", c.Batch, c.State+c.Action)
		g.y, g.w = b.Input("target", c.Batch, 1), b.Input("weight", c.Batch, 1)
		q := b.MLP("critic", critic, g.sa.Node, 0) // [batch][1], as the target: gorgonia refuses two shapes
		squared := b.Square(b.Sub(q, g.y.Node))
		return b.Mean(b.Mul(g.w.Node, squared))
	})
	if err != nil {
		return nil, err
	}
	g.criticFrozen = make([]float64, critic.Params())
	g.actor, err = graph.Build(actor.Params(), func(b *graph.Builder[float64]) *graph.Node {
		g.s = b.Input("state", c.Batch, c.State)
		a := b.MLP("actor", actor, g.s.Node, 0)
		q := b.FrozenMLP("critic", critic, b.Join("state and action", g.s.Node, a), g.criticFrozen)
		return b.Neg(b.Mean(q))
	})
	return g, err
}

func (g *gorgonia) Critic(theta, sa, y, weight, grad []float64) (float64, error) {
	copy(g.sa.Data, sa)
	copy(g.y.Data, y)
	copy(g.w.Data, weight)
	return g.critic.Gradient(theta, grad)
}

func (g *gorgonia) Actor(theta, critic, s, grad []float64) (float64, error) {
	copy(g.criticFrozen, critic)
	copy(g.s.Data, s)
	return g.actor.Gradient(theta, grad)
}

type hand struct {
	c      Config
	actor  *kernel.Tape[float64]
	critic *kernel.Tape[float64]
	sa     []float64
	dsa    []float64
}

// Hand computes the same with hand-written backward passes.
func Hand(c Config) Gradients {
	n := c.Batch * (c.State + c.Action)
	return &hand{
		c,
		kernel.NewTape[float64](c.Actor(), c.Batch),
		kernel.NewTape[float64](c.Critic(), c.Batch),
		make([]float64, n),
		make([]float64, n),
	}
}

func (h *hand) Critic(theta, sa, y, weight, grad []float64) (float64, error) {
	q := h.critic.Forward(theta, sa, h.c.Batch)
	loss, n := 0.0, float64(h.c.Batch)
	dq := h.critic.Out()
	for i, v := range q {
		d := v - y[i]
		loss += weight[i] * d * d
		dq[i] = 2 * weight[i] * d / n
	}
	h.critic.Backward(theta, grad, nil)
	return loss / n, nil
}

func (h *hand) Actor(theta, critic, s, grad []float64) (float64, error) {
	a := h.actor.Forward(theta, s, h.c.Batch)
	join(h.sa, s, a, h.c.State, h.c.Action)
	q := h.critic.Forward(critic, h.sa, h.c.Batch)
	loss, n := 0.0, float64(h.c.Batch)
	dq := h.critic.Out()
	for i, v := range q {
		loss -= v
		dq[i] = -1 / n
	}
	h.critic.Backward(critic, nil, h.dsa)
	da := h.actor.Out()
	for i := range h.c.Batch {
		copy(da[i*h.c.Action:][:h.c.Action], h.dsa[i*(h.c.State+h.c.Action)+h.c.State:])
	}
	h.actor.Backward(theta, grad, nil)
	return loss / n, nil
}

// join puts the states and actions of each row together.
func join(to, s, a []float64, state, action int) {
	for i := range len(to) / (state + action) {
		row := to[i*(state+action):]
		copy(row[:state], s[i*state:])
		copy(row[state:][:action], a[i*action:])
	}
}
