package ppo

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/nntest"
)

func discrete(change func(c *Config)) Config {
	c := Default(4, 3, nil, nil)
	c.Hidden = []int{16, 16}
	c.Envs = 2
	c.Horizon = 8
	c.Minibatch = 16
	if change != nil {
		change(&c)
	}
	return c
}

func continuous(change func(c *Config)) Config {
	c := Default(4, 0, []float64{-1, -2}, []float64{1, 2})
	c.Hidden = []int{16, 16}
	c.Envs = 2
	c.Horizon = 8
	c.Minibatch = 16
	if change != nil {
		change(&c)
	}
	return c
}

func minibatch(c Config, masked bool) *Minibatch {
	r := rand.New(rand.NewPCG(5, 5))
	n := c.Minibatch
	m := &Minibatch{
		State:     nntest.Normal(1, n*c.State, 1),
		Action:    nntest.Normal(2, n*c.Action(), 1),
		LogProb:   make([]float64, n),
		Advantage: nntest.Normal(3, n, 1),
		Return:    nntest.Normal(4, n, 1),
		Clip:      0.2,
	}
	for i := range m.LogProb {
		m.LogProb[i] = -1.1 + 0.4*r.NormFloat64() // some ratios are beyond the clip
		if c.NumActions > 0 {
			m.Action[i] = float64(r.IntN(c.NumActions))
		} else {
			m.LogProb[i] = -2.8 + 0.4*r.NormFloat64()
		}
	}
	if masked {
		m.Legal = make([]bool, n*c.NumActions)
		for i := range n {
			for j := range c.NumActions {
				m.Legal[i*c.NumActions+j] = j == int(m.Action[i]) || r.IntN(2) == 0
			}
		}
	}
	return m
}

func TestTheLossAgreesWithHandAndWithCentralDifferences(t *testing.T) {
	for name, x := range map[string]struct {
		c      Config
		masked bool
	}{
		"discrete":       {discrete(nil), false},
		"masked":         {discrete(nil), true},
		"256 wide":       {discrete(func(c *Config) { c.Hidden = []int{256, 256} }), true},
		"continuous":     {continuous(func(c *Config) { c.Entropy = 0.01 }), false},
		"two choices":    {discrete(func(c *Config) { c.NumActions = 2 }), false},
		"512 wide, cont": {continuous(func(c *Config) { c.Hidden = []int{512} }), false},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := Gorgonia(x.c)
			if err != nil {
				t.Fatal(err)
			}
			theta := nntest.Normal(1, x.c.Params(), 0.1)
			m := minibatch(x.c, x.masked)
			grad, hand := make([]float64, len(theta)), make([]float64, len(theta))
			loss := func() float64 {
				s, err := g.Gradient(theta, m, grad)
				if err != nil {
					t.Fatal(err)
				}
				return s.Loss
			}
			got := loss()
			s, err := Hand(x.c).Gradient(theta, m, hand)
			if err != nil || math.Abs(got-s.Loss) > 1e-12*math.Abs(s.Loss) {
				t.Fatalf("loss %v, by hand %v; %v", got, s.Loss, err)
			}
			if s.Clipped == 0 || s.Clipped == 1 {
				t.Fatalf("%v of the ratios are clipped: both sides must be seen", s.Clipped)
			}
			for i := range grad {
				if math.Abs(grad[i]-hand[i]) > 1e-12 {
					t.Fatalf("gradient %d: %v, by hand %v", i, grad[i], hand[i])
				}
			}
			nntest.Gradient(t, name, loss, theta, slices.Clone(grad), 80)
			if d := x.c.deviations(); d > 0 {
				at := x.c.Policy().Params()
				loss()
				nntest.Gradient(t, "deviations", loss, theta[at:at+d], slices.Clone(grad[at:at+d]), d)
			}
		})
	}
}

