package agent

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// samples is how many samples a Track keeps: ten a second for five seconds, which
// is what a captain looks at.
const samples = 50

// second is the least time that counts as one second: samples jitter.
const second = 950 * time.Millisecond

// reported is how long an OOM kill is reported.
const reported = 15 * time.Second

// Sampler reads the groups of a node's containers. Sample is called ten times a second, and Glance when it is Due.
// Sample allocates nothing but for a raise of memory. All methods may be called from several goroutines, so that a
// slow container runtime does not stop the samples.
//
// Between two steps it relieves containers that are throttled, as far as their lanes
// allow.
type Sampler struct {
	tree     *cgroup.Tree        // in which it raises limits
	relieved func(time.Duration) // is called with the time that a raise took; nil for nobody

	mu     sync.Mutex
	tracks []*Track
	pods   map[string]*sharedGroup // of the tracks, by path
	order  []*sharedGroup          // the same
	buffer []byte                  // that all groups read into
	spare  func() mdp.Bytes        // that the lanes may raise memory limits by; nil: nothing
	taken  mdp.Bytes               // of it, since it was lent

	surging []*Track // that are looked at again before the next sample
}

// Track is one container's recent past. It belongs to its Sampler.
type Track struct {
	group *cgroup.Group
	pod   *sharedGroup
	next  int   // index of the next sample in the ring
	count int   // of samples in the ring
	same  int   // samples, up to the newest, that are the same as the one before
	fault error // of the last sample

	asleep bool // until its pod runs nothing is to be done

	glanceAt time.Time // when it is looked at again before the next sample, where it surges
	glances  int       // since the last sample

	readAt      time.Time // when a sample was read last; the others are the same
	movedAt     time.Time // the last one that was not the same as the one before
	throttledAt time.Time // the last sample that saw throttling

	limits   cgroup.Limits // of the last Look
	usage    cgroup.Usage  // as it was read last; without CPU
	usageAt  time.Time     // when it was read
	still    bool          // and nothing in it had moved
	zeros    mdp.Set       // the signals that are known of it then
	kills    [16]kill      // a ring of the newest OOM kills
	nextKill int           // index of the next kill in the ring

	lane   lane
	memory tightness
	uses   spread       // of CPU, in tenths of a second
	second mdp.MilliCPU // what CPUPeak is of five seconds, of the last second only
	heard  relief       // what the lane had done at the last Look
	course api.Course   // of the CPU use, up to the last Look

	ring [samples]sample // last: what is above it is used in each sample
}

// sample is the CPU usage at one time.
type sample struct {
	at time.Time
	cgroup.CPU
}

// kill is a number of OOM kills at one time.
type kill struct {
	at time.Time
	n  int
}

// Add begins to read a group. The Sampler owns it from now on.
func (s *Sampler) Add(g *cgroup.Group) *Track {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.Share(&s.buffer)
	t := &Track{group: g, pod: s.share(g.Path())}
	s.tracks = append(s.tracks, t)
	return t
}

// Remove stops reading a group, and closes it.
func (s *Sampler) Remove(t *Track) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.tracks {
		if one == t {
			s.tracks = append(s.tracks[:i], s.tracks[i+1:]...)
			s.surging = slices.DeleteFunc(s.surging, func(o *Track) bool { return o == t })
			t.group.Close()
			s.unshare(t.pod)
			return
		}
	}
}

// Len is how many groups are read.
func (s *Sampler) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tracks)
}

// Sample reads the CPU figures of every group, and relieves those that are throttled, or whose
// memory is nearly full. It
// reports whether the step is needed: some cgroup may not be written directly, or some
// container is throttled at its ceiling.
func (s *Sampler) Sample(now time.Time) (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.surging = s.surging[:0]
	for _, p := range s.order {
		p.look(now)
	}
	for _, t := range s.tracks {
		// After a stall, two samples can be so close that rounding makes a peak.
		if t.count > 0 && now.Sub(t.back(0).at) < 20*time.Millisecond {
			continue
		}
		if t.asleep && t.pod.ranAt.Before(now) {
			t.repeat(now)
			continue
		}
		if t.fault = t.sample(now); t.fault != nil {
			continue
		}
		s.relieve(t, now)
		s.relieveMemory(t, now)
		wanted = wanted || errors.Is(t.lane.news.err, cgroup.ErrReadOnly) || t.lane.met
		t.asleep = t.dormant(now)
	}
	return wanted
}

