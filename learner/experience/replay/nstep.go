package replay

import (
	"errors"
	"fmt"
)

// Adder takes transitions: a buffer, or a stage in front of one.
type Adder interface {
	Add(Transition) error
}

// NStepConfig is the settings of an NStep.
type NStepConfig struct {
	Steps      int // n; at most this many steps are taken as one; 1 changes nothing
	State      int // numbers in a State and a Next
	Action     int // numbers in an Action
	NumActions int // choices of a discrete action, for masks; 0 has no masks
}

// Check is nil for an NStepConfig that an NStep can be made of.
func (c NStepConfig) Check() error {
	if c.Steps < 1 {
		return fmt.Errorf("n-step returns of %d steps: it must be at least one", c.Steps)
	}
	if err := c.window().Check(); err != nil {
		return fmt.Errorf("n-step returns of %d steps: %w", c.Steps, err)
	}
	return nil
}

func (c NStepConfig) window() Config {
	return Config{Capacity: c.Steps, State: c.State, Action: c.Action, NumActions: c.NumActions}
}

// NStep turns the steps of one environment, in their order, into steps of n: of
// the rewards r and discounts d from step 0 on
//
//	Reward = r0 + d0 r1 + d0 d1 r2 + ...,   Discount = d0 d1 ...,   Next and the ends of the last step
//
// With d = gamma that is the n-step return and gamma^n. A step begins at every
// step of the stream, so a step comes out n-1 steps late, and at the end of an
// episode the last ones come out shorter, all at once. Several environments
// that share a buffer need an NStep each. One goroutine uses it at a time.
type NStep struct {
	to     Adder
	window ring // of the steps that have not come out
}

// NewNStep makes one that gives its steps to an Adder.
func NewNStep(c NStepConfig, to Adder) (*NStep, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if to == nil {
		return nil, errors.New("n-step returns to nil: there must be an Adder to give them to")
	}
	n := &NStep{to: to}
	n.window.init(c.window())
	return n, nil
}

// Pending is how many steps have not come out yet.
func (n *NStep) Pending() int { return n.window.held }

// Reset forgets the steps that are pending.
func (n *NStep) Reset() { n.window.Reset() }

// Add takes a step and copies it. On a step that is refused nothing has
// changed. When the Adder refuses what comes out, its error is given and the
// steps that are pending are forgotten, since nothing can follow them any more.
func (n *NStep) Add(t Transition) error {
	if _, err := n.window.add(&t); err != nil {
		return fmt.Errorf("n-step returns: %w", err)
	}
	switch {
	case t.Ends():
		return n.flush(false)
	case n.window.held == n.window.config.Capacity:
		return n.out(false)
	}
	return nil
}

// Cut ends the stream where it is, as when the next step is lost: what is
// pending comes out shorter and truncated.
func (n *NStep) Cut() error { return n.flush(true) }

func (n *NStep) flush(truncated bool) error {
	for n.window.held > 0 {
		if err := n.out(truncated); err != nil {
			return err
		}
	}
	return nil
}

// out gives away what begins at the oldest step.
func (n *NStep) out(truncated bool) error {
	w := &n.window
	s, a := w.config.State, w.config.Action
	first, last := w.place(0), w.place(w.held-1)
	t := Transition{
		State:      w.state[first*s : (first+1)*s],
		Action:     w.action[first*a : (first+1)*a],
		Next:       w.next[last*s : (last+1)*s],
		Discount:   1,
		Terminated: w.terminated[last],
		Truncated:  w.truncated[last] || truncated,
	}
	if c := w.config.NumActions; w.legal != nil {
		t.NextLegal = w.legal[last*c : (last+1)*c]
	}
	for k := range w.held {
		i := w.place(k)
		t.Reward += t.Discount * w.reward[i]
		t.Discount *= w.discount[i]
	}
	w.held--
	if err := n.to.Add(t); err != nil {
		w.held = 0
		return fmt.Errorf("n-step returns: %w", err)
	}
	return nil
}

const nstepHeader = "aware n-step returns 2\n"

// MarshalBinary saves the steps that are pending.
func (n *NStep) MarshalBinary() ([]byte, error) {
	b := newWriter(nstepHeader, n.window.size())
	if err := n.window.save(b); err != nil {
		return nil, fmt.Errorf("save n-step returns: %w", err)
	}
	return b.seal(), nil
}

// UnmarshalBinary restores what was saved of an NStep of the same Config. On an
// error nothing has changed.
func (n *NStep) UnmarshalBinary(data []byte) error {
	b := newReader(nstepHeader, data)
	loaded := n.window.load(b)
	b.must(loaded.held < n.window.config.Capacity,
		"%d steps are pending of %d: they would have come out", loaded.held, n.window.config.Capacity)
	for i := range loaded.terminated {
		b.must(!loaded.terminated[i] && !loaded.truncated[i], "an end is pending: it would have come out")
	}
	if err := b.end(); err != nil {
		return fmt.Errorf("restore n-step returns from %d bytes: %w", len(data), err)
	}
	n.window.take(loaded)
	return nil
}
