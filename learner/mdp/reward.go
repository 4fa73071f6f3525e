package mdp

import (
	"fmt"
	"time"
)

// SLO is a service-level objective. The zero SLO asks for nothing.
type SLO struct {
	Percentile float64       // of latency, in (0, 100); 99 is the usual
	Latency    time.Duration // at that percentile, at most; 0 is no latency objective
	Throughput Rate          // requests per second, at least; 0 is no throughput objective
}

// Check is nil for an SLO that can be judged.
func (o SLO) Check() error {
	switch {
	case o.Latency < 0:
		return fmt.Errorf("slo latency %v: it must not be negative", o.Latency)
	case o.Latency > 0 && (o.Percentile <= 0 || o.Percentile >= 100):
		return fmt.Errorf("slo percentile %v: it must be between 0 and 100", o.Percentile)
	case o.Throughput < 0:
		return fmt.Errorf("slo throughput %v: it must not be negative", float64(o.Throughput))
	}
	return nil
}

// Preservation is SP of AWARE (§2.2): objective over measured, 1 when it is
// met, the worse of the two objectives. It is 1 when there is no objective or
// when there is no traffic. ok is false when an objective's signal was not
// observed.
func (o SLO) Preservation(s State) (sp Ratio, ok bool) {
	sp = 1
	if o.Latency == 0 && o.Throughput == 0 {
		return sp, true
	}
	if s.Knows(Throughput) && s.Throughput == 0 {
		return sp, true
	}
	if o.Latency > 0 {
		if !s.Knows(Latency) {
			return 0, false
		}
		if s.Latency > o.Latency {
			sp = Ratio(float64(o.Latency) / float64(s.Latency))
		}
	}
	if o.Throughput > 0 {
		if !s.Knows(Throughput) {
			return 0, false
		}
		sp = min(sp, Ratio(s.Throughput/o.Throughput))
	}
	return sp, true
}

// Reward is what a State is worth; with n = 2 resources it is between 0 and 2.
type Reward float64

// Objective is what the owner of a workload wants.
type Objective struct {
	SLO   SLO
	Alpha Ratio // weight of the SLO against efficiency, in [0, 1]; 0.5 weighs them equally
}

// resources is the n of the reward: CPU and memory.
const resources = 2

// Judge gives a State its reward, AWARE's (§2.2): alpha * SP * n + (1 - alpha) *
// sum of utilisations, each utilisation being of what is allocated and at most 1.
// ok is false when a signal it needs was not observed; a reward is never made
// up.
func (o Objective) Judge(s State) (r Reward, ok bool) {
	sp, ok := o.SLO.Preservation(s)
	if !ok || !s.Knows(CPULimit, MemoryLimit, CPUUsage, MemoryUsage) || s.Limit.CPU <= 0 || s.Limit.Memory <= 0 {
		return 0, false
	}
	cpu := min(1, float64(s.Usage.CPU)/float64(s.Limit.CPU))
	memory := min(1, float64(s.Usage.Memory)/float64(s.Limit.Memory))
	a := float64(o.Alpha)
	return Reward(a*float64(sp)*resources + (1-a)*(cpu+memory)), true
}
