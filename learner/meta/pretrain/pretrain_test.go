package pretrain_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// hidden is a workload whose best action is a number that no observation shows: only what actions earned does.
func hidden(goal float64) env.Env {
	return &envtest.World{Limit: 20, Blind: true, Pay: func(_ int, a float64) (float64, bool) {
		a = max(-1, min(1, a))
		return 1 - (a-goal)*(a-goal), true
	}}
}

func config() pretrain.Config {
	c := pretrain.Default(meta.FormOf(hidden(0)))
	c.Meta.Hidden, c.Meta.Dense, c.Meta.Embedding, c.Meta.Bundle, c.Meta.Length = 12, 16, 4, 3, 20
	c.Base.State = c.Meta.Form.Observation + c.Meta.Embedding
	c.Base.Hidden = []int{32, 32}
	c.Base.Gamma = 0
	c.Base.Noise.Sigma = 0.4
	c.Base.Batch, c.Updates, c.Through, c.LearningRate = 64, 40, 2, 1e-3
	c.Rounds = 150
	return c
}

func pool() []pretrain.Task {
	var tasks []pretrain.Task
	for _, goal := range []float64{-0.8, -0.6, -0.4, -0.2, 0, 0.2, 0.4, 0.6, 0.8} {
		tasks = append(tasks, pretrain.Task{Name: "w", Env: hidden(goal)})
	}
	return tasks
}

// Workloads that nobody has seen in training. What three episodes at random say of them is enough to do nearly the best there
// is at once. Whoever does not know which workload it is can do no better than one action for all: that earns 0.76 in the
// mean.
func TestAWorkloadNeverSeenIsKnownByAFewEpisodes(t *testing.T) {
	run, err := pretrain.New(config(), pool())
	if err == nil {
		err = run.Train(context.Background(), math.MaxInt)
	}
	if err != nil {
		t.Fatal(err)
	}
	learner, err := run.Learner()
	if err != nil {
		t.Fatal(err)
	}
	all := 0.0
	goals := []float64{-0.7, -0.1, 0.5} // their variance is 0.24
	for _, goal := range goals {
		m := meta.NewMemory(learner)
		world := hidden(goal)
		e, err := meta.Condition(world, m, true)
		if err != nil {
			t.Fatal(err)
		}
		agent, err := run.Base(1)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]float64, 1)
		obs := make([]float64, e.Observation().Dim())
		play := func(act func(step int) float64) (mean float64) {
			if err := e.Reset(1, obs); err != nil {
				t.Fatal(err)
			}
			for step := range 20 {
				o, err := e.Step([]float64{act(step)}, obs)
				if err != nil {
					t.Fatal(err)
				}
				mean += o.Reward / 20
			}
			return mean
		}
		var server kernel.Server
		var scratch kernel.Scratch
		if err := server.Publish(agent.Snapshot()); err != nil {
			t.Fatal(err)
		}
		decide := func(int) float64 {
			y, _, ok := server.Decide(obs, 1, &scratch)
			if !ok {
				t.Fatal("the actor decides nothing")
			}
			agent.GreedyAction(y, nil, out)
			return out[0]
		}
		for k := range 3 {
			play(func(step int) float64 { return math.Sin(float64(7*k + step)) })
		}
		earned := play(decide)
		if earned < 0.85 {
			t.Errorf("goal %v: %.3f a step", goal, earned)
		}
		all += earned / float64(len(goals))
	}
	if all < 0.92 {
		t.Errorf("%.3f a step in the mean of the workloads", all)
	}
	f, err := run.Familiar()
	if err != nil || len(f.Names) != 9 {
		t.Errorf("%v workloads of the training are known (%v)", f, err)
	}
}

