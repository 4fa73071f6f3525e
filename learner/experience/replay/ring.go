package replay

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
)

// Config is the settings of every buffer.
type Config struct {
	Capacity   int    // transitions; the newest replaces the oldest. DQN needs 10,000 and more
	State      int    // numbers in a State and a Next
	Action     int    // numbers in an Action; 1 for a discrete one
	NumActions int    // choices of a discrete action, for masks; 0 has no masks
	Seed       uint64 // of the draws
}

// most is a bound on each figure of a Config, and on what they need together:
// memory for 2^33 numbers is 64 GiB.
const most = 1 << 33

// Check is nil for a Config that a buffer can be made of.
func (c Config) Check() error {
	switch {
	case c.Capacity < 1 || c.Capacity > most:
		return fmt.Errorf("replay buffer: capacity %d: it must be from 1 to %d transitions", c.Capacity, most)
	case c.State < 1 || c.State > most:
		return fmt.Errorf("replay buffer: states of %d numbers: it must be from 1 to %d", c.State, most)
	case c.Action < 1 || c.Action > most:
		return fmt.Errorf("replay buffer: actions of %d numbers: it must be from 1 to %d", c.Action, most)
	case c.NumActions < 0 || c.NumActions > most:
		return fmt.Errorf("replay buffer: masks of %d choices: it must be from 0 to %d", c.NumActions, most)
	case c.Capacity > most/(2*c.State+c.Action+2):
		return fmt.Errorf("replay buffer: %d transitions of %d numbers each: it must be at most %d numbers",
			c.Capacity, 2*c.State+c.Action+2, most)
	}
	return nil
}

// ErrEmpty says that there is nothing to draw from.
var ErrEmpty = errors.New("the buffer is empty: it must hold at least one transition")

// ring is the last transitions, column by column, in places 0 to Capacity-1. Its
// columns grow with use: places from rows on are not allocated yet.
type ring struct {
	config     Config
	rows       int       // places that are allocated
	state      []float64 // rows x State
	action     []float64 // rows x Action
	next       []float64 // rows x State
	legal      []bool    // rows x NumActions; nil until a transition came with a mask
	reward     []float64 // rows
	discount   []float64 // rows
	terminated []bool    // rows
	truncated  []bool    // rows
	held       int       // transitions, in the places before head
	head       int       // the place that is written next

	source rand.PCG
	random *rand.Rand // of source
}

// stream separates the random numbers of buffers from those of other parts that
// use the same seed.
const stream = 0x7265706c61796564

// fewest is how many places are allocated at first.
const fewest = 256

func (r *ring) init(c Config) {
	r.config = c
	r.source.Seed(c.Seed, stream)
	r.random = rand.New(&r.source)
}

// grow makes at least n places, at most Capacity. Columns grow to twice their
// size, so that adding takes constant time on average.
func (r *ring) grow(n int) {
	if n <= r.rows {
		return
	}
	c := r.config
	n = min(c.Capacity, max(n, 2*r.rows, fewest))
	r.state = enlarged(r.state, n*c.State)
	r.action = enlarged(r.action, n*c.Action)
	r.next = enlarged(r.next, n*c.State)
	if r.legal != nil {
		r.legal = enlarged(r.legal, n*c.NumActions)
	}
	r.reward = enlarged(r.reward, n)
	r.discount = enlarged(r.discount, n)
	r.terminated = enlarged(r.terminated, n)
	r.truncated = enlarged(r.truncated, n)
	r.rows = n
}

func enlarged[T any](column []T, n int) []T {
	larger := make([]T, n)
	copy(larger, column)
	return larger
}

// Reset empties the buffer and gives its memory back. The random source goes on.
func (r *ring) Reset() {
	random, source := r.random, r.source
	*r = ring{config: r.config, random: random, source: source}
}

// mask allocates the masks. All that was held before has none: everything is
// legal there.
func (r *ring) mask() {
	if r.legal != nil {
		return
	}
	r.legal = make([]bool, r.rows*r.config.NumActions)
	for i := range r.legal {
		r.legal[i] = true
	}
}

// Len is how many transitions are held, at most Capacity.
func (r *ring) Len() int { return r.held }

// Capacity is how many can be held.
func (r *ring) Capacity() int { return r.config.Capacity }

// All yields the transitions that are held, the oldest first. Their slices are
// the buffer's own: they are for reading, until the next Add.
func (r *ring) All() iter.Seq[Transition] {
	return func(yield func(Transition) bool) {
		for k := range r.held {
			if !yield(r.at(r.place(k))) {
				return
			}
		}
	}
}

// at is the transition in place i.
func (r *ring) at(i int) Transition {
	c := r.config
	t := Transition{
		State:      r.state[i*c.State : (i+1)*c.State],
		Action:     r.action[i*c.Action : (i+1)*c.Action],
		Reward:     r.reward[i],
		Next:       r.next[i*c.State : (i+1)*c.State],
		Discount:   r.discount[i],
		Terminated: r.terminated[i],
		Truncated:  r.truncated[i],
	}
	if r.legal != nil {
		t.NextLegal = r.legal[i*c.NumActions : (i+1)*c.NumActions]
	}
	return t
}

// add copies t and returns its place.
func (r *ring) add(t *Transition) (int, error) {
	if err := t.check(r.config); err != nil {
		return 0, fmt.Errorf("add a transition to a replay buffer of %d: %w", r.held, err)
	}
	i := r.head
	r.grow(i + 1)
	r.write(i, t)
	r.head = (i + 1) % r.config.Capacity
	r.held = min(r.held+1, r.config.Capacity)
	return i, nil
}

// write puts t into place i.
func (r *ring) write(i int, t *Transition) {
	c := r.config
	copy(r.state[i*c.State:], t.State)
	copy(r.next[i*c.State:], t.Next)
	copy(r.action[i*c.Action:], t.Action)
	r.reward[i], r.discount[i] = t.Reward, t.Discount
	r.terminated[i], r.truncated[i] = t.Terminated, t.Truncated
	if t.NextLegal != nil {
		r.mask()
	}
	if r.legal == nil {
		return
	}
	for j := range c.NumActions {
		r.legal[i*c.NumActions+j] = t.NextLegal == nil || t.NextLegal[j]
	}
}

// ready is nil when a batch can be drawn.
func (r *ring) ready(b *Batch) error {
	if r.held == 0 {
		return fmt.Errorf("sample %d transitions: %w", b.Size(), ErrEmpty)
	}
	if err := b.check(r.config); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	switch n := b.Size() * r.config.NumActions; {
	case r.legal == nil:
		b.NextLegal = nil
	case len(b.NextLegal) != n:
		b.NextLegal = make([]bool, n)
	}
	return nil
}

// fetch copies place i to a row of b.
func (r *ring) fetch(b *Batch, row, i int) {
	s, a := r.config.State, r.config.Action
	copy(b.State[row*s:(row+1)*s], r.state[i*s:])
	copy(b.Next[row*s:(row+1)*s], r.next[i*s:])
	copy(b.Action[row*a:(row+1)*a], r.action[i*a:])
	b.Reward[row] = r.reward[i]
	b.Discount[row], b.Bootstrap[row] = r.discount[i], r.discount[i]
	b.Terminated[row], b.Truncated[row] = r.terminated[i], r.truncated[i]
	if n := r.config.NumActions; r.legal != nil {
		copy(b.NextLegal[row*n:(row+1)*n], r.legal[i*n:])
	}
	if r.terminated[i] {
		b.Bootstrap[row] = 0
	}
	b.Index[row] = i
}