// Five steps of one environment with an end in the middle and a cut at the last
// one, by hand.
func TestAdvantagesByHand(t *testing.T) {
	rewards := []float64{1, 2, 3, 4, 5}
	values := []float64{0.5, 0.4, 0.3, 0.2, 0.1}
	next := []float64{0.4, 0.9, 0.2, 0.1, 0.7} // at step 1 the episode terminates: its 0.9 must not count
	terminated := []bool{false, true, false, false, false}
	ended := []bool{false, true, false, false, true} // step 4 is truncated data: its 0.7 counts
	const g, l = 0.9, 0.8
	a4 := 5 + g*0.7 - 0.1
	a3 := 4 + g*0.1 - 0.2 + g*l*a4
	a2 := 3 + g*0.2 - 0.3 + g*l*a3
	a1 := 2 - 0.4
	a0 := 1 + g*0.4 - 0.5 + g*l*a1
	got, returns := make([]float64, 5), make([]float64, 5)
	Advantages(g, l, 1, rewards, values, next, terminated, ended, nil, got, returns)
	for i, want := range []float64{a0, a1, a2, a3, a4} {
		if math.Abs(got[i]-want) > 1e-14 || math.Abs(returns[i]-want-values[i]) > 1e-14 {
			t.Errorf("step %d: advantage %v, by hand %v; return %v", i, got[i], want, returns[i])
		}
	}
}

// A reward that is not known at step 2: the step has no advantage, and the one
// before it bootstraps from the value of what it led to.
func TestAnUnknownRewardEndsTheSumInFrontOfIt(t *testing.T) {
	rewards := []float64{1, 2, 99, 4}
	values := []float64{0.5, 0.4, 0.3, 0.2}
	next := []float64{0.4, 0.3, 0.2, 0.7}
	none := make([]bool, 4)
	got, returns := make([]float64, 4), make([]float64, 4)
	Advantages(0.9, 0.8, 1, rewards, values, next, none, none, []bool{false, false, true, false}, got, returns)
	a3 := 4 + 0.9*0.7 - 0.2
	a1 := 2 + 0.9*0.3 - 0.4
	a0 := 1 + 0.9*0.4 - 0.5 + 0.72*a1
	for i, want := range []float64{a0, a1, 0, a3} {
		if math.Abs(got[i]-want) > 1e-14 {
			t.Errorf("step %d: advantage %v, by hand %v", i, got[i], want)
		}
	}
}

// Two environments beside each other are two sequences.
func TestAdvantagesOfEnvironmentsDoNotMix(t *testing.T) {
	one, two := nntest.Normal(1, 6, 1), nntest.Normal(2, 6, 1)
	alone := func(x []float64) []float64 {
		a := make([]float64, 6)
		Advantages(0.9, 0.8, 1, x, x, x, make([]bool, 6), make([]bool, 6), nil, a, make([]float64, 6))
		return a
	}
	var both []float64
	for i := range one {
		both = append(both, one[i], two[i])
	}
	a := make([]float64, 12)
	Advantages(0.9, 0.8, 2, both, both, both, make([]bool, 12), make([]bool, 12), nil, a, make([]float64, 12))
	for i := range 6 {
		if a[2*i] != alone(one)[i] || a[2*i+1] != alone(two)[i] {
			t.Fatalf("step %d: %v %v", i, a[2*i], a[2*i+1])
		}
	}
}

// In the first epoch, before anything has moved, every ratio is 1: the
// probabilities of exploring are those of learning.
func TestTheFirstRatioIsOne(t *testing.T) {
	for _, c := range []Config{discrete(nil), continuous(nil)} {
		c.Epochs, c.LearningRate = 1, 1e-300 // as good as nothing moves
		a, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 1))
		actions := make([]float64, c.Envs*c.Action())
		for range c.Horizon {
			obs := make([]float64, c.Envs*c.State)
			for i := range obs {
				obs[i] = r.NormFloat64()
			}
			if err := a.Explore(obs, nil, actions); err != nil {
				t.Fatal(err)
			}
			if err := a.Learn(envtest.Rows(actions, []float64{1, 2}, obs, nil, nil)); err != nil {
				t.Fatal(err)
			}
		}
		if a.SkippedUpdates > 0 || a.Last.Clipped != 0 || math.Abs(a.Last.KL) > 1e-15 {
			t.Errorf("choices %d: KL %g, clipped %v, skipped %d: %v", c.NumActions, a.Last.KL,
				a.Last.Clipped, a.SkippedUpdates, a.LastError)
		}
	}
}

