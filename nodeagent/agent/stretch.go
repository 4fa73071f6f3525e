package agent

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/restore"
)

// A CPU limit is a quota in each period. The usual way to a lower limit is a smaller quota, and
// then a peak that is over in a tenth of a second is cut into pieces, and a burst has built a
// queue before anybody can answer it. We keep the quota and make the period longer: a container
// at a quarter of its ceiling may use in one go what the ceiling gives in a period, and then
// waits. So what is over soon is not throttled at all, and a burst that lasts is seen in the use of
// CPU before the quota has been used up. In no period is more used than the ceiling gives in one of
// its own (ADR 24).

// The longest periods, in microseconds. A container that has used up its quota waits for the rest of
// the period when nobody relieves it.
const (
	longest = 400_000
	// Where the target has no room: the longest one of the kernel. The quota of a low limit then lasts until a
	// sample has seen that a burst has begun.
	longestStrict = 1_000_000
)

// stretched is a CPU limit in the form in which we write it. Where only the container runtime can
// relieve, and where work may queue, the period is the usual one.
func (c *managedContainer) stretched(limit mdp.MilliCPU) cgroup.Limits {
	period := c.period(c.inForce)
	if c.queues || !c.sampler.Direct(c.track) {
		return cgroup.Limits{Quota: cgroup.Quota(limit, period), Period: period}
	}
	most := int64(longest)
	if c.target < seldom {
		most = longestStrict
	}
	return stretch(limit, c.envelope.Bounds.CPU.Max, period, most)
}

// stretch is a limit below a ceiling, whose period is given, in a period of at most so much.
func stretch(limit, ceiling mdp.MilliCPU, period, most int64) cgroup.Limits {
	if limit > 0 && limit < ceiling {
		longer := min(most, int64(float64(period)*float64(ceiling)/float64(limit))) / restore.PeriodStep * restore.PeriodStep
		period = max(period, longer)
	}
	return cgroup.Limits{Quota: cgroup.Quota(limit, period), Period: period}
}

// A surge is a use so far above the limit, and of so much of the ceiling, that it is a burst, and
// not one of the peaks for which there is the quota.
const (
	surgeOver = 1.3 // times the limit
	// Of the ceiling. A burst that begins between two samples uses a part of a low limit's quota before the first
	// one, and the rest before the next.
	surgeShare = 0.25
	// Times what it used in its first sample, of which it may have been there for a part only.
	surgeNext = 2
)

// nearlyAll is the share of a quota that counts as all of it: the kernel hands it out in slices to each CPU,
// and what a CPU has left of its slice is not used. mostOfIt is that share where the target has no room:
// a CPU may have all of a slice left, 5 ms, and nothing else says before the period ends that the container
// is throttled.
const (
	nearlyAll = 0.98
	mostOfIt  = 0.85
)

// full reports whether the container has used up its quota: all of it in some of the last samples
// that a period can cover, or so much that a surge uses up the rest before the next sample.
// The kernel counts a throttled period when it ends, up to a period after the quota was used up. A
// limit that was written since has begun a period of its own.
func (t *Track) full() bool {
	left, known := t.left(nil)
	return known && (left <= t.surge() || left <= t.unused())
}

// unused is what a CPU may have left of a quota that has been used up, once nothing has been used in a whole sample; 0 while
// anything is, and where left counts it as used. A container that has used the rest, and then nothing, is throttled, as a rule:
// without this it waited for the end of a long period, 0.3 s.
func (t *Track) unused() time.Duration {
	used, span, known := t.spent(0, 1)
	if !known || used >= span/100 || t.lane.early {
		return 0
	}
	return time.Duration((nearlyAll - mostOfIt) * float64(microseconds(t.lane.has.Quota)))
}

// left is how much CPU time the container has left of its quota: the least that follows from the use of the last
// samples that a period can cover. newest is what was seen after the newest sample in the ring; nil is nothing.
func (t *Track) left(newest *sample) (left time.Duration, known bool) {
	has := t.lane.has
	if t.count < 2 || has.Quota <= 0 || has.Period <= 0 {
		return 0, false
	}
	period := microseconds(has.Period)
	share := nearlyAll
	if t.lane.early {
		share = mostOfIt
	}
	first := 0
	if newest == nil {
		first = 1
	}
	all := share * float64(microseconds(has.Quota))
	var most, usedIn, spanOf float64 // the most that was used, and what was used in the last window
	for i := first; i < t.count; i++ {
		used, span, ok := t.since(newest, i)
		if !ok {
			return 0, false
		}
		switch in := float64(span) / float64(period); {
		case in > 1 && i == first: // samples that took longer than a period have more
			usedIn = float64(used) / in
		case in > 1: // a part of the last sample is in it
			usedIn += (float64(used) - usedIn) * (float64(period) - spanOf) / (float64(span) - spanOf)
		default:
			usedIn = float64(used)
		}
		spanOf = float64(span)
		most = max(most, usedIn)
		if span >= period || !t.back(i).at.After(t.lane.wroteAt) {
			break
		}
	}
	return time.Duration(all - most), true
}

// since is the CPU time that was used since the i-th newest sample, and the time since then.
func (t *Track) since(newest *sample, i int) (used, span time.Duration, known bool) {
	if newest == nil {
		return t.spent(0, i)
	}
	older := t.back(i)
	known = i < t.count && newest.Observed.Has(cgroup.CPUUsage) && older.Observed.Has(cgroup.CPUUsage)
	return newest.Usage - older.Usage, newest.at.Sub(older.at), known
}

// surge is what a surge that is to be relieved early uses until the next sample; 0 is none.
func (t *Track) surge() time.Duration {
	used, span, known := t.spent(0, 1)
	if !known || !t.lane.early {
		return 0
	}
	rate := float64(per(used, span))
	if rate < surgeOver*float64(t.lane.has.CPU()) || rate < surgeShare*float64(t.lane.top.CPU()) {
		return 0
	}
	return min(surgeNext*used, tenth*time.Duration(t.lane.top.CPU())/1000)
}

// window is the samples over which use counts for the limit: those of the longest period where
// the limit can be stretched, and one otherwise.
func (t *Track) window() int {
	if t.group.Writable() {
		return longest / int(tenth/time.Microsecond)
	}
	return 1
}
