package lesson_test

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/train/lesson"
)

// start is one of random numbers.
func start(seed uint64) lesson.Start {
	r := rand.New(rand.NewPCG(seed, 7))
	s := lesson.Start{
		Form: form, Embeds: true, Proven: true, Within: place.Bounds, Base: lesson.Base(form),
		Seen:       mdp.LimitKnobs | mdp.SetOf(mdp.Latency, mdp.LoadPeak),
		Provenance: map[string]string{"made": "by a test"},
	}
	s.Meta = meta.Small(meta.Form{Observation: form.Dim(), Choices: form.NumActions()})
	s.Meta.Hidden, s.Meta.Dense, s.Meta.Embedding, s.Meta.Length, s.Meta.Bundle = 8, 16, 4, 10, 3
	s.Base.State = form.Dim() + s.Meta.Embedding
	s.Theta = s.Meta.Initial(r)
	numbers := func(n int) []float64 {
		all := make([]float64, n)
		for i := range all {
			all[i] = 0.3 * r.NormFloat64()
		}
		return all
	}
	s.Values, s.Behaviour = numbers(s.Base.Network().Params()), numbers(s.Base.Network().Params())
	return s
}

// some episodes of a workload whose numbers are about a mean.
func some(mean float64, n int) (all [][]replay.Transition) {
	r := rand.New(rand.NewPCG(3, 3))
	for range n {
		var e []replay.Transition
		for range 10 {
			t := replay.Transition{State: make([]float64, form.Dim()), Action: []float64{float64(r.IntN(form.NumActions()))}, Reward: mean}
			for i := range t.State {
				t.State[i] = mean + 0.1*r.NormFloat64()
			}
			e = append(e, t)
		}
		all = append(all, e)
	}
	return all
}

