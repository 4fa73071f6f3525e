package agent

import (
	"context"
	"errors"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/restore"
	"golang.org/x/sys/unix"
)

// lane is the fast lane of one container: the Sampler itself raises its CPU limit in
// the sample that shows throttling, and its memory limit in the sample that shows it nearly
// full, by one direct write. It raises to the ceiling at
// once: how much a burst needs is not known while the limit cuts it off. Its lock is the
// Sampler's.
//
// The container's step opens the lane, when the journal has the range up to the
// ceiling, and hears at its next look what was done.
type lane struct {
	ref      api.ContainerRef
	open     bool
	has      cgroup.Limits // what the step has left in force
	next     cgroup.Limits // what a call of the step is setting now; 0 is none
	top      cgroup.Limits // what is raised to, if the pod has room; 0 is not raised
	others   others        // what the API gives to the other containers of the pod
	back     cgroup.Limits // what relief is taken back to when the burst is over; 0: none, or the step does it
	raisedAt time.Time     // the last raise, also when the step has set another limit since
	raisedTo mdp.MilliCPU  // what it came to
	overAt   time.Time     // when that was taken back; zero: it was not
	calm     int           // samples in a row that end a burst, but at least calmSamples
	between  time.Duration // two raises, at least, for which the throttle target has room
	keep     bool          // relief is not taken back: the runtime should know of it, and does not
	early    bool          // a surge is relieved before the quota is used up
	patience time.Duration // how long it may be throttled without a break before it is relieved
	held     time.Time     // since when it is throttled without a break; zero: it is not
	wroteAt  time.Time     // the last sample before the CPU limit was written
	news     relief        // that the step has not heard of
	atTop    time.Time     // of the last sample that was throttled at the ceiling
	met      bool          // the ceiling is met: throttled there twice within meets; nobody has heard of it
	metAt    time.Time     // when that was so last
	refill   refill        // of the quota, after a write
}

// meets is the time within which a container is throttled twice at its ceiling before
// that counts. The first time may be of before the raise.
const meets = 500 * time.Millisecond

// relief is what the lane has done since the step looked last.
type relief struct {
	at    time.Time     // of the last write; zero is none
	to    cgroup.Limits // written last; 0 was not written
	n     int           // how often the CPU limit was raised
	over  bool          // and taken back in the end
	err   error         // why a raise was not possible
	wants mdp.Bytes     // the memory limit that could not be written; 0: it was the CPU limit
}

// Open lets the Sampler raise a container's CPU limit, from now on.
func (s *Sampler) Open(t *Track, l lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := t.lane
	l.news, l.atTop = was.news, was.atTop
	l.met, l.metAt = was.met, was.metAt
	l.calm, l.raisedAt, l.raisedTo, l.overAt = was.calm, was.raisedAt, was.raisedTo, was.overAt
	l.held = was.held
	if l.wroteAt = was.wroteAt; !l.has.SameCPU(was.has) && t.count > 0 {
		l.wroteAt = t.back(0).at
	}
	l.refill = was.refill
	if was.next.Quota > 0 && l.has.SameCPU(was.next) && !l.has.SameCPU(was.has) { // the runtime has written it
		l.refill = t.refillLater(was.has, l.has)
	}
	if was.back.CPU() < min(l.has.CPU(), l.top.CPU()) {
		l.back = was.back
	}
	if l.news.to.Memory > 0 {
		l.has.Memory = l.news.to.Memory
	}
	t.lane = l
	t.lane.open = true
}

// Shut ends what Open allowed. What was in force before a relief is history then: the journal's next entry
// does not know it.
func (s *Sampler) Shut(t *Track) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.lane.open, t.lane.back = false, cgroup.Limits{}
}

// ShutIf shuts the lanes of which it is so. Central's message may say it at any time.
func (s *Sampler) ShutIf(so func(ref api.ContainerRef, top mdp.Size) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tracks {
		t.lane.open = t.lane.open && !so(t.lane.ref, t.lane.top.Size())
	}
}

// Expect says what a call of the step is about to set.
func (s *Sampler) Expect(t *Track, next cgroup.Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.lane.next = next
}

// Again repeats a raise that came after the step looked: a call that was made
// meanwhile has set what the step wanted before.
func (s *Sampler) Again(t *Track) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &t.lane
	if l.open && l.news.to.Quota > 0 {
		inForce, _ := t.group.CPULimit() // where it cannot be read it cannot be written
		t.write(l.news.at, inForce, l.news.to)
	}
	if is, err := t.group.MemoryLimit(); err == nil && l.open && l.news.to.Memory > is {
		t.raiseMemory(s.tree, l.news.at, l.news.to.Memory)
	}
}

// Direct reports whether a container's CPU limit can be written directly.
func (s *Sampler) Direct(t *Track) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.group.Writable()
}

// Set writes a CPU limit directly. What the lane has raised since the step looked stays:
// relieved is true then, and nothing was written.
func (s *Sampler) Set(t *Track, to cgroup.Limits) (relieved bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.lane.news.to.Quota > 0 {
		return true, nil
	}
	err = t.group.WriteCPU(to)
	if errors.Is(err, unix.EINVAL) { // a burst in its way
		err = s.tree.Write(t.group.Path(), cgroup.Limits{Quota: to.Quota, Period: to.Period})
	}
	if err == nil {
		t.lane.refill = t.refillLater(t.lane.has, to)
		t.lane.has.Quota, t.lane.has.Period = to.Quota, to.Period
		if t.count > 0 {
			t.lane.wroteAt = t.back(0).at
		}
	}
	return false, err
}

