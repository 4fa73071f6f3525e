package lesson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"awarescale.dev/aware/learner/algo/fqe"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/learned"
)

// A lesson and its result are safetensors files where they are sent.
const (
	lessonKind = "aware-lesson/1"
	resultKind = "aware-lesson-result/1"
)

// What is true of a transition, as bits of a byte.
const (
	terminated = 1 << iota
	truncated
)

// lessonText is what of a lesson is not numbers.
type lessonText struct {
	Config   Config `json:"config"`
	Workload string `json:"workload"`
	First    bool   `json:"first,omitempty"`
	Anew     string `json:"anew,omitempty"`
}

// Encode is the lesson as bytes.
func (l Lesson) Encode() ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("encoding a lesson of %s: %w", l.Workload, err)
	}
	text, err := json.Marshal(lessonText{l.Config, l.Workload, l.First, l.Anew})
	if err != nil {
		return fail(err)
	}
	n, dim, choices := l.transitions(), l.Config.Form.Dim(), l.Config.Form.NumActions()
	state, next := make([]float64, 0, n*dim), make([]float64, 0, n*dim)
	action, reward, discount := make([]float64, 0, n), make([]float64, 0, n), make([]float64, 0, n)
	ends, legal, lengths := make([]byte, 0, n), make([]byte, 0, n*choices), make([]float64, 0, len(l.Episodes))
	for _, e := range l.Episodes {
		lengths = append(lengths, float64(len(e)))
		for _, t := range e {
			if len(t.State) != dim || len(t.Next) != dim || len(t.NextLegal) != choices || len(t.Action) != 1 {
				return fail(fmt.Errorf("a transition of %d and %d numbers, %d choices and %d actions: it must have %d, %d, %d and 1",
					len(t.State), len(t.Next), len(t.NextLegal), len(t.Action), dim, dim, choices))
			}
			state, next = append(state, t.State...), append(next, t.Next...)
			action, reward, discount = append(action, t.Action[0]), append(reward, t.Reward), append(discount, t.Discount)
			var end byte
			if t.Terminated {
				end |= terminated
			}
			if t.Truncated {
				end |= truncated
			}
			ends = append(ends, end)
			for _, may := range t.NextLegal {
				one := byte(0)
				if may {
					one = 1
				}
				legal = append(legal, one)
			}
		}
	}
	f := weights.File{
		Meta: map[string]string{"kind": lessonKind, "lesson": string(text)},
		Tensors: map[string]weights.Tensor{
			"state": {Shape: []int{n, dim}, Data: state}, "next": {Shape: []int{n, dim}, Data: next},
			"action": {Shape: []int{n}, Data: action}, "reward": {Shape: []int{n}, Data: reward},
			"discount": {Shape: []int{n}, Data: discount}, "lengths": {Shape: []int{len(lengths)}, Data: lengths},
		},
		Blobs: map[string][]byte{"ends": ends, "legal": legal},
	}
	if l.From != nil {
		if f.Blobs["from"], err = weights.Encode(*l.From); err != nil {
			return fail(err)
		}
	}
	raw, err := weights.Encode(f)
	if err != nil {
		return fail(err)
	}
	return raw, nil
}

// Decode reads what [Lesson.Encode] wrote.
func Decode(raw []byte) (Lesson, error) {
	fail := func(err error) (Lesson, error) { return Lesson{}, fmt.Errorf("reading a lesson: %w", err) }
	f, text, err := open[lessonText](raw, lessonKind, "lesson")
	if err != nil {
		return fail(err)
	}
	l := Lesson{Config: text.Config, Workload: text.Workload, First: text.First, Anew: text.Anew}
	if err := l.Config.Check(); err != nil {
		return fail(err)
	}
	n, dim, choices := len(f.Tensors["reward"].Data), l.Config.Form.Dim(), l.Config.Form.NumActions()
	if n < 1 {
		return fail(fmt.Errorf("it has no transitions"))
	}
	rows := map[string][]float64{}
	for name, width := range map[string]int{"state": dim, "next": dim, "action": 0, "reward": 0, "discount": 0} {
		shape := []int{n, width}
		if width == 0 {
			shape = shape[:1]
		}
		if rows[name], err = f.Take(name, shape...); err != nil {
			return fail(err)
		}
	}
	ends, legal := f.Blobs["ends"], f.Blobs["legal"]
	if len(ends) != n || len(legal) != n*choices {
		return fail(fmt.Errorf("%d ends and %d legal choices: of %d transitions it must be %d and %d",
			len(ends), len(legal), n, n, n*choices))
	}
	row := func(i int) replay.Transition {
		t := replay.Transition{
			State: rows["state"][i*dim : (i+1)*dim : (i+1)*dim], Next: rows["next"][i*dim : (i+1)*dim : (i+1)*dim],
			Action: rows["action"][i : i+1 : i+1], Reward: rows["reward"][i], Discount: rows["discount"][i],
			NextLegal:  make([]bool, choices),
			Terminated: ends[i]&terminated != 0, Truncated: ends[i]&truncated != 0,
		}
		for c := range t.NextLegal {
			t.NextLegal[c] = legal[i*choices+c] != 0
		}
		return t
	}
	from := 0
	for _, length := range f.Tensors["lengths"].Data {
		if !(length >= 1 && length <= float64(n-from)) || length != math.Trunc(length) {
			return fail(fmt.Errorf("an episode of %v transitions, with %d left: it must be a whole number from 1 to that", length, n-from))
		}
		e := make([]replay.Transition, int(length))
		for i := range e {
			e[i] = row(from + i)
		}
		l.Episodes, from = append(l.Episodes, e), from+len(e)
	}
	if from != n {
		return fail(fmt.Errorf("episodes of %d transitions: it has %d", from, n))
	}
	if blob, ok := f.Blobs["from"]; ok {
		w, err := weights.Decode(blob)
		if err != nil {
			return fail(fmt.Errorf("the weights to go on from: %w", err))
		}
		l.From = &w
	}
	return l, nil
}

