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

// Encoding is the version of the names and units of the values in messages. A
// client with another version is rejected, because its values can have another
// meaning.
const Encoding = 1

// StateToWire converts a State. Only observed signals are in the result.
func StateToWire(s mdp.State) *gymv1.State {
	w := &gymv1.State{At: timestamppb.New(s.At), Signals: make(map[string]float64, s.Observed.Len())}
	for one := range s.Observed.Signals() {
		w.Signals[one.String()] = one.Value(&s)
	}
	return w
}

// ServiceToWire converts what an environment has of one service.
func ServiceToWire(s workload.Spaces) *gymv1.ServiceSpaces {
	w := &gymv1.ServiceSpaces{Name: s.Service}
	for one := range mdp.Signals() {
		if s.Knobs.Has(one) {
			lowest, highest := span(s, one)
			w.Action = append(w.Action, &gymv1.Knob{
				Name: one.String(),
				Unit: string(one.Unit()),
				Min:  &lowest,
				Max:  &highest,
			})
		}
		if s.Signals.Has(one) {
			w.Observation = append(w.Observation, &gymv1.Signal{Name: one.String(), Unit: string(one.Unit())})
		}
	}
	return w
}

// span is the range of a knob.
func span(s workload.Spaces, k mdp.Signal) (lowest, highest float64) {
	r := s.Bounds.Knob(k)
	return float64(r.Min), float64(r.Max)
}

// ParseActions reads the Actions of several services, in the order of their
// spaces. A service that is not named keeps everything. A name that is none of
// theirs is an error, and so is what parseAction rejects. Services are read in
// the order of their names, so that the same input gives the same error.
func ParseActions(spaces []workload.Spaces, wire map[string]*gymv1.Action, clip bool) ([]mdp.Action, error) {
	actions := make([]mdp.Action, len(spaces))
	for _, name := range slices.Sorted(maps.Keys(wire)) {
		i := slices.IndexFunc(spaces, func(s workload.Spaces) bool { return s.Service == name })
		if i < 0 {
			var known []string
			for _, s := range spaces {
				known = append(known, s.Service)
			}
			return nil, fmt.Errorf("services %q: there is no such service; there are %s", name, strings.Join(known, ", "))
		}
		var err error
		if actions[i], err = parseAction(spaces[i], wire[name].GetKnobs(), clip); err != nil {
			return nil, fmt.Errorf("services %q: %w", name, err)
		}
	}
	return actions, nil
}

// parseAction reads an Action. A value outside the space is an error that names
// the knob, the value and the rule; with clip the value is moved into the
// space. Knobs are checked in the order of their names, so that the same input
// gives the same error.
func parseAction(s workload.Spaces, wire map[string]float64, clip bool) (mdp.Action, error) {
	var a mdp.Action
	for _, name := range slices.Sorted(maps.Keys(wire)) {
		value := wire[name]
		knob, known := mdp.SignalNamed(name)
		if !known || !s.Knobs.Has(knob) {
			return a, fmt.Errorf("action %s = %v: there is no such knob; there are %s",
				name, value, strings.Join(knobNames(s), ", "))
		}
		lowest, highest := span(s, knob)
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0) || value != math.Trunc(value):
			return a, fmt.Errorf("action %s = %v: it must be a whole number of %s", name, value, knob.Unit())
		case value < lowest || value > highest:
			if !clip {
				return a, fmt.Errorf("action %s = %.0f %s: it must be in [%.0f, %.0f]",
					name, value, knob.Unit(), lowest, highest)
			}
			if value < lowest {
				value = lowest
				a.Clipped |= mdp.ClippedMin
			} else {
				value = highest
				a.Clipped |= mdp.ClippedMax
			}
		}
		a = a.WithKnob(knob, int64(value))
	}
	return a, nil
}

// knobNames are the names of the knobs, for error messages.
func knobNames(s workload.Spaces) []string {
	var names []string
	for k := range s.Knobs.Signals() {
		names = append(names, k.String())
	}
	return names
}
