package dqn

import (
	"math"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/kernel"
)

// walk lets an agent step in a world.
func walk(t *testing.T, a *Agent, w env.Env, steps int) {
	t.Helper()
	v, err := env.NewVector(1, w)
	if err == nil {
		err = v.Reset()
	}
	if err != nil {
		t.Fatal(err)
	}
	action := []float64{0}
	for range steps {
		if err := a.Explore(v.Observations, v.Legal, action); err != nil {
			t.Fatal(err)
		}
		if err := v.StepAll(action); err != nil {
			t.Fatal(err)
		}
		if err := a.Learn(v.Rows); err != nil {
			t.Fatal(err)
		}
	}
}

func inWorld(t *testing.T, change func(c *Config)) *Agent {
	t.Helper()
	c := Default(1, 2)
	c.Hidden = []int{16}
	c.Batch = 32
	c.Warmup = 50
	c.Every = 1
	c.Gamma = 0.9
	c.TargetUpdateEvery = 50
	c.LearningRate = 5e-3
	c.EpsilonDecaySteps = 100
	if change != nil {
		change(&c)
	}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The world pays 1 at every step and is only ever truncated, every 5 steps: its
// value is 1/(1-gamma) = 10. A learner that takes a truncation for a
// termination comes to 1/(1-gamma*4/5) = 3.6 (of single steps).
func TestTheValueOfATruncatedWorld(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"double":         nil,
		"plain":          func(c *Config) { c.Double = false },
		"of three steps": func(c *Config) { c.Steps = 3 },
		"prioritised":    func(c *Config) { c.Prioritised = true },
	} {
		t.Run(name, func(t *testing.T) {
			a := inWorld(t, change)
			walk(t, a, &envtest.World{Choices: 2, Limit: 5, Blind: true, Pay: envtest.Constant(1)}, 6000)
			for choice, q := range kernel.NewTape[float64](a.c.Network(), 1).Forward(a.Values.Theta, []float64{1}, 1) {
				if math.Abs(q-10) > 0.4 {
					t.Errorf("Q of choice %d is %v: the reward 1 at every step is worth 10", choice, q)
				}
			}
			if a.SkippedUpdates > 0 {
				t.Error(a.LastError)
			}
		})
	}
}

// A reward that is not known is not zero, and not what happens to stand in its
// place: the row is not stored, and a return of several steps ends before it.
// The world's value is then still that of the rewards that are known.
func TestAnUnknownRewardTeachesNothing(t *testing.T) {
	for name, steps := range map[string]int{"single steps": 1, "three steps": 3} {
		t.Run(name, func(t *testing.T) {
			a := inWorld(t, func(c *Config) { c.Steps = steps })
			pay := func(step int, _ float64) (float64, bool) {
				if step == 2 {
					return 1000, false
				}
				return 1, true
			}
			w := &envtest.World{Choices: 2, Limit: 5, Blind: true, Pay: pay}
			walk(t, a, w, 3)
			if a.buffer.Len() != 2 || a.steps.Pending() != 0 {
				t.Errorf("after two known rewards and an unknown one: %d rows stored and %d pending, want 2 and 0",
					a.buffer.Len(), a.steps.Pending())
			}
			walk(t, a, w, 5997)
			if got := a.Stats().SkippedRows; got != 1200 {
				t.Errorf("%d rows were skipped, want 1200", got)
			}
			for choice, q := range kernel.NewTape[float64](a.c.Network(), 1).Forward(a.Values.Theta, []float64{1}, 1) {
				if math.Abs(q-10) > 0.4 {
					t.Errorf("Q of choice %d is %v: the reward 1 at every step is worth 10", choice, q)
				}
			}
		})
	}
}

// After some updates the priorities are those of the errors, and no longer all
// the same: the weights of a batch differ.
func TestPrioritiesFollowTheErrors(t *testing.T) {
	a := inWorld(t, func(c *Config) { c.Prioritised, c.AnnealSteps = true, 200 })
	pay := func(step int, action float64) (float64, bool) { return float64(step) * action, true }
	walk(t, a, &envtest.World{Choices: 2, Limit: 5, Pay: pay}, 200)
	b, err := replay.NewBatch(replay.Config{Capacity: 1, State: 1, Action: 1}, 64)
	if err == nil {
		err = a.prioritised.Sample(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, w := range b.Weight {
		low, high = min(low, w), max(high, w)
	}
	if high-low < 0.1 {
		t.Errorf("weights from %v to %v: rewards from 0 to 4 must give priorities that differ", low, high)
	}
}

func TestBetaGrowsToOne(t *testing.T) {
	a := inWorld(t, func(c *Config) {
		c.Prioritised = true
		c.AnnealSteps = 200
		c.Beta = 0.4
	})
	w := &envtest.World{Choices: 2, Limit: 5, Pay: envtest.Constant(1)}
	for steps, want := range []float64{0.7, 1, 1} {
		walk(t, a, w, 100)
		if got := a.prioritised.Beta(); math.Abs(got-want) > 1e-12 {
			t.Errorf("after %d steps beta is %v, want %v", 100*(steps+1), got, want)
		}
	}
}