// agent is what the weights are of.
func agentOf(t *testing.T, w weights.File) *discrete.Agent {
	t.Helper()
	none, err := replay.NewUniform(replay.Config{Capacity: 1, State: form.Dim(), Action: 1, NumActions: form.NumActions()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := discrete.New(lesson.Base(form), none)
	if err == nil {
		err = a.Restore(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// What a start does in a workload of which nothing is known is what its weights for that do, at its own threshold.
func TestAStartIsAPolicy(t *testing.T) {
	s := start(1)
	s.Base.Threshold = 0.03
	f, err := s.Policy(10 * time.Second)
	if err != nil || f.Snapshot.Head.Threshold != 0.03 || f.Step != 10*time.Second || f.Form.Same(form) != nil {
		t.Fatalf("%+v, %v", f, err)
	}
	w, err := s.For(nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := agentOf(t, w).Snapshot(); !slices.Equal(f.Snapshot.Theta, want.Theta) {
		t.Error("its numbers are others than those of its weights")
	}
}

// The weights for a workload have the workload's embedding in them: without reading it they give the values that the pretrained
// networks give with it, whatever is seen. Another workload has others.
func TestAStartKnowsItsWorkloadWithoutBeingTold(t *testing.T) {
	s := start(1)
	learner, err := meta.New(s.Meta, s.Theta)
	if err != nil {
		t.Fatal(err)
	}
	tape := kernel.NewTape[float64](s.Base.Network(), 1)
	own := kernel.NewTape[float64](lesson.Base(form).Network(), 1)
	r := rand.New(rand.NewPCG(2, 2))
	for name, episodes := range map[string][][]replay.Transition{"calm": some(0.2, 3), "busy": some(1, 3), "unknown": nil} {
		var told []meta.Episode
		for _, rows := range episodes {
			var e meta.Episode
			for _, row := range rows {
				e.Add(s.Meta.Form, shown(s, row.State), row.Action, row.Reward, true)
			}
			told = append(told, e)
		}
		obs := make([]float64, s.Base.State)
		learner.Embed(told, obs[form.Dim():])
		w, err := s.For(episodes)
		if err != nil {
			t.Fatal(err)
		}
		a := agentOf(t, w)
		for range 20 {
			for i := range form.Dim() {
				obs[i] = r.NormFloat64()
			}
			for what, of := range map[string][3][]float64{
				"values":    {s.Values, a.Policy.Values.Theta, a.Policy.Values.Target},
				"behaviour": {s.Behaviour, a.Policy.Behaviour.Theta, a.Policy.Behaviour.Theta},
			} {
				want := append([]float64(nil), tape.Forward(of[0], append(shown(s, obs[:form.Dim()]), obs[form.Dim():]...), 1)...)
				for _, theta := range of[1:] {
					for i, got := range own.Forward(theta, obs[:form.Dim()], 1) {
						if math.Abs(got-want[i]) > 1e-9 {
							t.Fatalf("%s, %s of choice %d: %v, want %v", name, what, i, got, want[i])
						}
					}
				}
			}
		}
	}
	s.Embeds = false
	known, _ := s.For(some(1, 3))
	unknown, _ := s.For(nil)
	if !same(agentOf(t, known).Policy.Values.Theta, agentOf(t, unknown).Policy.Values.Theta) {
		t.Error("without embeddings it is another one for a workload that is known")
	}
	s.Embeds = true
	calm, _ := s.For(some(0.2, 3))
	busy, _ := s.For(some(1, 3))
	if a, b := agentOf(t, calm), agentOf(t, busy); a.Policy.Values.Theta[len(a.Policy.Values.Theta)-1] !=
		b.Policy.Values.Theta[len(b.Policy.Values.Theta)-1] || same(a.Policy.Values.Theta, b.Policy.Values.Theta) {
		t.Error("workloads differ in the first layer's biases, and in nothing else")
	}
}

// shown is a state without what the worlds of the pretraining have not shown: of that it has learned nothing.
func shown(s lesson.Start, state []float64) []float64 {
	state = append([]float64(nil), state...)
	for signal := range form.Signals.Signals() { // all of them
		if i := 2 * int(signal); !s.Seen.Has(signal) {
			state[i], state[i+1] = 0, 0
		}
	}
	return state
}

func same(a, b []float64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// sent is a lesson as it is in another process, which has no start.
func sent(l lesson.Lesson) (lesson.Lesson, error) {
	raw, err := l.Encode()
	if err != nil {
		return l, err
	}
	return lesson.Decode(raw)
}

// The first lesson says what a start is worth as it is: five episodes would teach it worse. The next one goes on from there, and
// learns.
func TestTheFirstLessonJudgesAStartAndTheNextOneGoesOn(t *testing.T) {
	store, _ := record(t, 6)
	c := config()
	c.Updates = 1
	s := start(2)
	s.Base.Threshold = 0.07
	if c = c.Begins(&s); c.Threshold != 0.07 {
		t.Errorf("threshold %v: want the start's", c.Threshold)
	}
	l, err := c.Prepare(context.Background(), store, "shop/Deployment/web", begin, place, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.For(l.Episodes)
	if err != nil || l.From == nil {
		t.Fatalf("it does not begin with the start (%v)", err)
	}
	values := agentOf(t, want).Policy.Values.Theta
	learn := func(l lesson.Lesson) lesson.Result {
		t.Helper()
		l, err := sent(l)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Learn(context.Background(), nil)
		if err != nil || got.Anew != "" {
			t.Fatalf("%q, %v", got.Anew, err)
		}
		return got
	}
	first := learn(l)
	if !same(agentOf(t, first.Weights).Policy.Values.Theta, values) || first.Policy.Provenance["updates"] != "0" ||
		!(first.Worth.Low <= first.Worth.High) || first.Worth.Mean == 0 {
		t.Errorf("it was changed, or not judged: %+v", first.Worth)
	}
	// What was learned before counts more than what everybody begins with.
	l, err = c.Prepare(context.Background(), store, "shop/Deployment/web", begin, place, &first.Weights)
	if err != nil || l.From != &first.Weights {
		t.Fatalf("the next lesson begins anew (%v)", err)
	}
	next := learn(l)
	if same(agentOf(t, next.Weights).Policy.Values.Theta, values) || next.Policy.Provenance["updates"] != "1" {
		t.Error("the next lesson has learned nothing")
	}
	// What another version of this program has learned does not fit: it is the first lesson again, and says why.
	other := s.Base
	other.State = 3
	none, err := replay.NewUniform(replay.Config{Capacity: 1, State: 3, Action: 1, NumActions: other.NumActions})
	if err != nil {
		t.Fatal(err)
	}
	a, err := discrete.New(other, none)
	if err != nil {
		t.Fatal(err)
	}
	old, err := a.SavePolicy()
	if err != nil {
		t.Fatal(err)
	}
	// Nor do weights of as many numbers, which are of states that another version wrote.
	scaled := next.Weights
	scaled.Meta = maps.Clone(next.Weights.Meta)
	scaled.Meta["form"] = strings.Replace(scaled.Meta["form"], `"version":2`, `"version":1`, 1)
	nameless := next.Weights
	nameless.Meta = maps.Clone(next.Weights.Meta)
	delete(nameless.Meta, "form")
	for of, from := range map[string]weights.File{
		"another shape": old, "another encoding": scaled, "an unknown encoding": nameless,
	} {
		if l, err = c.Prepare(context.Background(), store, "shop/Deployment/web", begin, place, &from); err != nil {
			t.Fatal(err)
		}
		if l, err = sent(l); err != nil {
			t.Fatal(err)
		}
		got, err := l.Learn(context.Background(), nil)
		if err != nil || got.Anew == "" || got.Policy.Provenance["updates"] != "0" ||
			!same(agentOf(t, got.Weights).Policy.Values.Theta, values) {
			t.Errorf("after %s: %q, %v updates, %v", of, got.Anew, got.Policy.Provenance["updates"], err)
		}
	}
}

func TestAStartSurvivesItsFile(t *testing.T) {
	s := start(3)
	f, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := weights.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	again, err := lesson.DecodeStart(raw)
	if err != nil || again.Form.Same(s.Form) != nil || again.Seen != s.Seen || again.Embeds != s.Embeds ||
		again.Proven != s.Proven || again.Within != s.Within || again.Meta != s.Meta || !same(again.Theta, s.Theta) ||
		!same(again.Values, s.Values) || !same(again.Behaviour, s.Behaviour) || again.Provenance["made"] != "by a test" {
		t.Errorf("%+v, %v", again, err)
	}
	for want, spoil := range map[string]func(*weights.File){
		`kind "policy"`: func(f *weights.File) { f.Meta["kind"] = "policy" },
		`encoding "9"`:  func(f *weights.File) { f.Meta["encoding"] = "9" },
		`signal "mood"`: func(f *weights.File) {
			f.Meta["start"] = strings.Replace(f.Meta["start"], `"load-peak"`, `"mood"`, 1)
		},
		"parameters": func(f *weights.File) { f.Tensors["values"] = weights.Tensor{Shape: []int{1}, Data: []float64{1}} },
		"version 1": func(f *weights.File) {
			f.Meta["start"] = strings.Replace(f.Meta["start"], `"version":2`, `"version":1`, 1)
		},
		"meta-learner of": func(f *weights.File) {
			f.Meta["start"] = strings.Replace(f.Meta["start"], `"observation":`, `"observation":1`, 1)
		},
	} {
		f, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		spoil(&f)
		raw, err := weights.Encode(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lesson.DecodeStart(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