// relieve raises a throttled container's limit, and notes one that soon will be.
func (s *Sampler) relieve(t *Track, now time.Time) {
	if !t.lane.open {
		return
	}
	t.takeBack(now)
	if t.waits(now) {
		return
	}
	if !t.throttled() && !t.full() {
		s.watch(t)
		return
	}
	s.raise(t, now)
}

// raise raises a container's limit, and measures how long that took.
func (s *Sampler) raise(t *Track, now time.Time) {
	begun := time.Now()
	if t.relieve(s.tree, now) && s.relieved != nil {
		s.relieved(time.Since(begun))
	}
}

// back is the i-th newest sample.
func (t *Track) back(i int) *sample { return &t.ring[(t.next-1-i+2*samples)%samples] }

// Look reads everything about a group. The State is made from the samples and from
// the changes since the last Look; its OOMKills are those since the last Look.
// recent is the number of OOM kills in the last 15 s.
func (s *Sampler) Look(t *Track, now time.Time) (state mdp.State, l cgroup.Limits, recent int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.fault != nil {
		return state, l, 0, t.fault
	}
	rested := t.rested(now)
	if l, err = t.group.Limits(); err != nil {
		return state, l, 0, err
	}
	t.limits = l
	state.At = now
	if rested {
		state.Observed |= t.zeros
	} else if err = t.lookOthers(now, &state); err != nil {
		return state, l, 0, err
	}
	if c := l.CPU(); c > 0 {
		state.Limit.CPU = c
		state.Observed |= mdp.SetOf(mdp.CPULimit)
	}
	if l.Memory > 0 {
		state.Limit.Memory = l.Memory
		state.Observed |= mdp.SetOf(mdp.MemoryLimit)
	}
	if t.usage.Observed.Has(cgroup.WorkingSet) {
		state.Usage.Memory = t.usage.WorkingSet
		state.Observed |= mdp.SetOf(mdp.MemoryUsage)
	}
	t.heard = t.lane.take()
	t.lastSecond(now, &state)
	t.lastSamples(now, &state)
	t.follow()
	for _, k := range t.kills {
		if now.Sub(k.at) < reported {
			recent += k.n
		}
	}
	return state, l, recent, nil
}

// lookOthers reads memory, I/O and stalls.
func (t *Track) lookOthers(now time.Time, state *mdp.State) error {
	var u cgroup.Usage
	if err := t.group.ReadOthers(&u); err != nil {
		return err
	}
	t.change(now, &u, state)
	t.remember(state)
	// The first reading does not know what moves.
	t.still = t.still && !t.usageAt.IsZero() && u.Memory == t.usage.Memory
	t.usage = u
	t.usageAt = now
	return nil
}

// lastSecond sets mean usage and throttling over about the last second.
func (t *Track) lastSecond(now time.Time, state *mdp.State) {
	if t.count < 2 || now.Sub(t.back(0).at) > time.Second {
		return
	}
	newest := t.back(0)
	oldest := newest
	for i := 1; i < t.count; i++ {
		oldest = t.back(i)
		if newest.at.Sub(oldest.at) >= second {
			break
		}
	}
	took := newest.at.Sub(oldest.at)
	if took < 500*time.Millisecond {
		return
	}
	if newest.Observed.Has(cgroup.CPUUsage) && oldest.Observed.Has(cgroup.CPUUsage) {
		state.Usage.CPU = per(newest.Usage-oldest.Usage, took)
		state.Observed |= mdp.SetOf(mdp.CPUUsage)
	}
	if newest.Observed.Has(cgroup.Throttling) && oldest.Observed.Has(cgroup.Throttling) {
		// Without a period nothing ran, and nothing was throttled: 0 is known.
		if periods := newest.Periods - oldest.Periods; newest.Periods > oldest.Periods {
			throttled := newest.ThrottledPeriods - min(oldest.ThrottledPeriods, newest.ThrottledPeriods)
			state.Throttled = min(1, mdp.Ratio(throttled)/mdp.Ratio(periods))
		}
		state.Observed |= mdp.SetOf(mdp.Throttled)
	}
}

