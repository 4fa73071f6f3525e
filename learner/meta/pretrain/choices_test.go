package pretrain_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/kernel"
)

const hiddenChoices = 5

// hiddenChoice is a workload whose best choice no observation shows. Its first choice is never legal.
func hiddenChoice(goal float64) env.Env {
	return envtest.Masked{World: &envtest.World{
		Choices: hiddenChoices, Limit: 20, Blind: true,
		Pay:   func(_ int, a float64) (float64, bool) { return 1 - math.Abs(a-goal)/2, true },
		Allow: func(_, choice int) bool { return choice > 0 },
	}}
}

func choices() pretrain.Config {
	c := pretrain.Default(meta.FormOf(hiddenChoice(0)))
	c.Meta.Hidden, c.Meta.Dense, c.Meta.Embedding, c.Meta.Bundle, c.Meta.Length = 12, 16, 4, 3, 20
	b := discrete.Default(c.Meta.Form.Observation+c.Meta.Embedding, hiddenChoices)
	b.Hidden, b.Batch = []int{32, 32}, 64
	c.Choices = &pretrain.Choices{Config: b, Gamma: 0.1, Tries: 0.5}
	c.Updates, c.Through, c.LearningRate, c.Rounds = 40, 2, 3e-3, 150
	return c
}

// The same as with numbers: of a workload that nobody has seen three episodes at random are enough to choose nearly the best.
// One choice for all earns 0.63 in the mean.
func TestAWorkloadOfChoicesIsKnownByAFewEpisodes(t *testing.T) {
	var tasks []pretrain.Task
	for _, goal := range []float64{1, 1.5, 2, 2.5, 3, 3.5, 4} {
		tasks = append(tasks, pretrain.Task{Name: "w", Env: hiddenChoice(goal)})
	}
	run, err := pretrain.New(choices(), tasks)
	if err == nil {
		err = run.Train(context.Background(), math.MaxInt)
	}
	if err != nil {
		t.Fatal(err)
	}
	shape, values, behaviour, ok := run.Choosing()
	if !ok {
		t.Fatal("it has no choices")
	}
	if _, err := run.Base(1); err == nil || !strings.Contains(err.Error(), "chooses") {
		t.Errorf("it gives a DDPG: %v", err)
	}
	learner, err := run.Learner()
	if err != nil {
		t.Fatal(err)
	}
	q, likely := kernel.NewTape[float64](shape.Network(), 1), kernel.NewTape[float64](shape.Network(), 1)
	r := rand.New(rand.NewPCG(1, 1))
	all := 0.0
	goals := []float64{1.2, 2.2, 3.8}
	for _, goal := range goals {
		w := hiddenChoice(goal)
		var episodes []meta.Episode
		obs := make([]float64, shape.State)
		for range 3 {
			var e meta.Episode
			if err := w.Reset(1, obs[:1]); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				a := []float64{float64(1 + r.IntN(hiddenChoices-1))}
				out, err := w.Step(a, obs[:1])
				if err != nil {
					t.Fatal(err)
				}
				e.Add(meta.FormOf(w), []float64{1}, a, out.Reward, true)
			}
			episodes = append(episodes, e)
		}
		learner.Embed(episodes, obs[1:])
		legal := []bool{false, true, true, true, true}
		chosen := shape.Choose(q.Forward(values, obs, 1), likely.Forward(behaviour, obs, 1), legal)
		earned := 1 - math.Abs(float64(chosen)-goal)/2
		all += earned / float64(len(goals))
		if chosen == 0 || earned < 0.7 {
			t.Errorf("goal %v: choice %d", goal, chosen)
		}
	}
	if all < 0.85 {
		t.Errorf("%.3f a step in the mean of the workloads", all)
	}
}

// recordedChoices is the same for an environment with a mask.
type recordedChoices struct {
	recorded
	env.Masker
}

// What is learned of is what was legal: no value of a choice that cannot be taken enters.
func TestChoicesThatAreNotLegalAreNeverTaken(t *testing.T) {
	var taken []float64
	w := hiddenChoice(0) // the illegal choice would be the best
	c := choices()
	c.Rounds, c.Tasks, c.Guided = 6, 1, 2
	run, err := pretrain.New(c, []pretrain.Task{{Name: "w", Env: recordedChoices{recorded{w, &taken}, w.(env.Masker)}}})
	if err == nil {
		err = run.Train(context.Background(), math.MaxInt)
	}
	if err != nil || len(taken) != 6*20 || slices.Contains(taken, 0) {
		t.Errorf("%v, %v", taken, err)
	}
	if best := 1 - 0.5; run.Curve[5].Reward > best {
		t.Errorf("%v a step: more than %v is not to be had", run.Curve[5].Reward, best)
	}
}

