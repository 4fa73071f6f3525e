// Package aimd is the baseline of FIRM's evaluation (Qiu et al., OSDI 2020,
// §4.1): additive increase, multiplicative decrease of a container's limits.
// While the SLO is violated, a limit grows by a constant step. While the SLO is
// met with headroom, a limit shrinks by a constant factor. Otherwise nothing
// changes. [MIAD] is the reverse: a limit grows by a factor and shrinks by a
// step, so that it reacts fast and saves slowly.
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
	"math"

	"awarescale.dev/aware/learner/mdp"
)

// Rule says which of the two changes is a step and which is a factor.
type Rule int

// The rules.
const (
	AIMD Rule = iota // additive increase, multiplicative decrease
	MIAD             // multiplicative increase, additive decrease
)

// String is the name of the rule, as errors have it.
func (r Rule) String() string {
	if r == MIAD {
		return "miad"
	}
	return "aimd"
}

// Config is the settings of the policy. Start with [Default] or [DefaultMIAD]
// and add an SLO.
type Config struct {
	Rule Rule
	// SLO must have a latency objective.
	SLO mdp.SLO
	// Step is added to the CPU limit at each decision while the SLO is
	// violated; with MIAD it is subtracted while the SLO is met with headroom.
	Step mdp.MilliCPU
	// Factor, in (0, 1), multiplies a limit at each decision while the SLO is
	// met with headroom; with MIAD, above 1, while the SLO is violated.
	Factor mdp.Ratio
	// Headroom, in (0, 1], is a share of the latency objective. Below it
	// the SLO is met with headroom.
	Headroom mdp.Ratio
	// Floor is the lowest CPU limit that a decrease sets.
	Floor mdp.MilliCPU
	// StepMemory changes the memory limit like Step the CPU limit; with 0
	// memory is not controlled.
	StepMemory mdp.Bytes
	// FloorMemory is the lowest memory limit that a decrease sets.
	FloorMemory mdp.Bytes
}

// Default controls only CPU: plus 0.1 core on a violation, minus 10 % when
// latency is below 0.8 of the objective.
var Default = Config{Step: 100, Factor: 0.9, Headroom: 0.8, Floor: 10, FloorMemory: 64 * mdp.MiB}

// DefaultMIAD controls only CPU: times 1.5 on a violation, minus 0.02 core when
// latency is below 0.8 of the objective.
var DefaultMIAD = Config{Rule: MIAD, Step: 20, Factor: 1.5, Headroom: 0.8, Floor: 10, FloorMemory: 64 * mdp.MiB}

// Check returns nil for valid settings. Otherwise the error names the field,
// its value and the rule.
func (c Config) Check() error {
	switch {
	case c.Rule != AIMD && c.Rule != MIAD:
		return fmt.Errorf("aimd rule %d: it must be AIMD or MIAD", int(c.Rule))
	case c.SLO.Latency <= 0:
		return fmt.Errorf("%v SLO latency %v: it must be above zero", c.Rule, c.SLO.Latency)
	case c.Step <= 0:
		return fmt.Errorf("%v step %v: it must be above zero", c.Rule, c.Step)
	case c.Rule == AIMD && !(c.Factor > 0 && c.Factor < 1):
		return fmt.Errorf("aimd factor %v: it must be in (0, 1)", float64(c.Factor))
	case c.Rule == MIAD && !(c.Factor > 1 && c.Factor <= maxFactor):
		return fmt.Errorf("miad factor %v: it must be in (1, %v]", float64(c.Factor), float64(maxFactor))
	case !(c.Headroom > 0 && c.Headroom <= 1):
		return fmt.Errorf("%v headroom %v: it must be in (0, 1]", c.Rule, float64(c.Headroom))
	case c.Floor <= 0:
		return fmt.Errorf("%v floor %v: it must be above zero", c.Rule, c.Floor)
	case c.StepMemory < 0:
		return fmt.Errorf("%v memory step %v: it must not be below zero", c.Rule, c.StepMemory)
	case c.StepMemory > 0 && c.FloorMemory <= 0:
		return fmt.Errorf("%v memory floor %v: it must be above zero", c.Rule, c.FloorMemory)
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
	if err := s.Require(p.config.Rule.String(), needs...); err != nil {
		return mdp.Action{}, err
	}
	memory := p.config.StepMemory > 0 && s.Knows(mdp.MemoryLimit)
	badMemory := memory && (s.Limit.Memory <= 0 || s.Limit.Memory > maxMemory)
	if s.Latency < 0 || s.Limit.CPU <= 0 || s.Limit.CPU > maxLimit || badMemory {
		return mdp.Action{}, fmt.Errorf("%v: latency %v, limit %v: not figures of a workload", p.config.Rule, s.Latency, s.Limit)
	}
	sp, ok := p.config.SLO.Preservation(s)
	if !ok || !sp.Finite() {
		return mdp.Action{}, fmt.Errorf("%v: latency %v, throughput %v: the SLO cannot be judged",
			p.config.Rule, s.Latency, float64(s.Throughput))
	}
	var a mdp.Action
	switch {
	case sp < 1:
		a = a.WithCPU(more(p.config, s.Limit.CPU, p.config.Step))
		if memory {
			a = a.WithMemory(more(p.config, s.Limit.Memory, p.config.StepMemory))
		}
	case float64(s.Latency) < float64(p.config.Headroom)*float64(p.config.SLO.Latency):
		if cpu := max(p.config.Floor, less(p.config, s.Limit.CPU, p.config.Step)); cpu < s.Limit.CPU {
			a = a.WithCPU(cpu)
		}
		if m := max(p.config.FloorMemory, less(p.config, s.Limit.Memory, p.config.StepMemory)); memory && m < s.Limit.Memory {
			a = a.WithMemory(m)
		}
	}
	return a, nil
}

// more is a limit after an increase. A product is rounded up, so that a small
// limit grows too.
func more[T ~int64](c Config, limit, step T) T {
	if c.Rule == MIAD {
		return T(math.Ceil(float64(limit) * float64(c.Factor)))
	}
	return limit + step
}

// less is a limit after a decrease. A product is rounded down, so that a small
// limit shrinks too.
func less[T ~int64](c Config, limit, step T) T {
	if c.Rule == MIAD {
		return limit - step
	}
	return T(float64(limit) * float64(c.Factor))
}

// The limits are a million cores, a pebibyte and a factor of 1000. Values above
// them are errors, and results could overflow.
const (
	maxLimit  mdp.MilliCPU = 1_000_000_000
	maxMemory mdp.Bytes    = 1 << 50
	maxFactor mdp.Ratio    = 1000
)
