package mdp

import (
	"fmt"
	"math/bits"
	"strings"
)

// Action is what a policy wants of a workload: absolute values, not steps. A field counts only
// when its signal ([Replicas], [CPULimit], [MemoryLimit]) is in Sets; the rest stays as it is.
type Action struct {
	Sets     Set
	Replicas int
	Limit    Size  // per replica
	Clipped  Clips // who changed the Action on its way to the actuator, and why
}

// Knobs are the signals that an Action can set.
const Knobs Set = 1<<Replicas | 1<<CPULimit | 1<<MemoryLimit

// WithReplicas is the Action with that many replicas.
func (a Action) WithReplicas(n int) Action {
	a.Sets |= SetOf(Replicas)
	a.Replicas = n
	return a
}

// WithCPU is the Action with that CPU limit for each replica.
func (a Action) WithCPU(c MilliCPU) Action {
	a.Sets |= SetOf(CPULimit)
	a.Limit.CPU = c
	return a
}

// WithMemory is the Action with that memory limit for each replica.
func (a Action) WithMemory(m Bytes) Action {
	a.Sets |= SetOf(MemoryLimit)
	a.Limit.Memory = m
	return a
}

// Check is nil for an Action that could be carried out somewhere: it sets only knobs, and each to
// something above zero.
func (a Action) Check() error {
	if extra := a.Sets.Without(Knobs); extra != 0 {
		return fmt.Errorf("action sets %v, which are not knobs", extra)
	}
	if a.Sets.Has(Replicas) && a.Replicas < 0 {
		return fmt.Errorf("action sets replicas to %d: the least is 0", a.Replicas)
	}
	if a.Sets.Has(CPULimit) && a.Limit.CPU <= 0 {
		return fmt.Errorf("action sets cpu-limit to %v: it must be above zero", a.Limit.CPU)
	}
	if a.Sets.Has(MemoryLimit) && a.Limit.Memory <= 0 {
		return fmt.Errorf("action sets memory-limit to %v: it must be above zero", a.Limit.Memory)
	}
	return nil
}

func (a Action) String() string {
	var parts []string
	if a.Sets.Has(Replicas) {
		parts = append(parts, fmt.Sprintf("replicas=%d", a.Replicas))
	}
	if a.Sets.Has(CPULimit) {
		parts = append(parts, "cpu="+a.Limit.CPU.String())
	}
	if a.Sets.Has(MemoryLimit) {
		parts = append(parts, "memory="+a.Limit.Memory.String())
	}
	if len(parts) == 0 {
		return "keep"
	}
	return strings.Join(parts, " ")
}

// Clips is a set of reasons for which an Action was changed before it was carried out.
type Clips uint16

// The reasons, in the order in which guards apply them.
const (
	ClippedNaN      Clips = 1 << iota // the policy's action was not a number or not legal: nothing was done
	ClippedStale                      // the State was too old or too little of it was known
	ClippedFallback                   // the policy failed, the fallback decided
	ClippedDwell                      // the last change was too recent
	ClippedRateUp                     // the step up was larger than one step may be
	ClippedRateDown                   // the step down was larger than one step may be
	ClippedMin                        // below the least allowed value
	ClippedMax                        // above the largest allowed value
	ClippedUsage                      // a memory limit too near to what is in use
	ClippedBudget                     // more than what the node or a permit has left
	ClippedSLO                        // a shrink while the SLO was violated
	ClippedPaused                     // the mode or a pause forbids the change
)

var clipNames = []string{
	"nan", "stale", "fallback", "dwell", "rate-up", "rate-down", "min", "max", "usage", "budget", "slo", "paused",
}

// Names lists the reasons, in order.
func (c Clips) Names() []string {
	names := make([]string, 0, bits.OnesCount16(uint16(c)))
	for i, name := range clipNames {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (c Clips) String() string { return strings.Join(c.Names(), ",") }

// Range is a closed interval.
type Range[T ~int | ~int64] struct{ Min, Max T }

// Clip is the value of the interval that is nearest to v, and why it had to move.
func (r Range[T]) Clip(v T) (T, Clips) {
	switch {
	case v > r.Max:
		return r.Max, ClippedMax
	case v < r.Min:
		return r.Min, ClippedMin
	}
	return v, 0
}

// Has tells whether v is in the interval.
func (r Range[T]) Has(v T) bool { return r.Min <= v && v <= r.Max }

// Bounds is what an Action may do at most: its owner's constraints, or a container's envelope.
type Bounds struct {
	Replicas Range[int]
	CPU      Range[MilliCPU]
	Memory   Range[Bytes]
}

// Check is nil for bounds that something can satisfy, and otherwise names the bound and its values.
func (b Bounds) Check() error {
	switch {
	case b.Replicas.Min < 0 || b.Replicas.Max < b.Replicas.Min:
		return fmt.Errorf("replicas bounds [%d, %d]: need 0 <= min <= max", b.Replicas.Min, b.Replicas.Max)
	case b.CPU.Min <= 0 || b.CPU.Max < b.CPU.Min:
		return fmt.Errorf("cpu bounds [%v, %v]: need 0 < min <= max", b.CPU.Min, b.CPU.Max)
	case b.Memory.Min <= 0 || b.Memory.Max < b.Memory.Min:
		return fmt.Errorf("memory bounds [%v, %v]: need 0 < min <= max", b.Memory.Min, b.Memory.Max)
	}
	return nil
}

// Clip moves every field that the Action sets into the bounds, and adds the reasons to its Clipped.
func (b Bounds) Clip(a Action) Action {
	var why Clips
	if a.Sets.Has(Replicas) {
		a.Replicas, why = b.Replicas.Clip(a.Replicas)
		a.Clipped |= why
	}
	if a.Sets.Has(CPULimit) {
		a.Limit.CPU, why = b.CPU.Clip(a.Limit.CPU)
		a.Clipped |= why
	}
	if a.Sets.Has(MemoryLimit) {
		a.Limit.Memory, why = b.Memory.Clip(a.Limit.Memory)
		a.Clipped |= why
	}
	return a
}
