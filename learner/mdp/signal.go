package mdp

import (
	"iter"
	"math"
	"math/bits"
	"strings"
	"time"
)

// Signal names one value of a [State]. Those in [Knobs] are also values of an [Action].
type Signal uint8

// The signals. Their numbers are written to stores and to the wire: they never
// change, and a new signal comes last.
const (
	Replicas       Signal = iota // ready replicas
	CPULimit                     // CPU limit in force, of a replica
	MemoryLimit                  // memory limit in force, of a replica
	CPUUsage                     // mean CPU usage of a replica over the step
	MemoryUsage                  // memory in use by a replica that cannot be reclaimed (working set)
	CPUPeak                      // highest CPU usage of a replica among recent short samples
	CPUDeviation                 // standard deviation of the same samples
	Throttled                    // share of CFS periods in which a replica was throttled
	CPUPressure                  // share of time in which some task waited for CPU (PSI some)
	MemoryPressure               // share of time in which all tasks waited for memory (PSI full)
	IOPressure                   // share of time in which all tasks waited for I/O (PSI full)
	IORate                       // bytes read from and written to disks per second, by a replica
	Latency                      // latency at the SLO's percentile
	Throughput                   // requests answered per second, by all replicas together
	LoadChange                   // throughput divided by that of the step before; 1 is unchanged
	OOMKills                     // processes killed for memory since the step before
	NetworkRate                  // bytes received and sent per second, by a replica's pod (AWARE, table 1)
	Arrivals                     // requests that reached the workload per second, answered or not
	Missed                       // share of the clients' requests that were lost or slower than the SLO's latency
	Lost                         // share of the clients' requests that got no answer: failed, dropped, killed or timed out
	BackgroundLate               // share of background work that failed or was not done in its time
	CPUReservation               // CPU that scheduling reserves for a replica: its request in the API
	CPUCeiling                   // CPU that a replica may burst to at once: its limit in the API; the limit in force is below it
	CPUBurst                     // highest mean CPU usage of a replica over one second, of recent seconds; of two: in the same one
	LoadPeak                     // highest throughput or load of the last two hours, as a [Peak] keeps it
)

// State is what is known of a workload at one time. A field is meaningful only
// when its signal is in Observed; otherwise it is zero and means nothing. The
// comments are at the [Signal] constants.
type State struct {
	At       time.Time // when the State was sensed
	Observed Set

	Replicas       int
	Limit          Size // per replica: the limits in force
	Usage          Size // per replica: the mean over replicas
	CPUPeak        MilliCPU
	CPUDeviation   MilliCPU
	Throttled      Ratio
	CPUPressure    Ratio
	MemoryPressure Ratio
	IOPressure     Ratio
	IORate         Rate
	Latency        time.Duration
	Throughput     Rate
	LoadChange     Ratio
	OOMKills       int
	NetworkRate    Rate
	Arrivals       Rate
	Missed         Ratio
	Lost           Ratio
	BackgroundLate Ratio
	Reservation    MilliCPU // per replica
	Ceiling        MilliCPU // per replica
	CPUBurst       MilliCPU
	LoadPeak       Rate
}

// Unit is what a signal is measured in.
type Unit string

// The units. A signal's float64 value is in its unit.
const (
	ReplicaCount   Unit = "replicas"
	Millicores     Unit = "millicores"
	ByteCount      Unit = "bytes"
	RatioUnit      Unit = "ratio"
	BytesPerSecond Unit = "bytes/second"
	Seconds        Unit = "seconds"
	RequestsPerSec Unit = "requests/second"
	Kills          Unit = "kills"
)

// Merge says how the values of several replicas become the workload's value.
type Merge uint8

// The ways to merge. OfWorkload is a value that replicas do not have: it is
// measured for the workload as a whole.
const (
	OfWorkload Merge = iota
	Mean
	Max
	Sum
)

// signalRow is a row of the table of signals. Whatever handles all signals
// (wire, stores, encoders, masks, status, gym, the conformance suites) walks
// over the table, so a new signal needs a constant, a field of State, a row
// here, and whoever measures it.
type signalRow struct {
	name    string // in messages, stores and JSON
	unit    Unit
	merge   Merge
	integer bool    // the field holds whole numbers
	perUnit float64 // of an integer field: how many of its numbers make one unit
	get     func(*State) uint64
	set     func(*State, uint64)
}

