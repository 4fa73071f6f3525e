package replay

import (
	"fmt"
	"math"
	"slices"
)

// Transition is one step of an environment, or several taken as one (see
// [NStep]).
type Transition struct {
	State  []float64 // what was observed
	Action []float64 // what was done: the action that took force
	Reward float64   // what the action earned
	Next   []float64 // what was observed next; at the end of an episode its final observation, not the next episode's first

	// NextLegal says for each choice of a discrete action whether it is legal in
	// Next. Nil is all of them.
	NextLegal []bool

	// Discount is how much of Next's value counts, above 0 and at most 1: gamma
	// for one step, gamma^k for k.
	Discount float64

	Terminated bool // the task ended in Next, so nothing is earned after it
	Truncated  bool // the episode was cut off in Next from outside, such as by a time limit; both may be true
}

// Ends reports whether the episode ended in Next, for whatever reason.
func (t *Transition) Ends() bool { return t.Terminated || t.Truncated }

func (t *Transition) check(c Config) error {
	if err := finite("state", t.State, c.State); err != nil {
		return err
	}
	if err := finite("action", t.Action, c.Action); err != nil {
		return err
	}
	if err := finite("next", t.Next, c.State); err != nil {
		return err
	}
	if t.NextLegal != nil {
		if len(t.NextLegal) != c.NumActions {
			return fmt.Errorf("a mask of %d choices: it must be of %d", len(t.NextLegal), c.NumActions)
		}
		if !slices.Contains(t.NextLegal, true) {
			return fmt.Errorf("none of %d choices is legal: at least one must be", len(t.NextLegal))
		}
	}
	if math.IsNaN(t.Reward) || math.IsInf(t.Reward, 0) {
		return fmt.Errorf("reward %v: it must be finite", t.Reward)
	}
	if !(t.Discount > 0 && t.Discount <= 1) {
		return fmt.Errorf("discount %v: it must be above 0 and at most 1, such as the gamma of one step",
			t.Discount)
	}
	return nil
}

func finite(what string, v []float64, n int) error {
	if len(v) != n {
		return fmt.Errorf("%s has %d numbers: it must have %d", what, len(v), n)
	}
	for i, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%s[%d] = %v: it must be finite", what, i, x)
		}
	}
	return nil
}

// Batch is a number of transitions, column by column; row i of State is
// State[i*dim : (i+1)*dim]. The caller owns it, and Sample overwrites it.
type Batch struct {
	State      []float64 // size x dim
	Action     []float64 // size x dim
	Next       []float64 // size x dim
	NextLegal  []bool    // size x NumActions; nil when every choice is legal in every row
	Reward     []float64 // size
	Discount   []float64 // size
	Terminated []bool    // size
	Truncated  []bool    // size

	// Bootstrap is 0 where Terminated, and Discount elsewhere:
	// y = Reward + Bootstrap * V(Next).
	Bootstrap []float64 // size
	// Weight is the importance-sampling weight of the row's loss, at most 1. From
	// a Uniform buffer it is always 1.
	Weight []float64 // size
	// Index is the row's place in the buffer, for Update.
	Index []int // size
}

// NewBatch allocates size transitions of a buffer of that Config.
func NewBatch(c Config, size int) (*Batch, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if size < 1 {
		return nil, fmt.Errorf("batch of %d transitions: it must have at least one", size)
	}
	return &Batch{
		State:      make([]float64, size*c.State),
		Action:     make([]float64, size*c.Action),
		Next:       make([]float64, size*c.State),
		Reward:     make([]float64, size),
		Discount:   make([]float64, size),
		Terminated: make([]bool, size),
		Truncated:  make([]bool, size),
		Bootstrap:  make([]float64, size),
		Weight:     make([]float64, size),
		Index:      make([]int, size),
	}, nil
}

// Size is the number of rows.
func (b *Batch) Size() int { return len(b.Index) }

func (b *Batch) check(c Config) error {
	n := len(b.Index)
	if n == 0 {
		return fmt.Errorf("batch of 0 transitions: it must have at least one")
	}
	if len(b.State) != n*c.State || len(b.Next) != n*c.State || len(b.Action) != n*c.Action ||
		len(b.Reward) != n || len(b.Discount) != n || len(b.Terminated) != n || len(b.Truncated) != n ||
		len(b.Bootstrap) != n || len(b.Weight) != n {
		return fmt.Errorf(
			"batch of %d rows is not for states of %d and actions of %d numbers: it must be made by NewBatch",
			n,
			c.State,
			c.Action,
		)
	}
	return nil
}