// The first episodes are the guide's, and nobody else's: no action of a policy that knows nothing. Without a guide they are at
// random.
func TestTheFirstEpisodesAreTheGuides(t *testing.T) {
	c := config()
	c.Rounds, c.Guided, c.Updates, c.Tasks = 4, 2, 1, 1
	var sent []float64
	world := hidden(0)
	task := pretrain.Task{Name: "w", Env: recorded{world, &sent}, Guide: func(action []float64, r *rand.Rand) error {
		action[0] = 0.123
		return nil
	}}
	run, err := pretrain.New(c, []pretrain.Task{task})
	if err == nil {
		err = run.Train(context.Background(), 4)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(sent) != 80 {
		t.Fatalf("%d steps of 20 in four episodes", len(sent))
	}
	for i, v := range sent {
		if (v == 0.123) != (i < 40) {
			t.Fatalf("step %d does %v", i, v)
		}
	}
	c.Rounds = 1
	sent = nil
	task.Guide = func([]float64, *rand.Rand) error { return errors.New("no idea") }
	if run, err = pretrain.New(c, []pretrain.Task{task}); err != nil {
		t.Fatal(err)
	}
	if err = run.Train(context.Background(), 1); err == nil || !strings.Contains(err.Error(), "workload w: no idea") {
		t.Errorf("a guide that fails: %v", err)
	}
}

// recorded is an environment of which all actions are known.
type recorded struct {
	env.Env
	sent *[]float64
}

func (r recorded) Step(action, obs []float64) (env.Outcome, error) {
	*r.sent = append(*r.sent, action[0])
	return r.Env.Step(action, obs)
}

// The same seed gives the same bits, although episodes are played on several goroutines.
func TestTheSameSeedGivesTheSameMetaLearner(t *testing.T) {
	train := func(seed uint64) []float64 {
		c := config()
		c.Rounds, c.Seed = 4, seed
		run, err := pretrain.New(c, pool())
		if err == nil {
			err = run.Train(context.Background(), 4)
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := run.Learner()
		if err != nil {
			t.Fatal(err)
		}
		return l.Theta
	}
	one := train(1)
	if !slices.Equal(one, train(1)) {
		t.Error("two runs of one seed differ")
	}
	if slices.Equal(one, train(2)) {
		t.Error("two seeds do not differ")
	}
}

func TestSettingsThatMakeNoSenseAreNamed(t *testing.T) {
	for want, change := range map[string]func(*pretrain.Config){
		"tasks 3":         func(c *pretrain.Config) { c.Tasks = 3 },
		"states of 9":     func(c *pretrain.Config) { c.Base.State = 9 },
		"imitation -1":    func(c *pretrain.Config) { c.Imitation = -1 },
		"guided -1":       func(c *pretrain.Config) { c.Guided = -1 },
		"spread 3":        func(c *pretrain.Config) { c.Spread = 3 },
		"final 0":         func(c *pretrain.Config) { c.Final = 0 },
		"plays 0":         func(c *pretrain.Config) { c.Plays = 0 },
		"settled 1":       func(c *pretrain.Config) { c.Settled = 1 },
		"through 0":       func(c *pretrain.Config) { c.Through = 0 },
		"learning rate 0": func(c *pretrain.Config) { c.LearningRate = 0 },
	} {
		c := config()
		change(&c)
		if _, err := pretrain.New(c, pool()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := pretrain.New(config(), pool()[:2]); err == nil {
		t.Error("two workloads are taken for a round of four")
	}
}

// What was pretrained is one file. What is damaged, or of another kind, is refused.
func TestWhatWasPretrainedOutlivesItsProcess(t *testing.T) {
	c := config()
	c.Rounds = 3
	run, err := pretrain.New(c, pool())
	if err == nil {
		err = run.Train(context.Background(), 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := run.Pretrained()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "meta.safetensors")
	if err := p.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := pretrain.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Theta, p.Theta) || len(got.Names) != len(p.Names) || !slices.Equal(got.Embeddings[1], p.Embeddings[1]) ||
		got.Provenance["rounds"] != "3" || got.Meta != p.Meta {
		t.Errorf("%+v was read, and %+v written", got.Provenance, p.Provenance)
	}
	a, err := got.Agent(c.Base)
	if err != nil {
		t.Fatal(err)
	}
	b, err := run.Base(0)
	if err != nil || !slices.Equal(a.Policy.Actor.Theta, b.Policy.Actor.Theta) {
		t.Errorf("the base-learner is another one (%v)", err)
	}
	f, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(f *weights.File){
		"kind": func(f *weights.File) { f.Meta["kind"] = "policy" },
		// Of before observations had the scales of actions.
		`encoding "1": it must be`: func(f *weights.File) { f.Meta["encoding"] = "1" },
		"theta":                    func(f *weights.File) { f.Tensors["theta"] = weights.Tensor{Shape: []int{1}, Data: []float64{1}} },
		"base":                     func(f *weights.File) { f.Blobs["base"] = f.Blobs["base"][:40] },
		"hidden": func(f *weights.File) {
			f.Meta["pretrained"] = strings.Replace(f.Meta["pretrained"], `"hidden":12`, `"hidden":0`, 1)
		},
	} {
		bad := weights.File{Meta: maps.Clone(f.Meta), Tensors: maps.Clone(f.Tensors), Blobs: maps.Clone(f.Blobs)}
		damage(&bad)
		if _, err := pretrain.Decode(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