// integer makes a row of a field of whole numbers, of which perUnit make one unit.
func integer[T ~int | ~int64](name string, u Unit, m Merge, perUnit float64, of func(*State) *T) signalRow {
	return signalRow{
		name: name, unit: u, merge: m, integer: true, perUnit: perUnit,
		get: func(s *State) uint64 { return uint64(*of(s)) },
		set: func(s *State, bits uint64) { *of(s) = T(int64(bits)) },
	}
}

// float makes a row of a field of floating-point numbers.
func float[T ~float64](name string, u Unit, m Merge, of func(*State) *T) signalRow {
	return signalRow{
		name: name, unit: u, merge: m,
		get: func(s *State) uint64 { return math.Float64bits(float64(*of(s))) },
		set: func(s *State, bits uint64) { *of(s) = T(math.Float64frombits(bits)) },
	}
}

// signals is the table, by number.
var signals = [...]signalRow{
	Replicas:    integer("replicas", ReplicaCount, OfWorkload, 1, func(s *State) *int { return &s.Replicas }),
	CPULimit:    integer("cpu-limit", Millicores, Mean, 1, func(s *State) *MilliCPU { return &s.Limit.CPU }),
	MemoryLimit: integer("memory-limit", ByteCount, Mean, 1, func(s *State) *Bytes { return &s.Limit.Memory }),
	CPUUsage:    integer("cpu-usage", Millicores, Mean, 1, func(s *State) *MilliCPU { return &s.Usage.CPU }),
	MemoryUsage: integer("memory-usage", ByteCount, Mean, 1, func(s *State) *Bytes { return &s.Usage.Memory }),
	CPUPeak:     integer("cpu-peak", Millicores, Max, 1, func(s *State) *MilliCPU { return &s.CPUPeak }),
	CPUDeviation: integer("cpu-deviation", Millicores, Mean, 1,
		func(s *State) *MilliCPU { return &s.CPUDeviation }),
	Throttled:      float("throttled", RatioUnit, Mean, func(s *State) *Ratio { return &s.Throttled }),
	CPUPressure:    float("cpu-pressure", RatioUnit, Mean, func(s *State) *Ratio { return &s.CPUPressure }),
	MemoryPressure: float("memory-pressure", RatioUnit, Mean, func(s *State) *Ratio { return &s.MemoryPressure }),
	IOPressure:     float("io-pressure", RatioUnit, Mean, func(s *State) *Ratio { return &s.IOPressure }),
	IORate:         float("io-rate", BytesPerSecond, Mean, func(s *State) *Rate { return &s.IORate }),
	Latency:        integer("latency", Seconds, OfWorkload, 1e9, func(s *State) *time.Duration { return &s.Latency }),
	Throughput:     float("throughput", RequestsPerSec, OfWorkload, func(s *State) *Rate { return &s.Throughput }),
	LoadChange:     float("load-change", RatioUnit, OfWorkload, func(s *State) *Ratio { return &s.LoadChange }),
	OOMKills:       integer("oom-kills", Kills, Sum, 1, func(s *State) *int { return &s.OOMKills }),
	NetworkRate:    float("network-rate", BytesPerSecond, Mean, func(s *State) *Rate { return &s.NetworkRate }),
	Arrivals:       float("arrivals", RequestsPerSec, OfWorkload, func(s *State) *Rate { return &s.Arrivals }),
	Missed:         float("missed", RatioUnit, OfWorkload, func(s *State) *Ratio { return &s.Missed }),
	Lost:           float("lost", RatioUnit, OfWorkload, func(s *State) *Ratio { return &s.Lost }),
	BackgroundLate: float("background-late", RatioUnit, OfWorkload, func(s *State) *Ratio { return &s.BackgroundLate }),
	CPUReservation: integer("cpu-reservation", Millicores, Mean, 1, func(s *State) *MilliCPU { return &s.Reservation }),
	CPUCeiling:     integer("cpu-ceiling", Millicores, Mean, 1, func(s *State) *MilliCPU { return &s.Ceiling }),
	CPUBurst:       integer("cpu-burst", Millicores, Mean, 1, func(s *State) *MilliCPU { return &s.CPUBurst }),
	LoadPeak:       float("load-peak", RequestsPerSec, OfWorkload, func(s *State) *Rate { return &s.LoadPeak }),
}

