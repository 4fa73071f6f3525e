package corrections_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/train/corrections"
	"awarescale.dev/aware/learner/train/margins"
)

const name = "correct:hotel-reservation/frontend"

// short is an environment of a few steps.
func short(t testing.TB, raw bool) corrections.Settings {
	t.Helper()
	s, err := corrections.Named(name, raw)
	if err != nil {
		t.Fatal(err)
	}
	s.Length, s.Lead = 6, 2*time.Minute
	return s
}

func environment(t testing.TB, s corrections.Settings) env.Env {
	t.Helper()
	e, err := corrections.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// playing is an episode that is being played.
type playing struct {
	env.Env
	obs   []float64
	legal []bool
}

func begin(t testing.TB, s corrections.Settings, seed uint64) *playing {
	t.Helper()
	e := environment(t, s)
	p := &playing{Env: e, obs: make([]float64, e.Observation().Dim()), legal: make([]bool, e.Action().N)}
	if err := e.Reset(seed, p.obs); err != nil {
		t.Fatal(err)
	}
	return p
}

// step takes the next legal choice from one on, or that action in all numbers of a box, and gives what it led to.
func (p *playing) step(t testing.TB, choice float64) (out env.Outcome, seen []float64) {
	t.Helper()
	action := slices.Repeat([]float64{choice}, p.Action().Dim())
	if m, ok := p.Env.(env.Masker); ok {
		for m.Legal(p.legal); !p.legal[int(action[0])]; {
			action[0] = float64((int(action[0]) + 1) % len(p.legal))
		}
	}
	out, err := p.Step(action, p.obs)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range p.obs {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Fatalf("%v is observed", p.obs)
		}
	}
	return out, slices.Clone(p.obs)
}

func TestTheSameSeedGivesTheSameEpisode(t *testing.T) {
	for kind, raw := range map[string]bool{"corrections": false, "raw limits": true} {
		t.Run(kind, func(t *testing.T) {
			s := short(t, raw)
			one, two, other := begin(t, s, 7), begin(t, s, 7), begin(t, s, 8)
			differs := !slices.Equal(one.obs, other.obs)
			if !slices.Equal(one.obs, two.obs) || !differs {
				t.Fatalf("%v\n%v\nand with another seed %v", one.obs, two.obs, other.obs)
			}
			known := 0
			for i := range s.Length {
				choice := float64(i % 3)
				if raw {
					choice = float64(i%3)/2 - 0.5
				}
				a, seen := one.step(t, choice)
				b, same := two.step(t, choice)
				if a != b || !slices.Equal(seen, same) {
					t.Fatalf("step %d: %+v, %+v", i, a, b)
				}
				if a.RewardKnown {
					known++
				}
				if a.Reward > 0 || a.Truncated != (i == s.Length-1) || a.Terminated {
					t.Errorf("step %d: %+v", i, a)
				}
			}
			if known == 0 {
				t.Error("no reward was known")
			}
			if _, err := one.Step(make([]float64, one.Action().Dim()), one.obs); err == nil {
				t.Error("a step after the end")
			}
		})
	}
}

func TestARestoredEpisodeGoesOn(t *testing.T) {
	s := short(t, false)
	whole := begin(t, s, 3)
	fresh := environment(t, s)
	for i := range s.Length {
		saved, err := whole.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		again := &playing{Env: fresh, obs: make([]float64, len(whole.obs)), legal: make([]bool, len(whole.legal))}
		if err := fresh.UnmarshalBinary(saved); err != nil {
			t.Fatal(err)
		}
		if err := fresh.Observe(again.obs); err != nil || !slices.Equal(again.obs, whole.obs) {
			t.Fatalf("before step %d: %v, want %v (%v)", i, again.obs, whole.obs, err)
		}
		a, seen := whole.step(t, float64(i))
		b, same := again.step(t, float64(i))
		if a != b || !slices.Equal(seen, same) {
			t.Fatalf("step %d: %+v, want %+v", i, b, a)
		}
		saved[len(saved)-9] ^= 1
		if err := fresh.UnmarshalBinary(saved); err == nil {
			t.Error("a damaged episode was restored")
		}
	}
}

