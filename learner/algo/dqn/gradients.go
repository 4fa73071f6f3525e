package dqn

import (
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Gradients computes the loss mean(weight * huber(Q(s, a) - y)) and its
// gradient for batches of one size: s [batch][State]; a, y, weight [batch].
// errors gets Q(s, a) - y. It is the seam between the algorithm and what
// differentiates.
type Gradients interface {
	Gradient(theta, s, a, y, weight, grad, errors []float64) (loss float64, err error)
}

type gorgonia struct {
	graph  *graph.Graph[float64]
	state  graph.Input[float64]
	a      []float64
	y      []float64
	weight []float64
	errors []float64
}

// Gorgonia builds the graph of the loss for a shape.
func Gorgonia(c Config) (Gradients, error) {
	g := &gorgonia{}
	m := c.Network()
	var err error
	g.graph, err = graph.Build(m.Params(), func(b *graph.Builder[float64]) *graph.Node {
		g.state = b.Input("state", c.Batch, c.State)
		return b.Loss("huber", func(in, grads [][]float64) (float64, error) {
			return nn.Huber(in[0], g.a, g.y, g.weight, grads[0], g.errors), nil
		}, b.MLP("values", m, g.state.Node, 0))
	})
	return g, err
}

func (g *gorgonia) Gradient(theta, s, a, y, weight, grad, errors []float64) (float64, error) {
	copy(g.state.Data, s)
	g.a = a
	g.y = y
	g.weight = weight
	g.errors = errors
	return g.graph.Gradient(theta, grad)
}

type hand struct{ tape *kernel.Tape[float64] }

// Hand computes the same with hand-written backward passes.
func Hand(c Config) Gradients { return hand{kernel.NewTape[float64](c.Network(), c.Batch)} }

func (h hand) Gradient(theta, s, a, y, weight, grad, errors []float64) (float64, error) {
	q := h.tape.Forward(theta, s, len(a))
	loss := nn.Huber(q, a, y, weight, h.tape.Out(), errors)
	h.tape.Backward(theta, grad, nil)
	return loss, nil
}
