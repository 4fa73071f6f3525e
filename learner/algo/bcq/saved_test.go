package bcq

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/nntest"
	"awarescale.dev/aware/learner/nn/weights"
)

func TestResumedIsUninterrupted(t *testing.T) {
	earns := func(_, a float64) float64 { return a }
	action, again := []float64{0}, []float64{0}
	one := mustAgent(t, settings(), data(t, 300, earns))
	learn(t, one, 7)
	saved := nntest.Saved(t, one)
	learn(t, one, 8)
	if err := one.Act([]float64{0.4}, action); err != nil {
		t.Fatal(err)
	}

	// Another seed and other data: all that counts is what was saved.
	c := settings()
	c.Seed = 99
	two := mustAgent(t, c, data(t, 300, func(_, a float64) float64 { return -a }))
	learn(t, two, 3)
	f, err := weights.Decode(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Restore(f); err != nil {
		t.Fatal(err)
	}
	learn(t, two, 8)
	if err := two.Act([]float64{0.4}, again); err != nil {
		t.Fatal(err)
	}
	if action[0] != again[0] {
		t.Errorf("resumed, the decision is %v instead of %v", again[0], action[0])
	}
	if !bytes.Equal(withoutSettings(t, one), withoutSettings(t, two)) {
		t.Error("resumed is not uninterrupted")
	}
}

// withoutSettings is all that is saved but the settings, which say how a
// learner began.
func withoutSettings(t testing.TB, a *Agent) []byte {
	t.Helper()
	f, err := weights.Decode(nntest.Saved(t, a))
	if err != nil {
		t.Fatal(err)
	}
	delete(f.Meta, "settings")
	raw, err := weights.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	run := func(seed uint64) []byte {
		c := settings()
		c.Seed = seed
		a := mustAgent(t, c, data(t, 300, func(_, a float64) float64 { return a }))
		learn(t, a, 10)
		return nntest.Saved(t, a)
	}
	if !bytes.Equal(run(1), run(1)) {
		t.Error("twice the same seed, and other bytes")
	}
	if bytes.Equal(run(1), run(2)) {
		t.Error("another seed, and the same bytes")
	}
}

// Deciding, which draws random numbers, changes nothing in what is learned.
func TestDecidingChangesNothing(t *testing.T) {
	var after [2][]float64
	for i := range after {
		a := mustAgent(t, settings(), data(t, 300, func(_, a float64) float64 { return a }))
		for range 5 {
			learn(t, a, 2)
			for range i {
				if err := a.Act([]float64{0.4}, []float64{0}); err != nil {
					t.Fatal(err)
				}
			}
		}
		after[i] = numbers(a.Policy)
	}
	if !same(after[0], after[1]) {
		t.Error("a decision changed what was learned")
	}
}

func TestAForeignStateIsNotRestored(t *testing.T) {
	earns := func(_, a float64) float64 { return a }
	a := mustAgent(t, settings(), data(t, 100, earns))
	learn(t, a, 2)
	wider := settings()
	wider.Hidden = []int{33}
	other := mustAgent(t, wider, data(t, 100, earns))
	for name, c := range map[string]struct {
		spoil func(f *weights.File)
		says  string
	}{
		"another algorithm": {func(f *weights.File) { f.Meta["algorithm"] = "ddpg" }, `weights of "ddpg"`},
		"another encoding":  {func(f *weights.File) { f.Meta["encoding"] = "99" }, `encoding "99"`},
		"other widths":      {func(f *weights.File) { *f, _ = other.Save() }, "identity.hidden"},
		"a network missing": {
			func(f *weights.File) { delete(f.Tensors, "critic1.target") }, `"critic1.target" is missing`,
		},
		"a weight that is not finite": {func(f *weights.File) { f.Tensors["critic1"].Data[0] = math.NaN() }, "finite"},
		"negative steps": {func(f *weights.File) {
			f.Meta["state"] = strings.Replace(f.Meta["state"], `"vae.adam.steps":`, `"vae.adam.steps":-`, 1)
		}, "vae.adam.steps is -"},
		"no updates": {
			func(f *weights.File) { f.Meta["state"] = strings.Replace(f.Meta["state"], `"updates":`, `"other":`, 1) },
			"updates is missing",
		},
		"no random source":            {func(f *weights.File) { delete(f.Blobs, "random.acting") }, "random.acting"},
		"no data":                     {func(f *weights.File) { delete(f.Blobs, "replay") }, `blob "replay" is missing`},
		"data that is truncated data": {func(f *weights.File) { f.Blobs["replay"] = f.Blobs["replay"][:50] }, "replay buffer"},
	} {
		f, err := a.Save()
		if err != nil {
			t.Fatal(err)
		}
		c.spoil(&f)
		before := nntest.Saved(t, a)
		if err := a.Restore(f); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(before, nntest.Saved(t, a)) {
			t.Errorf("%s: it changed", name)
		}
	}
}

// A snapshot decides as its agent did, whatever the agent learns afterwards,
// allocates nothing, and refuses what is none.
func TestASnapshotDecidesAndDoesNotChange(t *testing.T) {
	a := mustAgent(t, settings(), data(t, 300, func(_, a float64) float64 { return a }))
	learn(t, a, 10)
	s, d := a.Snapshot(), NewDecider(a.c)
	decide := func() float64 {
		action := []float64{0}
		if err := d.Decide(&s, []float64{0.4}, action, rng(1)); err != nil {
			t.Fatal(err)
		}
		return action[0]
	}
	was := decide()
	learn(t, a, 10)
	if now := decide(); now != was || s.Version != 10 {
		t.Errorf("the decision was %v and is %v", was, now)
	}
	r := rng(1)
	obs := []float64{0.4}
	action := []float64{7}
	if !testing.Short() { // the race detector, which runs short tests, lets gemm's pool forget what it keeps
		if n := testing.AllocsPerRun(20, func() { _ = d.Decide(&s, obs, action, r) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
	}
	action[0] = 7
	if err := d.Decide(&s, []float64{math.NaN()}, action, r); !errors.Is(err, nn.ErrNotFinite) || action[0] != 7 {
		t.Errorf("an observation that is not finite: %v, action %v", err, action)
	}
	if err := d.Decide(&s, []float64{1, 2}, action, r); err == nil {
		t.Error("an observation of two numbers")
	}
	s.Critic = s.Critic[1:]
	if err := d.Decide(&s, obs, action, r); err == nil {
		t.Error("a critic of one parameter less")
	}
}

func TestActionsAreScaledToTheBoundsAndBack(t *testing.T) {
	c := settings()
	to := []float64{0}
	for out, in := range map[float64]float64{-10: -1, 10: 0, 30: 1} {
		if c.Inward(to, []float64{out}); to[0] != in {
			t.Errorf("%v inside is %v: it must be %v", out, to[0], in)
		}
		if c.Outward(to, []float64{in}); to[0] != out {
			t.Errorf("%v outside is %v: it must be %v", in, to[0], out)
		}
	}
	if c.Inward(to, []float64{99}); to[0] != 1 {
		t.Errorf("beyond the bounds is %v", to[0])
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	for says, spoil := range map[string]func(c *Config){
		"state 0":       func(c *Config) { c.State = 0 },
		"action 2":      func(c *Config) { c.Action = 2 },
		"hidden []":     func(c *Config) { c.Hidden = nil },
		"generative [0": func(c *Config) { c.Generative = []int{0} },
		"latent 0":      func(c *Config) { c.Latent = 0 },
		"tau 0":         func(c *Config) { c.Tau = 0 },
		"rate NaN":      func(c *Config) { c.LearningRate = math.NaN() },
		"batch 0":       func(c *Config) { c.Batch = 0 },
		"phi -0.1":      func(c *Config) { c.Phi = -0.1 },
		"lambda 1.5":    func(c *Config) { c.Lambda = 1.5 },
		"candidates":    func(c *Config) { c.Candidates = 0 },
		"divergence":    func(c *Config) { c.Divergence = math.Inf(1) },
		"bounds":        func(c *Config) { c.High = []float64{-10} },
	} {
		c := settings()
		spoil(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
		if _, err := New(c, data(t, 10, func(_, a float64) float64 { return a })); err == nil {
			t.Errorf("%s: an agent was made", says)
		}
	}
	if _, err := New(settings(), nil); err == nil || !strings.Contains(err.Error(), "no data") {
		t.Errorf("no data: %v", err)
	}
	empty, _ := replay.NewUniform(replay.Config{Capacity: 5, State: 1, Action: 1})
	if err := mustAgent(t, settings(), empty).Learn(1); !errors.Is(err, replay.ErrEmpty) {
		t.Errorf("an empty buffer: %v", err)
	}
	wrong, _ := replay.NewUniform(replay.Config{Capacity: 5, State: 2, Action: 1})
	if err := wrong.Add(replay.Transition{
		State:    []float64{1, 2},
		Action:   []float64{0},
		Next:     []float64{1, 2},
		Discount: 1,
	}); err != nil {
		t.Fatal(err)
	}
	if err := mustAgent(t, settings(), wrong).Learn(1); err == nil {
		t.Error("data of another shape")
	}
}
