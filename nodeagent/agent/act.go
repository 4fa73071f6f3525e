package agent

import (
	"context"
	"errors"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/restore"
)

// page is the unit in which the kernel keeps memory limits.
const page mdp.Bytes = 4096

// minHeadroom is how many times the memory in use a memory limit is at least,
// whatever the policy says: below it the kernel kills.
const minHeadroom = 1.05

// move is what an Action comes to for a container.
type move struct {
	call     cri.Move
	executed mdp.Action // what the container has after the call
	refused  bool       // a memory limit is too near to what is in use
}

// Act implements [mdp.Actuator]: it carries out the part of an Action that is in
// the container's envelope.
func (c *managedContainer) Act(ctx context.Context, now time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	fail := func(err error) (mdp.Action, mdp.Effect, error) { return mdp.Action{}, mdp.Failed, err }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if err := a.Check(); err != nil {
		return fail(err)
	}
	if c.back > 0 && !a.Sets.Has(mdp.CPULimit) {
		a = a.WithCPU(c.back)
	}
	a = c.envelope.Bounds.Clip(c.slowly(now, a.Only(c.envelope.Knobs)))
	m := c.move(now, a)
	if relief := m.call.Relief(); !relief.Change.Empty() {
		c.fit()
		m = c.move(now, c.envelope.Bounds.Clip(a))
	}
	switch {
	case m.call.Change.Empty() && m.refused:
		return mdp.Action{}, mdp.Refused, nil
	case m.call.Change.Empty():
		return m.executed, mdp.Unchanged, nil
	case m.call.Change.Memory == 0 && c.sampler.Direct(c.track):
		return c.direct(now, m)
	}
	cpu := m.ofCPU()
	m = c.whole(m)
	// The limiter is asked first, so that a refused call costs no write to the
	// journal. What may not wait is written directly then, and what needs no call: the
	// runtime is told later.
	do := func() error { return c.call(ctx, now, m.call, c.runtime.Update) }
	if err := c.runtime.Allowed(now, m.call); err != nil {
		if errors.Is(err, cri.ErrOpen) {
			c.problem = err.Error()
		}
		m = m.relief()
		if m.call.Change.Memory == 0 && !cpu.call.Change.Empty() && c.sampler.Direct(c.track) {
			return c.direct(now, cpu)
		}
		if m.call.Change.Empty() {
			return mdp.Action{}, mdp.Refused, nil
		}
		open := errors.Is(err, cri.ErrOpen)
		do = func() error { return c.write(ctx, now, m.call, open) }
	}
	if err := c.intend(now, m.call, c.inForce, c.api()); err != nil {
		return fail(err)
	}
	if err := c.during(m.call, do); err != nil {
		return fail(err)
	}
	c.resizes++
	return m.executed, mdp.Applied, nil
}

// direct carries out a move of the CPU limit by one write of the cgroup. The container runtime
// is told later, by commit. While it has not been told in time, nothing is taken away below what it knows.
func (c *managedContainer) direct(now time.Time, m move) (mdp.Action, mdp.Effect, error) {
	if m.call.To.CPU < m.call.From.CPU && !m.call.Must && c.late(now) {
		if err := c.runtime.Allowed(now, m.call); errors.Is(err, cri.ErrOpen) {
			c.problem = err.Error()
		}
		knows := c.ownership.Before
		if knows.Quota <= 0 || knows.CPU() >= m.call.From.CPU {
			return mdp.Action{}, mdp.Refused, nil
		}
		if m.call.To.CPU < knows.CPU() {
			m.call.To.CPU, m.executed = knows.CPU(), m.executed.WithCPU(knows.CPU())
			m.call.Change.Quota, m.call.Change.Period = knows.Quota, knows.Period
		}
	}
	to := changed(m.call.Change)
	if err := c.intend(now, m.call, c.inForce, c.api()); err != nil {
		return mdp.Action{}, mdp.Failed, err
	}
	c.wrote = true
	c.settledThen = c.settled
	relieved, err := c.sampler.Set(c.track, to)
	if err != nil {
		return mdp.Action{}, mdp.Failed, err
	}
	if err := c.on(now, restore.Event{Kind: restore.WrittenDirectly}); err != nil {
		return mdp.Action{}, mdp.Failed, err
	}
	c.movedAt = now
	if relieved {
		c.hear(now, c.sampler.Heard(c.track))
		return mdp.Action{}, mdp.Refused, nil
	}
	c.resizes++
	return m.executed, mdp.Applied, nil
}

