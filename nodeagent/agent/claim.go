package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/restore"
)

// access is everything that reads or sets a container's limits: the runtime, the
// journal that is written before it is called, and the cgroup, which is written
// directly where the runtime cannot be called.
type access struct {
	tree    *cgroup.Tree
	runtime *cri.Limiter
	journal *restore.Journal
	sampler *Sampler
	metrics *metrics
	log     *slog.Logger
}

// A call that failed may land later. It is waited for until the runtime has made a
// later call for the same container, which it does one after the other, and a minute
// more; without a later call half an hour.
const (
	lateGrace = time.Minute
	lateMost  = 30 * time.Minute
)

// claim is what is ours of one container's limits, and all that sets them.
type claim struct {
	access
	ref       api.ContainerRef
	id        string // of the instance, for the runtime
	path      string // of its group, below the cgroup root
	ownership restore.Ownership
	behindAt  time.Time // since when the runtime does not know what is in force; with ownership.Behind
	failedAt  time.Time // when a call failed last; with ownership.Late
	calmAt    time.Time // when the first call after that succeeded; zero before
	foreignAt time.Time // when somebody else was seen to have set limits
	ends      bool      // the agent ends: nobody goes on later with what cannot be done now
	problem   string    // of the last step, for people
}

// errPending says that a container has the API's values again, but by a direct
// write. The runtime does not know of it: its next update of the container would
// bring ours back. The entry stays in the journal until the runtime knows.
var errPending = errors.New("restored without the container runtime, which does not know yet")

// adopted is the claim that an entry of the journal stands for.
func (a access) adopted(now time.Time, e restore.Entry) *claim {
	return &claim{access: a, ref: e.Container, id: e.ID, path: e.Path, ownership: restore.Replayed(e), failedAt: now}
}

// on takes the step of an event, and brings the journal up to it. A step that is not
// taken leaves the ownership as it was; an error with another ownership is the
// journal's.
func (c *claim) on(now time.Time, event restore.Event) error {
	err := c.follow(now, event)
	if err != nil {
		c.problem = err.Error()
	}
	return err
}

func (c *claim) follow(now time.Time, event restore.Event) error {
	from := c.ownership
	step, err := from.Next(event)
	if err != nil {
		c.log.Error("a fault in the agent", "container", c.ref, "err", err)
		return err
	}
	to := step.Ownership
	switch step.Journal {
	case restore.WriteEntry:
		err = c.journal.Put(restore.Entry{
			ID:        c.id,
			Path:      c.path,
			Container: c.ref,
			API:       to.API,
			Ours:      to.Ours,
			Before:    to.Before,
			Wrote:     to.Wrote,
			At:        now,
		})
	case restore.DeleteEntry:
		err = c.journal.Delete(c.id)
	}
	if err != nil && (event.Kind == restore.Intend || event.Kind == restore.Widened || event.Kind == restore.Gone) {
		return err
	}
	c.ownership = to
	if to.Behind && !from.Behind {
		c.behindAt = now
	}
	switch event.Kind {
	case restore.ForeignSome, restore.ForeignAll:
		c.foreignAt = now
	case restore.Failed:
		c.failedAt, c.calmAt = now, time.Time{}
	case restore.Confirmed, restore.Restored:
		if c.calmAt.IsZero() {
			c.calmAt = now
		}
	}
	if err == nil && to.State == restore.Released && step.Journal == restore.DeleteEntry {
		return c.follow(now, restore.Event{Kind: restore.Forgotten})
	}
	return err
}

// sense brings the claim up to what is in force. It returns the limits that somebody
// else has set.
func (c *claim) sense(now time.Time, inForce cgroup.Limits) mdp.Set {
	if !c.ownership.State.Journalled() {
		return 0
	}
	event := c.ownership.Sensed(inForce)
	if event.Kind == restore.LateInForce {
		c.log.Info("a call of ours landed late", "container", c.ref, "now", inForce.Size(), "api", c.ownership.API.Size())
	}
	_ = c.on(now, event) // an error is in c.problem
	if o := c.ownership; o.Late && o.State.Journalled() && o.State != restore.InDoubt && c.over(now) {
		_ = c.on(now, restore.Event{Kind: restore.LateOver})
	}
	return event.Foreign
}

// over reports whether a call that failed can land no more.
func (c *claim) over(now time.Time) bool {
	return !c.calmAt.IsZero() && now.Sub(c.calmAt) >= lateGrace || now.Sub(c.failedAt) >= lateMost
}

