package workload

import (
	"context"
	"encoding"
	"fmt"
	"strings"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
)

// Environment is a workload to act upon, one step after the other. One
// goroutine uses it at a time.
type Environment interface {
	// Spaces is always the same.
	Spaces() Spaces
	// Reset begins an episode. A real workload ignores the seed.
	Reset(ctx context.Context, seed uint64) (mdp.State, error)
	// Step carries an Action out, lets a step of time pass, and looks. On an
	// error the Outcome says how far it came: its Effect is that of the Action.
	Step(ctx context.Context, a mdp.Action) (Outcome, error)
}

// Joint is several services to act upon at once. They step together: all are
// acted upon, time passes once, and then all are looked at. States, Actions and
// Outcomes are in the order of Spaces. One goroutine uses it at a time.
type Joint interface {
	// Spaces is always the same.
	Spaces() []Spaces
	// Reset begins an episode.
	Reset(ctx context.Context, seed uint64) ([]mdp.State, error)
	// Step carries an Action out on each service. The zero Action leaves a
	// service as it is. There is an Outcome for each service also on an error.
	Step(ctx context.Context, actions []mdp.Action) ([]Outcome, error)
}

// Closer is an Environment that must be left as it was found.
type Closer interface {
	Close(ctx context.Context) error
}

// Saver is an Environment that can be saved. A restored one continues as if it
// had never stopped. On an error nothing has changed.
type Saver interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Reasoner is an Actuator that can say why its last Act did what it did.
type Reasoner interface {
	Why() string
}

// Outcome is what a step led to.
type Outcome struct {
	State mdp.State
	// Judged is State, or with a policy [Beneath] State with the limit that was in force in the mean, and not the one that
	// Actions set.
	Judged      mdp.State
	Reward      mdp.Reward // of Judged; meaningful when RewardKnown
	RewardKnown bool
	Executed    mdp.Action // what took force
	Effect      mdp.Effect // of the Action, after the guards
	Clipped     mdp.Clips  // what the guards changed in the Action, and why
	Text        string     // why, for people; may be empty
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
	SLO      mdp.SLO
	Guards   guard.Settings // that proposed Actions pass
}

// Encoder makes vectors of the States here, as learners read them, and Actions of
// their choices.
func (s Spaces) Encoder(form encode.Form) (*encode.Encoder, error) {
	return encode.New(form, encode.Place{Bounds: s.Bounds, SLO: s.SLO})
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
		return fmt.Errorf("environment of %s: knobs %v: they must be some of %v", s.Workload, s.Knobs, mdp.Knobs)
	case s.Step <= 0:
		return fmt.Errorf("environment of %s: step %v: it must be above zero", s.Workload, s.Step)
	}
	for _, err := range []error{s.Bounds.Check(), s.Guards.Check()} {
		if err != nil {
			return fmt.Errorf("environment of %s: %w", s.Workload, err)
		}
	}
	return nil
}

// NotFoundError says that there is nothing of a name.
type NotFoundError struct {
	Key   string // what was asked for, such as service
	Value string
	Known []string
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%s %q: known are %s", e.Key, e.Value, strings.Join(e.Known, ", "))
}

// Pair is a world as this package needs it: what looks, what acts, and how time
// passes there.
type Pair struct {
	Sensor   mdp.Sensor
	Actuator mdp.Actuator
	Now      func() time.Time
	Wait     func(ctx context.Context, d time.Duration) error
}

// episode is what all environments have in common: guard, act, let time pass,
// look, judge.
type episode struct {
	pair      Pair
	spaces    Spaces
	objective mdp.Objective
	guards    mdp.Policy
	proposed  mdp.Action   // what the guards are asked about
	state     mdp.State    // the last one that was sensed
	node      *node        // nil: what is set is in force
	reserved  mdp.MilliCPU // with [Options].Reserved: of a replica; 0 without
}

// begin looks for the first time. The guards of an earlier episode are forgotten.
func (e *episode) begin(ctx context.Context) (mdp.State, error) {
	e.guards = e.newGuards()
	var err error
	e.state, _, err = e.sense(ctx)
	return e.state, err
}

