package agent

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// Work that queues. Relief in the sample that shows throttling gives a peak the ceiling, and that costs: a steady load of
// small requests, which scatter, had twice its use in force. Where the SLO leaves time, a limit near the demand lets such
// work wait for its turn, and relief is for what would be late: a container that is throttled without a break. The demand
// policy's limit is made for that, and central says how long it may be (ADR 30).

// mayQueue decides whether the container's work may queue at the demand policy's limit: where that costs less than the cheapest
// limit with relief, and clearly so where it did not queue before. What it costs is known from when it did, and forgotten slowly.
func (c *managedContainer) mayQueue(limit, costs mdp.MilliCPU, queued bool, inForce mdp.MilliCPU) bool {
	if c.rule != api.Demand || c.patience == 0 {
		return false
	}
	switch {
	case queued:
		c.queueing.add(float64(inForce), queueCounts)
		return c.queueing.of < float64(costs)
	case c.queueing.known:
		c.queueing.add(float64(limit), queueForgets)
	default:
		c.queueing.of = float64(limit)
	}
	queues := c.queueing.of < clearly*float64(costs)
	c.queueing.known = c.queueing.known || queues
	return queues
}

const (
	queueCounts  = 60  // seconds, of what queueing costs
	queueForgets = 600 // seconds, after which it may be tried again
	clearly      = 0.9
)

// mean is an exponential mean of a figure of each second.
type mean struct {
	of    float64
	known bool
}

func (m *mean) add(v, memory float64) { m.of += (v - m.of) / memory }

// waits reports whether a container's work may queue for some more time before it is relieved.
func (t *Track) waits(now time.Time) bool {
	l := &t.lane
	switch {
	case t.throttled():
		if l.held.IsZero() {
			l.held = t.back(1).at
		}
	case !t.amidPeriod() || now.Sub(t.throttledAt) > stillHeld:
		l.held = time.Time{}
	}
	// Samples jitter: the one that is a little early is not left out, or the next one would come a period too late.
	return l.patience > 0 && !t.relieved() && (l.held.IsZero() || now.Sub(l.held) < l.patience-tenth/2)
}

// stillHeld is how long no period may end before a container counts as idle and not as throttled.
const stillHeld = 250 * time.Millisecond

// amidPeriod reports whether no period has ended between the newest two samples: samples and periods are as long as each
// other, and both jitter.
func (t *Track) amidPeriod() bool {
	if t.count < 2 {
		return false
	}
	now, before := t.back(0), t.back(1)
	return now.Observed.Has(cgroup.Throttling) && before.Observed.Has(cgroup.Throttling) && now.Periods == before.Periods
}
