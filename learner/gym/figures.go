package gym

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym/gymv1"
	"awarescale.dev/aware/learner/mdp"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Encoding is the version of the names and units by which figures travel. A client that was written for another one is
// refused: its figures may mean something else.
const Encoding = 1

func stateToWire(s mdp.State) *gymv1.State {
	w := &gymv1.State{At: timestamppb.New(s.At), Signals: make(map[string]float64, s.Observed.Len())}
	for one := range s.Observed.Signals() {
		w.Signals[one.String()] = one.Value(&s)
	}
	return w
}

func spacesToWire(s workload.Spaces, episode int) *gymv1.Spaces {
	step := s.Step.Seconds()
	w := &gymv1.Spaces{Encoding: Encoding, World: string(s.World), Workload: s.Workload, Service: s.Service, StepSeconds: &step, EpisodeSteps: uint32(episode)}
	for one := range mdp.Signals() {
		if s.Knobs.Has(one) {
			least, most := span(s, one)
			w.Action = append(w.Action, &gymv1.Knob{Name: one.String(), Unit: string(one.Unit()), Min: &least, Max: &most})
		}
		if s.Signals.Has(one) {
			w.Observation = append(w.Observation, &gymv1.Signal{Name: one.String(), Unit: string(one.Unit())})
		}
	}
	return w
}

// span is the interval of a knob.
func span(s workload.Spaces, k mdp.Signal) (least, most float64) {
	r := s.Bounds.Knob(k)
	return float64(r.Min), float64(r.Max)
}

// parseAction reads an Action. Outside of the space it is an error that names the knob, its value and the rule, or, with clip,
// moved into it. Knobs are looked at in order of their names, so that the error is always the same one.
func parseAction(s workload.Spaces, wire map[string]float64, clip bool) (mdp.Action, error) {
	var a mdp.Action
	for _, name := range slices.Sorted(maps.Keys(wire)) {
		value := wire[name]
		knob, known := mdp.SignalNamed(name)
		if !known || !s.Knobs.Has(knob) {
			return a, fmt.Errorf("action %s = %v: there is no such knob; there are %s", name, value, strings.Join(knobNames(s), ", "))
		}
		least, most := span(s, knob)
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0) || value != math.Trunc(value):
			return a, fmt.Errorf("action %s = %v: it must be a whole number of %s", name, value, knob.Unit())
		case value < least || value > most:
			if !clip {
				return a, fmt.Errorf("action %s = %.0f %s: it must be in [%.0f, %.0f]", name, value, knob.Unit(), least, most)
			}
			if value < least {
				value, a.Clipped = least, a.Clipped|mdp.ClippedMin
			} else {
				value, a.Clipped = most, a.Clipped|mdp.ClippedMax
			}
		}
		a = a.WithKnob(knob, int64(value))
	}
	return a, nil
}

func knobNames(s workload.Spaces) []string {
	var names []string
	for k := range s.Knobs.Signals() {
		names = append(names, k.String())
	}
	return names
}
