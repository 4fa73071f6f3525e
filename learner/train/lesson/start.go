package lesson

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/learned"
)

// Start is what the lessons of a workload begin with: a policy that was pretrained over many workloads, and the meta-learner by
// which it knows a new one (AWARE §3.3).
type Start struct {
	Form encode.Form
	// Embeds lets a workload's lessons begin with the workload's embedding. Without it they begin with none, as of a workload of
	// which nothing is known.
	Embeds bool
	// Proven says that it is better than the fallback in workloads that its pretraining has not seen: then it is tried in a new one
	// (see [lifecycle.Estimate]).
	Proven bool
	// Within is, of each knob, the lowest and the highest upper bound of the workloads that have proven it. In narrower and in wider
	// ones it is proven of nothing (ADR 40).
	Within     mdp.Bounds
	Seen       mdp.Set // signals that the pretraining's worlds have shown; of the others it has learned nothing, and reads none
	Meta       meta.Config
	Theta      []float64       // of the meta-learner
	Base       discrete.Config // its State is a state of the form and an embedding
	Values     []float64       // parameters of the base-learner
	Behaviour  []float64       // the same
	Provenance map[string]string
}

// NewStart is what a pretraining has made of a form's choices, in worlds that show some signals.
func NewStart(form encode.Form, seen mdp.Set, r *pretrain.Run) (Start, error) {
	base, values, behaviour, ok := r.Choosing()
	if !ok {
		return Start{}, fmt.Errorf("a start of lessons: the pretraining's actions are numbers, and not choices")
	}
	l, err := r.Learner()
	if err != nil {
		return Start{}, fmt.Errorf("a start of lessons: %w", err)
	}
	s := Start{
		Form: form, Seen: seen, Meta: l.Config, Theta: l.Theta, Base: base, Values: values, Behaviour: behaviour,
		Provenance: map[string]string{"rounds": strconv.Itoa(r.Rounds)},
	}
	return s, s.Check()
}

// Check is nil for a start that is whole.
func (s Start) Check() error {
	fail := func(err error) error { return fmt.Errorf("a start of lessons: %w", err) }
	for _, err := range []error{s.Form.Check(), s.Meta.Check(), s.Base.Check()} {
		if err != nil {
			return fail(err)
		}
	}
	dim, n := s.Form.Dim(), s.Form.NumActions()
	want := meta.Form{Observation: dim, Choices: n}
	if s.Meta.Form != want || s.Base.State != dim+s.Meta.Embedding || s.Base.NumActions != n {
		return fail(fmt.Errorf(
			"a meta-learner of %+v and a policy of %d numbers and %d choices: the encoding has %d numbers and %d choices",
			s.Meta.Form, s.Base.State, s.Base.NumActions, dim, n))
	}
	if s.Seen == 0 || !mdp.All.Contains(s.Seen) {
		return fail(fmt.Errorf("signals %#x that its worlds have shown: they must be some of %v", uint32(s.Seen), mdp.All))
	}
	params := s.Base.Network().Params()
	if len(s.Theta) != s.Meta.Params() || len(s.Values) != params || len(s.Behaviour) != params {
		return fail(fmt.Errorf("%d, %d and %d parameters: there must be %d, %d and %d",
			len(s.Theta), len(s.Values), len(s.Behaviour), s.Meta.Params(), params, params))
	}
	return nil
}

// holds reports whether what was proven holds for a workload: it may have as much as some of the workloads of the proof.
func (s Start) holds(place encode.Place) bool {
	for _, k := range []mdp.Signal{mdp.Replicas, mdp.CPULimit, mdp.MemoryLimit} { // a reservation is bounded by the limit
		if !s.Within.Knob(k).Has(place.Bounds.Knob(k).Max) {
			return false
		}
	}
	return s.Proven
}

// For is the weights with which the lessons of a workload begin, of whose episodes there are some: those of a policy that reads
// no embedding any more, since the workload's is in them.
func (s Start) For(episodes [][]replay.Transition) (weights.File, error) {
	a, err := s.agent(episodes)
	if err != nil {
		return weights.File{}, err
	}
	return a.SavePolicy()
}

// Policy is what it decides by in a workload of which nothing is known, each step.
func (s Start) Policy(step time.Duration) (learned.File, error) {
	a, err := s.agent(nil)
	if err != nil {
		return learned.File{}, err
	}
	f := learned.File{Form: s.Form, Snapshot: a.Snapshot(), Step: step, Provenance: s.Provenance}
	return f, f.Check()
}

// agent is what chooses in a workload of whose episodes there are some.
func (s Start) agent(episodes [][]replay.Transition) (*discrete.Agent, error) {
	learner, err := meta.New(s.Meta, s.Theta)
	if err != nil {
		return nil, err
	}
	embedding := make([]float64, s.Meta.Embedding)
	if s.Embeds {
		learner.Embed(s.kept(episodes), embedding)
	}
	b := s.Base
	b.State = s.Form.Dim()
	a, err := blank(b)
	if err != nil {
		return nil, err
	}
	copy(a.Policy.Values.Theta, s.folded(s.Values, embedding))
	copy(a.Policy.Values.Target, a.Policy.Values.Theta)
	copy(a.Policy.Behaviour.Theta, s.folded(s.Behaviour, embedding))
	return a, nil
}

