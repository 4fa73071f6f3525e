// Package captain is Autothrottle's per-service controller (Wang et al., NSDI 2024, §3.3): it keeps the share of
// throttled CFS periods near a target by moving the CPU limit each second.
//
// Throttling, unlike utilisation, is what hurts the tail; a target says how much of it the SLO bears. Who sets
// the target (Autothrottle's Tower, or a fixed one) is not this package's concern.
//
// Departures from the paper:
//  1. Its rollback is checked every 100 ms, ours at each decision (1 s): a resize through the container
//     runtime costs some 7 ms of CPU, and the node's discipline allows one a second for a container.
//  2. Its floor of 0.01 core is the envelope's here.
package captain

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
)

// Config is a captain's settings. The zero value is not useful; begin with [Default].
type Config struct {
	// Target is the share of CFS periods, in [0, 1), that may be throttled. Autothrottle's Tower picks from 0
	// to 0.3; smaller is safer and costs more CPU.
	Target mdp.Ratio
	// Margin is how many standard deviations above the peak the limit stays after a shrink, to begin with;
	// it is adapted by the throttling that is seen.
	Margin float64
	// Floor is the smallest limit it proposes.
	Floor mdp.MilliCPU
}

// Default is the paper's: margin 3, floor 0.01 core, and a target that is good for a tight SLO.
var Default = Config{Target: 0.02, Margin: 3, Floor: 10}

// Check names the field that is wrong, its value and the rule.
func (c Config) Check() error {
	switch {
	case !(c.Target >= 0 && c.Target < 1):
		return fmt.Errorf("captain target %v: it must be in [0, 1)", float64(c.Target))
	case !(c.Margin >= 0 && c.Margin <= 100):
		return fmt.Errorf("captain margin %v: it must be in [0, 100]", c.Margin)
	case c.Floor <= 0:
		return fmt.Errorf("captain floor %v: it must be above zero", c.Floor)
	}
	return nil
}

// Captain is the controller of one container's CPU limit. It needs [mdp.CPULimit], [mdp.Throttled] over the last
// second, and [mdp.CPUPeak] and [mdp.CPUDeviation] of 100 ms samples over the last five.
type Captain struct {
	config Config
	margin float64
	before mdp.MilliCPU // the limit before the last shrink; 0 when there is none to take back
}

// New makes a captain; the config must be one that passes Check.
func New(c Config) *Captain { return &Captain{config: c, margin: c.Margin} }

// Retarget changes the target, and keeps what was learned of the margin.
func (c *Captain) Retarget(target mdp.Ratio) { c.config.Target = target }

// Decide sets the CPU limit, or nothing when it is well as it is.
func (c *Captain) Decide(s mdp.State) (mdp.Action, error) {
	if err := s.Require("captain", mdp.CPULimit, mdp.Throttled, mdp.CPUPeak, mdp.CPUDeviation); err != nil {
		return mdp.Action{}, err
	}
	if !s.Throttled.Finite() || s.Throttled < 0 || s.Throttled > 1 || s.Limit.CPU <= 0 || s.Limit.CPU > maxLimit || s.CPUPeak < 0 || s.CPUPeak > maxLimit {
		return mdp.Action{}, fmt.Errorf("captain: throttled %v, limit %v, peak %v: not figures of a container",
			float64(s.Throttled), s.Limit.CPU, s.CPUPeak)
	}
	limit, ratio, target := s.Limit.CPU, float64(s.Throttled), float64(c.config.Target)
	c.margin = max(0, c.margin+ratio-target)
	if ratio > 3*target {
		if before := c.before; before > limit {
			c.before = 0
			c.margin += ratio - target
			return mdp.Action{}.WithCPU(2*before - limit), nil // take the shrink back, and as much again
		}
		c.before = 0
		// Rounded up: a limit of a few millicores must be able to grow.
		return mdp.Action{}.WithCPU(limit + 1 + mdp.MilliCPU(float64(limit)*(ratio-3*target))), nil
	}
	proposal := s.CPUPeak + mdp.MilliCPU(c.margin*float64(max(0, s.CPUDeviation)))
	if proposal > limit*9/10 {
		return mdp.Action{}, nil
	}
	proposal = max(proposal, limit/2, c.config.Floor)
	if proposal >= limit {
		return mdp.Action{}, nil
	}
	c.before = limit
	return mdp.Action{}.WithCPU(proposal), nil
}

// maxLimit is a million cores: beyond it a figure is an accident, and sums would overflow.
const maxLimit mdp.MilliCPU = 1_000_000_000
