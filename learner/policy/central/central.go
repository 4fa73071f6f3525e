// Package central is what central decides with: the rule that it falls back to, the guards before whatever decides, and how a
// learned policy sees and acts. Central uses it, and so do the simulated worlds in which what it starts with was trained.
package central

import (
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/learner/policy/learned"
)

// Form is how a learned policy of central sees and acts. Requests and replicas take seconds to follow, so steps are small.
func Form() encode.Form {
	f := encode.Discrete(mdp.ReservedKnobs)
	f.Span = true
	return f
}

// ScaleInWindow is how far back a removal of replicas looks where the owner does not say: HPA's own default.
const ScaleInWindow = 5 * time.Minute

// Rule is the settings of HPA's and VPA's arithmetic for a workload.
func Rule(slo mdp.SLO, bounds mdp.Bounds) hpavpa.Config {
	c := hpavpa.Default
	c.SLO = slo
	c.Largest = mdp.Size{CPU: bounds.CPU.Max, Memory: bounds.Memory.Max}
	// A replica that is settled beneath its ceiling costs its reservation only, and the
	// next burst needs it at once. VPA's own percentile is for the typical use, too.
	c.Stabilization = ScaleInWindow
	c.BurstUtilization = 100 * burstShare
	c.Percentile = 0.9
	// A resize took a busy node of two cores a fifth of its CPU for a second: the API server, the kubelet and the
	// runtime. What a burst needs it gets from its ceiling at once.
	c.RaiseWindow = time.Minute
	c.Finest = 1 // or idle pods move between two of VPA's buckets
	return c
}

// Learned is a learned policy as central asks it: what the guards hold back is not asked for twice in a row. It decides nothing
// where the load is not known, as in the first seconds of pods, nor where the load's peak is not, as in the first half hour of a
// new workload. In all worlds of its pretraining both are known; without one of them what ships doubled reservations on pods
// (ADR 37).
func Learned(f learned.File, place encode.Place) (*learned.Policy, error) {
	p, err := learned.New(f, place)
	if err != nil {
		return nil, err
	}
	p.PassOver()
	p.Needs(f.Form.Signals & mdp.SetOf(mdp.Throughput, mdp.LoadPeak))
	p.CarryBursts(burstShare)
	return p, p.KeepTo(Margin)
}

// burstShare is the share of the ceilings that a burst may need before there is to be another replica, or one that stays.
const burstShare = 0.9

// Margin is how much more than what the rule would do a choice must be worth: by its value, which is the discounted reward of all
// that follows, some ten times a step's. Less than that is noise of what was learned (ADR 40).
const Margin = 0.05

// Guards is the settings of the guards.
//
// Three tenths of a reservation may be freed each minute, and of memory each 20 s. VPA goes to its target at once; what
// protects is the margin above what is in use, and not the pace. But each step is a resize: by fifths, each 10 and 20 s, a
// new pod was resized seven times on its way down. And what a minute has shown of CPU is not all that bursts ask for.
//
// What the rule knows by itself holds for whatever decides: memory that was needed ten minutes ago is needed again, and a removal
// leaves ceilings that carry the last minutes' bursts (ADR 37).
func Guards() guard.Settings {
	s := guard.Central
	s.Down = 0.7
	s.MemoryDwell = 20 * time.Second
	s.MemoryPast = 10 * time.Minute
	s.BurstShare, s.BurstPast = burstShare, ScaleInWindow
	return s
}
