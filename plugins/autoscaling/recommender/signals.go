package recommender

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"k8s.io/apimachinery/pkg/api/resource"
)

// unit is the base unit of a signal.
type unit string

const (
	cores   unit = "cores"
	bytes   unit = "bytes"
	seconds unit = "seconds"
	ratio   unit = "ratio"
	rate    unit = "per second"
	count   unit = "count"
	ioRate  unit = "bytes per second"
)

// signal says how one signal is read from a State and written into one, as a
// number in its base unit.
type signal struct {
	name mdp.Signal
	unit unit
	get  func(mdp.State) float64
	set  func(*mdp.State, float64)
}

// signals is all signals in the order in which they are printed. This table is
// the only place that goes through the fields of a State one by one.
var signals = []signal{
	{mdp.Replicas, count,
		func(s mdp.State) float64 { return float64(s.Replicas) }, func(s *mdp.State, v float64) { s.Replicas = int(math.Round(v)) }},
	{mdp.CPULimit, cores,
		func(s mdp.State) float64 { return s.Limit.CPU.Cores() }, func(s *mdp.State, v float64) { s.Limit.CPU = milliCPU(v) }},
	{mdp.MemoryLimit, bytes,
		func(s mdp.State) float64 { return float64(s.Limit.Memory) }, func(s *mdp.State, v float64) { s.Limit.Memory = mdp.Bytes(v) }},
	{mdp.CPUUsage, cores,
		func(s mdp.State) float64 { return s.Usage.CPU.Cores() }, func(s *mdp.State, v float64) { s.Usage.CPU = milliCPU(v) }},
	{mdp.MemoryUsage, bytes,
		func(s mdp.State) float64 { return float64(s.Usage.Memory) }, func(s *mdp.State, v float64) { s.Usage.Memory = mdp.Bytes(v) }},
	{mdp.CPUPeak, cores,
		func(s mdp.State) float64 { return s.CPUPeak.Cores() }, func(s *mdp.State, v float64) { s.CPUPeak = milliCPU(v) }},
	{mdp.CPUDeviation, cores,
		func(s mdp.State) float64 { return s.CPUDeviation.Cores() }, func(s *mdp.State, v float64) { s.CPUDeviation = milliCPU(v) }},
	{mdp.Throttled, ratio,
		func(s mdp.State) float64 { return float64(s.Throttled) }, func(s *mdp.State, v float64) { s.Throttled = mdp.Ratio(v) }},
	{mdp.CPUPressure, ratio,
		func(s mdp.State) float64 { return float64(s.CPUPressure) }, func(s *mdp.State, v float64) { s.CPUPressure = mdp.Ratio(v) }},
	{mdp.MemoryPressure, ratio,
		func(s mdp.State) float64 { return float64(s.MemoryPressure) }, func(s *mdp.State, v float64) { s.MemoryPressure = mdp.Ratio(v) }},
	{mdp.IOPressure, ratio,
		func(s mdp.State) float64 { return float64(s.IOPressure) }, func(s *mdp.State, v float64) { s.IOPressure = mdp.Ratio(v) }},
	{mdp.IORate, ioRate,
		func(s mdp.State) float64 { return float64(s.IORate) }, func(s *mdp.State, v float64) { s.IORate = mdp.Rate(v) }},
	{mdp.Latency, seconds,
		func(s mdp.State) float64 { return s.Latency.Seconds() },
		func(s *mdp.State, v float64) { s.Latency = time.Duration(math.Round(v * float64(time.Second))) }},
	{mdp.Throughput, rate,
		func(s mdp.State) float64 { return float64(s.Throughput) }, func(s *mdp.State, v float64) { s.Throughput = mdp.Rate(v) }},
	{mdp.LoadChange, ratio,
		func(s mdp.State) float64 { return float64(s.LoadChange) }, func(s *mdp.State, v float64) { s.LoadChange = mdp.Ratio(v) }},
	{mdp.OOMKills, count,
		func(s mdp.State) float64 { return float64(s.OOMKills) }, func(s *mdp.State, v float64) { s.OOMKills = int(math.Round(v)) }},
}

