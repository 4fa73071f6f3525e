package gym

import (
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Environment is a workload to act upon, one step after the other. It is used by one goroutine at a time.
type Environment interface {
	// Spaces is always the same.
	Spaces() Spaces
	// Reset begins an episode. A real world knows no seed.
	Reset(ctx context.Context, seed uint64) (mdp.State, error)
	// Step carries an Action out, lets a step of time pass, and looks. On an error the Outcome says how far it came: its
	// Effect is what came of the Action.
	Step(ctx context.Context, a mdp.Action) (Outcome, error)
}

// Closer is an Environment that must be left as it was found.
type Closer interface {
	Close(ctx context.Context) error
}

// Reasoner is an Actuator that can say why its last Act did what it did.
type Reasoner interface {
	Why() string
}

// Outcome is what a step led to.
type Outcome struct {
	State    mdp.State
	Reward   mdp.Reward // of State; meaningful when Known
	Known    bool
	Executed mdp.Action // what took force
	Effect   mdp.Effect // of the Action
	Text     string     // why, for people; may be empty
}

// Spaces describes an Environment.
type Spaces struct {
	World    World
	Workload string // a simulated application's name, or namespace/kind/name
	Service  string // of it, that is acted upon
	Knobs    mdp.Set
	Bounds   mdp.Bounds // of the Knobs, both ends included
	Signals  mdp.Set    // that a State may have
	Step     time.Duration
}

// World is where an Environment is.
type World string

// The worlds.
const (
	Simulated World = "simulated"
	Real      World = "real"
)

// Check is nil for Spaces in which something can be done.
func (s Spaces) Check() error {
	switch {
	case s.Knobs == 0 || !mdp.Knobs.Contains(s.Knobs):
		return fmt.Errorf("environment of %s: knobs %v: it must be some of %v", s.Workload, s.Knobs, mdp.Knobs)
	case s.Step <= 0:
		return fmt.Errorf("environment of %s: step %v: it must be above zero", s.Workload, s.Step)
	}
	if err := s.Bounds.Check(); err != nil {
		return fmt.Errorf("environment of %s: %w", s.Workload, err)
	}
	return nil
}

// stepped is what all worlds have in common: act, let time pass, look, judge.
func stepped(ctx context.Context, p Pair, o mdp.Objective, step time.Duration, a mdp.Action) (Outcome, error) {
	var out Outcome
	var err error
	out.Executed, out.Effect, err = p.Actuator.Act(ctx, p.Now(), a)
	if r, ok := p.Actuator.(Reasoner); ok {
		out.Text = r.Why()
	}
	if err != nil {
		return out, fmt.Errorf("acting %v: %w", a, err)
	}
	if err := p.Wait(ctx, step); err != nil {
		return out, fmt.Errorf("waiting %v after acting %v: %w", step, a, err)
	}
	if out.State, err = p.Sensor.Sense(ctx, p.Now()); err != nil {
		return out, fmt.Errorf("sensing after acting %v: %w", a, err)
	}
	out.Reward, out.Known = o.Judge(out.State)
	return out, nil
}

// Pair is a world as this package needs it: what looks, what acts, and how time passes there.
type Pair struct {
	Sensor   mdp.Sensor
	Actuator mdp.Actuator
	Now      func() time.Time
	Wait     func(ctx context.Context, d time.Duration) error
}
