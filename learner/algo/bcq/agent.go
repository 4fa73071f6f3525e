package bcq

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/bcq/internal/offline"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
)

// Algorithm and Encoding are written into saved weights: the algorithm, and the
// version of its format.
const (
	Algorithm = "bcq"
	Encoding  = 2
)

// Agent learns from fixed data. One goroutine uses it at a time. Learn, Update,
// Save and Restore, and the counts of updates that were made and skipped, are
// those of the embedded Learner.
type Agent struct {
	*offline.Learner
	Policy *Policy
	Stats  Stats // of the last update

	c       Config
	decider *Decider
}

// New makes an Agent that learns from data, whose actions are in [-1, 1]
// ([Config.Inward]). The Agent owns the buffer from then on: other draws from
// it would change what the Agent learns, and Save keeps it.
func New(c Config, data *replay.Uniform) (*Agent, error) { return NewWith(c, data, nil) }

// NewWith makes an Agent that shares graphs with the others of a Workspace.
func NewWith(c Config, data *replay.Uniform, w *agent.Workspace) (*Agent, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	updater, err := agent.Lend(w, Algorithm, c.updates(), func() (*Updater, error) {
		g, err := Gorgonia(c)
		if err != nil {
			return nil, fmt.Errorf("bcq: %w", err)
		}
		return NewUpdater(c, g), nil
	})
	if err != nil {
		return nil, err
	}
	return newAgent(c, data, updater)
}

func newAgent(c Config, data *replay.Uniform, updater *Updater) (*Agent, error) {
	source := offline.NewSource(c.Seed)
	a := &Agent{Policy: NewPolicy(c, rand.New(source)), c: c, decider: NewDecider(c)}
	var err error
	a.Learner, err = offline.New(offline.Config{
		Algorithm: Algorithm, Encoding: Encoding, Identity: c.identity(), Settings: c,
		Parts: a.Policy.parts(), Data: data, Shape: c.shape(), Batch: c.Batch,
		Update: func(b *replay.Batch, r *rand.Rand) (err error) {
			a.Stats, err = updater.Update(a.Policy, b, r)
			return err
		},
	}, source)
	return a, err
}

// Act decides, in the environment's bounds. The random numbers of decisions are
// a source of their own: deciding changes nothing in what is learned.
func (a *Agent) Act(obs, action []float64) error {
	live := Snapshot{
		Version:      uint64(a.Updates),
		VAE:          a.Policy.VAE.Theta,
		Perturbation: a.Policy.Perturbation.Theta,
		Critic:       a.Policy.Critics[0].Theta,
	}
	return a.decider.Decide(&live, obs, action, a.Acting)
}

// Snapshot is a copy of what decides, which does not change.
func (a *Agent) Snapshot() Snapshot {
	copied := func(n *nn.Network) []float64 { return append([]float64(nil), n.Theta...) }
	return Snapshot{
		uint64(a.Updates),
		copied(a.Policy.VAE),
		copied(a.Policy.Perturbation),
		copied(a.Policy.Critics[0]),
	}
}

// Snapshot is the parameters that decide: three networks where other algorithms
// have an actor.
type Snapshot struct {
	Version      uint64
	VAE          []float64
	Perturbation []float64
	Critic       []float64
}

// Decider decides by any Snapshot of its shape, without allocating. One
// goroutine uses it at a time.
type Decider struct {
	c         Config
	proposals *proposals
	sizes     [3]int // of a Snapshot's parameters
}

// NewDecider makes a Decider.
func NewDecider(c Config) *Decider {
	sizes := [3]int{c.encoder() + c.Decoder().Params(), c.Perturbation().Params(), c.Critic().Params()}
	return &Decider{c, newProposals(c, c.SampledActions), sizes}
}

// Decide chooses, of SampledActions generated and perturbed actions, the one
// that the critic values most, and scales it to the environment's bounds.
// Candidates come from r. On an error, for an observation of another width or
// not of numbers, for parameters of another shape, or values that are not
// finite, action is unchanged.
func (d *Decider) Decide(s *Snapshot, obs, action []float64, r *rand.Rand) error {
	c, p := d.c, d.proposals
	if err := c.shape().Explore(obs, nil, action); err != nil {
		return err
	}
	if [3]int{len(s.VAE), len(s.Perturbation), len(s.Critic)} != d.sizes {
		return fmt.Errorf("bcq: deciding: snapshot %d has %d, %d and %d parameters: it must have %v",
			s.Version, len(s.VAE), len(s.Perturbation), len(s.Critic), d.sizes)
	}
	p.of(obs, c.SampledActions)
	p.perturb(s.Perturbation, p.generate(s.VAE, r))
	best, sum := 0, 0.0
	values := p.value(s.Critic)
	for i, v := range values {
		sum += v * 0 // NaN for NaN and infinity, and it stays NaN
		if v > values[best] {
			best = i
		}
	}
	if sum != 0 {
		return fmt.Errorf("bcq: deciding: values: %w", nn.ErrNotFinite)
	}
	c.Outward(action, p.action(best))
	return nil
}