// fit brings the envelope down to what the container's pod has room for.
func (c *managedContainer) fit() {
	c.facts.Room = c.room()
	top := c.facts.Ceiling()
	b := &c.envelope.Bounds
	b.CPU.Max = min(b.CPU.Max, top.CPU)
	b.CPU.Min = min(b.CPU.Min, top.CPU)
	b.Memory.Max = min(b.Memory.Max, top.Memory)
	b.Memory.Min = min(b.Memory.Min, top.Memory)
}

// ofCPU is the part of a move that is of the CPU limit.
func (m move) ofCPU() move {
	m.call.To.Memory, m.call.Change.Memory = 0, 0
	m.executed = m.executed.Without(mdp.SetOf(mdp.MemoryLimit))
	return m
}

// relief is the part of a move that may not wait.
func (m move) relief() move {
	m.call = m.call.Relief()
	if m.call.To.CPU == 0 {
		m.executed = m.executed.Without(mdp.SetOf(mdp.CPULimit))
	}
	if m.call.To.Memory == 0 {
		m.executed = m.executed.Without(mdp.SetOf(mdp.MemoryLimit))
	}
	return m
}

// move is the call that brings the limits in force to those of an Action.
func (c *managedContainer) move(now time.Time, a mdp.Action) move {
	m := move{call: cri.Move{ID: c.id, From: c.inForce.Size()}}
	if a.Sets.Has(mdp.CPULimit) && c.inForce.Period > 0 && c.inForce.Quota > 0 {
		c.moveCPU(&m, a.Limit.CPU)
	}
	if a.Sets.Has(mdp.MemoryLimit) && c.inForce.Memory > 0 {
		c.moveMemory(now, &m, a.Limit.Memory)
	}
	return m
}

// moveCPU adds a CPU limit to a move, rounded up to whole steps: systemd would round
// others itself, and what is in force would not be what was written.
func (c *managedContainer) moveCPU(m *move, limit mdp.MilliCPU) {
	limit = min((limit+restore.CPUStep-1)/restore.CPUStep*restore.CPUStep, max(limit, c.envelope.Bounds.CPU.Max))
	m.executed = m.executed.WithCPU(limit)
	to := c.stretched(limit)
	if c.inForce.SameCPU(to) {
		return
	}
	m.call.To.CPU = limit
	m.call.Change.Quota, m.call.Change.Period = to.Quota, to.Period
	m.call.Must = m.call.Must || m.call.From.CPU > c.envelope.Bounds.CPU.Max
}

// moveMemory adds a memory limit to a move, rounded up to whole pages.
func (c *managedContainer) moveMemory(now time.Time, m *move, limit mdp.Bytes) {
	bounds := c.envelope.Bounds.Memory
	limit = min((limit+page-1)/page*page, bounds.Max)
	if bounds.Has(c.inForce.Memory) && (limit < c.inForce.Memory && c.inBurst(now) || c.hardly(limit)) {
		limit = c.inForce.Memory
	}
	same := c.inForce.SameMemory(cgroup.Limits{Memory: limit})
	if !same && limit < c.inForce.Memory && !c.spares(limit) {
		m.refused = true
		return
	}
	m.executed = m.executed.WithMemory(limit)
	if same {
		return
	}
	m.call.To.Memory = limit
	m.call.Change.Memory = limit
	m.call.Must = m.call.Must || m.call.From.Memory > bounds.Max
}

// A memory limit costs a call of the runtime, and that takes CPU from a burst.
const (
	longBurst   = time.Minute // a shrink waits for the end of a burst for so long at most
	hardlyMore  = 1.1         // a limit of less than so many times the one in force is no raise, while that one is
	stillEnough = 1.25        // so many times what is in use
)

// inBurst reports whether relief is in force, and not for long yet.
func (c *managedContainer) inBurst(now time.Time) bool {
	return !c.burstAt.IsZero() && now.Sub(c.burstAt) < longBurst
}

// hardly reports whether a memory limit is hardly higher than what is in force, and need not be.
func (c *managedContainer) hardly(limit mdp.Bytes) bool {
	used, known := c.sampler.inUse(c.track)
	return limit > c.inForce.Memory && float64(limit) < hardlyMore*float64(c.inForce.Memory) &&
		known && float64(c.inForce.Memory) >= stillEnough*float64(used)
}

// spares reports whether a memory limit leaves room above what is in use.
func (c *managedContainer) spares(limit mdp.Bytes) bool {
	used, known := c.sampler.inUse(c.track)
	return known && float64(limit) >= float64(used)*minHeadroom
}
