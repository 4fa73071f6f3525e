package agent

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/envelope"
	"awarescale.dev/aware/nodeagent/restore"
)

// Most containers of a node do nothing in most seconds, and a step finds nothing to do for them.
// Such a container's step is left out, for a few seconds at most: when it has not run since
// its last step, that step changed nothing and had no problem, and neither the API, nor central,
// nor the fast lane has said anything since. What it reports is what the last step found.
//
// What is seen later in such a container is what somebody else writes into its cgroup: after
// four seconds, or when the container runs. The fast lane reads the limit itself before it raises.

// restMost is the longest time between two steps of a container. A captain takes five seconds
// for a gap in what it knows, and steps jitter.
const restMost = 4 * time.Second

// stepped is what a step of a container was about, and what it came to.
type stepped struct {
	at      time.Time
	order   order
	facts   envelope.Container
	others  others
	summary api.Summary // without its latency
	calm    bool        // nothing was changed, and nothing is under way
}

// rests reports whether a step would find what the last one has found.
func (c *managedContainer) rests(now time.Time, o order) bool {
	s := &c.stepped
	return s.calm && now.Sub(s.at) < restMost && o == s.order && c.facts == s.facts && c.others == s.others &&
		!c.oomKilled && c.sampler.rests(c.track, now, s.at)
}

// remember notes a step.
func (c *managedContainer) remember(now time.Time, o order, s api.Summary) {
	own := c.ownership
	c.stepped = stepped{at: now, order: o, facts: c.facts, others: c.others, summary: s}
	idle := s.State.Knows(mdp.CPUUsage, mdp.Throttled) && s.State.Usage.CPU == 0 && s.State.Throttled == 0 && c.kills == 0
	done := !c.wrote && !own.Behind && !own.Late && own.State != restore.InDoubt &&
		(c.task != restoring || !own.State.Journalled())
	c.stepped.calm = idle && done && s.Problem == "" && (s.Effect == mdp.Unchanged || s.Want.Sets == 0)
}

// rests reports whether nothing of a container has moved since a time, and the lane has no news.
func (s *Sampler) rests(t *Track, now, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.fault == nil && t.still && t.quiet(now, since) && !t.throttledAt.After(since) &&
		t.lane.news.at.IsZero() && t.lane.news.err == nil && !t.lane.met
}