// lastSamples sets the peak and the deviation over all samples, when they cover a
// second. The peak is the lowest limit whose quota the container has not used up in any period. The
// quota is the ceiling's, and the period the shortest time in which the container has used so much, or
// the longest one.
func (t *Track) lastSamples(now time.Time, state *mdp.State) {
	if t.count < 11 || now.Sub(t.back(0).at) > time.Second {
		return
	}
	window := t.window()
	whole, known := t.peaks(window)
	if !known {
		return
	}
	state.CPUPeak, t.second, state.CPUDeviation = whole.highest, whole.newest, whole.deviation
	state.Observed |= mdp.SetOf(mdp.CPUPeak, mdp.CPUDeviation)
	if quota := time.Duration(t.lane.top.Quota) * time.Microsecond; window > 1 && quota > 0 {
		if in := t.soonest(quota, t.count); in > 0 {
			state.CPUPeak = per(quota, in)
			part, _ := t.peaks(max(1, min(window, int(in/tenth))))
			state.CPUDeviation = part.deviation
		}
		if in := t.soonest(quota, int(time.Second/tenth)); in > 0 {
			t.second = per(quota, in)
		}
	}
	if burst, ok := t.burst(); ok {
		state.CPUBurst = burst
		state.Observed |= mdp.SetOf(mdp.CPUBurst)
	}
}

// peaks is how high the use was in windows of some samples.
type peaks struct {
	highest   mdp.MilliCPU
	newest    mdp.MilliCPU // the highest of the last second
	deviation mdp.MilliCPU
}

// peaks looks at all windows of so many samples.
func (t *Track) peaks(window int) (p peaks, known bool) {
	var sum, squares float64
	for i := range t.count - window {
		used, known := t.use(i, window)
		if !known {
			return p, false
		}
		p.highest = max(p.highest, used)
		if i < int(time.Second/tenth) {
			p.newest = p.highest
		}
		sum += float64(used)
		squares += float64(used) * float64(used)
	}
	n := float64(t.count - window)
	mean := sum / n
	p.deviation = mdp.MilliCPU(math.Sqrt(max(0, squares/n-mean*mean)))
	return p, true
}

// soonest is the shortest time in which so much CPU time was used, up to the longest period, that
// ended in one of the newest samples; 0 is none. Within a sample the use counts as even.
func (t *Track) soonest(quota time.Duration, newest int) (in time.Duration) {
	const most = longest * time.Microsecond
	for i := range min(newest, t.count) {
		for n := 1; i+n < t.count; n++ {
			used, span, known := t.spent(i, n)
			if !known {
				break
			}
			if used < quota {
				if span >= most {
					break
				}
				continue
			}
			// What is too much was used at the begin of the time, or at its end.
			for _, end := range []int{i, i + n - 1} {
				ofEnd, took, _ := t.spent(end, 1)
				excess := float64(used-quota) / float64(max(1, ofEnd))
				if least := span - time.Duration(min(1, excess)*float64(took)); least <= most && (in == 0 || least < in) {
					in = least
				}
			}
			break
		}
	}
	return in
}

// burst is the highest mean usage over one second, among the samples; ok is false when
// they do not cover a second. All of them have a usage.
func (t *Track) burst() (highest mdp.MilliCPU, ok bool) {
	first := 1
	for last := range t.count - 1 {
		newest := t.back(last)
		for first < t.count && newest.at.Sub(t.back(first).at) < second {
			first++
		}
		if first == t.count {
			break
		}
		oldest := t.back(first)
		highest = max(highest, per(newest.Usage-oldest.Usage, newest.at.Sub(oldest.at)))
		ok = true
	}
	return highest, ok
}

// Course is how much CPU a container has used in the last halves of a second.
func (s *Sampler) Course(t *Track) api.Course {
	s.mu.Lock()
	defer s.mu.Unlock()
	return api.Course{Until: t.course.Until, Use: slices.Clone(t.course.Use)}
}

// follow adds the halves of a second that the samples have since the last time. After one that they do not have the
// course begins anew.
func (t *Track) follow() {
	if t.count == 0 {
		return
	}
	c := &t.course
	newest := halves(t.back(0).at)
	for half := max(c.Until, halves(t.back(t.count-1).at)) + 1; half <= newest; half++ {
		from, known := t.usedAt(half - 1)
		to, too := t.usedAt(half)
		if !known || !too || half != c.Until+1 {
			c.Use = c.Use[:0]
		}
		if known && too {
			c.Use = append(c.Use, per(to-from, api.Half))
		}
		if c.Until = half; len(c.Use) > api.MaxHalves {
			c.Use = append(c.Use[:0], c.Use[1:]...)
		}
	}
}

