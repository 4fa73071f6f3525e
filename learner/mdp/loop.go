package mdp

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// Policy decides. It is deterministic in the States it has been given, in
// order; it reads no clock and touches nothing. What it cannot decide for lack
// of signals it refuses with an [*UnknownError]. One Policy serves one workload
// and is used by one goroutine at a time.
type Policy interface {
	Decide(s State) (Action, error)
}

// PolicyFunc makes a Policy of a function without memory.
type PolicyFunc func(s State) (Action, error)

// Decide calls f.
func (f PolicyFunc) Decide(s State) (Action, error) { return f(s) }

// Sensor looks at one workload. The State says what could be seen; an error
// means that nothing could.
type Sensor interface {
	Sense(ctx context.Context, now time.Time) (State, error)
}

// Actuator carries out an Action on one workload, or on a part of it, and says
// what came of it.
//
// executed is what the Actuator set or asked for, after its own clipping and
// rounding: it is the Action that takes force. It sets nothing where nothing
// was, or will be, changed by this call.
//
// err is not nil when the Effect is [Failed], and only then. Before it touches
// anything an Actuator fails for an illegal Action ([Action.Check]) and for a
// context that is over; then nothing has changed.
type Actuator interface {
	Act(ctx context.Context, now time.Time, a Action) (executed Action, effect Effect, err error)
}

// Effect is what an Actuator did with an Action.
type Effect uint8

// The effects, and what is in force after each. "Before" is what was in force
// when Act was called.
const (
	// Unchanged: the Action was in force already, or sets nothing. In force: before.
	Unchanged Effect = iota
	// Applied. In force: executed.
	Applied
	// Pending: it was accepted (a pod starts, a resize is in progress). In
	// force: before, and executed later.
	Pending
	// Deferred: there is no room now; it is tried again. In force: before, but
	// for what executed sets.
	Deferred
	// Infeasible: there can never be room on this node. In force: before, but
	// for what executed sets.
	Infeasible
	// Refused: it was not tried (too soon, too many calls, paused). In force:
	// before. It is not an error.
	Refused
	// Failed: it went wrong, and a late call may still land. In force: before
	// or the Action; the next State says which.
	Failed
)

// effectRow is a row of the table of effects.
type effectRow struct {
	name string
	// severity orders effects for Worse. It says which one a person wants to
	// read of when an Action had several.
	severity int
}

var effects = [...]effectRow{
	Unchanged:  {"unchanged", 0},
	Applied:    {"applied", 1},
	Pending:    {"pending", 2},
	Deferred:   {"deferred", 3},
	Infeasible: {"infeasible", 4},
	Refused:    {"refused", 5},
	Failed:     {"failed", 6},
}

// Effects lists all effects.
func Effects() iter.Seq[Effect] {
	return func(yield func(Effect) bool) {
		for e := range Effect(len(effects)) {
			if !yield(e) {
				return
			}
		}
	}
}

func (e Effect) String() string {
	if int(e) >= len(effects) {
		return "unknown-effect"
	}
	return effects[e].name
}

// Known reports whether e is one of the effects; a number from the wire may be none.
func (e Effect) Known() bool { return int(e) < len(effects) }

// Worse is the one of two effects that a summary of both reports: the one that
// is further from "in force".
func (e Effect) Worse(o Effect) Effect {
	if effects[o].severity > effects[e].severity {
		return o
	}
	return e
}

// Transition is one step of experience: in State, Action took force with
// Effect, and led to Next, which is worth Reward.
type Transition struct {
	State       State
	Action      Action // that took force: the executed one, not the one that was proposed
	Effect      Effect // of what was proposed
	Reward      Reward // of Next; meaningful when RewardKnown
	RewardKnown bool   // the signals that the reward is made of were observed
	Next        State
	Terminated  bool // the process ended by itself; never so in autoscaling
	Truncated   bool // the episode was cut by time: a learner bootstraps from Next
}

// Trajectory is one episode of a workload.
type Trajectory struct {
	Workload string // namespace/kind/name
	Episode  int
	Steps    []Transition
}

// EpisodeClock cuts the endless process of a workload into episodes of a fixed
// number of steps, so that stores and learners see whole ones. Its fields are
// its state: a restored clock goes on where it stopped.
type EpisodeClock struct {
	Length  int // steps of an episode, at least 1
	Episode int // the present one
	Step    int // of the next Transition
}

// Number gives a Transition its episode and its step, and marks the last one of
// an episode as truncated.
func (c *EpisodeClock) Number(t *Transition) (episode, step int) {
	episode, step = c.Episode, c.Step
	c.Step++
	if c.Step >= c.Length {
		t.Truncated = true
		c.Cut()
	}
	return episode, step
}

// Cut ends the present episode, if it has begun: what comes next does not
// follow from what was.
func (c *EpisodeClock) Cut() {
	if c.Step > 0 {
		c.Episode++
		c.Step = 0
	}
}

// Decision is everything about one step of a [Loop], for a log line, a status,
// or a learner.
type Decision struct {
	State       State
	Reward      Reward // of State; meaningful when RewardKnown
	RewardKnown bool
	Action      Action // as decided, after the guards
	Executed    Action // as it took force
	Effect      Effect
	Transition  Transition // from the step before to this one; meaningful when Complete
	Complete    bool
}

// PolicyError says that a policy failed, or gave an illegal Action, so that
// nothing was tried.
type PolicyError struct{ Err error }

func (e *PolicyError) Error() string { return "deciding: " + e.Err.Error() }

// Unwrap is for errors.Is and errors.As.
func (e *PolicyError) Unwrap() error { return e.Err }

// Loop is one decision process: sense, judge, decide, act. It keeps only the
// step before, to make Transitions. The caller owns time and goroutines.
type Loop struct {
	Sensor    Sensor
	Objective Objective
	Policy    Policy
	Actuator  Actuator

	previous State
	executed Action
	effect   Effect
	follows  bool // the next State follows from previous and executed
}

// Step runs the loop once at the given time. On an error the Decision says how
// far it came: the State is set once sensed, the Action once decided. An error
// of the policy is a [*PolicyError]. An error in one step does not harm the
// next; the Transition across it is not made, because what took force between
// the two States is not known.
func (l *Loop) Step(ctx context.Context, now time.Time) (Decision, error) {
	var d Decision
	s, err := l.Sensor.Sense(ctx, now)
	if err != nil {
		l.follows = false
		return d, fmt.Errorf("sensing: %w", err)
	}
	d.State = s
	d.Reward, d.RewardKnown = l.Objective.Judge(s)
	if l.follows {
		d.Transition = Transition{
			State: l.previous, Action: l.executed, Effect: l.effect,
			Reward: d.Reward, RewardKnown: d.RewardKnown, Next: s,
		}
		d.Complete = true
	}
	l.follows = false
	d.Action, err = l.Policy.Decide(s)
	if err == nil {
		err = d.Action.Check()
	}
	if err != nil {
		d.Effect = Refused
		return d, &PolicyError{err}
	}
	d.Executed, d.Effect, err = l.Actuator.Act(ctx, now, d.Action)
	if err != nil {
		return d, fmt.Errorf("acting %v: %w", d.Action, err)
	}
	l.previous = s
	l.executed = d.Executed
	l.effect = d.Effect
	l.follows = true
	return d, nil
}
