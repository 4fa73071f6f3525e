package ppo

import (
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Gradients computes the loss of a minibatch and its gradient with respect to
// all parameters. It is the seam between the algorithm and what differentiates:
// [Gorgonia] in production, [Hand] in tests and benchmarks.
type Gradients interface {
	Gradient(theta []float64, m *Minibatch, grad []float64) (Stats, error)
}

type gorgonia struct {
	graph *graph.Graph[float64]
	state graph.Input[float64]
	batch *Minibatch
	stats Stats
}

// Gorgonia builds the graph of the loss for a shape.
func Gorgonia(c Config) (Gradients, error) {
	g := &gorgonia{}
	policy, critic := c.Policy(), c.Critic()
	var err error
	g.graph, err = graph.Build(c.Params(), func(b *graph.Builder[float64]) *graph.Node {
		g.state = b.Input("state", c.Minibatch, c.State)
		in := []*graph.Node{
			b.MLP("policy", policy, g.state.Node, 0),
			b.MLP("critic", critic, g.state.Node, policy.Params()+c.deviations()),
		}
		if c.deviations() > 0 {
			in = append(in, b.Params("deviations", policy.Params(), c.deviations()))
		}
		return b.Loss("ppo", func(in, grads [][]float64) (float64, error) {
			var deviations, dDeviations []float64
			if len(in) == 3 {
				deviations, dDeviations = in[2], grads[2]
			}
			g.stats = c.Loss(g.batch, in[0], deviations, in[1], grads[0], dDeviations, grads[1])
			return g.stats.Loss, nil
		}, in...)
	})
	return g, err
}

func (g *gorgonia) Gradient(theta []float64, m *Minibatch, grad []float64) (Stats, error) {
	copy(g.state.Data, m.State)
	g.batch = m
	_, err := g.graph.Gradient(theta, grad)
	return g.stats, err
}

type hand struct {
	c      Config
	policy *kernel.Tape[float64]
	critic *kernel.Tape[float64]
}

// Hand computes the same with hand-written backward passes.
func Hand(c Config) Gradients {
	return &hand{
		c,
		kernel.NewTape[float64](c.Policy(), c.Minibatch),
		kernel.NewTape[float64](c.Critic(), c.Minibatch),
	}
}

func (h *hand) Gradient(theta []float64, m *Minibatch, grad []float64) (Stats, error) {
	policy, deviations, critic := h.c.parts(theta)
	dPolicy, dDeviations, dCritic := h.c.parts(grad)
	out := h.policy.Forward(policy, m.State, h.c.Minibatch)
	v := h.critic.Forward(critic, m.State, h.c.Minibatch)
	s := h.c.Loss(m, out, deviations, v, h.policy.Out(), dDeviations, h.critic.Out())
	h.policy.Backward(policy, dPolicy, nil)
	h.critic.Backward(critic, dCritic, nil)
	return s, nil
}
