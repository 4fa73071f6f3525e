package ppo

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/nn/nntest"
	"awarescale.dev/aware/learner/nn/weights"
)

func recurrent(t testing.TB, change func(c *Config)) *Recurrent {
	t.Helper()
	c := Default(1, 2, nil, nil)
	c.Hidden = []int{16}
	c.Envs = 16
	c.Horizon = 8
	c.Minibatch = 64
	c.Epochs = 4
	c.LearningRate = 1e-2
	c.Gamma = 0.95
	c.Lambda = 0.95
	if change != nil {
		change(&c)
	}
	a, err := NewRecurrent(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// bandits are tasks of two arms, one of which pays; which one, nothing tells
// but trying. There is nothing to see.
type bandits struct {
	pays []int
	r    *rand.Rand
}

// trial plays a whole trial and returns the share of paid steps after the first
// two.
func (b *bandits) trial(t testing.TB, a *Recurrent) float64 {
	t.Helper()
	n := a.Envs()
	for i := range b.pays {
		b.pays[i] = b.r.IntN(2)
	}
	obs := make([]float64, n)
	actions := make([]float64, n)
	rewards := make([]float64, n)
	ended := make([]bool, n)
	paid := 0.0
	for step := range a.c.Horizon {
		if err := a.Explore(obs, nil, actions); err != nil {
			t.Fatal(err)
		}
		for i := range rewards {
			rewards[i] = 0
			if int(actions[i]) == b.pays[i] {
				rewards[i] = 1
				if step >= 2 {
					paid++
				}
			}
			ended[i] = true // each pull is an episode: the memory goes across
		}
		if err := a.Learn(envtest.Rows(actions, rewards, obs, ended, nil)); err != nil {
			t.Fatal(err)
		}
	}
	return paid / float64(n*(a.c.Horizon-2))
}

// An agent without memory is paid half of the time, whatever it learns.
func TestRecurrentLearnsToLearnABandit(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		a := recurrent(t, func(c *Config) { c.Seed = seed })
		b := &bandits{pays: make([]int, 16), r: rand.New(rand.NewPCG(seed, 3))}
		last := 0.0
		for round := range 120 {
			paid := b.trial(t, a)
			if round >= 100 {
				last += paid / 20
			}
		}
		if last < 0.9 || a.SkippedUpdates > 0 {
			t.Errorf("seed %d: %.2f of the later steps are paid; skipped %d: %v", seed, last,
				a.SkippedUpdates, a.LastError)
		}
	}
}

func TestGradientsThroughATrial(t *testing.T) {
	for _, c := range []func(c *Config){nil, func(c *Config) {
		c.NumActions = 0
		c.Low = []float64{-1}
		c.High = []float64{1}
		c.Hidden = []int{256}
		c.Envs = 2
		c.Minibatch = 16
	}} {
		a := recurrent(t, c)
		m := &Minibatch{
			Action:    make([]float64, a.c.Minibatch),
			LogProb:   nntest.Normal(1, a.c.Minibatch, 0.3),
			Advantage: nntest.Normal(2, a.c.Minibatch, 1),
			Return:    nntest.Normal(3, a.c.Minibatch, 1),
			Clip:      0.2,
		}
		for i := range m.LogProb {
			m.LogProb[i]--
			m.Action[i] = float64(i % 2)
		}
		a.scratch.batch = m
		copy(a.scratch.input.Data, nntest.Normal(4, len(a.scratch.input.Data), 1))
		theta := a.scratch.graph.Theta
		copy(theta, nntest.Normal(5, len(theta), 0.2))
		loss := func() float64 {
			l, err := a.scratch.graph.Run()
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		loss()
		nntest.Gradient(t, "trial", loss, theta, slices.Clone(a.scratch.graph.Grad), 80)
	}
}

// The steps of acting and the sequence of learning are one function: the first
// ratio is 1.
func TestTheFirstRatioOfATrialIsOne(t *testing.T) {
	a := recurrent(t, func(c *Config) { c.Epochs, c.LearningRate = 1, 1e-300 })
	(&bandits{pays: make([]int, 16), r: rand.New(rand.NewPCG(1, 3))}).trial(t, a)
	if a.SkippedUpdates > 0 || a.Last.Clipped != 0 || math.Abs(a.Last.KL) > 1e-15 {
		t.Errorf("KL %g, clipped %v, skipped %d: %v", a.Last.KL, a.Last.Clipped, a.SkippedUpdates, a.LastError)
	}
}

func TestAResumedTrialEqualsTheUninterruptedOne(t *testing.T) {
	play := func(a *Recurrent, from, to int) {
		obs := make([]float64, 16)
		actions := make([]float64, 16)
		rewards := make([]float64, 16)
		for step := from; step < to; step++ {
			if err := a.Explore(obs, nil, actions); err != nil {
				t.Fatal(err)
			}
			for i := range rewards {
				rewards[i] = actions[i] * float64(step%3)
			}
			if err := a.Learn(envtest.Rows(actions, rewards, obs, nil, nil)); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole := recurrent(t, nil)
	play(whole, 0, 40)
	half := recurrent(t, nil)
	play(half, 0, 13) // in the middle of a trial
	f, err := weights.Decode(nntest.Saved(t, half))
	if err != nil {
		t.Fatal(err)
	}
	rest := recurrent(t, func(c *Config) { c.Seed = 99 })
	if err := rest.Restore(f); err != nil {
		t.Fatal(err)
	}
	rest.c.Seed = 0
	play(rest, 13, 40)
	if !bytes.Equal(nntest.Saved(t, whole), nntest.Saved(t, rest)) {
		t.Error("the resumed learner is another one")
	}
	f.Meta["algorithm"] = "ppo"
	if err := rest.Restore(f); err == nil || !strings.Contains(err.Error(), `it must be "ppo-recurrent"`) {
		t.Error(err)
	}
}

func TestInvalidSettingsOfRecurrentAreRefused(t *testing.T) {
	c := Default(1, 2, nil, nil)
	c.Hidden = []int{16}
	c.Envs = 4
	c.Horizon = 8
	c.Minibatch = 16
	for says, change := range map[string]func(c *Config){
		"one width":   func(c *Config) { c.Hidden = []int{16, 16} },
		"whole trial": func(c *Config) { c.Minibatch = 4 },
		"neither":     func(c *Config) { c.NormaliseReward = true },
	} {
		d := c
		change(&d)
		if _, err := NewRecurrent(d); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
