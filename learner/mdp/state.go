package mdp

import (
	"math/bits"
	"strings"
	"time"
)

// Signal names one figure of a [State], and, for the first three, one field of an [Action].
type Signal uint8

// The signals, in the order in which they are printed and encoded.
const (
	Replicas       Signal = iota // replicas that are ready
	CPULimit                     // effective CPU limit of a replica
	MemoryLimit                  // effective memory limit of a replica
	CPUUsage                     // mean CPU usage of a replica over the step
	MemoryUsage                  // memory in use by a replica that cannot be dropped (working set)
	CPUPeak                      // highest usage of a replica among recent short samples
	CPUDeviation                 // standard deviation of the same samples
	Throttled                    // share of CFS periods in which a replica was throttled
	CPUPressure                  // share of time in which some task waited for CPU (PSI)
	MemoryPressure               // share of time in which all tasks waited for memory (PSI full)
	IOPressure                   // share of time in which all tasks waited for I/O (PSI full)
	IORate                       // bytes read and written per second by a replica
	Latency                      // latency at the SLO's percentile
	Throughput                   // requests answered per second, all replicas together
	LoadChange                   // throughput against the step before, as a ratio; 1 is unchanged
	OOMKills                     // processes killed for memory since the step before
	signals                      // how many there are
)

var signalNames = [signals]string{
	"replicas", "cpu-limit", "memory-limit", "cpu-usage", "memory-usage", "cpu-peak", "cpu-deviation", "throttled",
	"cpu-pressure", "memory-pressure", "io-pressure", "io-rate", "latency", "throughput", "load-change", "oom-kills",
}

func (s Signal) String() string {
	if s >= signals {
		return "unknown-signal"
	}
	return signalNames[s]
}

// Set is a set of signals: what of a State was observed, or what an Action sets.
type Set uint32

// SetOf is the set of the given signals.
func SetOf(signals ...Signal) Set {
	var s Set
	for _, one := range signals {
		s |= 1 << one
	}
	return s
}

// Has tells whether every given signal is in the set.
func (s Set) Has(signals ...Signal) bool { return s.Contains(SetOf(signals...)) }

// Contains tells whether the whole other set is in this one.
func (s Set) Contains(other Set) bool { return s&other == other }

// Without is the set less the other one.
func (s Set) Without(other Set) Set { return s &^ other }

// Len is the number of signals in the set.
func (s Set) Len() int { return bits.OnesCount32(uint32(s)) }

func (s Set) String() string {
	names := make([]string, 0, s.Len())
	for one := Signal(0); one < signals; one++ {
		if s.Has(one) {
			names = append(names, one.String())
		}
	}
	return "{" + strings.Join(names, " ") + "}"
}

// State is what is known of a workload at one time. A field is meaningful only when its signal is
// in Observed; otherwise it is zero and means nothing.
type State struct {
	At       time.Time // when the State was sensed
	Observed Set

	Replicas       int
	Limit          Size     // per replica: what it may use now
	Usage          Size     // per replica: the mean over replicas
	CPUPeak        MilliCPU // per replica, over the sensor's window
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
}

// Knows tells whether every given signal was observed.
func (s State) Knows(signals ...Signal) bool { return s.Observed.Has(signals...) }

// UnknownError says that a decision needs signals that were not observed.
type UnknownError struct {
	Who     string // the policy or part that needs them
	Missing Set
}

func (e *UnknownError) Error() string { return e.Who + ": not observed: " + e.Missing.String() }

// Require is nil when the State knows every given signal, and an [*UnknownError] naming the missing ones
// otherwise.
func (s State) Require(who string, signals ...Signal) error {
	if missing := SetOf(signals...).Without(s.Observed); missing != 0 {
		return &UnknownError{Who: who, Missing: missing}
	}
	return nil
}
