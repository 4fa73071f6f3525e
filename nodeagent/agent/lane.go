package agent

import (
	"errors"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
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
