package offline

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/weights"
)

// Part is a network under the name that it is saved by.
type Part struct {
	Name string
	*nn.Network
}

// Config is what a Learner is made of.
type Config struct {
	Algorithm string // what saved weights say they are of
	Encoding  int    // and how they are written
	Identity  any    // what a saved state and a Learner must have in common, compared as JSON
	Settings  any    // all settings, written beside the state as JSON for people to read

	Parts []Part
	Data  *replay.Uniform // owned by the Learner from now on
	Shape agent.Shape     // sizes of what it is given; Envs is 1
	Batch int             // transitions of an update

	// Update improves the parts by a batch of finite numbers, with random
	// numbers of r. On an error each part is unchanged or has taken a valid
	// step.
	Update func(b *replay.Batch, r *rand.Rand) error
}

// Learner learns from fixed data. One goroutine uses it at a time.
type Learner struct {
	Updates int // that were made
	agent.Skipped

	c        Config
	batch    *replay.Batch
	learning *rand.PCG
	acting   *rand.PCG
	r        *rand.Rand
	Acting   *rand.Rand // random numbers for decisions
}

// NewSource is the random source of a Learner with that seed. The networks'
// initialisation draws from it first.
func NewSource(seed uint64) *rand.PCG { return rand.NewPCG(seed, 0xbc9) }

// New makes a Learner that continues with the random numbers of source.
func New(c Config, source *rand.PCG) (*Learner, error) {
	if c.Data == nil {
		return nil, fmt.Errorf("%s: there is no data: it must be a buffer to draw from", c.Algorithm)
	}
	batch, err := replay.NewBatch(replay.Config{
		Capacity: 1,
		State:    c.Shape.State,
		Action:   c.Shape.Action,
	}, c.Batch)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Algorithm, err)
	}
	acting := rand.NewPCG(source.Uint64(), 0xac7)
	return &Learner{
		c:        c,
		batch:    batch,
		learning: source,
		acting:   acting,
		r:        rand.New(source),
		Acting:   rand.New(acting),
	}, nil
}

// Learn makes a number of updates. One that fails is counted, and learning goes
// on; the error is of data that nothing can be drawn from.
func (l *Learner) Learn(updates int) error {
	for range updates {
		if err := l.c.Data.Sample(l.batch); err != nil {
			return fmt.Errorf("%s: %w", l.c.Algorithm, err)
		}
		_ = l.Update(l.batch) // counted, in Skipped
	}
	return nil
}

// Update improves the networks by one batch. An update that fails is counted,
// its error says why, and each network is unchanged or has taken a valid step.
func (l *Learner) Update(b *replay.Batch) error {
	if err := l.update(b); err != nil {
		l.Skip(err)
		return err
	}
	l.Updates++
	return nil
}

func (l *Learner) update(b *replay.Batch) error {
	if err := l.c.Shape.Batch(b, l.c.Batch); err != nil {
		return err
	}
	if err := l.c.Update(b, l.r); err != nil {
		return fmt.Errorf("updating %s: %w", l.c.Algorithm, err)
	}
	return nil
}

// Save returns all state. A learner that is restored from it continues as if it
// had never stopped.
func (l *Learner) Save() (weights.File, error) { return l.checkpoint().Save() }

// SavePolicy is the state without the data, which is most of it.
func (l *Learner) SavePolicy() (weights.File, error) { return l.checkpoint().SavePolicy() }

// Restore brings back what Save or SavePolicy gave, of a Learner of the same
// identity. After SavePolicy the Learner keeps the data that it was made with.
// On an error nothing has changed.
func (l *Learner) Restore(f weights.File) error { return l.checkpoint().Restore(f) }

// fixed is data that a Learner keeps when a saved state has none.
type fixed struct{ *replay.Uniform }

// Reset is for weights.Experience.
func (fixed) Reset() {}

func (l *Learner) checkpoint() weights.State {
	s := weights.NewState(l.c.Algorithm, l.c.Encoding, l.c.Identity, l.c.Settings)
	for _, p := range l.c.Parts {
		p.State(&s, p.Name)
	}
	l.Skipped.State(&s)
	s.Counts["updates"] = weights.Count{At: &l.Updates}
	s.Parts["random"], s.Parts["random.acting"] = l.learning, l.acting
	s.Replay["replay"] = fixed{l.c.Data}
	return s
}