// intend writes into the journal what is about to be set.
func (c *claim) intend(now time.Time, m cri.Move, inForce, api cgroup.Limits) error {
	change := changed(m.Change)
	return c.on(now, restore.Event{Kind: restore.Intend, Change: change, InForce: inForce, API: api, Reach: reach(change)})
}

// write makes a change whose entry is written, directly in the cgroup: the runtime does
// not know of it yet. Where the cgroup is read-only, a runtime whose breaker is open is
// asked all the same.
func (c *claim) write(ctx context.Context, now time.Time, m cri.Move, open bool) error {
	err := c.tree.Write(c.path, changed(m.Change))
	switch {
	case err == nil:
		return c.on(now, restore.Event{Kind: restore.WrittenDirectly})
	case errors.Is(err, cgroup.ErrReadOnly) && open:
		return c.call(ctx, now, m, c.runtime.Insist)
	}
	return err
}

// call makes a change whose entry is written, through the runtime.
func (c *claim) call(ctx context.Context, now time.Time, m cri.Move,
	by func(context.Context, time.Time, cri.Move) error) error {
	m, told, err := c.telling(ctx, now, m)
	if err != nil {
		return err
	}
	was := c.ownership.Wrote
	if err := c.reckon(now, told); err != nil {
		return err
	}
	err = by(ctx, now, m)
	var refused *cri.RefusedError
	switch {
	case err == nil:
		return c.on(now, restore.Event{Kind: restore.Confirmed, Reach: was})
	case errors.As(err, &refused):
		return err // nothing was tried
	}
	c.metrics.failures.Inc()
	return errors.Join(err, c.on(now, restore.Event{Kind: restore.Failed}))
}

// reckon writes into the journal what a call is about to tell the runtime beside what it is to set: the call may land
// later, and somebody may have set something else by then.
func (c *claim) reckon(now time.Time, told restore.Span) error {
	if c.ownership.Wrote.And(told) == c.ownership.Wrote {
		return nil
	}
	err := c.on(now, restore.Event{Kind: restore.Widened, Reach: told})
	if c.ends {
		return nil
	}
	return err
}

// onDisk is the part of a change that the journal knows already.
func (c *claim) onDisk(change cri.Change) cri.Change {
	e, _ := c.journal.Get(c.id)
	if l := changed(change); !e.Wrote.Covers(cgroup.Limits{Quota: l.Quota, Period: l.Period}) {
		change.Quota, change.Period = 0, 0
	}
	if !e.Wrote.Covers(cgroup.Limits{Memory: change.Memory}) {
		change.Memory = 0
	}
	return change
}

// unlimited is what the runtime takes for no limit.
const unlimited = -1

// telling adds to a call what is in force of the limits that the call would take away: those that somebody else has
// written into the cgroup, as it would bring back what was ours, and those of ours of which another's update has told the
// runtime something else. It returns what it has added, too.
func (c *claim) telling(ctx context.Context, now time.Time, m cri.Move) (cri.Move, restore.Span, error) {
	if c.ownership.Untold.Sets().Without(changed(m.Change).Sets()) == 0 {
		return m, restore.Span{}, nil
	}
	inForce, err := c.limits()
	if err != nil {
		return m, restore.Span{}, err
	}
	told, err := c.ask(ctx, now, inForce)
	untold := c.ownership.Untold.Sets()
	if err == nil { // where the runtime does not answer, it is told what it may know
		untold |= c.ownership.Ours.Sets() & cgroup.Differ(told, inForce)
	}
	untold = untold.Without(changed(m.Change).Sets())
	if untold.Has(mdp.MemoryLimit) {
		if m.Change.Memory = unlimited; inForce.Memory > 0 {
			m.Change.Memory = inForce.Memory
		}
	}
	if untold.Has(mdp.CPULimit) {
		if m.Change.Quota, m.Change.Period = unlimited, c.period(inForce); inForce.Quota > 0 {
			m.Change.Quota, m.Change.Period = inForce.Quota, inForce.Period
		}
	}
	return m, restore.Span{}.With(inForce.Only(untold)), nil
}

// limits are those in force now.
func (c *claim) limits() (cgroup.Limits, error) {
	group, err := c.tree.Group(c.path)
	if err != nil {
		return cgroup.Limits{}, err
	}
	defer group.Close()
	return group.Limits()
}

