package mdp

import (
	"context"
	"fmt"
	"time"
)

// Policy decides. It is deterministic in the States it has been given, in order; it reads no clock and
// touches nothing. What it cannot decide for lack of signals it refuses with an [*UnknownError]. One
// Policy serves one workload and is used by one goroutine at a time.
type Policy interface {
	Decide(s State) (Action, error)
}

// PolicyFunc makes a Policy of a function without memory.
type PolicyFunc func(s State) (Action, error)

// Decide calls f.
func (f PolicyFunc) Decide(s State) (Action, error) { return f(s) }

// Sensor looks at one workload. The State says what could be seen; an error means that nothing could.
type Sensor interface {
	Sense(ctx context.Context, now time.Time) (State, error)
}

// Actuator carries out an Action on one workload, or part of it, and says what came of it.
type Actuator interface {
	Act(ctx context.Context, now time.Time, a Action) (Effect, error)
}

// Effect is what an Actuator did with an Action.
type Effect uint8

// What can come of an Action. An error goes with Failed only.
const (
	Unchanged  Effect = iota // it was so already, or the Action sets nothing
	Applied                  // it is in force
	Pending                  // it was accepted and will be in force later (a pod to start, a resize in progress)
	Deferred                 // there is no room now; it will be tried again
	Infeasible               // there can never be room on this node
	Refused                  // the actuator may not do this now: too soon, too many, outside the envelope, paused
	Failed                   // it went wrong; what was in force before still is
)

var effectNames = [...]string{"unchanged", "applied", "pending", "deferred", "infeasible", "refused", "failed"}

func (e Effect) String() string {
	if int(e) >= len(effectNames) {
		return "unknown-effect"
	}
	return effectNames[e]
}

// Transition is one step of experience. Reward is that of Next: what the Action led to.
type Transition struct {
	State      State
	Action     Action
	Reward     Reward
	Next       State
	Terminated bool // the process ended by itself; never so in autoscaling
	Truncated  bool // the episode ended by time: bootstrap from Next when learning
}

// Trajectory is one episode of a workload.
type Trajectory struct {
	Workload string // namespace/kind/name
	Episode  int
	Steps    []Transition
}

// Decision is everything about one step of a [Loop], for a log line, a status, or a learner.
type Decision struct {
	State       State
	Reward      Reward // of State; meaningful when Judged
	RewardKnown bool
	Action      Action // as carried out
	Effect      Effect
	Transition  Transition // from the step before to this one; meaningful when Complete
	Complete    bool
}

// Loop is one decision process: sense, judge, decide, act. It keeps only the step before, to make
// Transitions. The caller owns time and goroutines.
type Loop struct {
	Sensor    Sensor
	Objective Objective
	Policy    Policy
	Actuator  Actuator

	last   State
	action Action
	began  bool
}

// Step runs the loop once at the given time. On an error the Decision says how far it came: the State
// is set once sensed, the Action once decided. An error in one step does not harm the next; the
// Transition across it is not made, for what happened between is not known.
func (l *Loop) Step(ctx context.Context, now time.Time) (Decision, error) {
	var d Decision
	s, err := l.Sensor.Sense(ctx, now)
	if err != nil {
		l.began = false
		return d, fmt.Errorf("sensing: %w", err)
	}
	d.State = s
	d.Reward, d.RewardKnown = l.Objective.Judge(s)
	if l.began && d.RewardKnown {
		d.Transition = Transition{State: l.last, Action: l.action, Reward: d.Reward, Next: s}
		d.Complete = true
	}
	l.began = false
	d.Action, err = l.Policy.Decide(s)
	if err != nil {
		d.Effect = Refused
		return d, fmt.Errorf("deciding: %w", err)
	}
	if err := d.Action.Check(); err != nil {
		d.Effect = Refused
		return d, fmt.Errorf("deciding: %w", err)
	}
	d.Effect, err = l.Actuator.Act(ctx, now, d.Action)
	if err != nil {
		return d, fmt.Errorf("acting %v: %w", d.Action, err)
	}
	l.last, l.action, l.began = s, d.Action, true
	return d, nil
}