// SignalCount is how many signals there are; their numbers are below it.
const SignalCount = len(signals)

// All is the set of all signals.
const All Set = 1<<SignalCount - 1

// Signals lists all signals in the order of their numbers.
func Signals() iter.Seq[Signal] { return All.Signals() }

// SignalNamed finds a signal by its name.
func SignalNamed(name string) (Signal, bool) {
	for i := range signals {
		if signals[i].name == name {
			return Signal(i), true
		}
	}
	return 0, false
}

func (s Signal) String() string {
	if int(s) >= len(signals) {
		return "unknown-signal"
	}
	return signals[s].name
}

// Unit is the unit of the signal's float64 value.
func (s Signal) Unit() Unit { return signals[s].unit }

// Merge is how the values of several replicas become the workload's value.
func (s Signal) Merge() Merge { return signals[s].merge }

// Integer reports whether a State holds the signal as a whole number: then Int
// and SetInt are exact.
func (s Signal) Integer() bool { return signals[s].integer }

// Value is the signal's value in its unit, whether or not it was observed.
func (s Signal) Value(state *State) float64 {
	r := &signals[s]
	if r.integer {
		return float64(int64(r.get(state))) / r.perUnit
	}
	return math.Float64frombits(r.get(state))
}

// Get is the signal's value in its unit; ok is false when it was not observed.
func (s Signal) Get(state *State) (value float64, ok bool) {
	if !state.Observed.Has(s) {
		return 0, false
	}
	return s.Value(state), true
}

// Set gives the signal a value in its unit, and marks it as observed.
func (s Signal) Set(state *State, value float64) {
	r := &signals[s]
	if r.integer {
		r.set(state, uint64(int64(math.Round(value*r.perUnit))))
	} else {
		r.set(state, math.Float64bits(value))
	}
	state.Observed |= SetOf(s)
}

// Int is the whole number that the State holds for an Integer signal.
func (s Signal) Int(state *State) int64 { return int64(signals[s].get(state)) }

// SetInt is the inverse of Int. It does not change what is observed.
func (s Signal) SetInt(state *State, v int64) { signals[s].set(state, uint64(v)) }

// Float is the number that the State holds for a signal that is not Integer.
func (s Signal) Float(state *State) float64 { return math.Float64frombits(signals[s].get(state)) }

// SetFloat is the inverse of Float. It does not change what is observed.
func (s Signal) SetFloat(state *State, v float64) { signals[s].set(state, math.Float64bits(v)) }

// Set is a set of signals: what was observed of a State, or what an Action sets.
type Set uint32

// SetOf is the set of the given signals.
func SetOf(signals ...Signal) Set {
	var s Set
	for _, one := range signals {
		s |= 1 << one
	}
	return s
}

// Has reports whether every given signal is in the set.
func (s Set) Has(signals ...Signal) bool { return s.Contains(SetOf(signals...)) }

// Contains reports whether the whole other set is in this one.
func (s Set) Contains(other Set) bool { return s&other == other }

// Without is the set less the other one.
func (s Set) Without(other Set) Set { return s &^ other }

// Len is the number of signals in the set.
func (s Set) Len() int { return bits.OnesCount32(uint32(s)) }

// Signals lists the known signals of the set in the order of their numbers.
func (s Set) Signals() iter.Seq[Signal] {
	return func(yield func(Signal) bool) {
		for one := range Signal(len(signals)) {
			if s.Has(one) && !yield(one) {
				return
			}
		}
	}
}

func (s Set) String() string {
	names := make([]string, 0, s.Len())
	for one := range s.Signals() {
		names = append(names, one.String())
	}
	return "{" + strings.Join(names, " ") + "}"
}
