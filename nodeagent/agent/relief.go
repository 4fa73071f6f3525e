package agent

import (
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/restore"
)

// relieve raises the limit of a container that was throttled since the sample before,
// and whose lane is open. It reports whether it did. Somebody else's value is not touched:
// it may be a new ceiling, of which the step has not heard yet.
func (t *Track) relieve(tree *cgroup.Tree, now time.Time) bool {
	l := &t.lane
	if l.top.Quota <= 0 {
		return false
	}
	inForce, err := t.group.CPULimit()
	if err != nil || inForce.Quota <= 0 {
		l.open = false // the step finds out why
		return false
	}
	if inForce.CPU() >= l.top.CPU() {
		if t.throttled() {
			l.meet(now)
		}
		return false
	}
	memory, err := t.group.MemoryLimit()
	inForce.Memory = memory
	if err != nil || !t.knowsCPU(inForce) || !t.knowsMemory(inForce) {
		l.open = false
		return false
	}
	to := t.allowed(tree, inForce)
	if to.CPU() <= inForce.CPU() || !t.write(now, inForce, to) {
		return false
	}
	if l.back.Quota <= 0 || l.back.CPU() > inForce.CPU() {
		l.back = cgroup.Limits{Quota: inForce.Quota, Period: inForce.Period}
	}
	l.raised(now)
	l.raisedTo = to.CPU()
	l.news.n, l.news.over = l.news.n+1, false
	return true
}

// meet notes that the container is throttled at its ceiling. Nobody hears of it more
// often than of anything else.
func (l *lane) meet(now time.Time) {
	if now.Sub(l.atTop) <= meets && now.Sub(l.metAt) >= api.ReportEvery {
		l.met = true
		l.metAt = now
	}
	l.atTop = now
}

// allowed is the ceiling, or what of it the pod has room for: the kubelet may have lowered
// the pod's limit, and left the container's as it was. It is in whole steps then, by
// which the next agent knows it for ours.
func (t *Track) allowed(tree *cgroup.Tree, inForce cgroup.Limits) cgroup.Limits {
	l := &t.lane
	pod, err := t.pod.cpuLimit(tree)
	if err != nil {
		l.open = false
		l.news.err = err
		return inForce
	}
	room := left(pod.CPU(), l.others.limits.CPU, inForce.CPU(), l.others.shared.Has(mdp.CPULimit))
	if room == 0 || room >= l.top.CPU() {
		return l.top
	}
	room = room / restore.CPUStep * restore.CPUStep
	return cgroup.Limits{Quota: cgroup.Quota(room, l.top.Period), Period: l.top.Period}
}

// write sets the limit, and reports whether it could. Where not, the step is to do it.
func (t *Track) write(now time.Time, inForce, to cgroup.Limits) bool {
	l := &t.lane
	if err := t.group.ReplaceCPU(inForce, to); err != nil {
		l.open = false
		l.news.err = err
		return false
	}
	l.news.at, l.wroteAt = now, now
	l.refill = l.refill.after(now, inForce, to)
	l.news.to.Quota, l.news.to.Period = to.Quota, to.Period
	return true
}

// lower sets a lower limit, when what is in force is the step's or the lane's.
func (t *Track) lower(now time.Time, to cgroup.Limits) bool {
	l := &t.lane
	inForce, err := t.group.CPULimit()
	mine := err == nil && (inForce.SameCPU(l.has) || l.news.to.Quota > 0 && inForce.SameCPU(l.news.to))
	if !mine || inForce.CPU() <= to.CPU() || !t.write(now, inForce, to) {
		return false
	}
	l.has.Quota, l.has.Period = to.Quota, to.Period
	return true
}

