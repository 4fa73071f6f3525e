package agent

import (
	"context"
	"errors"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/restore"
)

// arm opens the container's lane when a limit is ours to raise, and shuts it
// otherwise. The journal has the range up to the ceiling before.
func (c *managedContainer) arm(now time.Time, t task) {
	o := c.ownership
	top := c.top().Only(o.Ours.Sets())
	if t != acting || !o.State.Touched() || top.Empty() {
		c.sampler.Shut(c.track)
		return
	}
	if !o.Wrote.Covers(top) && c.on(now, restore.Event{Kind: restore.Widened, Reach: restore.Span{}.With(top)}) != nil {
		c.sampler.Shut(c.track)
		return
	}
	l := lane{
		ref:     c.ref,
		has:     o.Ours,
		top:     top,
		others:  c.others,
		between: between(c.target),
		keep:    c.late(now),
		early:   c.target < seldom,
	}
	if c.queues {
		l.patience = c.patience
	}
	if !c.wrote { // a call that landed late may have left another value of ours
		l.has = c.inForce
	}
	if o.State == restore.InDoubt {
		l.next = o.Before // which a call that hangs has left in force
	}
	c.sampler.Open(c.track, l)
}

// top is the limits that the lane raises to; 0 is none.
func (c *managedContainer) top() cgroup.Limits {
	var top cgroup.Limits
	if c.envelope.Knobs.Has(mdp.CPULimit) && c.inForce.Period > 0 {
		top.Period = c.period(c.inForce)
		top.Quota = cgroup.Quota(c.envelope.Bounds.CPU.Max, top.Period)
	}
	if c.envelope.Knobs.Has(mdp.MemoryLimit) && c.inForce.Memory > 0 {
		top.Memory = c.envelope.Bounds.Memory.Max / page * page
	}
	return top
}

// reach is what may be set after a CPU limit without another entry in the journal: some
// steps further down. The way up is what arm adds.
func reach(change cgroup.Limits) restore.Span {
	half := change.CPU() / 2 / restore.CPUStep * restore.CPUStep
	if half < restore.CPUStep {
		return restore.Span{}
	}
	return restore.Span{}.With(cgroup.Limits{Quota: cgroup.Quota(half, change.Period), Period: change.Period})
}

// hear takes in what the fast lane has done.
func (c *managedContainer) hear(now time.Time, r relief) {
	if !r.at.IsZero() {
		c.movedAt = r.at
		if r.to.Quota > 0 {
			c.settling.heard(r, c.target)
			c.metrics.reliefs.Add(float64(r.n))
		}
		if r.to.Memory > 0 {
			c.metrics.memoryReliefs.Inc()
		}
		_ = c.on(now, restore.Event{Kind: restore.Raised, Change: r.to}) // an error is in c.problem
		c.resizes++
		c.log.Log(context.Background(), verbose, "relieved",
			"container", c.ref, "at", r.at, "to", r.to.Size(), "half-life", c.settling.half)
	}
	if r.err != nil && !errors.Is(r.err, cgroup.ErrGone) && !errors.Is(r.err, cgroup.ErrReadOnly) {
		c.problem = also(c.problem, r.err.Error())
	}
}

// shut ends the fast lane, and takes in what it has done last.
func (c *managedContainer) shut(now time.Time) {
	c.sampler.Shut(c.track)
	c.hear(now, c.sampler.Heard(c.track))
}

// relieve asks the container runtime for what the sampler could not write itself, and
// says at once which containers have met their ceiling.
func (a *Agent) relieve(ctx context.Context, now time.Time) {
	for _, c := range a.rotated() {
		r := a.sampler.Heard(c.track)
		c.hear(now, r)
		if !errors.Is(r.err, cgroup.ErrReadOnly) || c.task != acting {
			continue
		}
		if err := c.instead(ctx, now, r); err != nil {
			a.log.Warn("no relief", "container", c.ref, "err", err)
		}
		c.arm(now, acting)
	}
	a.press(now)
}

// instead asks the container runtime for a raise that could not be written.
func (c *managedContainer) instead(ctx context.Context, now time.Time, r relief) error {
	if r.wants > 0 {
		_, effect, err := c.Act(ctx, now, mdp.Action{}.WithMemory(r.wants))
		if effect == mdp.Applied {
			c.metrics.memoryReliefs.Inc()
		}
		return err
	}
	top := c.top().CPU()
	_, effect, err := c.Act(ctx, now, mdp.Action{}.WithCPU(top))
	if effect == mdp.Applied {
		c.settling.relieved(now, top, c.target)
		c.metrics.reliefs.Inc()
	}
	return err
}

// press renews what is reported of the containers that have met their ceiling: only more
// replicas, or a higher ceiling, can help them now.
func (a *Agent) press(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.summaries {
		s := &a.summaries[i]
		if c := a.containers[s.Container]; c != nil && a.sampler.Met(c.track, now, &s.State) {
			a.urge(now, c, *s)
		}
	}
}

// urge has a summary reported at once when it says that the ceiling is met, as often as
// it would be reported anyway.
func (a *Agent) urge(now time.Time, c *managedContainer, s api.Summary) {
	if !s.AtCeiling() || now.Sub(c.urgedAt) < api.ReportEvery {
		return
	}
	c.urgedAt = now
	select {
	case a.urgent <- struct{}{}:
	default: // what is sent next has it
	}
}

// Urgent gets a value when something is to be reported at once.
func (a *Agent) Urgent() <-chan struct{} { return a.urgent }