// ask finds out what the runtime was told, and so whether it knows what somebody else has set: the kubelet sets limits
// through the runtime. To tell it then would undo the next change of a resize that is not done yet.
func (c *claim) ask(ctx context.Context, now time.Time, inForce cgroup.Limits) (cgroup.Limits, error) {
	has, err := c.runtime.Told(ctx, now, c.id)
	if err != nil {
		return cgroup.Limits{}, err
	}
	told := changed(has)
	if known := c.ownership.KnownBy(told, inForce); known != 0 {
		return told, c.on(now, restore.Event{Kind: restore.Known, Foreign: known})
	}
	return told, nil
}

// tellAfter is how long after somebody else has set limits the runtime is told of it: one that notes what it was
// told when it has set it (CRI-O) has done so by then, and a kubelet has set all limits of its resize.
const tellAfter = 3 * time.Second

// tell has the runtime know what is in force, when nothing of it is ours any more: its next update,
// by whomever, would bring back what was ours. What the runtime cannot be told now it is told later.
func (c *claim) tell(ctx context.Context, now time.Time, inForce cgroup.Limits) error {
	done := func() bool { return c.ownership.State != restore.Watched || c.ownership.Untold.Empty() }
	if done() || now.Sub(c.foreignAt) < tellAfter {
		return nil
	}
	// Where the runtime does not say, it is told what it may know.
	_, _ = c.ask(ctx, now, inForce)
	if done() {
		return nil
	}
	err := c.call(ctx, now, cri.Move{ID: c.id, From: inForce.Size(), Must: true}, c.runtime.Update)
	var refused *cri.RefusedError
	if errors.As(err, &refused) || errors.Is(err, cgroup.ErrGone) || errors.Is(err, cri.ErrNoContainer) {
		return nil
	}
	return err
}

// period is the CFS period that the kubelet sets. Ours may be longer.
func (c *claim) period(inForce cgroup.Limits) int64 {
	switch o := c.ownership; {
	case o.State.Journalled() && o.API.Period > 0:
		return o.API.Period
	case inForce.Period > 0:
		return inForce.Period
	}
	return defaultPeriod
}

func changed(c cri.Change) cgroup.Limits {
	return cgroup.Limits{Quota: c.Quota, Period: c.Period, Memory: c.Memory}
}

// target is what a restore is to bring about.
type target struct {
	limits  cgroup.Limits // to be in force; 0 is not known, or none
	waiting bool          // not final: the entry stays, and the restore goes on later
	inUse   mdp.Bytes     // memory; 0 is not known
	most    mdp.Bytes     // that the memory limit may be raised by now; more comes later
	asked   func() bool   // asks the API server whether the limits are what it gives at this moment
}

// restore gives a container the API's values of the limits that are ours. A nil
// error means that it is done, or that only the API is waited for. A container that is gone is done.
//
// The memory limit is not lowered to what is in use, or near it: the kernel would
// kill. It waits.
func (c *claim) restore(ctx context.Context, now time.Time, inForce cgroup.Limits, to target) error {
	switch c.ownership.State {
	case restore.Released: // only the entry is left
		return c.on(now, restore.Event{Kind: restore.Restored})
	case restore.InDoubt, restore.Ours:
	default:
		return nil
	}
	back := c.ownership.Back(to.limits)
	held := c.holds(inForce, back, to.inUse)
	if held != nil {
		back.Memory = 0
	} else {
		back.Memory, held = c.roomFor(inForce, back, to.most)
	}
	final := !to.waiting && held == nil
	m := moveTo(c.id, inForce, back, final || c.ownership.Behind)
	if !m.Change.Empty() {
		if err := c.give(ctx, now, m, inForce, to); err != nil {
			return errors.Join(err, held)
		}
	}
	if !final {
		return held
	}
	if err := c.on(now, restore.Event{Kind: restore.Restored}); err != nil {
		return err
	}
	c.runtime.Forget(c.id)
	c.metrics.restores.Inc()
	c.log.Info("restored", "container", c.ref, "from", inForce.Size(), "to", back.Size())
	return nil
}

