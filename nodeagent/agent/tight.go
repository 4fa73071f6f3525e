package agent

import (
	"errors"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// Memory in the fast lane. A limit that is too low for CPU makes a container slow; one that is too
// low for memory ends it. So the Sampler looks at the memory in use of each container that has run,
// and raises a limit that is nearly full. What the lanes raise all together is lent by the step,
// which knows what the node has: nothing is lent while a step is under way.

const (
	// nearlyFull is the share of its limit at which a container's memory is raised: what it uses,
	// and what it will use by the next sample if it goes on growing as it does.
	nearlyFull = 0.92
	// A container that grows is raised early only when so much of the limit is its working set.
	// The rest may be file pages, which the kernel drops.
	halfFull = 0.8
	// A limit that is full of file pages is looked at again after this time, or when it is fuller by a hundredth.
	lookAgain = 500 * time.Millisecond
	// What grew since an older sample says nothing of the next one.
	growsWithin = 250 * time.Millisecond
)

// tightness is what the samples have seen of a container's memory.
type tightness struct {
	at, lookedAt time.Time // of the last sample, and of the last that read the working set
	used, looked mdp.Bytes // then
}

// Lend says what the lanes may raise memory limits by from now on, all together; nil is nothing. It returns
// what they have raised them by since it was called last.
func (s *Sampler) Lend(spare func() mdp.Bytes) (taken mdp.Bytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken = s.taken
	s.spare, s.taken = spare, 0
	return taken
}

// Recall ends what was lent: central says another sum.
func (s *Sampler) Recall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = nil
}

// relieveMemory raises the memory limit of a container that has nearly used it up, and whose lane is
// open.
func (s *Sampler) relieveMemory(t *Track, now time.Time) {
	l := &t.lane
	if !l.open || l.has.Memory >= l.top.Memory || s.spare == nil || !t.readAt.Equal(now) || !t.tight(now, l.has.Memory) {
		return
	}
	to, from, err := s.memoryWithin(t)
	if err != nil {
		l.top.Memory = 0 // until the step, which finds out why
		return
	}
	if to > from && t.raiseMemory(s.tree, now, to) {
		s.taken += to - from
	}
}

// tight reports whether a limit is nearly used up.
func (t *Track) tight(now time.Time, limit mdp.Bytes) bool {
	m := &t.memory
	used, known, err := t.group.MemoryUsage()
	if err != nil || !known {
		return false
	}
	grown := mdp.Bytes(0)
	if now.Sub(m.at) <= growsWithin {
		grown = max(0, used-m.used)
	}
	m.at, m.used = now, used
	enough := mdp.Bytes(nearlyFull * float64(limit))
	if used+grown < enough || now.Sub(m.lookedAt) < lookAgain && used-m.looked < limit/100 {
		return false
	}
	m.lookedAt, m.looked = now, used
	in, known, err := t.group.WorkingSet(used)
	return err == nil && known && in+grown >= enough && in >= mdp.Bytes(halfFull*float64(limit))
}

// memoryWithin is what the container's memory limit may be raised to, of what is in force: the
// ceiling, or what the pod's own limit and the node have room for. Somebody else's value is not
// touched.
func (s *Sampler) memoryWithin(t *Track) (to, inForce mdp.Bytes, err error) {
	l := &t.lane
	is, err := t.group.Limits()
	if err != nil {
		return 0, 0, err
	}
	if !t.knowsMemory(is) || !t.knowsCPU(is) {
		return 0, 0, fmt.Errorf("the limits are %v, and ours are %v", is.Size(), l.has.Size())
	}
	inForce = is.Memory
	pod, err := s.tree.Limits(t.pod.path)
	if err != nil {
		return 0, 0, err
	}
	to = l.top.Memory
	if room := left(pod.Memory, l.others.limits.Memory, inForce, l.others.shared.Has(mdp.MemoryLimit)); room > 0 {
		to = min(to, room)
	}
	return min(to, inForce+max(0, s.spare()-s.taken)) / page * page, inForce, nil
}

// raiseMemory sets the memory limit, and reports whether it could, or the step will.
func (t *Track) raiseMemory(tree *cgroup.Tree, now time.Time, to mdp.Bytes) bool {
	l := &t.lane
	if err := tree.Write(t.group.Path(), cgroup.Limits{Memory: to}); err != nil {
		l.open = false
		l.news.err, l.news.wants = err, to
		return errors.Is(err, cgroup.ErrReadOnly)
	}
	l.has.Memory = to
	l.news.at = now
	l.news.to.Memory = to
	return true
}