// Heard is what the lane has done, for the last time that it is asked.
func (s *Sampler) Heard(t *Track) relief {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.lane.take()
}

// Met reports, once, whether a container has met its ceiling, and brings what the samples
// say into its State.
func (s *Sampler) Met(t *Track, now time.Time, state *mdp.State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.lane.met {
		return false
	}
	t.lane.met = false
	state.At = now
	state.Limit.CPU = t.lane.top.CPU()
	state.Observed |= mdp.SetOf(mdp.CPULimit)
	t.lastSecond(now, state)
	t.lastSamples(now, state)
	return true
}

// Relieves reports whether relief is in force that is taken back when the burst is over.
func (s *Sampler) Relieves(t *Track) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.lane.open && t.lane.back.Quota > 0
}

func (l *lane) take() relief {
	news := l.news
	l.news = relief{}
	return news
}

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

// nearlyAll is the share of a quota that counts as all of it: the kernel hands it out in slices to each CPU,
// and what a CPU has left of its slice is not used. mostOfIt is that share where the target has no room:
// a CPU may have all of a slice left, 5 ms, and nothing else says before the period ends that the container
// is throttled.
const (
	nearlyAll = 0.98
	mostOfIt  = 0.85
)

// How far above its peak a limit stays: so that a steady container, whose peak is its use, does not use
// all of it; and, where the target has no room, so that a load that is high for long does not meet
// its limit in its own ups and downs. What is queued then is late.
const (
	overPeak     = 1.1
	wellOverPeak = 1.3
)

// settling is how a limit comes down again after relief: not below
//
//	want + (top - want) * 2^-((now - at) / half)
//
// Each relief costs at least one throttled period. When reliefs come so often that
// this alone is more than the throttle target, the half-life doubles, and otherwise it
// is halved.
type settling struct {
	at   time.Time // of the last relief; zero is none
	top  mdp.MilliCPU
	half time.Duration
}

// The half-life's range: the steps of the agent, and what a burst seldom outlives.
const (
	leastHalf = time.Second
	mostHalf  = 30 * time.Second
)

// seldom is the share of throttled periods for which a limit is not kept up longer, whatever the
// target is, unless that is none. Otherwise each burst, of one in five seconds, costs the ceiling for
// seconds; a larger margin costs less.
const seldom mdp.Ratio = 0.02

// between is the least time between two reliefs with which the throttled periods that they cost are
// within a target.
func between(target mdp.Ratio) time.Duration {
	if target <= 0 {
		return math.MaxInt64
	}
	return time.Duration(defaultPeriod * float64(time.Microsecond) / float64(max(target, seldom)))
}

// relieved takes in a relief.
func (s *settling) relieved(now time.Time, top mdp.MilliCPU, target mdp.Ratio) {
	switch {
	case s.at.IsZero():
		s.half = leastHalf
	case now.Sub(s.at) < between(target):
		s.half = min(mostHalf, 2*s.half)
	default:
		s.half = max(leastHalf, s.half/2)
	}
	s.at, s.top = now, top
}

// heard takes in what the lane has done. What it has taken back does not settle; what it has eased settles from there.
func (s *settling) heard(r relief, target mdp.Ratio) {
	switch {
	case r.over:
		*s = settling{}
	case r.n == 0:
		s.top = r.to.CPU()
	default:
		s.relieved(r.at, r.to.CPU(), target)
	}
}

// floor is the least limit now, when want is wanted.
func (s *settling) floor(now time.Time, want mdp.MilliCPU) mdp.MilliCPU {
	if s.at.IsZero() || want >= s.top {
		return want
	}
	left := math.Exp2(-float64(now.Sub(s.at)) / float64(s.half))
	return want + mdp.MilliCPU(math.Round(float64(s.top-want)*min(1, left)))
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

// slowly is an action that does not take relief back at once, nor leaves less than the peak of the
// last seconds, or of the last second where throttling is allowed now and then. The demand policy knows the
// scatter of the use, and its limit holds as soon as a second has passed without throttling.
func (c *managedContainer) slowly(now time.Time, a mdp.Action) mdp.Action {
	inForce := c.inForce.CPU()
	if !a.Sets.Has(mdp.CPULimit) || a.Limit.CPU >= inForce {
		return a
	}
	if c.rule == api.Demand {
		if s := &c.settling; s.top > 0 && inForce >= s.top && (c.pressed || now.Sub(s.at) < time.Second) {
			return a.WithCPU(inForce)
		}
		return a
	}
	covers := wellOverPeak * float64(c.peak)
	if c.target >= seldom {
		covers = overPeak * float64(c.track.second)
	}
	want := max(a.Limit.CPU, mdp.MilliCPU(math.Ceil(covers)))
	return a.WithCPU(max(a.Limit.CPU, min(inForce, c.settling.floor(now, want))))
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
