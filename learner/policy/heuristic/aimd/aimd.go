// Package aimd is the baseline of FIRM's evaluation (Qiu et al., OSDI 2020,
// §4.1): additive increase, multiplicative decrease of a container's limits.
// While the SLO is violated, a limit grows by a constant step. While the SLO is
// met with headroom, a limit shrinks by a constant factor. Otherwise nothing
// changes.
//
// TCP's congestion avoidance uses the same formulas. There a signal (packet
// loss) causes the decrease; here a signal (an SLO violation) causes the
// increase.
//
// Departures from the paper, which describes the method without values:
//  1. The step, the factor and the headroom are our choice. They are tuned for
//     each workload.
//  2. Every decision can be a step, so the interval of the loop sets the speed.
//     Latency is a percentile over a window; a loop that is faster than this
//     window overshoots.
//  3. Memory is controlled only on request. Latency gives no warning before an
//     OOM kill, so memory control needs guard.HeadroomOverUsage around the
//     policy.
package aimd

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
)

// Config is the settings of the policy. Start with [Default] and add an SLO.
type Config struct {
	// SLO must have a latency objective.
	SLO mdp.SLO
	// Increase is added to the CPU limit at each decision while the SLO is
	// violated.
	Increase mdp.MilliCPU
	// Decrease, in (0, 1), is the factor of a limit at each decision while
	// the SLO is met with headroom.
	Decrease mdp.Ratio
	// Headroom, in (0, 1], is a share of the latency objective. Below it
	// the SLO is met with headroom.
	Headroom mdp.Ratio
	// Floor is the lowest CPU limit that a decrease sets.
	Floor mdp.MilliCPU
	// IncreaseMemory is added to the memory limit like Increase to the CPU
	// limit; with 0 memory is not controlled.
	IncreaseMemory mdp.Bytes
	// FloorMemory is the lowest memory limit that a decrease sets.
	FloorMemory mdp.Bytes
}

// Default controls only CPU: plus 0.1 core on a violation, minus 10 % when
// latency is below 0.8 of the objective.
var Default = Config{Increase: 100, Decrease: 0.9, Headroom: 0.8, Floor: 10, FloorMemory: 64 * mdp.MiB}

// Check returns nil for valid settings. Otherwise the error names the field,
// its value and the rule.
func (c Config) Check() error {
	switch {
	case c.SLO.Latency <= 0:
		return fmt.Errorf("aimd SLO latency %v: it must be above zero", c.SLO.Latency)
	case c.Increase <= 0:
		return fmt.Errorf("aimd increase %v: it must be above zero", c.Increase)
	case !(c.Decrease > 0 && c.Decrease < 1):
		return fmt.Errorf("aimd decrease %v: it must be in (0, 1)", float64(c.Decrease))
	case !(c.Headroom > 0 && c.Headroom <= 1):
		return fmt.Errorf("aimd headroom %v: it must be in (0, 1]", float64(c.Headroom))
	case c.Floor <= 0:
		return fmt.Errorf("aimd floor %v: it must be above zero", c.Floor)
	case c.IncreaseMemory < 0:
		return fmt.Errorf("aimd memory increase %v: it must not be below zero", c.IncreaseMemory)
	case c.IncreaseMemory > 0 && c.FloorMemory <= 0:
		return fmt.Errorf("aimd memory floor %v: it must be above zero", c.FloorMemory)
	}
	return c.SLO.Check()
}

// Policy controls one container, or all replicas of a workload in the same way.
// It needs [mdp.CPULimit] and [mdp.Latency], and [mdp.Throughput] for a
// throughput objective. It controls memory only when [mdp.MemoryLimit] is
// known. It has no state.
type Policy struct{ config Config }

// New creates a policy. The config must pass Check.
func New(c Config) *Policy { return &Policy{config: c} }

// Decide sets the limits, or nothing when no change is needed.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	needs := []mdp.Signal{mdp.CPULimit, mdp.Latency}
	if p.config.SLO.Throughput > 0 {
		needs = append(needs, mdp.Throughput)
	}
	if err := s.Require("aimd", needs...); err != nil {
		return mdp.Action{}, err
	}
	memory := p.config.IncreaseMemory > 0 && s.Knows(mdp.MemoryLimit)
	badMemory := memory && (s.Limit.Memory <= 0 || s.Limit.Memory > maxMemory)
	if s.Latency < 0 || s.Limit.CPU <= 0 || s.Limit.CPU > maxLimit || badMemory {
		return mdp.Action{}, fmt.Errorf("aimd: latency %v, limit %v: not figures of a workload", s.Latency, s.Limit)
	}
	sp, ok := p.config.SLO.Preservation(s)
	if !ok || !sp.Finite() {
		return mdp.Action{}, fmt.Errorf("aimd: latency %v, throughput %v: the SLO cannot be judged",
			s.Latency, float64(s.Throughput))
	}
	var a mdp.Action
	switch {
	case sp < 1:
		a = a.WithCPU(s.Limit.CPU + p.config.Increase)
		if memory {
			a = a.WithMemory(s.Limit.Memory + p.config.IncreaseMemory)
		}
	case float64(s.Latency) < float64(p.config.Headroom)*float64(p.config.SLO.Latency):
		if cpu := max(p.config.Floor, less(s.Limit.CPU, p.config.Decrease)); cpu < s.Limit.CPU {
			a = a.WithCPU(cpu)
		}
		if m := max(p.config.FloorMemory, less(s.Limit.Memory, p.config.Decrease)); memory && m < s.Limit.Memory {
			a = a.WithMemory(m)
		}
	}
	return a, nil
}

// less is a share of a limit. It is rounded down, so that a small limit shrinks
// too.
func less[T ~int64](limit T, share mdp.Ratio) T { return T(float64(limit) * float64(share)) }

// The limits are a million cores and an exbibyte. Values above them are errors,
// and sums could overflow.
const (
	maxLimit  mdp.MilliCPU = 1_000_000_000
	maxMemory mdp.Bytes    = 1 << 60
)
