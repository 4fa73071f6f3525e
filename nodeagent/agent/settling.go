package agent

import (
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
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