func TestIllegalChoicesAreNeverTaken(t *testing.T) {
	c := discrete(func(c *Config) { c.Horizon = 400; c.Minibatch = 800 })
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	legal := []bool{false, true, true, true, false, false}
	obs, actions := make([]float64, 8), make([]float64, 2)
	seen := map[float64]int{}
	for range 399 {
		if err := a.Explore(obs, legal, actions); err != nil {
			t.Fatal(err)
		}
		seen[actions[0]]++
		if actions[0] == 0 || actions[1] != 0 {
			t.Fatalf("actions %v", actions)
		}
		if err := a.Learn(envtest.Rows(actions, []float64{0, 0}, obs, nil, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if seen[1] < 100 || seen[2] < 100 {
		t.Errorf("the legal ones were taken %v times", seen)
	}
	err = a.Explore(obs, legal[:5], actions)
	if err == nil || !strings.Contains(err.Error(), "a mask of 5: it must be of 6") {
		t.Error(err)
	}
}

// An epoch goes over every transition once: AWARE's released code draws with
// replacement.
func TestAnEpochIsAPermutation(t *testing.T) {
	c := discrete(func(c *Config) { c.Minibatch = 4; c.Epochs = 1 })
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	actions, obs := make([]float64, 2), make([]float64, 8)
	for i := range c.Horizon {
		if err := a.Explore(obs, nil, actions); err != nil {
			t.Fatal(err)
		}
		rewards := []float64{float64(2 * i), float64(2*i + 1)}
		if err := a.Learn(envtest.Rows(actions, rewards, obs, []bool{true, true}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	got := slices.Sorted(slices.Values(a.scratch.sorted.Return)) // of single steps that end: the rewards
	for i, v := range got {
		if math.Abs(v-float64(i)) > 1e-9 {
			t.Fatalf("returns of an epoch: %v", got)
		}
	}
}

func TestAMinibatchWithNaNIsRefusedAndChangesNothing(t *testing.T) {
	c := discrete(nil)
	g, err := Gorgonia(c)
	if err != nil {
		t.Fatal(err)
	}
	u := NewUpdater(c, g)
	theta := nntest.Normal(1, c.Params(), 0.1)
	adam := nn.NewAdam(c.Params(), 1e-3, 1e-5)
	before := slices.Clone(theta)
	m := minibatch(c, false)
	m.Advantage[2] = math.NaN()
	if _, err := u.Update(theta, adam, m); !errors.Is(err, nn.ErrNotFinite) {
		t.Error(err)
	}
	m = minibatch(c, false)
	m.LogProb[2], m.Advantage[2] = -1e6, -1 // the ratio is infinite, and on the side that is not clipped
	if _, err := u.Update(theta, adam, m); !errors.Is(err, nn.ErrNotFinite) {
		t.Error(err)
	}
	if !slices.Equal(theta, before) || adam.Steps != 0 {
		t.Error("something moved")
	}
}

func TestAdvantagesAreNormalised(t *testing.T) {
	a := nntest.Normal(1, 64, 5)
	(&Minibatch{Advantage: a}).normalise()
	mean, square := 0.0, 0.0
	for _, v := range a {
		mean += v / 64
		square += v * v / 63
	}
	if math.Abs(mean) > 1e-12 || math.Abs(square-1) > 1e-6 {
		t.Errorf("mean %v, variance %v", mean, square)
	}
	one := []float64{3}
	if (&Minibatch{Advantage: one}).normalise(); one[0] != 3 {
		t.Error(one)
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	for says, c := range map[string]Config{
		"choices 1":   discrete(func(c *Config) { c.NumActions = 1 }),
		"minibatch 5": discrete(func(c *Config) { c.Minibatch = 5 }),
		"bounds":      discrete(func(c *Config) { c.Low = []float64{1} }),
		"gamma, l":    discrete(func(c *Config) { c.Lambda = 1.5 }),
		"clip, norm":  discrete(func(c *Config) { c.Clip = 0 }),
		"hidden [0]":  discrete(func(c *Config) { c.Hidden = []int{0} }),
		"state 0":     discrete(func(c *Config) { c.State = 0 }),
		"bounds [1 ":  continuous(func(c *Config) { c.Low[0] = 1 }),
		"deviation":   continuous(func(c *Config) { c.Deviation = math.NaN() }),
		"envs, hor":   discrete(func(c *Config) { c.Envs = 0 }),
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
