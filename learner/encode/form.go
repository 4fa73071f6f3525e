package encode

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"awarescale.dev/aware/learner/mdp"
)

// Version is the version of vectors and choices: of their order and scales. A
// policy of another version is refused. In version 1 replicas, limits and usages were linear,
// and rates below some hundred requests a second hardly differed.
const Version = 2

// Form is what a policy was made for. Begin with [Discrete] or [Box].
type Form struct {
	Version int
	Signals mdp.Set // that the vector has
	Knobs   mdp.Set // that actions set
	// Factors are the steps of a limit: each is a choice for each limit among
	// the Knobs. Without them the actions are a box, one number in [-1, 1] for
	// each knob.
	Factors []float64
	// Replicas are the steps of the number of replicas, as differences.
	Replicas []int
	// Span puts CPU and memory on scales that begin at a share of their upper bound, whatever the lower one is: which part of
	// what a replica may have is in use does not depend on how far down its owner lets it go. Only choices can have it.
	Span bool
	// Corrections are what actions correct in the demand policy, by choices; nil for actions that set knobs.
	// A [Corrector] encodes such a form.
	Corrections *Corrections
}

// Signals are what central knows of a workload (AWARE, section 2.2, table 1).
const Signals = mdp.All

// Discrete is the default form: one knob moves in a step, by one of a few
// factors. Discrete actions are the default, because they violate objectives
// far less than continuous ones while they learn.
func Discrete(knobs mdp.Set) Form {
	f := Form{Version: Version, Signals: Signals, Knobs: knobs, Factors: []float64{0.8, 0.9, 1.1, 1.5, 2}}
	if knobs.Has(mdp.Replicas) {
		f.Replicas = []int{-1, 1, 2}
	}
	return f
}

// Box is the form of the papers: absolute values of all knobs at once (AWARE,
// section 2.2).
func Box(knobs mdp.Set) Form { return Form{Version: Version, Signals: Signals, Knobs: knobs} }

// Check is nil for a form that this version reads, and otherwise names the
// field, its value and the rule.
func (f Form) Check() error {
	switch {
	case f.Version != Version:
		return fmt.Errorf("encoding version %d: this program reads version %d", f.Version, Version)
	case f.Signals == 0 || !mdp.All.Contains(f.Signals):
		return fmt.Errorf("encoding: signals %#x: they must be some of %v", uint32(f.Signals), mdp.All)
	case f.Knobs == 0 || !mdp.Knobs.Contains(f.Knobs):
		return fmt.Errorf("encoding: knobs %#x: they must be some of %v", uint32(f.Knobs), mdp.Knobs)
	case !f.Signals.Contains(f.Knobs):
		return fmt.Errorf("encoding: knobs %v that are not among the signals %v", f.Knobs, f.Signals)
	}
	for _, v := range f.Factors {
		if !(v > 0) || math.IsInf(v, 0) || v == 1 {
			return fmt.Errorf("encoding: factor %v: it must be above 0, finite, and not 1", v)
		}
	}
	for _, d := range f.Replicas {
		if d == 0 {
			return fmt.Errorf("encoding: a step of 0 replicas: it must not be 0")
		}
	}
	if f.Span && f.NumActions() == 0 {
		return fmt.Errorf("encoding: span: the actions of a box are between the bounds")
	}
	if f.Corrections == nil {
		return nil
	}
	if len(f.Factors)+len(f.Replicas) > 0 {
		return fmt.Errorf("encoding: factors %v, replicas %v: corrections have steps of their own", f.Factors, f.Replicas)
	}
	return f.Corrections.check()
}

// Dim is the length of the vector: two numbers for each signal, and what stands corrected.
func (f Form) Dim() int {
	if f.Corrections != nil {
		return 2*f.Signals.Len() + standing
	}
	return 2 * f.Signals.Len()
}

// NumActions is the number of choices; 0 for a box.
func (f Form) NumActions() int {
	if f.Corrections != nil {
		return len(moves)
	}
	return len(f.choices())
}

// ActionDim is how many numbers an action has: 1 for a choice, one for each
// knob of a box.
func (f Form) ActionDim() int {
	if f.NumActions() > 0 {
		return 1
	}
	return f.Knobs.Len()
}

// choice is one step of one knob. The zero choice keeps everything.
type choice struct {
	knob   mdp.Signal
	factor float64 // of a limit
	delta  int     // of replicas
	moves  bool
}

// choices are the choices in their order: keep, and then each step of each knob
// in mdp's order.
func (f Form) choices() []choice {
	if len(f.Factors) == 0 && len(f.Replicas) == 0 {
		return nil
	}
	all := []choice{{}}
	for k := range f.Knobs.Signals() {
		if k == mdp.Replicas {
			for _, d := range f.Replicas {
				all = append(all, choice{knob: k, delta: d, moves: true})
			}
			continue
		}
		for _, v := range f.Factors {
			all = append(all, choice{knob: k, factor: v, moves: true})
		}
	}
	return all
}

// Names names the choices, for people: "keep", "cpu-limit x0.8", "replicas +1".
func (f Form) Names() []string {
	var names []string
	if f.Corrections != nil {
		for _, m := range moves {
			names = append(names, m.name)
		}
		return names
	}
	for _, c := range f.choices() {
		switch {
		case !c.moves:
			names = append(names, "keep")
		case c.knob == mdp.Replicas:
			names = append(names, fmt.Sprintf("%v %+d", c.knob, c.delta))
		default:
			names = append(names, fmt.Sprintf("%v x%v", c.knob, c.factor))
		}
	}
	return names
}

// saved is a Form as it stands in files: sets as names, so that people can read it.
type saved struct {
	Version  int       `json:"version"`
	Signals  []string  `json:"signals"`
	Knobs    []string  `json:"knobs"`
	Factors  []float64 `json:"factors,omitempty"`
	Replicas []int     `json:"replicas,omitempty"`
	Span     bool      `json:"span,omitempty"`

	Corrections *Corrections `json:"corrections,omitempty"`
}

// MarshalJSON writes the form with the names of signals.
func (f Form) MarshalJSON() ([]byte, error) {
	s := saved{Version: f.Version, Factors: f.Factors, Replicas: f.Replicas, Span: f.Span, Corrections: f.Corrections}
	for one := range f.Signals.Signals() {
		s.Signals = append(s.Signals, one.String())
	}
	for one := range f.Knobs.Signals() {
		s.Knobs = append(s.Knobs, one.String())
	}
	return json.Marshal(s)
}

// UnmarshalJSON reads what MarshalJSON wrote; it does not check the form.
func (f *Form) UnmarshalJSON(text []byte) error {
	var s saved
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	next := Form{Version: s.Version, Factors: s.Factors, Replicas: s.Replicas, Span: s.Span, Corrections: s.Corrections}
	for names, set := range map[*[]string]*mdp.Set{&s.Signals: &next.Signals, &s.Knobs: &next.Knobs} {
		for _, name := range *names {
			one, ok := mdp.SignalNamed(name)
			if !ok {
				return fmt.Errorf("encoding: signal %q: this program knows none of that name", name)
			}
			*set |= mdp.SetOf(one)
		}
	}
	*f = next
	return nil
}

// Same is nil for an equal form, and otherwise says how the other one differs.
func (f Form) Same(o Form) error {
	mine, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	theirs, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if string(mine) != string(theirs) {
		return fmt.Errorf("encoding %s: it must be %s", theirs, mine)
	}
	return nil
}
