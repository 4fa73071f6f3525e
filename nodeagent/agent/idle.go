package agent

import (
	"path/filepath"
	"runtime"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// Reading files is what the agent's CPU goes into, and most containers of a node do nothing
// in most tenths of a second. So a sample reads one file of each pod, its CPU time, which has
// that of its containers in it. A container is read when its pod has run.
//
// The law: whatever is not read could not have changed, so each sample is what it would be if
// every file were read, and throttling is seen in the first sample after its period. A period
// is throttled only when the container has run in it, or still pays for the time in which it ran
// too long; then the counter moves with each period. So a container is read on until neither its pod's
// CPU time nor its counter of throttled periods has moved for two whole periods, and it was read
// after that; only then, where it has used too little to be throttled (ADR 20).

// sharedGroup is a pod's group. Its containers share it.
type sharedGroup struct {
	path   string
	group  *cgroup.Group // nil when it cannot be read: then nothing is known of its containers
	tracks int           // containers that are read

	used   time.Duration // CPU time at the last reading
	readAt time.Time     // the last reading; zero before the first
	ranAt  time.Time     // the last sample that saw it run, or did not look
	always int           // readings in a row that saw it run
	rest   int           // samples that do not look, because it runs all the time
}

const (
	// A pod that has run in so many readings in a row is not looked at for so many samples:
	// its containers are read in any case.
	alwaysAfter = 5
	restFor     = 20
)

// share finds or opens the group of a container's pod.
func (s *Sampler) share(path string) *sharedGroup {
	dir := filepath.Dir(path)
	p := s.pods[dir]
	if p == nil {
		p = &sharedGroup{path: dir}
		if g, err := s.tree.Pod(dir); err == nil {
			g.Share(&s.buffer)
			p.group = g
		}
		if s.pods == nil {
			s.pods = make(map[string]*sharedGroup)
		}
		s.pods[dir] = p
		s.order = append(s.order, p)
	}
	p.tracks++
	return p
}

// unshare lets go of it.
func (s *Sampler) unshare(p *sharedGroup) {
	if p.tracks--; p.tracks > 0 {
		return
	}
	if p.group != nil {
		p.group.Close()
	}
	delete(s.pods, p.path)
	for i, one := range s.order {
		if one == p {
			s.order = append(s.order[:i], s.order[i+1:]...)
			return
		}
	}
}

// cpuLimit is the pod's own limit.
func (p *sharedGroup) cpuLimit(tree *cgroup.Tree) (cgroup.Limits, error) {
	if p.group == nil {
		return tree.CPULimit(p.path)
	}
	return p.group.CPULimit()
}

// look finds out whether any container of the pod has run since the look before.
func (p *sharedGroup) look(now time.Time) {
	if p.rest > 0 {
		p.rest--
	}
	if p.group == nil || p.rest > 0 {
		p.ranAt = now
		return
	}
	used, known, err := p.group.CPUTime()
	ran := err != nil || !known || p.readAt.IsZero() || used != p.used
	p.used, p.readAt = used, now
	if !ran {
		p.always = 0
		return
	}
	p.ranAt = now
	if p.always++; p.always >= alwaysAfter {
		p.always, p.rest = alwaysAfter-2, restFor
	}
}

// idle reports whether nothing of the container can have changed since it was read.
func (t *Track) idle() bool {
	if t.count == 0 || t.fault != nil || t.pod.readAt.IsZero() {
		return false
	}
	since := t.pod.ranAt
	if t.throttledAt.After(since) {
		since = t.throttledAt
	}
	return t.readAt.Sub(since) >= 2*t.period()
}

// slice is what the kernel hands out of a quota to each CPU in advance, and takes back later.
const slice = 5 * time.Millisecond

// spared reports whether a container need not be read now, and only once later: its pod has not
// run since it was read, and it has used so little of its quota in the last two periods that neither
// can be throttled, nor pays for what it used too much.
func (t *Track) spared(now time.Time) bool {
	if t.count == 0 || t.fault != nil || t.pod.readAt.IsZero() || !t.pod.ranAt.Before(now) {
		return false
	}
	two := 2 * t.period()
	if now.Sub(t.pod.ranAt) >= two || now.Sub(t.throttledAt) < two {
		return false
	}
	quota := t.limits.Quota
	for _, l := range []int64{t.lane.has.Quota, t.lane.next.Quota} {
		if l > 0 && (quota <= 0 || l < quota) {
			quota = l
		}
	}
	spare := time.Duration(quota)*time.Microsecond - time.Duration(cpus)*slice
	for i := 1; i < t.count; i++ {
		used, span, known := t.spent(0, i)
		if !known || quota > 0 && used >= spare {
			return false
		}
		if span >= two {
			return true
		}
	}
	return false
}

// cpus is the node's.
var cpus = runtime.NumCPU()

// period is the container's CFS period.
func (t *Track) period() time.Duration {
	longest := max(t.limits.Period, t.lane.has.Period, t.lane.next.Period)
	if longest <= 0 {
		return defaultPeriod * time.Microsecond
	}
	return time.Duration(longest) * time.Microsecond
}

// sample takes the next sample of a container, from its files if need be.
func (t *Track) sample(now time.Time) error {
	into := &t.ring[t.next]
	if t.idle() || t.spared(now) {
		into.CPU = t.back(0).CPU
	} else if err := t.group.ReadCPU(&into.CPU); err != nil {
		return err
	} else {
		t.readAt = now
	}
	if t.same++; t.count == 0 || into.CPU != t.back(0).CPU {
		t.same, t.movedAt = 0, now
	}
	t.taken(now)
	if t.throttled() {
		t.throttledAt = now
	}
	t.spread()
	return nil
}

// dormant reports whether nothing is to be done for the container until its pod runs: it has used nothing
// in all the samples that matter to a relief, and its lane has nothing to take back or to say.
func (t *Track) dormant(now time.Time) bool {
	return t.same >= longest/int(tenth/time.Microsecond) && now.Sub(t.movedAt) >= longest*time.Microsecond &&
		t.idle() && t.back(0).Observed.Has(cgroup.CPUUsage) &&
		t.lane.back.Quota <= 0 && !t.lane.met && t.lane.news.err == nil
}

// repeat is the next sample of a container that is asleep.
func (t *Track) repeat(now time.Time) {
	t.ring[t.next].CPU = t.back(0).CPU
	t.same++
	t.taken(now)
	t.uses.addLater()
}

// taken ends the next sample, whose CPU is in the ring.
func (t *Track) taken(now time.Time) {
	t.ring[t.next].at = now
	t.next = (t.next + 1) % samples
	t.count = min(t.count+1, samples)
}

// restLook is how long a Look may take the memory, I/O and stalls of a container that does
// nothing from the Look before. Not all of that needs CPU time of the container: others can
// take its file pages, and the kernel writes its dirty ones later.
const restLook = 5 * time.Second

// rested reports whether a Look may leave them: the container has not run since they were read, and
// when they were read they had not moved.
func (t *Track) rested(now time.Time) bool {
	return t.still && !t.usageAt.IsZero() && now.Sub(t.usageAt) < restLook && t.quiet(now, t.usageAt)
}

// quiet reports whether the container is known not to have run since a time: its pod has not, or its
// own CPU time was read since, and had not moved. What was seen last must be recent.
func (t *Track) quiet(now, since time.Time) bool {
	p := t.pod
	seen := func(at time.Time) bool { return at.After(since) && now.Sub(at) < restLook/10 }
	if seen(p.readAt) && !p.ranAt.After(since) {
		return true
	}
	return (seen(p.readAt) || seen(t.readAt)) && !t.readAt.Before(p.ranAt) && !t.movedAt.After(since)
}

// ofOthers are the signals that a Look makes of memory, I/O and stalls, and that are zero when
// nothing happened.
var ofOthers = mdp.SetOf(mdp.OOMKills, mdp.IORate, mdp.CPUPressure, mdp.MemoryPressure, mdp.IOPressure)

// remember notes which of them are known, and whether all are zero.
func (t *Track) remember(s *mdp.State) {
	t.zeros = s.Observed & ofOthers
	t.still = s.OOMKills == 0 && s.IORate == 0 && s.CPUPressure == 0 && s.MemoryPressure == 0 && s.IOPressure == 0
}
