// Package clone does what the data does: behaviour cloning (Pomerleau 1991),
// which learns from fixed data which action follows an observation, and nothing
// of what it earned. It is what other learners from fixed data are measured
// against.
//
// A continuous action is regressed, loss mean((mu(s) - a)^2): where the data
// holds several different actions it is their mean. A discrete one is
// classified, loss mean(-log pi(a|s)), and the likeliest is taken. Neither is
// random when it decides.
package clone

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/bcq/internal/offline"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Algorithm and Encoding are written into saved weights: the algorithm, and the
// version of its format.
const (
	Algorithm = "clone"
	Encoding  = 2
)

// Config is all settings of an Agent.
type Config struct {
	State      int       // numbers in an observation
	NumActions int       // discrete actions, or 0 for continuous ones
	Low        []float64 // lower bound of each number of a continuous action; in the data they are in [-1, 1]
	High       []float64 // upper bounds

	Hidden       []int   // widths of the hidden layers
	LearningRate float64 // Adam's step size
	Batch        int     // transitions of an update

	Seed uint64
}

// Check returns nil for valid settings. Otherwise it names the wrong one and
// what it must be.
func (c Config) Check() error {
	bad := agent.BadSetting(Algorithm)
	switch {
	case c.State < 1:
		return bad("state", c.State, "at least 1")
	case c.NumActions < 0 || c.NumActions == 1 || (c.NumActions == 0) == (len(c.Low) == 0) || len(c.Low) != len(c.High):
		return bad("choices", c.NumActions,
			fmt.Sprintf("at least 2, or 0 with bounds (there are %d and %d)", len(c.Low), len(c.High)))
	case len(c.Hidden) == 0 || slices.Min(c.Hidden) < 1:
		return bad("hidden", c.Hidden, "one layer at least, each of one unit at least")
	case !(c.LearningRate > 0) || math.IsInf(c.LearningRate, 0):
		return bad("rate", c.LearningRate, "finite and above 0")
	case c.Batch < 1:
		return bad("batch", c.Batch, "at least 1")
	}
	return agent.CheckBounds(Algorithm, c.Low, c.High)
}

// identity is what a saved state and an Agent must have in common.
type identity struct {
	State      int       `json:"state"`
	NumActions int       `json:"num_actions"`
	Low        []float64 `json:"low"`
	High       []float64 `json:"high"`
	Hidden     []int     `json:"hidden"`
}

func (c Config) identity() identity {
	return identity{State: c.State, NumActions: c.NumActions, Low: c.Low, High: c.High, Hidden: c.Hidden}
}

func (c Config) shape() agent.Shape {
	return agent.Shape{
		Algorithm:  Algorithm,
		Envs:       1,
		State:      c.State,
		Action:     c.width(),
		NumActions: c.NumActions,
	}
}

// width is how many numbers an action has.
func (c Config) width() int {
	if c.NumActions > 0 {
		return 1
	}
	return len(c.Low)
}

// Network is what decides: an action in [-1, 1], or the choices' unnormalised
// logarithms of probability.
func (c Config) Network() kernel.MLP {
	last, out := kernel.Tanh, c.width()
	if c.NumActions > 0 {
		last, out = kernel.Linear, c.NumActions
	}
	return kernel.NewMLP(kernel.ReLU, last, append(append([]int{c.State}, c.Hidden...), out)...)
}

// Gradients computes the loss and its gradient, for s [batch][State] and a
// [batch][width]: [Gorgonia] in production, [Hand] in tests.
type Gradients interface {
	Clone(theta, s, a, grad []float64) (loss float64, err error)
}

// Agent clones the policy of fixed data. One goroutine uses it at a time.
type Agent struct {
	*offline.Learner
	Network *nn.Network
	Loss    float64 // of the last update

	c    Config
	tape *kernel.Tape[float64]
}

// New makes an Agent that learns from data, which is its own from then on.
func New(c Config, data *replay.Uniform) (*Agent, error) { return NewWith(c, data, nil) }

