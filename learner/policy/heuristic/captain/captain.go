// Package captain is Autothrottle's per-service controller (Wang et al., NSDI
// 2024, §3.3). It adjusts the CPU limit every second to keep the share of
// throttled CFS periods near a target.
//
// Tail latency depends on throttling more than on utilisation. The target is
// the throttling that the SLO allows. It is a constant, or Autothrottle's Tower
// sets it (package tower).
//
// Departures from the paper:
//  1. The paper checks for a rollback every 100 ms. Here each decision (every 1
//     s) checks it: a resize through the container runtime costs about 7 ms of
//     CPU, and the node agent's limiter allows one resize per second and
//     container.
//  2. The paper's floor of 0.01 core is here part of the guards' envelope.
package captain

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
)

// Config is the settings of a captain. The zero value is not valid; start with
// [Default].
type Config struct {
	// Target is the desired share of throttled CFS periods, in [0, 1).
	// Autothrottle's Tower selects values from 0 to 0.3. A smaller value is
	// safer and needs more CPU.
	Target mdp.Ratio
	// Margin is the initial distance between the peak and the limit after a
	// decrease, in standard deviations. Observed throttling changes it.
	Margin float64
	// Floor is the lowest limit that a decrease sets.
	Floor mdp.MilliCPU
}

// Default has the paper's margin of 3 and floor of 0.01 core, and a target for
// a strict SLO.
var Default = Config{Target: 0.02, Margin: 3, Floor: 10}

// Check returns nil for valid settings. Otherwise the error names the field,
// its value and the rule.
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

// Captain controls the CPU limit of one container. It needs [mdp.CPULimit],
// [mdp.Throttled] over the last second, and [mdp.CPUPeak] and
// [mdp.CPUDeviation] of 100 ms samples over the last five seconds.
type Captain struct {
	config Config
	margin float64      // current margin, in standard deviations
	before mdp.MilliCPU // limit before the last decrease; 0 when there is nothing to roll back
}

// New creates a captain. The config must pass Check.
func New(c Config) *Captain { return &Captain{config: c, margin: c.Margin} }

// Retarget changes the target. The margin stays.
func (c *Captain) Retarget(target mdp.Ratio) { c.config.Target = target }

// Decide sets the CPU limit, or nothing when no change is needed.
func (c *Captain) Decide(s mdp.State) (mdp.Action, error) {
	if err := s.Require("captain", mdp.CPULimit, mdp.Throttled, mdp.CPUPeak, mdp.CPUDeviation); err != nil {
		return mdp.Action{}, err
	}
	if !s.Throttled.Finite() || s.Throttled < 0 || s.Throttled > 1 ||
		s.Limit.CPU <= 0 || s.Limit.CPU > maxLimit || s.CPUPeak < 0 || s.CPUPeak > maxLimit {
		return mdp.Action{}, fmt.Errorf("captain: throttled %v, limit %v, peak %v: not figures of a container",
			float64(s.Throttled), s.Limit.CPU, s.CPUPeak)
	}
	limit := s.Limit.CPU
	ratio := float64(s.Throttled)
	target := float64(c.config.Target)
	c.margin = max(0, c.margin+ratio-target)
	if ratio > 3*target {
		if before := c.before; before > limit {
			c.before = 0
			c.margin += ratio - target
			// Roll the decrease back, and add the same amount.
			return mdp.Action{}.WithCPU(2*before - limit), nil
		}
		c.before = 0
		// The result is rounded up, so that a limit of a few millicores
		// can grow.
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

// maxLimit is a million cores. Values above it are errors, and sums could
// overflow.
const maxLimit mdp.MilliCPU = 1_000_000_000
