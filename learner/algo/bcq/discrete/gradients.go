package discrete

import (
	"fmt"

	"awarescale.dev/aware/learner/algo/bcq/internal/offline"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Gradients computes the gradients of the two losses for batches of one size:
// [Gorgonia] in production, [Hand] in tests and benchmarks. All slices but grad
// are read only; s is [batch][State], a [batch] indices, y [batch].
type Gradients interface {
	// Values is the loss mean(Huber(Q(s, a) - y)) and its gradient.
	Values(theta, s, a, y, grad []float64) (loss float64, err error)
	// Behaviour is the loss mean(-log pi(a|s)) + Flat * mean(logits^2) and its
	// gradient.
	Behaviour(theta, s, a, grad []float64) (loss float64, err error)
}

// loss is a graph of one of the two, with its inputs.
type loss struct {
	graph *graph.Graph[float64]
	s     graph.Input[float64]
	a     graph.Input[float64]
	y     graph.Input[float64]
}

type gorgonia struct {
	values    *loss
	behaviour *loss
}

// Gorgonia builds the graphs of the two losses for a shape.
func Gorgonia(c Config) (Gradients, error) {
	build := func(name string, f func(l *loss, out, grad []float64) float64) (*loss, error) {
		l := &loss{}
		m := c.Network()
		var err error
		l.graph, err = graph.Build(m.Params(), func(b *graph.Builder[float64]) *graph.Node {
			l.s = b.Input("state", c.Batch, c.State)
			l.a = b.Input("action", c.Batch, 1)
			l.y = b.Input("target", c.Batch, 1)
			return b.Loss(name,
				func(in, grads [][]float64) (float64, error) { return f(l, in[0], grads[0]), nil },
				b.MLP("network", m, l.s.Node, 0))
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return l, nil
	}
	values, err := build("values",
		func(l *loss, q, grad []float64) float64 { return nn.Huber(q, l.a.Data, l.y.Data, nil, grad, nil) })
	if err != nil {
		return nil, err
	}
	behaviour, err := build("behaviour", func(l *loss, logits, grad []float64) float64 {
		return offline.CrossEntropy(logits, l.a.Data, c.Flat, grad)
	})
	return &gorgonia{values, behaviour}, err
}

func (l *loss) run(theta, s, a, y, grad []float64) (float64, error) {
	copy(l.s.Data, s)
	copy(l.a.Data, a)
	copy(l.y.Data, y)
	return l.graph.Gradient(theta, grad)
}

func (g *gorgonia) Values(theta, s, a, y, grad []float64) (float64, error) {
	return g.values.run(theta, s, a, y, grad)
}

func (g *gorgonia) Behaviour(theta, s, a, grad []float64) (float64, error) {
	return g.behaviour.run(theta, s, a, nil, grad)
}

type hand struct {
	c    Config
	tape *kernel.Tape[float64]
}

// Hand computes the same with a hand-written backward pass.
func Hand(c Config) Gradients { return &hand{c, kernel.NewTape[float64](c.Network(), c.Batch)} }

func (h *hand) Values(theta, s, a, y, grad []float64) (float64, error) {
	q := h.tape.Forward(theta, s, h.c.Batch)
	v := nn.Huber(q, a, y, nil, h.tape.Out(), nil)
	h.tape.Backward(theta, grad, nil)
	return v, nil
}

func (h *hand) Behaviour(theta, s, a, grad []float64) (float64, error) {
	logits := h.tape.Forward(theta, s, h.c.Batch)
	v := offline.CrossEntropy(logits, a, h.c.Flat, h.tape.Out())
	h.tape.Backward(theta, grad, nil)
	return v, nil
}
