package discrete

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/bcq/internal/offline"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Algorithm and Encoding are written into saved weights: the algorithm, and the
// version of its format.
const (
	Algorithm = "bcq-discrete"
	Encoding  = 2
)

// Agent learns from fixed data. One goroutine uses it at a time. Learn, Update,
// Save and Restore, and the counts of updates that were made and skipped, are
// those of the embedded Learner.
type Agent struct {
	*offline.Learner
	Policy *Policy
	Stats  Stats // of the last update

	c         Config
	values    *kernel.Tape[float64]
	behaviour *kernel.Tape[float64]
}

// New makes an Agent that learns from data, whose actions are indices. The
// Agent owns the buffer from then on.
func New(c Config, data *replay.Uniform) (*Agent, error) { return NewWith(c, data, nil) }

// NewWith makes an Agent that shares graphs with the others of a Workspace.
func NewWith(c Config, data *replay.Uniform, w *agent.Workspace) (*Agent, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	updater, err := agent.Lend(w, Algorithm, c.updates(), func() (*Updater, error) {
		g, err := Gorgonia(c)
		if err != nil {
			return nil, fmt.Errorf("discrete bcq: %w", err)
		}
		return NewUpdater(c, g), nil
	})
	if err != nil {
		return nil, err
	}
	source := offline.NewSource(c.Seed)
	tape := func() *kernel.Tape[float64] { return kernel.NewTape[float64](c.Network(), 1) }
	a := &Agent{Policy: NewPolicy(c, rand.New(source)), c: c, values: tape(), behaviour: tape()}
	a.Learner, err = offline.New(offline.Config{
		Algorithm: Algorithm,
		Encoding:  Encoding,
		Identity:  c.identity(),
		Settings:  c,
		Parts: []offline.Part{
			{Name: "values", Network: a.Policy.Values},
			{Name: "behaviour", Network: a.Policy.Behaviour},
		},
		Data:  data,
		Shape: c.shape(),
		Batch: c.Batch,
		Update: func(b *replay.Batch, _ *rand.Rand) (err error) {
			a.Stats, err = updater.Update(a.Policy, b)
			return err
		},
	}, source)
	return a, err
}

// Act decides: the allowed action of largest value among the legal ones; nil
// makes all legal.
func (a *Agent) Act(obs []float64, legal []bool, action []float64) error {
	if err := a.c.shape().Explore(obs, legal, action); err != nil {
		return err
	}
	values := a.values.Forward(a.Policy.Values.Theta, obs, 1)
	action[0] = float64(a.c.Choose(values, a.behaviour.Forward(a.Policy.Behaviour.Theta, obs, 1), legal))
	return nil
}

// Gain is by how much one choice is worth more than another for an observation.
func (a *Agent) Gain(obs []float64, one, other int) float64 {
	values := a.values.Forward(a.Policy.Values.Theta, obs, 1)
	return values[one] - values[other]
}

// GreedyAction makes an action of the output of Snapshot's network: values, then
// the behaviour's logits.
func (a *Agent) GreedyAction(out []float64, legal []bool, action []float64) {
	a.head().Action(out, legal, action)
}

func (a *Agent) head() kernel.Head {
	return kernel.Head{Kind: kernel.Constrained, Threshold: a.c.Threshold}
}

// Snapshot is both networks as one that can be served: each layer holds both,
// the second one's units after the first one's, with zeros where one would read
// the other.
func (a *Agent) Snapshot() kernel.Snapshot {
	m := a.c.Network()
	both := make(kernel.MLP, len(m))
	var theta []float64
	first, second := a.Policy.Values.Theta, a.Policy.Behaviour.Theta
	for i, d := range m {
		in, right := d.In, 0 // both read the observation itself
		if i > 0 {
			in, right = 2*d.In, d.In
		}
		both[i] = kernel.Dense{In: in, Out: 2 * d.Out, Act: d.Act}
		layer := make([]float64, both[i].Params())
		for k := range d.Out {
			copy(layer[k*in:][:d.In], first[k*d.In:])
			copy(layer[(d.Out+k)*in+right:][:d.In], second[k*d.In:])
		}
		copy(layer[2*d.Out*in:][:d.Out], first[d.Out*d.In:])
		copy(layer[2*d.Out*in+d.Out:], second[d.Out*d.In:d.Params()])
		theta = append(theta, layer...)
		first, second = first[d.Params():], second[d.Params():]
	}
	return kernel.Snapshot{Version: uint64(a.Updates), MLP: both, Theta: theta, Head: a.head()}
}