// holds is an error when a memory limit may not be lowered now.
func (c *claim) holds(inForce, back cgroup.Limits, inUse mdp.Bytes) error {
	lowered := back.Memory > 0 && (inForce.Memory == 0 || back.Memory < inForce.Memory)
	if !lowered || inUse > 0 && float64(back.Memory) >= float64(inUse)*minHeadroom {
		return nil
	}
	if inUse <= 0 {
		return fmt.Errorf("its memory limit stays at %v: it is not known whether %v is enough for what is in use",
			inForce.Memory, back.Memory)
	}
	return fmt.Errorf("its memory limit stays at %v until less is in use: the API gives %v, and %v is in use",
		inForce.Memory, back.Memory, inUse)
}

// leastRaise is the part of a memory limit by which it is raised at least, when the node
// has no room for all of it: each raise is a call of the runtime.
const leastRaise = 0.1

// roomFor is the memory limit that a restore sets when limits may be raised by at most
// that much, and an error when that is not all.
func (c *claim) roomFor(inForce, back cgroup.Limits, most mdp.Bytes) (mdp.Bytes, error) {
	if inForce.Memory <= 0 || back.Memory-inForce.Memory <= most {
		return back.Memory, nil
	}
	part := (inForce.Memory + most) / page * page
	if float64(part-inForce.Memory) < leastRaise*float64(inForce.Memory) {
		part = inForce.Memory
	}
	return part, fmt.Errorf("its memory limit goes from %v to the API's %v when the node has room: now it may grow by %v",
		inForce.Memory, back.Memory, most)
}

// moveTo is the Move that sets limits; 0 stays. Without all, what is in force already
// is not set again.
func moveTo(id string, inForce, to cgroup.Limits, all bool) cri.Move {
	if !all {
		to = to.Only(cgroup.Differ(inForce, to))
	}
	return cri.Move{
		ID:     id,
		From:   inForce.Size(),
		To:     to.Size(),
		Change: cri.Change{Quota: to.Quota, Period: to.Period, Memory: to.Memory},
		Must:   true,
	}
}

// give sets the values of a restore: through the runtime, and otherwise directly. A
// journal that cannot be written does not stop it: its entry is an older one of the
// same container. But then, unless the agent ends, the runtime is not called, since a call that lands late would bring back
// what nobody knows for ours; and what the entry does not know is set only when the API server has just said that it gives
// that: where the news of a resize are late it would be such a value, too.
func (c *claim) give(ctx context.Context, now time.Time, m cri.Move, inForce cgroup.Limits, to target) error {
	intended := c.intend(now, m, inForce, to.limits)
	if intended != nil { // the API's values are no conflict when they are found in force
		_ = c.on(now, restore.Event{Kind: restore.APIChanged, API: to.limits}) // an error is in c.problem
		_ = c.on(now, restore.Event{Kind: restore.BeforeInForce, InForce: inForce})
	}
	if intended != nil && !c.ends {
		m = moveTo(c.id, inForce, changed(m.Change), false)
		if !m.Change.Empty() && !to.asked() {
			m.Change = c.onDisk(m.Change)
		}
		if m.Change.Empty() {
			return fmt.Errorf("the restore of %v waits for the journal: %w", c.ref, intended)
		}
	}
	was := c.ownership.Wrote
	m, told, err := c.telling(ctx, now, m)
	unknown := errors.Join(err, intended)
	if unknown == nil {
		unknown = c.reckon(now, told)
	}
	note := func(kind restore.EventKind) {
		if intended == nil {
			_ = c.on(now, restore.Event{Kind: kind, Reach: was}) // an error is in c.problem
		}
	}
	tried := err == nil && (unknown == nil || c.ends)
	if tried {
		err = c.runtime.Restore(ctx, now, m)
	} else {
		err = unknown
	}
	switch {
	case err == nil:
		note(restore.Confirmed)
		return nil
	case errors.Is(err, cri.ErrNoContainer):
		return nil
	case tried && !errors.Is(err, cri.ErrOpen):
		c.metrics.failures.Inc()
		note(restore.Failed)
	}
	direct := c.tree.Write(c.path, changed(m.Relief().Change))
	switch {
	case direct == nil:
		note(restore.WrittenDirectly)
		return fmt.Errorf("%v: %w: %w", c.ref, errPending, err)
	case errors.Is(direct, cgroup.ErrGone):
		return nil
	case errors.Is(direct, cgroup.ErrReadOnly) && (errors.Is(err, cri.ErrOpen) || !tried):
		if err = c.runtime.Insist(ctx, now, m); err == nil {
			note(restore.Confirmed)
			return nil
		}
		note(restore.Failed)
	}
	return fmt.Errorf("restoring %v: %w", c.ref, errors.Join(err, direct))
}
