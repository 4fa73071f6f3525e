package gym

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"awarescale.dev/aware/learner/gym/gymv1"
	"awarescale.dev/aware/learner/mdp"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Encoding is the version of the names and units by which figures travel. A client that was written for another one is
// refused: its figures may mean something else.
const Encoding = 1

// figure is how one signal travels.
type figure struct {
	signal mdp.Signal
	unit   string
	value  func(s mdp.State) float64
}

// figures are all signals, in mdp's order.
var figures = []figure{
	{mdp.Replicas, "replicas", func(s mdp.State) float64 { return float64(s.Replicas) }},
	{mdp.CPULimit, "millicores", func(s mdp.State) float64 { return float64(s.Limit.CPU) }},
	{mdp.MemoryLimit, "bytes", func(s mdp.State) float64 { return float64(s.Limit.Memory) }},
	{mdp.CPUUsage, "millicores", func(s mdp.State) float64 { return float64(s.Usage.CPU) }},
	{mdp.MemoryUsage, "bytes", func(s mdp.State) float64 { return float64(s.Usage.Memory) }},
	{mdp.CPUPeak, "millicores", func(s mdp.State) float64 { return float64(s.CPUPeak) }},
	{mdp.CPUDeviation, "millicores", func(s mdp.State) float64 { return float64(s.CPUDeviation) }},
	{mdp.Throttled, "ratio", func(s mdp.State) float64 { return float64(s.Throttled) }},
	{mdp.CPUPressure, "ratio", func(s mdp.State) float64 { return float64(s.CPUPressure) }},
	{mdp.MemoryPressure, "ratio", func(s mdp.State) float64 { return float64(s.MemoryPressure) }},
	{mdp.IOPressure, "ratio", func(s mdp.State) float64 { return float64(s.IOPressure) }},
	{mdp.IORate, "bytes/second", func(s mdp.State) float64 { return float64(s.IORate) }},
	{mdp.Latency, "seconds", func(s mdp.State) float64 { return s.Latency.Seconds() }},
	{mdp.Throughput, "requests/second", func(s mdp.State) float64 { return float64(s.Throughput) }},
	{mdp.LoadChange, "ratio", func(s mdp.State) float64 { return float64(s.LoadChange) }},
	{mdp.OOMKills, "kills", func(s mdp.State) float64 { return float64(s.OOMKills) }},
}

func stateToWire(s mdp.State) *gymv1.State {
	w := &gymv1.State{At: timestamppb.New(s.At), Signals: make(map[string]float64, s.Observed.Len())}
	for _, f := range figures {
		if s.Knows(f.signal) {
			w.Signals[f.signal.String()] = f.value(s)
		}
	}
	return w
}

func spacesToWire(s Spaces, episode int) *gymv1.Spaces {
	step := s.Step.Seconds()
	w := &gymv1.Spaces{Encoding: Encoding, World: string(s.World), Workload: s.Workload, Service: s.Service, StepSeconds: &step, EpisodeSteps: uint32(episode)}
	for _, f := range figures {
		if least, most, ok := s.span(f.signal); ok {
			w.Action = append(w.Action, &gymv1.Knob{Name: f.signal.String(), Unit: f.unit, Min: &least, Max: &most})
		}
		if s.Signals.Has(f.signal) {
			w.Observation = append(w.Observation, &gymv1.Signal{Name: f.signal.String(), Unit: f.unit})
		}
	}
	return w
}

// span is how far a knob goes; ok is false for what is none.
func (s Spaces) span(signal mdp.Signal) (least, most float64, ok bool) {
	if !s.Knobs.Has(signal) {
		return 0, 0, false
	}
	switch b := s.Bounds; signal {
	case mdp.Replicas:
		return float64(b.Replicas.Min), float64(b.Replicas.Max), true
	case mdp.CPULimit:
		return float64(b.CPU.Min), float64(b.CPU.Max), true
	case mdp.MemoryLimit:
		return float64(b.Memory.Min), float64(b.Memory.Max), true
	}
	return 0, 0, false
}

// action reads an Action. Outside of the space it is an error that names the knob, its value and the rule, or, with clip,
// moved into it. Knobs are looked at in order of their names, so that the error is always the same one.
func (s Spaces) action(wire map[string]float64, clip bool) (mdp.Action, error) {
	var a mdp.Action
	for _, name := range slices.Sorted(maps.Keys(wire)) {
		value := wire[name]
		i := slices.IndexFunc(figures, func(f figure) bool { return f.signal.String() == name })
		var least, most float64
		known := false
		if i >= 0 {
			least, most, known = s.span(figures[i].signal)
		}
		if !known {
			return a, fmt.Errorf("action %s = %v: there is no such knob; there are %s", name, value, strings.Join(s.knobs(), ", "))
		}
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0) || value != math.Trunc(value):
			return a, fmt.Errorf("action %s = %v: it must be a whole number of %s", name, value, figures[i].unit)
		case value < least || value > most:
			if !clip {
				return a, fmt.Errorf("action %s = %.0f %s: it must be in [%.0f, %.0f]", name, value, figures[i].unit, least, most)
			}
			if value < least {
				value, a.Clipped = least, a.Clipped|mdp.ClippedMin
			} else {
				value, a.Clipped = most, a.Clipped|mdp.ClippedMax
			}
		}
		switch figures[i].signal {
		case mdp.Replicas:
			a = a.WithReplicas(int(value))
		case mdp.CPULimit:
			a = a.WithCPU(mdp.MilliCPU(value))
		case mdp.MemoryLimit:
			a = a.WithMemory(mdp.Bytes(value))
		}
	}
	return a, nil
}

func (s Spaces) knobs() []string {
	var names []string
	for _, f := range figures {
		if s.Knobs.Has(f.signal) {
			names = append(names, f.signal.String())
		}
	}
	return names
}