// A choice that the mask forbids is refused, and is no step.
func TestAnIllegalCorrectionIsNoStep(t *testing.T) {
	s := short(t, false)
	s.Length, s.Form.Corrections = 4, &encode.Corrections{MarginStep: 0.2, MarginMost: 1, LevelStep: 0.2}
	p := begin(t, s, 1)
	p.step(t, 1) // margin +1, and there is no second one
	p.Env.(env.Masker).Legal(p.legal)
	if !p.legal[0] || p.legal[1] || p.legal[3] || p.legal[4] || p.legal[5] || p.legal[6] {
		t.Fatalf("legal are %v", p.legal)
	}
	for _, k := range []float64{1, 3, 5, 7, -1, 0.5} {
		if _, err := p.Step([]float64{k}, p.obs); err == nil {
			t.Errorf("choice %v was taken", k)
		}
	}
	p.step(t, 0)
	p.step(t, 0)
	if out, _ := p.step(t, 0); !out.Truncated {
		t.Error("a refused choice counted as a step")
	}
}

// An agent that always keeps is the demand policy in the same world: this is what corrections are compared with.
func TestKeepingIsTheDemandPolicy(t *testing.T) {
	s := short(t, false)
	s.Worlds = corrections.HeldOut
	p := begin(t, s, 5)
	for range s.Length {
		p.step(t, 0)
	}
	got, played := p.Env.(interface {
		Result() (bench.Score, corrections.Played)
	}).Result()
	length := s.Step * time.Duration(s.Length)
	world := corrections.HeldOut.Seed(5)
	want, err := bench.Run(t.Context(), margins.Random(s.Cell, world, max(length, 4*s.Lead)), s.Law, bench.Options{
		Seed: world, Fidelity: sim.Fluid, Length: length, Lead: s.Lead,
	})
	if err != nil || got != want {
		t.Errorf("%+v\n%+v, %v", got, want, err)
	}
	if played.Steps != s.Length || played.Late < 0 || played.Late > 1 {
		t.Errorf("%+v", played)
	}
}

// No world of one purpose is one of another, and none is one by which the margins that come with aware were chosen.
func TestWorldsAreForOnePurpose(t *testing.T) {
	seen := map[uint64]string{}
	add := func(seed uint64, what string) {
		if before, known := seen[seed]; known && before != what {
			t.Fatalf("world %x is one of %s, and of %s", seed, before, what)
		}
		seen[seed] = what
	}
	for k := range 10_000 {
		add(margins.HeldOutWorld(k), "margins' held-out ones")
		add(margins.BudgetedWorld(k), "margins' budget")
		add(margins.Default.Seed<<32+uint64(k), "margins' learning")
	}
	for what, w := range map[string]corrections.Worlds{
		"training": corrections.Training, "validation": corrections.Validation, "held-out ones": corrections.HeldOut,
	} {
		for k := range uint64(10_000) {
			add(w.Seed(k), what)
			add(w.Seed(k*0x9e3779b97f4a7c15), what) // as a training draws them
			add(w.Seed(1<<63+k), what)
			add(w.Seed(1<<62+k), what)
		}
	}
}

// Raw limits stay within the owner's bounds, by the guards.
func TestRawLimitsStayWithinTheBounds(t *testing.T) {
	s := short(t, true)
	p := begin(t, s, 2)
	executed := make([]float64, p.Action().Dim())
	for i := range s.Length {
		p.step(t, float64(i%2)*8-4) // far beyond the box
		p.Env.(env.Executor).Executed(executed)
		for _, v := range executed {
			if !(v >= -1 && v <= 1) {
				t.Errorf("step %d: %v took force", i, executed)
			}
		}
	}
}

func TestSettingsThatMakeNoEnvironmentAreNamed(t *testing.T) {
	for _, bad := range []string{
		"correct:", "correct:shop/web", "correct:hotel-reservation/nobody", "sim:hotel-reservation/diurnal",
	} {
		if _, err := corrections.Make(bad, false); err == nil || !strings.Contains(err.Error(), "environment") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for want, change := range map[string]func(*corrections.Settings){
		"step 5s":   func(s *corrections.Settings) { s.Step = 5 * time.Second },
		"0 steps":   func(s *corrections.Settings) { s.Length = 0 },
		"lead 1s":   func(s *corrections.Settings) { s.Lead = time.Second },
		"worlds 3":  func(s *corrections.Settings) { s.Worlds = 3 },
		"a form of": func(s *corrections.Settings) { s.Form = encode.Discrete(mdp.LimitKnobs) },
	} {
		s := short(t, false)
		change(&s)
		if _, err := corrections.New(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
