package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/envelope"
)

// step looks at one container, decides, and acts or restores. It returns the
// container's part of the report.
func (a *Agent) step(ctx context.Context, now time.Time, c *managedContainer, o order) api.Summary {
	s := api.Summary{Container: c.ref, Mode: o.mode, Problem: o.problem}
	c.prepare(now, o, a.config.Envelope)
	a.follow(c, o)
	s.Bounds = c.envelope.Bounds
	left, conflict := c.backingOff(now)
	s.Problem = also(s.Problem, left)
	if o.act && c.envelope.Left != "" {
		s.Problem = also(s.Problem, "left alone: "+string(c.envelope.Left))
	}
	t := o.task(c.envelope.Left, conflict)
	d, err := a.decide(ctx, now, c, t)
	s.State = d.State
	if c.back > 0 && s.State.Knows(mdp.CPULimit) && d.Effect != mdp.Applied {
		s.State.Limit.CPU = c.inForce.CPU() // it was to go on from another one, and could not
	}
	if errors.Is(err, cgroup.ErrGone) {
		a.detach(c)
		s.Problem = also(s.Problem, "its cgroup is gone: it ended")
		s.State = mdp.State{At: now}
		return a.count(s, c)
	}
	if s.State.Knows(mdp.OOMKills) {
		s.State.OOMKills = max(c.kills, s.State.OOMKills)
	}
	failure := a.judge(c, err)
	s.Problem = also(s.Problem, failure.problem)
	if failure.ofPolicy {
		t = t.afterPolicyFailure()
	}
	s.Course = a.sampler.Course(c.track)
	report(&s, now, t, d)
	if t == acting {
		s.Problem = also(s.Problem, a.budget.problem(d.Action))
		a.logResize(ctx, c, d, err)
	}
	if t == restoring {
		a.confirm(ctx, now, c)
		asked := func() bool { return a.gives(ctx, now, c.ref, c.facts.Limits) }
		if err := c.restore(ctx, now, a.budget.restorable(), asked); err != nil {
			s.Problem = also(s.Problem, err.Error())
		}
	}
	if err := c.tell(ctx, now, c.inForce); err != nil {
		s.Problem = also(s.Problem, err.Error())
	}
	c.arm(now, t)
	s.Problem = also(s.Problem, c.problem)
	return a.count(s, c)
}

// prepare brings the container's envelope and its journal entry up to the API and to the
// order.
func (c *managedContainer) prepare(now time.Time, o order, rules envelope.Rules) {
	c.problem = ""
	c.envelope = envelope.Of(c.facts, o.grant.Bounds, rules)
	c.adopt(now)
}

// decide runs the container's loop once. The action is carried out when the task
// is to act.
func (a *Agent) decide(ctx context.Context, now time.Time, c *managedContainer, t task) (mdp.Decision, error) {
	c.loop.Actuator = idle{}
	if t == acting {
		c.loop.Actuator = c
		if c.task != acting {
			// The guards remember what they let through. Until now nothing of it was
			// carried out, so new ones are made.
			c.loop.Policy = a.guarded(c)
		}
	}
	c.task = t
	return c.loop.Step(ctx, now)
}

// failure is what an error of a loop means.
type failure struct {
	problem  string
	ofPolicy bool // the policy failed, not the actuator: the container is restored
}

// judge says what an error of the container's loop means.
func (a *Agent) judge(c *managedContainer, err error) failure {
	var unknown *mdp.UnknownError
	var illegal *guard.IllegalError
	var policy *mdp.PolicyError
	switch {
	case err == nil:
		return failure{}
	case errors.As(err, &illegal):
		a.log.Warn("restored after an illegal action", "container", c.ref, "err", err)
		return failure{problem: err.Error(), ofPolicy: true}
	case errors.As(err, &unknown):
		return failure{} // the first second of a container: too little is known
	}
	return failure{problem: err.Error(), ofPolicy: errors.As(err, &policy)}
}

// report writes a decision into the summary, as far as the mode lets central see
// it.
func report(s *api.Summary, now time.Time, t task, d mdp.Decision) {
	switch s.Mode {
	case api.Recommend, api.Canary, api.Auto:
		s.Want = d.Action
		if t == acting || t == pausing {
			s.Effect = d.Effect
		}
		if t == pausing && d.Action.Sets != 0 {
			s.Want.Clipped |= mdp.ClippedPaused
		}
	case api.Off:
		s.State, s.Course = mdp.State{At: now}, api.Course{}
	}
}

// verbose is the level of what a busy node says many times a second: V(2) in Kubernetes'
// logging.
const verbose = slog.Level(-2)

// logResize counts a resize, and logs it with its inputs.
func (a *Agent) logResize(ctx context.Context, c *managedContainer, d mdp.Decision, err error) {
	if d.Action.Sets == 0 {
		return
	}
	a.metrics.effects[d.Effect].Inc()
	if d.Effect == mdp.Applied || d.Effect == mdp.Failed {
		s := d.State
		a.log.Log(ctx, verbose, "resize", "container", c.ref, "effect", d.Effect, "want", d.Action, "clipped",
			d.Action.Clipped, "was", s.Limit, "cpu", s.Usage.CPU, "peak", s.CPUPeak, "throttled", s.Throttled,
			"memory", s.Usage.Memory, "err", err)
	}
}

// idle is the Actuator of a container that is only observed.
type idle struct{}

// Act implements [mdp.Actuator]: it changes nothing.
func (idle) Act(_ context.Context, _ time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	if a.Sets == 0 {
		return mdp.Action{}, mdp.Unchanged, nil
	}
	return mdp.Action{}, mdp.Refused, nil
}