// NewWith makes an Agent that shares graphs with the others of a Workspace.
func NewWith(c Config, data *replay.Uniform, w *agent.Workspace) (*Agent, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	shape := c
	shape.LearningRate, shape.Seed = 0, 0
	g, err := agent.Lend(w, Algorithm, shape, func() (Gradients, error) { return Gorgonia(c) })
	if err != nil {
		return nil, fmt.Errorf("clone: %w", err)
	}
	source := offline.NewSource(c.Seed)
	a := &Agent{
		Network: nn.NewNetwork(c.Network(), c.LearningRate, 0, false, rand.New(source)),
		c:       c,
		tape:    kernel.NewTape[float64](c.Network(), 1),
	}
	grad := make([]float64, c.Network().Params())
	a.Learner, err = offline.New(offline.Config{
		Algorithm: Algorithm,
		Encoding:  Encoding,
		Identity:  c.identity(),
		Settings:  c,
		Parts:     []offline.Part{{Name: "network", Network: a.Network}},
		Data:      data,
		Shape:     c.shape(),
		Batch:     c.Batch,
		Update: func(b *replay.Batch, _ *rand.Rand) error {
			if c.NumActions == 0 {
				if err := offline.Units(b.Action); err != nil {
					return err
				}
			}
			loss, err := g.Clone(a.Network.Theta, b.State, b.Action, grad)
			if err := nn.CheckGradient(loss, grad, err); err != nil {
				return err
			}
			a.Loss = loss
			a.Network.Adam.Update(a.Network.Theta, grad)
			return nil
		},
	}, source)
	return a, err
}

// Act does what the data would have done, among the legal choices; nil allows
// all.
func (a *Agent) Act(obs []float64, legal []bool, action []float64) error {
	if err := a.c.shape().Explore(obs, legal, action); err != nil {
		return err
	}
	a.GreedyAction(a.tape.Forward(a.Network.Theta, obs, 1), legal, action)
	return nil
}

// GreedyAction makes an action of the network's output: the likeliest legal
// choice, or the numbers in the environment's bounds.
func (a *Agent) GreedyAction(out []float64, legal []bool, action []float64) {
	a.head().Action(out, legal, action)
}

func (a *Agent) head() kernel.Head {
	if a.c.NumActions > 0 {
		return kernel.Head{Kind: kernel.Argmax}
	}
	return kernel.Head{Kind: kernel.Interval, Low: a.c.Low, High: a.c.High}
}

// Snapshot is the network as it can be served; GreedyAction makes actions of
// its output. Its parameters are not copied.
func (a *Agent) Snapshot() kernel.Snapshot {
	return kernel.Snapshot{
		Version: uint64(a.Updates),
		MLP:     a.c.Network(),
		Theta:   a.Network.Theta,
		Head:    a.head(),
	}
}

type gorgonia struct {
	graph *graph.Graph[float64]
	s     graph.Input[float64]
	a     graph.Input[float64]
}

// Gorgonia builds the graph of the loss for a shape.
func Gorgonia(c Config) (Gradients, error) {
	g := &gorgonia{}
	m := c.Network()
	var err error
	g.graph, err = graph.Build(m.Params(), func(b *graph.Builder[float64]) *graph.Node {
		g.s, g.a = b.Input("state", c.Batch, c.State), b.Input("action", c.Batch, c.width())
		out := b.MLP("network", m, g.s.Node, 0)
		if c.NumActions > 0 {
			return b.Loss("cross entropy", func(in, grads [][]float64) (float64, error) {
				return offline.CrossEntropy(in[0], g.a.Data, 0, grads[0]), nil
			}, out)
		}
		return b.MeanSquare(out, g.a.Node)
	})
	return g, err
}

func (g *gorgonia) Clone(theta, s, a, grad []float64) (float64, error) {
	copy(g.s.Data, s)
	copy(g.a.Data, a)
	return g.graph.Gradient(theta, grad)
}

type hand struct {
	c    Config
	tape *kernel.Tape[float64]
}

// Hand computes the same with a hand-written backward pass.
func Hand(c Config) Gradients { return &hand{c, kernel.NewTape[float64](c.Network(), c.Batch)} }

func (h *hand) Clone(theta, s, a, grad []float64) (loss float64, err error) {
	out := h.tape.Forward(theta, s, h.c.Batch)
	d := h.tape.Out()
	if h.c.NumActions > 0 {
		loss = offline.CrossEntropy(out, a, 0, d)
	} else {
		for i, v := range out {
			miss := v - a[i]
			loss += miss * miss / float64(len(out))
			d[i] = 2 * miss / float64(len(out))
		}
	}
	h.tape.Backward(theta, grad, nil)
	return loss, nil
}
