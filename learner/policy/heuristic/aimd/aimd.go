// Package aimd is the rule that FIRM is compared with (Qiu et al., OSDI 2020, §4.1): additive increase, multiplicative
// decrease of a container's limits. While the SLO is violated a limit grows by a fixed step; while it holds with room
// to spare a limit shrinks by a fixed share; in between nothing moves.
//
// It is TCP's congestion avoidance upside down: TCP takes more by steps and gives back by shares when it is told to,
// this gives more by steps when it is told to and takes back by shares.
//
// Departures from the paper, which names the method and its sources and gives no figures:
//  1. The steps, the share and the headroom are ours, to be tuned for each workload.
//  2. Every decision is a step; the pace is that of its loop. Latency is a percentile over a window, so a loop faster
//     than that window overshoots.
//  3. Memory is left alone unless asked for. Latency does not warn before an OOM kill: whoever asks for it wraps the
//     policy in guard.HeadroomOverUsage.
package aimd

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
)

// Config is the rule's settings. Begin with [Default] and add an SLO.
type Config struct {
	// SLO has a latency objective.
	SLO mdp.SLO
	// Increase is added to the CPU limit at each decision while the SLO is violated.
	Increase mdp.MilliCPU
	// Decrease, in (0, 1), is what is left of a limit after a decision while the SLO holds with room to spare.
	Decrease mdp.Ratio
	// Headroom, in (0, 1]: the SLO holds with room to spare when latency is below so much of the objective.
	Headroom mdp.Ratio
	// Floor is the smallest CPU limit it proposes.
	Floor mdp.MilliCPU
	// IncreaseMemory is Increase of the memory limit; 0 leaves memory alone.
	IncreaseMemory mdp.Bytes
	// FloorMemory is the smallest memory limit it proposes.
	FloorMemory mdp.Bytes
}

// Default moves CPU alone: up by a tenth of a core, down by a tenth, and not above 0.8 of the objective.
var Default = Config{Increase: 100, Decrease: 0.9, Headroom: 0.8, Floor: 10, FloorMemory: 64 * mdp.MiB}

// Check names the field that is wrong, its value and the rule.
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

// Policy is the rule for one container, or for every replica of a workload alike. It needs [mdp.CPULimit] and
// [mdp.Latency]; with a throughput objective [mdp.Throughput]; and for memory [mdp.MemoryLimit], without which memory is
// left alone. It has no memory of its own.
type Policy struct{ config Config }

// New makes the rule; the config must be one that passes Check.
func New(c Config) *Policy { return &Policy{config: c} }

// Decide sets the limits, or nothing when they are well as they are.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	needs := []mdp.Signal{mdp.CPULimit, mdp.Latency}
	if p.config.SLO.Throughput > 0 {
		needs = append(needs, mdp.Throughput)
	}
	if err := s.Require("aimd", needs...); err != nil {
		return mdp.Action{}, err
	}
	memory := p.config.IncreaseMemory > 0 && s.Knows(mdp.MemoryLimit)
	if s.Latency < 0 || s.Limit.CPU <= 0 || s.Limit.CPU > maxLimit || memory && (s.Limit.Memory <= 0 || s.Limit.Memory > maxMemory) {
		return mdp.Action{}, fmt.Errorf("aimd: latency %v, limit %v: not figures of a workload", s.Latency, s.Limit)
	}
	sp, ok := p.config.SLO.Preservation(s)
	if !ok || !sp.Finite() {
		return mdp.Action{}, fmt.Errorf("aimd: latency %v, throughput %v: the SLO cannot be judged", s.Latency, float64(s.Throughput))
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

// less is a share of a limit, rounded down so that a small limit shrinks too.
func less[T ~int64](limit T, share mdp.Ratio) T { return T(float64(limit) * float64(share)) }

// A million cores and an exbibyte: beyond them a figure is an accident, and sums would overflow.
const (
	maxLimit  mdp.MilliCPU = 1_000_000_000
	maxMemory mdp.Bytes    = 1 << 60
)
