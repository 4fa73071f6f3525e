package mdp

import (
	"fmt"
	"math/bits"
	"strings"
)

// Action is what a policy wants of a workload: absolute values, not steps. A
// field counts only when its signal is in Sets; the rest stays as it is.
type Action struct {
	Sets        Set
	Replicas    int
	Limit       Size     // of each replica
	Reservation MilliCPU // of each replica
	Clipped     Clips    // who changed the Action on its way to the actuator, and why
}

// knobRow is a row of the table of knobs. Whatever handles all knobs (bounds,
// guards, wire, status, gym, encoders, the conformance suites) walks over it.
type knobRow struct {
	signal    Signal            // the knob's value in a State
	least     int64             // an Action that sets less is illegal
	tolerance int64             // two values that differ by less are the same to a kernel
	of        func(State) int64 // what is in force
	get       func(Action) int64
	set       func(Action, int64) Action
	bounds    func(Bounds) Range[int64]
	rebound   func(Bounds, Range[int64]) Bounds
	format    func(int64) string
}

// knobs is the table. The tolerance of CPU is what systemd rounds a quota up to
// (10 ms per second), that of memory is a page. Rows take and return values,
// not pointers: what they are given stays on the stack, so a decision allocates
// nothing.
var knobs = [...]knobRow{
	{
		signal: Replicas, least: 0, tolerance: 1,
		of:     func(s State) int64 { return int64(s.Replicas) },
		get:    func(a Action) int64 { return int64(a.Replicas) },
		set:    func(a Action, v int64) Action { a.Replicas = int(v); return a },
		bounds: func(b Bounds) Range[int64] { return widened(b.Replicas) },
		rebound: func(b Bounds, r Range[int64]) Bounds {
			b.Replicas = Range[int]{int(r.Min), int(r.Max)}
			return b
		},
		format: func(v int64) string { return fmt.Sprint(v) },
	},
	{
		signal: CPULimit, least: 1, tolerance: 10,
		of:     func(s State) int64 { return int64(s.Limit.CPU) },
		get:    func(a Action) int64 { return int64(a.Limit.CPU) },
		set:    func(a Action, v int64) Action { a.Limit.CPU = MilliCPU(v); return a },
		bounds: func(b Bounds) Range[int64] { return widened(b.CPU) },
		rebound: func(b Bounds, r Range[int64]) Bounds {
			b.CPU = Range[MilliCPU]{MilliCPU(r.Min), MilliCPU(r.Max)}
			return b
		},
		format: func(v int64) string { return MilliCPU(v).String() },
	},
	{
		signal: MemoryLimit, least: 1, tolerance: 4096,
		of:     func(s State) int64 { return int64(s.Limit.Memory) },
		get:    func(a Action) int64 { return int64(a.Limit.Memory) },
		set:    func(a Action, v int64) Action { a.Limit.Memory = Bytes(v); return a },
		bounds: func(b Bounds) Range[int64] { return widened(b.Memory) },
		rebound: func(b Bounds, r Range[int64]) Bounds {
			b.Memory = Range[Bytes]{Bytes(r.Min), Bytes(r.Max)}
			return b
		},
		format: func(v int64) string { return Bytes(v).String() },
	},
	{
		signal: CPUReservation, least: 1, tolerance: 10,
		of:     func(s State) int64 { return int64(s.Reservation) },
		get:    func(a Action) int64 { return int64(a.Reservation) },
		set:    func(a Action, v int64) Action { a.Reservation = MilliCPU(v); return a },
		bounds: func(b Bounds) Range[int64] { return widened(b.Reservation) },
		rebound: func(b Bounds, r Range[int64]) Bounds {
			b.Reservation = Range[MilliCPU]{MilliCPU(r.Min), MilliCPU(r.Max)}
			return b
		},
		format: func(v int64) string { return MilliCPU(v).String() },
	},
}

func widened[T ~int | ~int64](r Range[T]) Range[int64] {
	return Range[int64]{int64(r.Min), int64(r.Max)}
}

// Knobs are the signals that an Action can set. No world has all of them.
const Knobs Set = LimitKnobs | 1<<CPUReservation

// LimitKnobs are the knobs of a world in which limits are set directly, as the simulator and
// the published policies have it. Through an API server the CPU reservation is set, and
// the ceiling stays; the limit in force is the node's matter.
const LimitKnobs Set = 1<<Replicas | 1<<CPULimit | 1<<MemoryLimit

// ReservedKnobs are the knobs that central moves, through an API server.
const ReservedKnobs Set = 1<<Replicas | 1<<CPUReservation | 1<<MemoryLimit

// knobOf finds the row of a knob; nil for a signal that is none.
func knobOf(s Signal) *knobRow {
	for i := range knobs {
		if knobs[i].signal == s {
			return &knobs[i]
		}
	}
	return nil
}

// KnobLeast is the least value of a knob that is legal. It panics for a signal
// that is not a knob, as the functions below do.
func KnobLeast(s Signal) int64 { return knobOf(s).least }

// SameKnob reports whether two values of a knob are the same to a kernel.
func SameKnob(s Signal, a, b int64) bool { return max(a-b, b-a) < knobOf(s).tolerance }