func milliCPU(cores float64) mdp.MilliCPU { return mdp.MilliCPU(math.Round(cores * 1000)) }

// AllSignals is every signal that a status can carry.
func AllSignals() mdp.Set {
	var all mdp.Set
	for _, one := range signals {
		all |= mdp.SetOf(one.name)
	}
	return all
}

// Signals is the observed signals of a State by name, in base units, as a status
// carries them.
func Signals(s mdp.State) map[string]resource.Quantity {
	all := map[string]resource.Quantity{}
	for _, one := range signals {
		if !s.Knows(one.name) {
			continue
		}
		if q, ok := quantity(one.get(s), one.unit); ok {
			all[one.name.String()] = q
		}
	}
	return all
}

// Sets is what an Action sets, in the form of [Signals].
func Sets(a mdp.Action) map[string]resource.Quantity {
	return Signals(mdp.State{Observed: a.Sets & mdp.Knobs, Replicas: a.Replicas, Limit: a.Limit})
}

// StateOf is the State that [Signals] were written from. A signal with a name
// that is not known, of a newer version, is left out.
func StateOf(all map[string]resource.Quantity) mdp.State {
	var s mdp.State
	for _, one := range signals {
		if q, ok := all[one.name.String()]; ok {
			one.set(&s, number(q))
			s.Observed |= mdp.SetOf(one.name)
		}
	}
	return s
}

// Describe prints signals for people, such as "replicas=2 cpu-usage=180m
// latency=12.3ms".
func Describe(all map[string]resource.Quantity) string {
	var parts []string
	for _, one := range signals {
		if q, ok := all[one.name.String()]; ok {
			parts = append(parts, one.name.String()+"="+one.unit.describe(number(q)))
		}
	}
	return strings.Join(parts, " ")
}

// Inputs describes what a decision was made from. A signal that was not observed
// is left out.
func Inputs(s mdp.State) string {
	if text := Describe(Signals(s)); text != "" {
		return text
	}
	return "nothing observed"
}

// describe prints a value for people.
func (u unit) describe(v float64) string {
	switch u {
	case cores:
		return milliCPU(v).String()
	case bytes:
		return fmt.Sprintf("%.0fMi", mdp.Bytes(v).MiB())
	case seconds:
		return time.Duration(math.Round(v * float64(time.Second))).Round(100 * time.Microsecond).String()
	case ratio:
		return fmt.Sprintf("%.2f", v)
	case ioRate:
		return fmt.Sprintf("%.1fMi/s", mdp.Bytes(v).MiB())
	case rate:
		return fmt.Sprintf("%.1f/s", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// quantity is a number as the API writes it: whole, or rounded to millionths. ok
// is false for a number that is not finite.
func quantity(v float64, u unit) (q resource.Quantity, ok bool) {
	const largest = 1 << 53 // above it a float64 has no fraction
	switch {
	case math.IsNaN(v) || math.Abs(v) > math.MaxInt64/2:
		return q, false
	case u == bytes:
		return *resource.NewQuantity(int64(v), resource.BinarySI), true
	case v == math.Trunc(v) || math.Abs(v) > largest/1e6:
		return *resource.NewQuantity(int64(v), resource.DecimalSI), true
	}
	return *resource.NewScaledQuantity(int64(math.Round(v*1e6)), resource.Micro), true
}

// number is the float64 that is nearest to a quantity. AsApproximateFloat64 is
// off by its rounding.
func number(q resource.Quantity) float64 {
	v, err := strconv.ParseFloat(q.AsDec().String(), 64)
	if err != nil {
		return q.AsApproximateFloat64() // a quantity is a number: it does not happen
	}
	return v
}