// The result is the mean of the last rounds' parameters, of the meta-learner's, too, and the training is the same as without a
// mean.
func TestTheResultIsTheMeanOfTheLastRounds(t *testing.T) {
	run := func(c pretrain.Config, world env.Env, averaged float64, rounds int) *pretrain.Run {
		t.Helper()
		c.Rounds, c.Tasks, c.Averaged = 5, 1, averaged
		run, err := pretrain.New(c, []pretrain.Task{{Name: "w", Env: world}})
		if err == nil {
			err = run.Train(t.Context(), rounds)
		}
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	learner := func(r *pretrain.Run) []float64 {
		l, err := r.Learner()
		if err != nil {
			t.Fatal(err)
		}
		return l.Theta
	}
	for kind, after := range map[string]func(averaged float64, rounds int) [][]float64{
		"choices": func(averaged float64, rounds int) [][]float64 {
			r := run(choices(), hiddenChoice(2), averaged, rounds)
			_, values, behaviour, _ := r.Choosing()
			return [][]float64{values, behaviour, learner(r)}
		},
		"numbers": func(averaged float64, rounds int) [][]float64 {
			r := run(config(), hidden(0.3), averaged, rounds)
			a, err := r.Base(1)
			if err != nil {
				t.Fatal(err)
			}
			if averaged > 0 && rounds == 5 && !slices.Equal(a.Policy.Critics[0].Target, a.Policy.Critics[0].Theta) {
				t.Error("a target is none of a mean")
			}
			return [][]float64{a.Policy.Actor.Theta, a.Policy.Critics[0].Theta, learner(r)}
		},
		"a file": func(averaged float64, rounds int) [][]float64 {
			p, err := run(config(), hidden(0.3), averaged, rounds).Pretrained()
			if err != nil {
				t.Fatal(err)
			}
			l, err := p.Learner()
			if err != nil {
				t.Fatal(err)
			}
			return [][]float64{p.Theta, l.Theta}
		},
	} {
		fourth, fifth, mean := after(0, 4), after(0, 5), after(0.4, 5)
		for n := range mean {
			if slices.Equal(fourth[n], fifth[n]) {
				t.Fatalf("%s: network %d learns nothing in a round", kind, n)
			}
			for i, v := range mean[n] {
				if want := (fourth[n][i] + fifth[n][i]) / 2; math.Abs(v-want) > 1e-12 {
					t.Fatalf("%s: parameter %d of network %d is %v, want %v", kind, i, n, v, want)
				}
			}
		}
		for n, early := range after(0.4, 3) { // there is no mean yet
			if !slices.Equal(early, after(0, 3)[n]) {
				t.Errorf("%s: network %d after three rounds of five is not the last one", kind, n)
			}
		}
	}
}

// The embeddings of a file are those of its meta-learner, and asking for it changes nothing of the training.
func TestAFileKnowsItsWorkloads(t *testing.T) {
	c := config()
	c.Rounds, c.Averaged = 6, 0.5
	train := func(ask bool) pretrain.Pretrained {
		t.Helper()
		run, err := pretrain.New(c, pool())
		for i := 0; err == nil && i < c.Rounds; i++ {
			if err = run.Train(t.Context(), i+1); err == nil && ask {
				_, err = run.Pretrained()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := run.Pretrained()
		if err != nil {
			t.Fatal(err)
		}
		f, err := run.Familiar()
		if err != nil || len(p.Names) < 4 || !slices.Equal(f.Names, p.Names) {
			t.Fatalf("the file knows %v, the run %v (%v)", p.Names, f, err)
		}
		return p
	}
	asked, alone := train(true), train(false)
	if !slices.Equal(asked.Theta, alone.Theta) || !slices.EqualFunc(asked.Embeddings, alone.Embeddings, slices.Equal) {
		t.Error("who asks for a result in between gets another one in the end")
	}
}

func TestWrongSettingsOfChoicesAreNamed(t *testing.T) {
	for want, spoil := range map[string]func(*pretrain.Config){
		"gamma 1":                    func(c *pretrain.Config) { c.Choices.Gamma = 1 },
		"averaged 1.1":               func(c *pretrain.Config) { c.Averaged = 1.1 },
		"tries -1":                   func(c *pretrain.Config) { c.Choices.Tries = -1 },
		"discrete bcq":               func(c *pretrain.Config) { c.Choices.Tau = 0 },
		"states of 9 numbers":        func(c *pretrain.Config) { c.Choices.State = 9 },
		"actions of 1 numbers and 7": func(c *pretrain.Config) { c.Choices.NumActions = 7 },
		"divide the batch of 63":     func(c *pretrain.Config) { c.Choices.Batch = 63 },
	} {
		c := choices()
		spoil(&c)
		_, err := pretrain.New(c, []pretrain.Task{{}, {}, {}, {}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, errors.Unwrap(err))
		}
	}
}
