package agent

import (
	"time"

	"awarescale.dev/aware/nodeagent/cgroup"
)

// A shorter period does not begin when it is written. The kernel gives the container the new quota, and lets the timer of the old
// period run on: it goes by the new period only after it has ended. So a container that was relieved from a quota in 400 ms to
// one of 90 ms in 100 ms had 90 ms until those 400 ms were over: measured, a burst was relieved at once, and then stood still for
// up to 0.3 s (ADR 41). But each write of a quota fills it up. So after a write that makes the period shorter the quota is
// written again each time that a new period would have begun, until the old one must be over. What is used stays within the
// limit: one quota in each of its periods.

// refill is when a quota is filled up. The zero refill is never.
type refill struct {
	limit cgroup.Limits // that was written
	due   time.Time     // the next time
	until time.Time     // the old period is over by then
}

// after is the refill after a limit was written at a time in place of another one.
func (r refill) after(at time.Time, was, to cgroup.Limits) refill {
	next := refill{to, at.Add(microseconds(to.Period)), at.Add(microseconds(was.Period))}
	if r.until.After(next.until) {
		next.until = r.until // that period is not over yet
	}
	if was.Quota <= 0 || to.Quota <= 0 || !next.due.Before(next.until) {
		return refill{}
	}
	return next
}

// refillLater is the refill after a write since the newest sample, of which nobody knows when it was: it counts as late as it
// can have been.
func (t *Track) refillLater(was, to cgroup.Limits) refill {
	if t.count == 0 {
		return refill{}
	}
	return t.lane.refill.after(t.back(0).at.Add(tenth), was, to)
}

// fill writes the quota again when that is due. Somebody else's value is not touched.
func (t *Track) fill(now time.Time) {
	r := &t.lane.refill
	if r.due.IsZero() || now.Before(r.due) {
		return
	}
	inForce, err := t.group.CPULimit()
	same := err == nil && inForce.Period == r.limit.Period && inForce.SameCPU(r.limit)
	if !same || !now.Before(r.until) || t.group.ReplaceCPU(inForce, inForce) != nil {
		*r = refill{}
		return
	}
	t.lane.wroteAt = now
	if r.due = now.Add(microseconds(r.limit.Period)); !r.due.Before(r.until) {
		*r = refill{}
	}
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