// blank is an agent without data.
func blank(b discrete.Config) (*discrete.Agent, error) {
	none, err := replay.NewUniform(replay.Config{Capacity: 1, State: b.State, Action: 1, NumActions: b.NumActions})
	if err != nil {
		return nil, err
	}
	return discrete.New(b, none)
}

// kept is the episodes that stand for the workload. A long one is several.
func (s Start) kept(episodes [][]replay.Transition) []meta.Episode {
	k := meta.Kept{Most: s.Meta.Bundle}
	for _, all := range episodes {
		for part := range slices.Chunk(all, s.Meta.Length) {
			var e meta.Episode
			for _, t := range part {
				e.Add(s.Meta.Form, s.shown(t.State), t.Action, t.Reward, true)
			}
			k.Add(e)
		}
	}
	return k.Episodes
}

// unseen calls what with each number of a state that is of a signal of which nothing was learned.
func (s Start) unseen(what func(i int)) {
	i := 0
	for one := range s.Form.Signals.Signals() {
		if !s.Seen.Has(one) {
			what(i)
			what(i + 1)
		}
		i += 2
	}
}

// shown is a state as the pretraining's worlds would have shown it.
func (s Start) shown(state []float64) []float64 {
	state = slices.Clone(state)
	s.unseen(func(i int) { state[i] = 0 })
	return state
}

// folded is a network that reads a state alone: the embedding, which is constant from now on, is in the biases of its first
// layer, and what a state has of signals that were not seen counts for nothing until a lesson learns what it means.
func (s Start) folded(theta, embedding []float64) []float64 {
	first, dim := s.Base.Network()[0], s.Form.Dim()
	var out []float64
	biases := slices.Clone(theta[first.In*first.Out : first.Params()])
	for k := range first.Out {
		row := slices.Clone(theta[k*first.In:][:first.In])
		s.unseen(func(i int) { row[i] = 0 })
		out = append(out, row[:dim]...)
		for i, v := range embedding {
			biases[k] += row[dim+i] * v
		}
	}
	return append(append(out, biases...), theta[first.Params():]...)
}

const (
	startKind     = "aware-start"
	startEncoding = "2" // in encoding 1 Within was the bounds of all workloads
)

// startText is what of a start is not numbers.
type startText struct {
	Form   encode.Form       `json:"form"`
	Embeds bool              `json:"embeds"`
	Proven bool              `json:"proven,omitempty"`
	Within mdp.Bounds        `json:"within"`
	Seen   []string          `json:"seen"`
	Meta   meta.Config       `json:"meta"`
	Base   discrete.Config   `json:"base"`
	Made   map[string]string `json:"made"`
}

// Encode is its file.
func (s Start) Encode() (weights.File, error) {
	if err := s.Check(); err != nil {
		return weights.File{}, err
	}
	var seen []string
	for one := range s.Seen.Signals() {
		seen = append(seen, one.String())
	}
	text, err := json.Marshal(startText{s.Form, s.Embeds, s.Proven, s.Within, seen, s.Meta, s.Base, s.Provenance})
	if err != nil {
		return weights.File{}, fmt.Errorf("a start of lessons: %w", err)
	}
	f := weights.File{
		Meta:    map[string]string{"kind": startKind, "encoding": startEncoding, "start": string(text)},
		Tensors: map[string]weights.Tensor{},
	}
	for name, data := range map[string][]float64{"theta": s.Theta, "values": s.Values, "behaviour": s.Behaviour} {
		f.Tensors[name] = weights.Tensor{Shape: []int{len(data)}, Data: data}
	}
	return f, nil
}

// DecodeStart reads what [Start.Encode] wrote, and refuses what is not whole, or of another version.
func DecodeStart(raw []byte) (Start, error) {
	fail := func(err error) (Start, error) { return Start{}, fmt.Errorf("reading a start of lessons: %w", err) }
	f, text, err := open[startText](raw, startKind, "start")
	if err != nil {
		return fail(err)
	}
	if f.Meta["encoding"] != startEncoding {
		return fail(fmt.Errorf("encoding %q: it must be %s", f.Meta["encoding"], startEncoding))
	}
	var seen mdp.Set
	for _, name := range text.Seen {
		one, ok := mdp.SignalNamed(name)
		if !ok {
			return fail(fmt.Errorf("a signal %q, which nobody knows", name))
		}
		seen |= mdp.SetOf(one)
	}
	s := Start{
		Form: text.Form, Embeds: text.Embeds, Proven: text.Proven, Within: text.Within, Seen: seen, Meta: text.Meta, Base: text.Base,
		Provenance: text.Made,
		Theta:      f.Tensors["theta"].Data, Values: f.Tensors["values"].Data, Behaviour: f.Tensors["behaviour"].Data,
	}
	return s, s.Check()
}

// Write writes it to a file, whole or not at all.
func (s Start) Write(path string) error {
	f, err := s.Encode()
	if err != nil {
		return err
	}
	return weights.Write(path, f)
}