// halves is how many halves of a second have ended at a time, since 1970.
func halves(at time.Time) int64 { return at.UnixNano() / int64(api.Half) }

// usedAt is the CPU time that had been used at the end of a half of a second: between two samples it counts as even.
func (t *Track) usedAt(half int64) (used time.Duration, known bool) {
	at := time.Unix(0, half*int64(api.Half))
	for i := 1; i < t.count; i++ {
		newer, older := t.back(i-1), t.back(i)
		if older.at.After(at) {
			continue
		}
		span := newer.at.Sub(older.at)
		if newer.at.Before(at) || span <= 0 || !(newer.Observed & older.Observed).Has(cgroup.CPUUsage) {
			return 0, false
		}
		share := float64(at.Sub(older.at)) / float64(span)
		return older.Usage + time.Duration(share*float64(newer.Usage-older.Usage)), true
	}
	return 0, false
}

// use is the mean use of CPU between sample i, where 0 is the newest, and the one n samples before.
func (t *Track) use(i, n int) (used mdp.MilliCPU, known bool) {
	spent, span, known := t.spent(i, n)
	return per(spent, span), known
}

// spent is the CPU time between the same two samples, and the time between them.
func (t *Track) spent(i, n int) (used, span time.Duration, known bool) {
	if i+n >= t.count {
		return 0, 0, false
	}
	newer, older := t.back(i), t.back(i+n)
	known = newer.Observed.Has(cgroup.CPUUsage) && older.Observed.Has(cgroup.CPUUsage)
	return newer.Usage - older.Usage, newer.at.Sub(older.at), known
}

// throttled reports whether the newest sample has more throttled periods than the one
// before it.
func (t *Track) throttled() bool {
	if t.count < 2 {
		return false
	}
	now, before := t.back(0), t.back(1)
	return now.Observed.Has(cgroup.Throttling) && before.Observed.Has(cgroup.Throttling) &&
		now.ThrottledPeriods > before.ThrottledPeriods
}

// change sets what the counters say about the time between two Looks.
func (t *Track) change(now time.Time, u *cgroup.Usage, state *mdp.State) {
	before := &t.usage
	took := now.Sub(t.usageAt)
	if t.usageAt.IsZero() || took <= 0 {
		return
	}
	both := u.Observed & before.Observed
	if both.Has(cgroup.OOMKills) {
		n := int(u.OOMKills - min(before.OOMKills, u.OOMKills))
		state.OOMKills = n
		state.Observed |= mdp.SetOf(mdp.OOMKills)
		if n > 0 {
			t.kills[t.nextKill] = kill{now, n}
			t.nextKill = (t.nextKill + 1) % len(t.kills)
		}
	}
	if both.Has(cgroup.IOBytes) {
		state.IORate = mdp.Rate(float64(u.IOBytes-min(before.IOBytes, u.IOBytes)) / took.Seconds())
		state.Observed |= mdp.SetOf(mdp.IORate)
	}
	stalled := func(now, before time.Duration) mdp.Ratio {
		return mdp.Ratio(min(1, max(0, float64(now-before)/float64(took))))
	}
	if both.Has(cgroup.CPUPressure) {
		state.CPUPressure = stalled(u.CPUSome, before.CPUSome)
		state.Observed |= mdp.SetOf(mdp.CPUPressure)
	}
	if both.Has(cgroup.MemoryPressure) {
		state.MemoryPressure = stalled(u.MemoryFull, before.MemoryFull)
		state.Observed |= mdp.SetOf(mdp.MemoryPressure)
	}
	if both.Has(cgroup.IOPressure) {
		state.IOPressure = stalled(u.IOFull, before.IOFull)
		state.Observed |= mdp.SetOf(mdp.IOPressure)
	}
}

// per is the CPU usage of a CPU time within a time.
func per(used, took time.Duration) mdp.MilliCPU {
	if took <= 0 || used <= 0 {
		return 0
	}
	return mdp.MilliCPU(float64(used)*1000/float64(took) + 0.5)
}

// inUse is the memory in use at the last Look.
func (s *Sampler) inUse(t *Track) (mdp.Bytes, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.usage.WorkingSet, t.usage.Observed.Has(cgroup.WorkingSet)
}
