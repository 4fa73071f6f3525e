package bench

import (
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
)

// Joint is a policy that decides for all services of an application at once,
// such as one that another program serves. Runs can go on concurrently.
type Joint interface {
	// Begin starts a run with an application. It returns the run, and the time
	// between two decisions in whole seconds; the one that is offered is
	// central's.
	Begin(ctx context.Context, app sim.App, seed uint64, offered time.Duration) (JointRun, time.Duration, error)
}

// JointRun is one run of a Joint.
type JointRun interface {
	// Decide gives an Action for each State, both in the order of the
	// application's services. The zero Action leaves a service as it is.
	Decide(ctx context.Context, states []mdp.State) ([]mdp.Action, error)
	// End is the last call, also after an error.
	End(ctx context.Context) error
}

// Served is a choice of a joint policy that is served at an address, with the
// guards of the central autoscaler around what it decides for each service.
func Served(address string, j Joint) Choice {
	return Choice{Encoding: Encoding, Policy: address, joint: j}
}

// servedBaseline describes a joint policy as the others are described.
func (c Choice) servedBaseline() baseline {
	return baseline{
		name: c.Policy, every: offered, path: sim.L2, guards: guard.Central,
		newPolicy: func(Choice, sim.App, sim.Service) (mdp.Policy, error) { return &servicePart{}, nil },
	}
}

// offered is the time between two decisions that a joint policy is offered.
const offered = 10 * time.Second

// servicePart is what a joint policy has to do with one service: in the service's Loop
// it stands for the sensor and for the policy. The driver looks and asks before
// the Loops run.
type servicePart struct {
	sensor mdp.Sensor
	state  mdp.State
	action mdp.Action
}

// Sense implements [mdp.Sensor].
func (p *servicePart) Sense(context.Context, time.Time) (mdp.State, error) { return p.state, nil }

// Decide implements [mdp.Policy].
func (p *servicePart) Decide(mdp.State) (mdp.Action, error) { return p.action, nil }

// begin starts a run of the joint policy of a choice.
func (d *driver) begin(ctx context.Context, j Joint, app sim.App, seed uint64) (err error) {
	if d.joint, d.every, err = j.Begin(ctx, app, seed, d.every); err != nil {
		return err
	}
	if err := wholeSeconds(d.every); err != nil {
		_ = d.end(ctx) // the error that ended the run counts
		return err
	}
	return nil
}

// ask looks at all services and asks the joint policy once.
func (d *driver) ask(ctx context.Context) error {
	states := make([]mdp.State, len(d.parts))
	for i, p := range d.parts {
		var err error
		if p.state, err = p.sensor.Sense(ctx, d.world.Now()); err != nil {
			return fmt.Errorf("sensing: %w", err)
		}
		states[i] = p.state
	}
	actions, err := d.joint.Decide(ctx, states)
	if err != nil {
		return err
	}
	if len(actions) != len(d.parts) {
		return fmt.Errorf("%d actions: there must be one for each of %d services", len(actions), len(d.parts))
	}
	for i, p := range d.parts {
		p.action = actions[i]
	}
	return nil
}

// end ends the run of a joint policy, also when the context is over.
func (d *driver) end(ctx context.Context) error {
	if d.joint == nil {
		return nil
	}
	return d.joint.End(context.WithoutCancel(ctx))
}

// wholeSeconds is nil for a time between two decisions that is possible in the
// bench.
func wholeSeconds(step time.Duration) error {
	if step < time.Second || step%time.Second != 0 {
		return fmt.Errorf("step %v: it must be whole seconds, at least 1", step)
	}
	return nil
}