// FormatKnob writes a knob's value with its unit, such as 250m or 128Mi.
func FormatKnob(s Signal, v int64) string { return knobOf(s).format(v) }

// Knob is the value of a knob that is in force, whether or not it was observed.
func (s State) Knob(k Signal) int64 { return knobOf(k).of(s) }

// Knob is what the Action sets a knob to; ok is false when it does not set it.
func (a Action) Knob(s Signal) (v int64, ok bool) { return knobOf(s).get(a), a.Sets.Has(s) }

// WithKnob is the Action with a knob set to a value.
func (a Action) WithKnob(s Signal, v int64) Action {
	a = knobOf(s).set(a, v)
	a.Sets |= SetOf(s)
	return a
}

// Without is the Action without the given knobs.
func (a Action) Without(set Set) Action {
	for i := range knobs {
		if set.Has(knobs[i].signal) {
			a = knobs[i].set(a, 0)
		}
	}
	a.Sets = a.Sets.Without(set)
	return a
}

// Only is the Action with only the given knobs.
func (a Action) Only(set Set) Action { return a.Without(a.Sets.Without(set)) }

// With is the Action with the knobs of another one, which has those that both set.
func (a Action) With(other Action) Action {
	a.Clipped |= other.Clipped
	for k := range other.Sets.Signals() {
		v, _ := other.Knob(k)
		a = a.WithKnob(k, v)
	}
	return a
}

// WithReplicas is the Action with that many replicas.
func (a Action) WithReplicas(n int) Action { return a.WithKnob(Replicas, int64(n)) }

// WithCPU is the Action with that CPU limit for each replica.
func (a Action) WithCPU(c MilliCPU) Action { return a.WithKnob(CPULimit, int64(c)) }

// WithReservation is the Action with that CPU reservation for each replica.
func (a Action) WithReservation(c MilliCPU) Action { return a.WithKnob(CPUReservation, int64(c)) }

// WithMemory is the Action with that memory limit for each replica.
func (a Action) WithMemory(m Bytes) Action { return a.WithKnob(MemoryLimit, int64(m)) }

// Check is nil for a legal Action: it sets only knobs, limits to more than
// zero, and replicas to zero or more.
func (a Action) Check() error {
	if extra := a.Sets.Without(Knobs); extra != 0 {
		return fmt.Errorf("action sets %v, which are not knobs", extra)
	}
	for i := range knobs {
		k := &knobs[i]
		if v := k.get(a); a.Sets.Has(k.signal) && v < k.least {
			return fmt.Errorf("action sets %v to %s: it must be at least %s",
				k.signal, k.format(v), k.format(k.least))
		}
	}
	return nil
}

func (a Action) String() string {
	var parts []string
	for i := range knobs {
		if k := &knobs[i]; a.Sets.Has(k.signal) {
			parts = append(parts, strings.TrimSuffix(k.signal.String(), "-limit")+"="+k.format(k.get(a)))
		}
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
	ClippedNaN      Clips = 1 << iota // the policy's action was not legal, or it panicked: the fallback decided, or nothing was done
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
	ClippedBurst                      // a resize within a burst, or less replicas than bursts need
)

var clipNames = []string{
	"nan", "stale", "fallback", "dwell", "rate-up", "rate-down", "min", "max", "usage", "budget", "slo", "paused", "burst",
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

// Has reports whether v is in the interval.
func (r Range[T]) Has(v T) bool { return r.Min <= v && v <= r.Max }

// Bounds is what an Action may do at most: its owner's constraints, or a
// container's envelope.
type Bounds struct {
	Replicas    Range[int]
	CPU         Range[MilliCPU] // of the limit
	Memory      Range[Bytes]
	Reservation Range[MilliCPU] // of CPU; zero where there is none to set
}

// Knob is the interval of a knob.
func (b Bounds) Knob(s Signal) Range[int64] {
	return knobOf(s).bounds(b)
}

// WithKnob is the Bounds with another interval for a knob.
func (b Bounds) WithKnob(s Signal, r Range[int64]) Bounds {
	return knobOf(s).rebound(b, r)
}

// Check is nil for bounds that something can satisfy, and otherwise names the
// bound and its values.
func (b Bounds) Check() error {
	for i := range knobs {
		k := &knobs[i]
		r := k.bounds(b)
		if r == (Range[int64]{}) && !LimitKnobs.Has(k.signal) {
			continue // it is not set
		}
		if r.Min < k.least || r.Max < r.Min {
			name := strings.TrimSuffix(k.signal.String(), "-limit")
			return fmt.Errorf("%s bounds [%s, %s]: need %s <= min <= max",
				name, k.format(r.Min), k.format(r.Max), k.format(k.least))
		}
	}
	return nil
}

// Clip moves every knob that the Action sets into the bounds, and adds the
// reasons to its Clipped.
func (b Bounds) Clip(a Action) Action {
	for i := range knobs {
		k := &knobs[i]
		if !a.Sets.Has(k.signal) {
			continue
		}
		v, why := k.bounds(b).Clip(k.get(a))
		if why != 0 {
			a = k.set(a, v)
			a.Clipped |= why
		}
	}
	return a
}
