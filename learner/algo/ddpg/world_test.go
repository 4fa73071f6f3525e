package ddpg

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/nn/kernel"
)

// The world pays 1 at every step and is only ever truncated, every 5 steps: its
// value is 1/(1-gamma) = 10. A learner that takes a truncation for a
// termination comes to 1/(1-gamma*4/5) = 3.6. A reward that is not known, and what
// stands in its place, is of no consequence.
func TestTheValueOfATruncatedWorld(t *testing.T) {
	gaps := func(step int, _ float64) (float64, bool) {
		if step == 2 {
			return 1000, false
		}
		return 1, true
	}
	for name, one := range map[string]struct {
		twin    bool
		pay     func(step int, action float64) (float64, bool)
		skipped int
	}{
		"ddpg":                       {false, envtest.Constant(1), 0},
		"td3":                        {true, envtest.Constant(1), 0},
		"ddpg, one reward not known": {false, gaps, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default(1, []float64{-1}, []float64{1})
			c.Hidden = []int{16}
			c.Batch = 32
			c.Warmup = 50
			c.Gamma = 0.9
			c.Tau = 0.05
			c.CriticLearningRate = 5e-3
			if c.Twin = one.twin; one.twin {
				c.TargetNoise, c.Delay = 0.2, 2
			}
			a, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			v, err := env.NewVector(1, &envtest.World{Limit: 5, Blind: true, Pay: one.pay})
			if err == nil {
				err = v.Reset()
			}
			if err != nil {
				t.Fatal(err)
			}
			action := []float64{0}
			for range 5000 {
				if err := a.Explore(v.Observations, nil, action); err != nil {
					t.Fatal(err)
				}
				if err := v.StepAll(action); err != nil {
					t.Fatal(err)
				}
				if err := a.Learn(v.Rows); err != nil {
					t.Fatal(err)
				}
			}
			mu := kernel.NewTape[float64](c.Actor(), 1).Forward(a.Policy.Actor.Theta, []float64{1}, 1)[0]
			q := kernel.NewTape[float64](c.Critic(), 1).Forward(a.Policy.Critics[0].Theta, []float64{1, mu}, 1)[0]
			if math.Abs(q-10) > 0.4 || a.SkippedUpdates > 0 {
				t.Errorf("Q is %v: the reward 1 at every step is worth 10; %v", q, a.LastError)
			}
			if a.SkippedRows != one.skipped {
				t.Errorf("%d rows were skipped, want %d", a.SkippedRows, one.skipped)
			}
		})
	}
}

// TD3's noise on target actions is cut at TargetCut.
func TestTargetNoiseIsClipped(t *testing.T) {
	c := small(func(c *Config) { c.TargetNoise, c.TargetCut = 0.5, 0.1 })
	u, p := updater(t, c)
	b := batch(t, c)
	clean := slices.Clone(kernel.NewTape[float64](c.Actor(), c.Batch).Forward(p.Actor.Target, b.Next, c.Batch))
	u.targets(p, b, rand.New(rand.NewPCG(1, 1)))
	cut := 0
	for i, a := range u.next {
		off := math.Abs(a - clean[i])
		if off > 0.1+1e-12 {
			t.Errorf("target action %d is moved by %v: the noise must be cut at 0.1", i, off)
		}
		if off > 0.1-1e-12 {
			cut++
		}
	}
	if cut < len(u.next)/2 {
		t.Errorf("%d of %d are at the cut: noise of 0.5 must reach it", cut, len(u.next))
	}
}
