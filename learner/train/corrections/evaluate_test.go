package corrections

import (
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/policy/learned"
)

const name = "correct:hotel-reservation/frontend"

// always is a policy that values one choice above all others, whatever it sees.
func always(f encode.Form, choice int) learned.File {
	mlp := kernel.NewMLP(kernel.ReLU, kernel.Linear, f.Dim(), f.NumActions())
	theta := make([]float64, mlp.Params())
	theta[len(theta)-f.NumActions()+choice] = 1
	return learned.File{
		Form: f, Step: Step, Provenance: map[string]string{"environment": name, "algorithm": "always"},
		Snapshot: kernel.Snapshot{Version: 1, MLP: mlp, Theta: theta, Head: kernel.Head{Kind: kernel.Argmax}},
	}
}

// A policy that keeps always is the demand policy in all worlds. One that always wants more replicas gets no more than the
// corrections allow, and needs more cores.
func TestPlayersPlayTheSameWorlds(t *testing.T) {
	keep, more := always(encode.Correct(), 0), always(encode.Correct(), 1)
	players := []Player{{Name: "alone"}, {Name: "keeps", File: &keep}, {Name: "wants more", File: &more}, Lowered(2)}
	var hours int
	rows, err := Evaluate(t.Context(), name, HeldOut, players, 2, func(of int) {
		if hours++; of != 8 {
			t.Errorf("%d hours are said to be played", of)
		}
	})
	if err != nil || hours != 8 {
		t.Fatal(err, hours)
	}
	if r := rows[1]; r.Cores.More != 0 || r.Late.More != 0 || r.Windows.More != 0 || r.Reward.More != 0 || r.Verdict != Equal {
		t.Errorf("keeping differs from the demand policy: %+v", r)
	}
	for _, w := range rows[2].Worlds {
		// As soon as the margin is as large as it can be there is nothing legal but to keep: of equal values it is the first.
		if w.Choices[1] != encode.Correct().Corrections.MarginMost || w.Choices[0] != 120-w.Choices[1] {
			t.Errorf("choices %v: it must be five margins, and nothing else", w.Choices)
		}
	}
	if rows[2].Cores.More <= 0 {
		t.Errorf("a larger margin costs %+v cores", rows[2].Cores)
	}
	for _, w := range rows[3].Worlds {
		if w.Choices[4] != 2 || w.Choices[0] != 118 {
			t.Errorf("choices %v: it must be two levels down, and nothing else", w.Choices)
		}
	}
	for i, w := range rows[0].Worlds {
		if w.Seed != uint64(i) || w.Cores <= 0 || w.Judged < 0.9 || w.Late < 0 || w.Late > 1 {
			t.Errorf("world %d: %+v", i, w)
		}
	}
}

func TestAPolicyOfAnotherEnvironmentIsRefused(t *testing.T) {
	for want, change := range map[string]func(*learned.File){
		"elsewhere": func(f *learned.File) { f.Provenance["environment"] = "correct:elsewhere/web" },
		"each 10s":  func(f *learned.File) { f.Step = Step / 3 },
		"0.1": func(f *learned.File) {
			c := *f.Form.Corrections
			c.LevelStep = 0.1
			f.Form.Corrections = &c
		},
		"learned policy": func(f *learned.File) { f.Snapshot.Theta = f.Snapshot.Theta[1:] },
		"it must be {": func(f *learned.File) {
			*f = always(encode.Discrete(mdp.SetOf(mdp.CPULimit)), 0)
		},
	} {
		f := always(encode.Correct(), 0)
		change(&f)
		_, err := Evaluate(t.Context(), name, HeldOut, []Player{{Name: "it", File: &f}}, 2, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Evaluate(t.Context(), name, HeldOut, []Player{{}}, 1, nil); err == nil {
		t.Error("one world has no standard error")
	}
}

// A correction is kept for its cores, and only where nothing else pays for them.
func TestAVerdictIsOfAllFigures(t *testing.T) {
	alone := []World{
		{Cores: 8, Memory: 4, Late: 0.005, Windows: 0.03}, {Cores: 12, Memory: 4, Late: 0.006, Windows: 0.03},
		{Cores: 10, Memory: 4, Late: 0.004, Windows: 0.03}, {Cores: 50, Memory: 1, Late: 0.4, Windows: 0.9, Violates: true},
	}
	for _, c := range []struct {
		name   string
		change func(i int, w *World)
		want   Verdict
	}{
		{"the same", func(int, *World) {}, Equal},
		{"a little in each world", func(_ int, w *World) { w.Cores *= 0.99 }, Better},
		{"no more than chance explains", func(i int, w *World) { w.Cores -= []float64{-0.5, 1, 0.1, 0}[i] }, Equal},
		{"cores where a promise is broken", func(_ int, w *World) {
			if w.Violates {
				w.Cores = 1
			}
		}, Equal},
		{"cores for memory", func(_ int, w *World) { w.Cores--; w.Memory++ }, Trade},
		{"more cores", func(_ int, w *World) { w.Cores += 0.1 }, Worse},
		{"more cores, fewer windows", func(_ int, w *World) { w.Cores += 0.1; w.Windows -= 0.001 }, Trade},
		{"cores for late requests", func(_ int, w *World) { w.Cores--; w.Late += 0.001 }, Trade},
		{"cores for windows", func(_ int, w *World) { w.Cores--; w.Windows += 0.001 }, Trade},
		{"cores, and no promise kept", func(_ int, w *World) { w.Cores--; w.Violates = true }, Worse},
		{"late requests for nothing", func(_ int, w *World) { w.Late += 0.001 }, Worse},
		{"fewer windows alone", func(_ int, w *World) { w.Windows -= 0.001 }, Equal},
	} {
		r := Row{Worlds: slices.Clone(alone)}
		for i := range r.Worlds {
			c.change(i, &r.Worlds[i])
		}
		if r.compare(alone); r.Verdict != c.want {
			t.Errorf("%s: %s, want %s; %+v", c.name, r.Verdict, c.want, r.Cores)
		}
	}
}
