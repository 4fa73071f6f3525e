package agent

import (
	"errors"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// A burst can use up a low limit's quota between two samples, and would wait for the next one: a
// tenth of a second in which a container at nine tenths of its ceiling builds a queue that takes a second to get
// empty. So a container whose use has surged is looked at again in between: a glance, at the time at
// which its quota is used up if it goes on so. It is relieved then by the rule of a sample. A peak that is
// over before has cost one reading, and no relief.

const (
	// leastGlance is the time between two looks at a container, at least: the kernel counts the use of a
	// running process every few milliseconds.
	leastGlance = 5 * time.Millisecond
	// busyFrom is the use from which on a container is looked at twice as often. Most containers of a node use less
	// nearly all the time, and what they cost is to stay what it is.
	busyFrom mdp.MilliCPU = 50
	// mostGlances is how many come between two samples, at most. Use that grows needs more than one.
	mostGlances = 4
)

// Due is when Glance is to be called next; zero: it need not be.
func (s *Sampler) Due() (due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.surging {
		if due.IsZero() || t.glanceAt.Before(due) {
			due = t.glanceAt
		}
	}
	for _, t := range s.tracks {
		if at := t.lane.refill.due; !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}

// Glance looks at the containers that may have used up their quota by now, and relieves them; and it fills the quotas up whose
// time it is. It reports whether the step is needed, as Sample does.
func (s *Sampler) Glance(now time.Time) (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tracks {
		t.fill(now)
	}
	still := s.surging[:0]
	for _, t := range s.surging {
		if now.Before(t.glanceAt) {
			still = append(still, t)
			continue
		}
		newest := sample{at: now}
		if !t.lane.open || t.group.ReadCPU(&newest.CPU) != nil {
			continue // the next sample finds out why
		}
		if left, known := t.left(&newest); known && left <= 0 {
			s.raise(t, now)
			wanted = wanted || errors.Is(t.lane.news.err, cgroup.ErrReadOnly)
			continue
		}
		if t.glances++; t.glances < mostGlances && t.surges(&newest) {
			still = append(still, t)
		}
	}
	s.surging = still
	return wanted
}

// watch notes the container for a glance, where it has surged in the newest sample, or might.
func (s *Sampler) watch(t *Track) {
	t.glances = 0
	if !t.lane.open {
		return
	}
	surges := t.surges(nil)
	if t.mightSurge() {
		if half := t.back(0).at.Add(tenth / 2); !surges || half.Before(t.glanceAt) {
			t.glanceAt = half
		}
		surges = true
	}
	if surges {
		s.surging = append(s.surging, t)
	}
}

// mightSurge reports whether a busy container would use its quota up before the next sample if it took all of the node's
// CPUs now. Then it is looked at in the middle: with little left nothing is seen of a burst before.
func (t *Track) mightSurge() bool {
	if t.relieved() {
		return false
	}
	used, span, known := t.spent(0, min(t.count-1, int(time.Second/tenth)))
	if !known || per(used, span) < busyFrom {
		return false
	}
	left, known := t.left(nil)
	return known && left < tenth*time.Duration(cpus)
}

// relieved reports whether the limit is as high as it may be, as far as the lane knows.
func (t *Track) relieved() bool {
	l := &t.lane
	return l.has.CPU() >= l.top.CPU() || l.news.to.Quota > 0 && !l.news.over
}

// surges reports whether a container that goes on as since the last look will have used up its quota before the
// next sample, and sets the time at which that is looked at. newest is what was seen after the newest sample in the
// ring; nil is nothing.
func (t *Track) surges(newest *sample) bool {
	if t.relieved() {
		return false
	}
	before, at := 1, t.back(0).at
	if newest != nil {
		before, at = 0, newest.at
	}
	left, known := t.left(newest)
	used, span, ok := t.since(newest, before)
	if !known || !ok || float64(per(used, span)) < surgeOver*float64(t.lane.has.CPU()) {
		return false
	}
	t.glanceAt = at.Add(max(leastGlance, time.Duration(float64(left)/float64(used)*float64(span))))
	return t.glanceAt.Before(t.back(0).at.Add(tenth - leastGlance))
}