// sense is what is seen: what is set, and what was in force.
func (e *episode) sense(ctx context.Context) (set, inForce mdp.State, err error) {
	set, err = e.pair.Sensor.Sense(ctx, e.pair.Now())
	inForce = set
	if err != nil || e.node == nil {
		return set, inForce, err
	}
	ceiling := e.node.handle.Ceiling().CPU
	limit, burst, ok := e.node.since()
	if ok {
		inForce.Limit.CPU = limit
	}
	if e.reserved == 0 {
		set.Limit.CPU = ceiling
		return set, inForce, nil
	}
	inForce = inForce.Mask(e.spaces.Signals)
	if e.reserved > 0 && inForce.Knows(mdp.Missed, mdp.Throughput) {
		requests := float64(inForce.Throughput) * e.spaces.Step.Seconds()
		inForce.Missed = e.objective.SLO.Counted(inForce.Missed, requests)
	}
	inForce.Reservation, inForce.Ceiling = e.reserved, ceiling
	inForce.Observed |= mdp.SetOf(mdp.CPUReservation, mdp.CPUCeiling)
	if ok {
		inForce.CPUBurst = burst
		inForce.Observed |= mdp.SetOf(mdp.CPUBurst)
	}
	return inForce, inForce, nil
}

// newGuards puts the guards before what is proposed to this episode.
func (e *episode) newGuards() mdp.Policy {
	return guard.Standard(
		mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return e.proposed, nil }),
		e.spaces.Guards,
		guard.Place{
			Bounds: func() mdp.Bounds { return e.spaces.Bounds },
			Knobs:  func() mdp.Set { return e.spaces.Knobs },
			SLO:    e.spaces.SLO,
		})
}

// stepAll steps services of one world together, and writes their Outcomes. One
// of many is named in errors.
func stepAll(ctx context.Context, parts []*episode, actions []mdp.Action, out []Outcome) error {
	fail := func(i int, err error) error {
		if len(parts) == 1 {
			return err
		}
		return fmt.Errorf("service %s: %w", parts[i].spaces.Service, err)
	}
	for i := range parts {
		if err := parts[i].act(ctx, actions[i], &out[i]); err != nil {
			return fail(i, err)
		}
	}
	step := parts[0].spaces.Step
	if err := parts[0].pair.Wait(ctx, step); err != nil {
		return fmt.Errorf("waiting %v after acting %v: %w", step, actions, err)
	}
	for i := range parts {
		if err := parts[i].look(ctx, &out[i]); err != nil {
			return fail(i, fmt.Errorf("sensing after acting %v: %w", actions[i], err))
		}
	}
	return nil
}

// act carries out what the guards leave of an Action.
func (e *episode) act(ctx context.Context, a mdp.Action, out *Outcome) error {
	e.proposed = a
	guarded, err := e.guards.Decide(e.state)
	if err != nil {
		out.Effect = mdp.Failed
		return fmt.Errorf("acting %v: %w", a, err)
	}
	out.Clipped = guarded.Clipped
	out.Executed, out.Effect, err = e.carryOut(ctx, guarded)
	if r, ok := e.pair.Actuator.(Reasoner); ok {
		out.Text = r.Why()
	}
	if err != nil {
		return fmt.Errorf("acting %v: %w", a, err)
	}
	return nil
}

// carryOut acts. A reservation is not in the world, which keeps no other workload's room: it takes force at once.
func (e *episode) carryOut(ctx context.Context, a mdp.Action) (executed mdp.Action, effect mdp.Effect, err error) {
	reserved, ok := a.Knob(mdp.CPUReservation)
	if !ok || e.reserved == 0 {
		return e.pair.Actuator.Act(ctx, e.pair.Now(), a)
	}
	executed, effect, err = e.pair.Actuator.Act(ctx, e.pair.Now(), a.Without(mdp.SetOf(mdp.CPUReservation)))
	if err != nil {
		return executed, effect, err
	}
	if effect == mdp.Unchanged && mdp.MilliCPU(reserved) != e.reserved {
		effect = mdp.Applied
	}
	e.reserved = mdp.MilliCPU(reserved)
	return executed.WithReservation(e.reserved), effect, nil
}

// look is what is seen and judged after a step.
func (e *episode) look(ctx context.Context, out *Outcome) (err error) {
	if out.State, out.Judged, err = e.sense(ctx); err != nil {
		return err
	}
	e.state = out.State
	out.Reward, out.RewardKnown = e.objective.Judge(out.Judged)
	return nil
}
