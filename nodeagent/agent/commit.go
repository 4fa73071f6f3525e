package agent

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"awarescale.dev/aware/nodeagent/cri"
)

// CPU limits are written directly (L0), up and down, and the container runtime is told later
// (L1): once a limit has come to rest, and else within a bound. A call of the runtime costs
// thousands of times what a write does, and a limit that settles after a burst takes many
// steps. Until the runtime is told its next update of the container, of whatever limit, brings
// back what it knows; the step finds that, and writes again.
const (
	// A limit that was not written for so long has come to rest. Relief that is eased, or
	// taken back, sooner costs no call of its own.
	restsAfter = 3 * time.Second
	// A limit that does not rest is told when the runtime does not know it for so long.
	commitWithin = 5 * time.Second
	// Of the time between two steps, calls begin in this part at most.
	commitShare = 10
	// The agent looks once a step, whose ticker jitters: the bound is passed by so much at most.
	oneStep = 900 * time.Millisecond
)

// due reports whether the container runtime is to be told.
func (c *managedContainer) due(now time.Time) bool {
	own := c.ownership
	return c.task == acting && own.State.Touched() && (!own.Untold.Empty() ||
		own.Behind && (now.Sub(c.movedAt) >= restsAfter || now.Sub(c.behindAt) >= commitWithin))
}

// late reports whether the runtime should have been told, and was not.
func (c *managedContainer) late(now time.Time) bool {
	return c.ownership.Behind && now.Sub(c.behindAt) > commitWithin+oneStep
}

// far is how far what is in force is from what the runtime knows: the logarithm of their
// ratio, of the limit where that is more.
func (c *managedContainer) far() float64 {
	ours, knows := c.ownership.Ours.Size(), c.ownership.Before.Size()
	return max(apart(ours.CPU, knows.CPU), apart(ours.Memory, knows.Memory))
}

func apart[T ~int64](a, b T) float64 {
	switch {
	case a <= 0: // not ours
		return 0
	case b <= 0: // the runtime has no limit
		return math.Inf(1)
	}
	return math.Abs(math.Log(float64(a) / float64(b)))
}

// first compares two containers of which the runtime is to be told: what is late comes before the rest, and of that the
// oldest, because a small difference would wait for as long as there are larger ones. Of the rest it is what is furthest
// from what the runtime knows.
func first(now time.Time, x, y *managedContainer) int {
	switch is, other := x.late(now), y.late(now); {
	case is && other:
		return x.behindAt.Compare(y.behindAt)
	case is:
		return -1
	case other:
		return 1
	}
	return cmp.Compare(y.far(), x.far())
}

// commit tells the container runtime what was written directly, as far as its calls reach:
// in the order of [first]. Where calls are slow it takes half of the time between
// two steps, and the next step goes on.
func (a *Agent) commit(ctx context.Context, now time.Time, all []*managedContainer) {
	var due []*managedContainer
	for _, c := range all {
		if c.due(now) {
			due = append(due, c)
		}
	}
	slices.SortStableFunc(due, func(x, y *managedContainer) int { return first(now, x, y) })
	begin := a.clock()
	for _, c := range due {
		if a.clock().Sub(begin) >= a.config.StepEvery/commitShare {
			break
		}
		if err := c.commit(ctx, now); err != nil {
			a.log.Log(ctx, verbose, "not committed", "container", c.ref, "err", err)
		}
	}
	oldest := time.Duration(0)
	for _, c := range all {
		if c.ownership.Behind {
			oldest = max(oldest, now.Sub(c.behindAt))
		}
	}
	a.metrics.uncommitted.Set(oldest.Seconds())
}

// commit is one call with all that is ours.
func (c *managedContainer) commit(ctx context.Context, now time.Time) error {
	call := c.whole(move{call: cri.Move{ID: c.id, From: c.ownership.Ours.Size(), Commit: true}}).call
	if err := c.runtime.Allowed(now, call); err != nil {
		return err
	}
	if err := c.intend(now, call, c.ownership.Ours, c.api()); err != nil {
		return err
	}
	return c.during(call, func() error { return c.call(ctx, now, call, c.runtime.Update) })
}

// during makes a call whose entry is written. The lane stays open meanwhile.
func (c *managedContainer) during(m cri.Move, do func() error) error {
	c.wrote = true
	c.settledThen = c.settled
	c.sampler.Expect(c.track, changed(m.Change))
	err := do()
	c.sampler.Again(c.track)
	return err
}

// whole adds to a call what the runtime does not know yet: its update of one limit brings back
// what it knows of the others.
func (c *managedContainer) whole(m move) move {
	o := c.ownership
	if !o.Behind {
		return m
	}
	m.call.Commit = true
	if o.Ours.Quota > 0 && m.call.To.CPU == 0 {
		to := o.Ours
		if top := c.top(); top.Quota > 0 && top.CPU() < to.CPU() {
			to = top // the API has lowered it since, and the kubelet what is in force
		}
		m.call.To.CPU = to.CPU()
		to = c.stretched(to.CPU()) // the ceiling may be another one by now
		m.call.Change.Quota, m.call.Change.Period = to.Quota, to.Period
	}
	if o.Ours.Memory > 0 && m.call.To.Memory == 0 {
		to := o.Ours.Memory
		if top := c.top(); top.Memory > 0 {
			to = min(to, top.Memory)
		}
		m.call.To.Memory, m.call.Change.Memory = to, to
	}
	return m
}