// knowsCPU and knowsMemory report whether a limit in force is one that we have set or seen. The
// kubelet sets both at once: where one of them is somebody else's, the other one may be, too,
// although it is what we have set.
func (t *Track) knowsCPU(inForce cgroup.Limits) bool {
	l := &t.lane
	return l.has.Quota <= 0 && inForce.SameCPU(t.limits) || l.has.Quota > 0 && inForce.SameCPU(l.has) ||
		l.next.Quota > 0 && inForce.SameCPU(l.next) || l.news.to.Quota > 0 && inForce.SameCPU(l.news.to)
}

func (t *Track) knowsMemory(inForce cgroup.Limits) bool {
	l := &t.lane
	return l.has.Memory <= 0 && inForce.SameMemory(t.limits) || l.has.Memory > 0 && inForce.SameMemory(l.has) ||
		l.next.Memory > 0 && inForce.SameMemory(l.next)
}

// What ends a burst: so many samples in a row, all after the raise, which would have fitted into
// what was in force before. A burst has lulls. Where relief is needed again within a lull after it was taken
// back, and sooner after the raise before than the throttle target allows, that was not the end, and it takes
// twice as many samples the next time; half as many where it was.
const (
	calmSamples     = 3
	mostCalmSamples = 12
	calmShare       = 0.95
	lull            = time.Second
)

// raised takes in a raise.
func (l *lane) raised(now time.Time) {
	calm := max(calmSamples, l.calm)
	switch {
	case l.overAt.IsZero():
	case now.Sub(l.overAt) <= lull && now.Sub(l.raisedAt) < l.between:
		l.calm = min(mostCalmSamples, 2*calm)
	default:
		l.calm = calm / 2
	}
	l.raisedAt, l.overAt = now, time.Time{}
}

// takeBack takes relief back in the sample that shows the end of a burst. What is still
// needed is eased, and comes down by steps.
func (t *Track) takeBack(now time.Time) {
	l := &t.lane
	if l.back.Quota <= 0 || l.keep {
		return
	}
	used, known := t.sinceRaise(max(calmSamples, l.calm))
	if !known || float64(used) > calmShare*float64(l.back.CPU()) {
		t.ease(now)
		return
	}
	if t.lower(now, l.back) {
		l.news.over = true
		l.overAt = now
	}
	l.back = cgroup.Limits{}
}

// sinceRaise is the mean use of the last samples, when all of them are of after the raise.
func (t *Track) sinceRaise(samples int) (used mdp.MilliCPU, known bool) {
	if t.count <= samples || t.back(samples).at.Before(t.lane.raisedAt) {
		return 0, false
	}
	return t.use(0, samples)
}

// A burst needs less than the ceiling as a rule. How much it needs is not known while a limit cuts it off, and is once nothing
// has been throttled for some samples: relief then comes down to a little above the highest use of the last second.
const (
	easeSamples = int(time.Second / tenth)
	easeShare   = 0.8 // of what is in force, at most: less is not worth a write
)

// ease lowers relief while the burst goes on, once after each raise, unless the step has. Where the target has no room it stays.
func (t *Track) ease(now time.Time) {
	l := &t.lane
	has := l.has.CPU()
	if l.news.to.Quota > 0 {
		has = l.news.to.CPU()
	}
	_, calm := t.sinceRaise(calmSamples)
	if !calm || l.early || float64(has) <= easeShare*float64(l.raisedTo) || t.count <= easeSamples {
		return
	}
	var most mdp.MilliCPU
	for i := range easeSamples {
		used, known := t.use(i, 1)
		if !known || i < calmSamples && t.back(i).ThrottledPeriods > t.back(i+1).ThrottledPeriods {
			return
		}
		most = max(most, used)
	}
	to := mdp.MilliCPU(math.Ceil(overPeak*float64(most)/restore.CPUStep)) * restore.CPUStep
	if to < l.back.CPU() || float64(to) > easeShare*float64(has) {
		return
	}
	limit := cgroup.Limits{Quota: cgroup.Quota(to, l.top.Period), Period: l.top.Period}
	if l.patience == 0 {
		limit = stretch(to, l.top.CPU(), l.top.Period, longest)
	}
	t.lower(now, limit)
}
