package replay

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// Config is what every buffer must be told.
type Config struct {
	Capacity int    // transitions; the oldest gives way to the newest. DQN wants 10,000 and more (checklist, item 24)
	State    int    // numbers in a State and a Next
	Action   int    // numbers in an Action; 1 for a discrete one
	Seed     uint64 // of the draws
}

// most is a bound on each figure of a Config, and on what they need together: memory for 2^33 numbers is 64 GiB.
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
	case c.Capacity > most/(2*c.State+c.Action+2):
		return fmt.Errorf("replay buffer: %d transitions of %d numbers each: it must be at most %d numbers", c.Capacity, 2*c.State+c.Action+2, most)
	}
	return nil
}

// ErrEmpty says that there is nothing to draw from.
var ErrEmpty = errors.New("the buffer is empty: it must hold at least one transition")

// ring is the last transitions, column by column, in places 0 to Capacity-1.
type ring struct {
	config                Config
	state, action, next   []float64 // Capacity x dim
	reward, discount      []float64
	terminated, truncated []bool
	held                  int // transitions, in the places before head
	head                  int // the place that is written next

	source rand.PCG
	random *rand.Rand // of source
}

// stream sets the random numbers of buffers apart from those of others that take the same seed.
const stream = 0x7265706c61796564

func (r *ring) init(c Config) {
	r.config = c
	r.grow(c.Capacity)
	r.source.Seed(c.Seed, stream)
	r.random = rand.New(&r.source)
}

// grow makes new, empty columns of n places.
func (r *ring) grow(n int) {
	c := r.config
	r.state, r.next, r.action = make([]float64, n*c.State), make([]float64, n*c.State), make([]float64, n*c.Action)
	r.reward, r.discount = make([]float64, n), make([]float64, n)
	r.terminated, r.truncated = make([]bool, n), make([]bool, n)
}

// Len is how many transitions are held, at most Capacity.
func (r *ring) Len() int { return r.held }

// Capacity is how many can be held.
func (r *ring) Capacity() int { return r.config.Capacity }

// add copies t and gives its place.
func (r *ring) add(t *Transition) (int, error) {
	if err := t.check(r.config.State, r.config.Action); err != nil {
		return 0, fmt.Errorf("add a transition to a replay buffer of %d: %w", r.held, err)
	}
	i := r.head
	copy(r.state[i*r.config.State:], t.State)
	copy(r.next[i*r.config.State:], t.Next)
	copy(r.action[i*r.config.Action:], t.Action)
	r.reward[i], r.discount[i], r.terminated[i], r.truncated[i] = t.Reward, t.Discount, t.Terminated, t.Truncated
	r.head = (i + 1) % r.config.Capacity
	r.held = min(r.held+1, r.config.Capacity)
	return i, nil
}

// ready is nil when a batch can be drawn.
func (r *ring) ready(b *Batch) error {
	if r.held == 0 {
		return fmt.Errorf("sample %d transitions: %w", b.Size(), ErrEmpty)
	}
	if err := b.check(r.config); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	return nil
}

// fetch copies place i to a row of b.
func (r *ring) fetch(b *Batch, row, i int) {
	s, a := r.config.State, r.config.Action
	copy(b.State[row*s:(row+1)*s], r.state[i*s:])
	copy(b.Next[row*s:(row+1)*s], r.next[i*s:])
	copy(b.Action[row*a:(row+1)*a], r.action[i*a:])
	b.Reward[row], b.Discount[row], b.Bootstrap[row] = r.reward[i], r.discount[i], r.discount[i]
	b.Terminated[row], b.Truncated[row] = r.terminated[i], r.truncated[i]
	if r.terminated[i] {
		b.Bootstrap[row] = 0
	}
	b.Index[row] = i
}
