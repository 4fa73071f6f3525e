package trajectory

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// field is how one signal's value is reached in a State. Both stores go through the one table, so a signal that is in it
// travels everywhere. The value is handed on as 64 bits: of an int64, or of a float64.
type field struct {
	float bool
	get   func(*mdp.State) uint64
	set   func(*mdp.State, uint64)
}

// fields has one for each signal, at its number.
var fields = [...]field{
	mdp.Replicas:       integer(func(s *mdp.State) *int { return &s.Replicas }),
	mdp.CPULimit:       integer(func(s *mdp.State) *mdp.MilliCPU { return &s.Limit.CPU }),
	mdp.MemoryLimit:    integer(func(s *mdp.State) *mdp.Bytes { return &s.Limit.Memory }),
	mdp.CPUUsage:       integer(func(s *mdp.State) *mdp.MilliCPU { return &s.Usage.CPU }),
	mdp.MemoryUsage:    integer(func(s *mdp.State) *mdp.Bytes { return &s.Usage.Memory }),
	mdp.CPUPeak:        integer(func(s *mdp.State) *mdp.MilliCPU { return &s.CPUPeak }),
	mdp.CPUDeviation:   integer(func(s *mdp.State) *mdp.MilliCPU { return &s.CPUDeviation }),
	mdp.Throttled:      float(func(s *mdp.State) *mdp.Ratio { return &s.Throttled }),
	mdp.CPUPressure:    float(func(s *mdp.State) *mdp.Ratio { return &s.CPUPressure }),
	mdp.MemoryPressure: float(func(s *mdp.State) *mdp.Ratio { return &s.MemoryPressure }),
	mdp.IOPressure:     float(func(s *mdp.State) *mdp.Ratio { return &s.IOPressure }),
	mdp.IORate:         float(func(s *mdp.State) *mdp.Rate { return &s.IORate }),
	mdp.Latency:        integer(func(s *mdp.State) *time.Duration { return &s.Latency }),
	mdp.Throughput:     float(func(s *mdp.State) *mdp.Rate { return &s.Throughput }),
	mdp.LoadChange:     float(func(s *mdp.State) *mdp.Ratio { return &s.LoadChange }),
	mdp.OOMKills:       integer(func(s *mdp.State) *int { return &s.OOMKills }),
}

// known are the signals of the table.
const known mdp.Set = 1<<len(fields) - 1

func integer[T ~int | ~int64](of func(*mdp.State) *T) field {
	return field{
		get: func(s *mdp.State) uint64 { return uint64(*of(s)) },
		set: func(s *mdp.State, bits uint64) { *of(s) = T(int64(bits)) },
	}
}

func float[T ~float64](of func(*mdp.State) *T) field {
	return field{
		float: true,
		get:   func(s *mdp.State) uint64 { return bitsOf(float64(*of(s))) },
		set:   func(s *mdp.State, bits uint64) { *of(s) = T(floatOf(bits)) },
	}
}

// asState is an Action as the part of a State that it sets, so that its fields go the same way.
func asState(a mdp.Action) mdp.State {
	return mdp.State{Observed: a.Sets, Replicas: a.Replicas, Limit: a.Limit}
}

// asAction is the way back.
func asAction(s mdp.State, clipped mdp.Clips) mdp.Action {
	return mdp.Action{Sets: s.Observed, Replicas: s.Replicas, Limit: s.Limit, Clipped: clipped}
}