// resultText is what of a result is not numbers.
type resultText struct {
	Worth       fqe.Estimate `json:"worth"`
	Transitions int          `json:"transitions"`
	Episodes    int          `json:"episodes"`
	Anew        string       `json:"anew,omitempty"`
}

// Encode is the result as bytes.
func (r Result) Encode() ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("encoding what was learned: %w", err) }
	text, err := json.Marshal(resultText{r.Worth, r.Transitions, r.Episodes, r.Anew})
	if err != nil {
		return fail(err)
	}
	policy, err := r.Policy.Encode()
	if err != nil {
		return fail(err)
	}
	f := weights.File{Meta: map[string]string{"kind": resultKind, "result": string(text)}, Blobs: map[string][]byte{}}
	for name, one := range map[string]weights.File{"policy": policy, "weights": r.Weights} {
		if f.Blobs[name], err = weights.Encode(one); err != nil {
			return fail(fmt.Errorf("%s: %w", name, err))
		}
	}
	raw, err := weights.Encode(f)
	if err != nil {
		return fail(err)
	}
	return raw, nil
}

// DecodeResult reads what [Result.Encode] wrote. A policy that does not fit this lesson's settings, and a worth that is no
// interval, are errors.
func (c Config) DecodeResult(raw []byte) (Result, error) {
	fail := func(err error) (Result, error) { return Result{}, fmt.Errorf("reading what was learned: %w", err) }
	f, text, err := open[resultText](raw, resultKind, "result")
	if err != nil {
		return fail(err)
	}
	r := Result{Worth: text.Worth, Transitions: text.Transitions, Episodes: text.Episodes, Anew: text.Anew}
	parts := map[string]weights.File{}
	for _, name := range []string{"policy", "weights"} {
		blob, err := f.Blob(name)
		if err != nil {
			return fail(err)
		}
		if parts[name], err = weights.Decode(blob); err != nil {
			return fail(fmt.Errorf("%s: %w", name, err))
		}
	}
	r.Weights = parts["weights"]
	if r.Policy, err = learned.Decode(parts["policy"]); err != nil {
		return fail(err)
	}
	if err := c.Form.Same(r.Policy.Form); err != nil {
		return fail(err)
	}
	if r.Policy.Step != c.Step {
		return fail(fmt.Errorf("a policy for steps of %v: it must be %v", r.Policy.Step, c.Step))
	}
	if w := r.Worth; !(w.Low <= w.Mean && w.Mean <= w.High) {
		return fail(fmt.Errorf("a worth of %v, from %v to %v: it must be within its interval", w.Mean, w.Low, w.High))
	}
	return r, nil
}

// open decodes a file of a kind, with its text.
func open[T any](raw []byte, kind, key string) (f weights.File, text T, err error) {
	if f, err = weights.Decode(raw); err != nil {
		return f, text, err
	}
	if f.Meta["kind"] != kind {
		return f, text, fmt.Errorf("a file of kind %q: it must be %q", f.Meta["kind"], kind)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(f.Meta[key])))
	d.DisallowUnknownFields()
	if err := d.Decode(&text); err != nil {
		return f, text, fmt.Errorf("metadata %q: %w", key, err)
	}
	return f, text, nil
}
