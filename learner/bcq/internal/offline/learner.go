package offline

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/replay"
)

// Part is a network under the name that it is saved by.
type Part struct {
	Name string
	*Network
}

// Config is what a Learner is made of.
type Config struct {
	Algorithm string // what saved weights say they are of
	Encoding  int    // and how they are written
	Settings  any    // written beside them as JSON, for whoever wonders

	Parts []Part
	Data  *replay.Uniform // the Learner's own from now on: it draws from it
	State int             // numbers in its states
	Width int             // numbers in its actions
	Batch int             // transitions of an update

	// Update improves the parts by a batch of finite numbers, with random numbers of r. On an error each part is what it was or
	// has taken a good step.
	Update func(b *replay.Batch, r *rand.Rand) error
}

// Learner learns from fixed data. One goroutine uses it at a time.
type Learner struct {
	Updates int // that were made
	Refused int // that came to no number, or could not be computed; the last one's reason is in Trouble
	Trouble error

	c                Config
	batch            *replay.Batch
	learning, acting *rand.PCG
	r                *rand.Rand
	Acting           *rand.Rand // random numbers for decisions
}

// NewSource is the source that a Learner of that seed begins with: what makes the networks draws from it before.
func NewSource(seed uint64) *rand.PCG { return rand.NewPCG(seed, 0xbc9) }

// New makes a Learner whose random numbers go on from those of source.
func New(c Config, source *rand.PCG) (*Learner, error) {
	if c.Data == nil {
		return nil, fmt.Errorf("%s: there is no data: it must be a buffer to draw from", c.Algorithm)
	}
	batch, err := replay.NewBatch(replay.Config{Capacity: 1, State: c.State, Action: c.Width}, c.Batch)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Algorithm, err)
	}
	acting := rand.NewPCG(source.Uint64(), 0xac7)
	return &Learner{c: c, batch: batch, learning: source, acting: acting, r: rand.New(source), Acting: rand.New(acting)}, nil
}

// Learn makes so many updates. Trouble of one is remembered and counted, and learning goes on; the error is of data that
// nothing can be drawn from.
func (l *Learner) Learn(updates int) error {
	for range updates {
		if err := l.c.Data.Sample(l.batch); err != nil {
			return fmt.Errorf("%s: %w", l.c.Algorithm, err)
		}
		_ = l.Update(l.batch) // remembered
	}
	return nil
}

// Update improves the networks by one batch. When it is refused that is counted, the error tells why, and each network is what
// it was, or has taken a good step.
func (l *Learner) Update(b *replay.Batch) error {
	err := l.update(b)
	if err != nil {
		err = fmt.Errorf("updating %s: %w", l.c.Algorithm, err)
		l.Refused++
		l.Trouble = err
		return err
	}
	l.Updates++
	return nil
}

func (l *Learner) update(b *replay.Batch) error {
	n := l.c.Batch
	if b.Size() != n || len(b.State) != n*l.c.State || len(b.Next) != n*l.c.State || len(b.Action) != n*l.c.Width {
		return fmt.Errorf("a batch of %d rows, %d and %d numbers in states and actions: it must be of %d, %d and %d",
			b.Size(), len(b.State), len(b.Action), n, n*l.c.State, n*l.c.Width)
	}
	for _, part := range [][]float64{b.State, b.Action, b.Reward, b.Next, b.Bootstrap} {
		if !nn.Finite(part) {
			return fmt.Errorf("the batch: %w", ErrNotFinite)
		}
	}
	return l.c.Update(b, l.r)
}

// Save is all state: that of a learner who goes on as if never stopped.
func (l *Learner) Save() (weights.File, error) {
	f := weights.File{Meta: map[string]string{}, Tensors: map[string]weights.Tensor{}, Blobs: map[string][]byte{}}
	fail := func(err error) (weights.File, error) {
		return weights.File{}, fmt.Errorf("saving %s: %w", l.c.Algorithm, err)
	}
	settings, err := json.Marshal(l.c.Settings)
	if err != nil {
		return fail(err)
	}
	f.Meta["algorithm"], f.Meta["encoding"], f.Meta["settings"] = l.c.Algorithm, strconv.Itoa(l.c.Encoding), string(settings)
	f.Meta["updates"] = strconv.Itoa(l.Updates)
	for _, p := range l.c.Parts {
		p.save(f, p.Name)
	}
	for name, source := range map[string]*rand.PCG{"random": l.learning, "random.acting": l.acting} {
		if f.Blobs[name], err = source.MarshalBinary(); err != nil {
			return fail(err)
		}
	}
	if f.Blobs["replay"], err = l.c.Data.MarshalBinary(); err != nil {
		return fail(err)
	}
	return f, nil
}

// Restore brings back what Save gave, of a Learner of the same shape over a buffer of the same sizes. On an error nothing has
// changed.
func (l *Learner) Restore(f weights.File) error {
	if err := l.restore(f); err != nil {
		return fmt.Errorf("restoring %s: %w", l.c.Algorithm, err)
	}
	return nil
}

func (l *Learner) restore(f weights.File) error {
	if f.Meta["algorithm"] != l.c.Algorithm || f.Meta["encoding"] != strconv.Itoa(l.c.Encoding) {
		return fmt.Errorf("weights of %q, encoding %q: it must be %q, encoding %d",
			f.Meta["algorithm"], f.Meta["encoding"], l.c.Algorithm, l.c.Encoding)
	}
	updates, err := count(f, "updates")
	if err != nil {
		return err
	}
	parts := make([]*Network, len(l.c.Parts))
	for i, p := range l.c.Parts {
		if parts[i], err = p.restored(f, p.Name); err != nil {
			return err
		}
	}
	var learning, acting rand.PCG
	if err := errors.Join(learning.UnmarshalBinary(f.Blobs["random"]), acting.UnmarshalBinary(f.Blobs["random.acting"])); err != nil {
		return fmt.Errorf("random sources: %w", err)
	}
	if err := l.c.Data.UnmarshalBinary(f.Blobs["replay"]); err != nil { // the last that can fail, and whole or not at all
		return err
	}
	for i, p := range l.c.Parts {
		*p.Network = *parts[i]
	}
	l.Updates = updates
	*l.learning, *l.acting = learning, acting
	return nil
}
