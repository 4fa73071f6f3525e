package dqn

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/nntest"
)

func small(change func(c *Config)) Config {
	c := Default(4, 3)
	c.Hidden = []int{16, 16}
	c.Batch = 8
	c.Capacity = 100
	c.Warmup = 0
	if change != nil {
		change(&c)
	}
	return c
}

func batch(t testing.TB, c Config) *replay.Batch {
	t.Helper()
	b, err := replay.NewBatch(replay.Config{Capacity: c.Batch, State: c.State, Action: 1}, c.Batch)
	if err != nil {
		t.Fatal(err)
	}
	copy(b.State, nntest.Normal(1, len(b.State), 1))
	copy(b.Next, nntest.Normal(2, len(b.Next), 1))
	copy(b.Reward, nntest.Normal(3, len(b.Reward), 2))
	for i := range b.Weight {
		b.Action[i] = float64(i % c.NumActions)
		b.Weight[i] = 0.5 + 0.1*float64(i)
		b.Bootstrap[i] = 0.9
	}
	b.Bootstrap[2] = 0
	return b
}

func values(c Config) *nn.Network {
	m := c.Network()
	return &nn.Network{
		Theta:  nntest.Normal(1, m.Params(), 0.4),
		Target: nntest.Normal(2, m.Params(), 0.4),
		Adam:   nn.NewAdam(m.Params(), c.LearningRate, 1e-8),
	}
}

func TestTheLossAgreesWithHandAndWithCentralDifferences(t *testing.T) {
	for _, hidden := range [][]int{{64, 64}, {256, 256}, {512}} {
		c := small(func(c *Config) { c.Hidden, c.Activation = hidden, kernel.Tanh })
		g, err := Gorgonia(c)
		if err != nil {
			t.Fatal(err)
		}
		b, v := batch(t, c), values(c)
		y := nntest.Normal(9, c.Batch, 2) // errors on both sides of 1
		grad := make([]float64, len(v.Theta))
		hand := make([]float64, len(v.Theta))
		e := make([]float64, c.Batch)
		f := make([]float64, c.Batch)
		loss := func() float64 {
			l, err := g.Gradient(v.Theta, b.State, b.Action, y, b.Weight, grad, e)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		got := loss()
		want, _ := Hand(c).Gradient(v.Theta, b.State, b.Action, y, b.Weight, hand, f)
		if math.Abs(got-want) > 1e-12*want || !slices.Equal(e, f) {
			t.Errorf("loss %v, by hand %v; errors %v and %v", got, want, e, f)
		}
		for i := range grad {
			if math.Abs(grad[i]-hand[i]) > 1e-12 {
				t.Fatalf("gradient %d: %v, by hand %v", i, grad[i], hand[i])
			}
		}
		nntest.Gradient(t, "huber", loss, v.Theta, slices.Clone(grad), 60)
	}
}

// y by hand: double takes the online network's choice and the target's value of
// it.
func TestTargetsByHand(t *testing.T) {
	for _, double := range []bool{true, false} {
		c := small(func(c *Config) { c.Double = double })
		g, err := Gorgonia(c)
		if err != nil {
			t.Fatal(err)
		}
		u := NewUpdater(c, g)
		v := values(c)
		b := batch(t, c)
		online, target := kernel.NewTape[float64](c.Network(), 1), kernel.NewTape[float64](c.Network(), 1)
		want, differ := make([]float64, c.Batch), false
		for i := range want {
			s := b.Next[i*c.State:][:c.State]
			q, o := target.Forward(v.Target, s, 1), online.Forward(v.Theta, s, 1)
			best := slices.Index(q, slices.Max(q))
			choice := slices.Index(o, slices.Max(o))
			differ = differ || best != choice
			if double {
				best = choice
			}
			want[i] = b.Reward[i] + b.Bootstrap[i]*q[best]
		}
		if !differ {
			t.Fatal("both networks choose alike: the test cannot tell")
		}
		if _, err := u.Update(v, b); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Abs(u.y[i]-want[i]) > 1e-12 {
				t.Errorf("double %v, row %d: y is %v, by hand %v", double, i, u.y[i], want[i])
			}
		}
	}
}

// The maximum of a target is over the legal choices of the next observation, of
// both networks' choices.
func TestTargetsAreOverLegalChoices(t *testing.T) {
	for _, double := range []bool{true, false} {
		c := small(func(c *Config) { c.Double = double })
		u := NewUpdater(c, Hand(c))
		v := values(c)
		b := batch(t, c)
		if _, err := u.Update(v, b); err != nil {
			t.Fatal(err)
		}
		free := slices.Clone(u.y)
		b.NextLegal = make([]bool, c.Batch*c.NumActions)
		for i := range c.Batch { // only one choice is legal, another one in each row
			b.NextLegal[i*c.NumActions+i%c.NumActions] = true
		}
		v = values(c)
		if _, err := u.Update(v, b); err != nil {
			t.Fatal(err)
		}
		target, differ := kernel.NewTape[float64](c.Network(), 1), 0
		for i, y := range u.y {
			q := target.Forward(values(c).Target, b.Next[i*c.State:][:c.State], 1)
			if want := b.Reward[i] + b.Bootstrap[i]*q[i%c.NumActions]; math.Abs(y-want) > 1e-12 {
				t.Errorf("double %v, row %d: y is %v, by hand %v", double, i, y, want)
			}
			if y != free[i] {
				differ++
			}
		}
		if differ == 0 {
			t.Fatal("the mask changes nothing: the test cannot tell")
		}
	}
}

func TestInvalidBatchesAreRefusedAndChangeNothing(t *testing.T) {
	c := small(nil)
	g, err := Gorgonia(c)
	if err != nil {
		t.Fatal(err)
	}
	u, v := NewUpdater(c, g), values(c)
	before := slices.Clone(v.Theta)
	b := batch(t, c)
	b.Next[1] = math.NaN()
	if _, err := u.Update(v, b); !errors.Is(err, nn.ErrNotFinite) {
		t.Error(err)
	}
	b = batch(t, c)
	b.Action[4] = 3
	if _, err := u.Update(v, b); err == nil || !strings.Contains(err.Error(), "action of row 4 is 3") {
		t.Error(err)
	}
	if !slices.Equal(before, v.Theta) || v.Adam.Steps != 0 {
		t.Error("something moved")
	}
}

func TestTheTargetIsCopiedOnTime(t *testing.T) {
	c := small(func(c *Config) {
		c.TargetUpdateEvery = 10
		c.Every = 1
		c.Warmup = 8
	})
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Values.Theta, a.Values.Target) {
		t.Error("the target is not initialised as an exact copy")
	}
	obs := make([]float64, 4)
	action := make([]float64, 1)
	ends := make([]bool, 1)
	for i := range 30 {
		obs[0] = float64(i)
		if err := a.Explore(obs, nil, action); err != nil {
			t.Fatal(err)
		}
		target := slices.Clone(a.Values.Target)
		online := slices.Clone(a.Values.Theta)
		if err := a.Learn(envtest.Rows(action, []float64{1}, obs, ends, ends)); err != nil {
			t.Fatal(err)
		}
		copied := (i+1)%10 == 0
		if copied && !slices.Equal(a.Values.Target, online) || !copied && !slices.Equal(a.Values.Target, target) {
			t.Fatalf("step %d", i+1)
		}
	}
}

func TestEpsilonDecreases(t *testing.T) {
	c := small(func(c *Config) {
		c.First = 1
		c.Last = 0.1
		c.EpsilonDecaySteps = 100
	})
	for step, want := range map[int]float64{0: 1, 50: 0.55, 100: 0.1, 1000: 0.1} {
		if got := c.epsilon(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: %v instead of %v", step, got, want)
		}
	}
}

// A table that learns from random moves in the grid agrees with value iteration
// to a millionth.
func TestTheTableAgreesWithValueIteration(t *testing.T) {
	const gamma = 0.9
	grid := classic.GridTable()
	states, choices := len(grid), len(grid[0])
	v := make([]float64, states)
	for range 500 {
		next := make([]float64, states)
		for s := range grid {
			next[s] = math.Inf(-1)
			for _, m := range grid[s] {
				q := m.Reward
				if !m.Terminated {
					q += gamma * v[m.Next]
				}
				next[s] = max(next[s], q)
			}
		}
		v = next
	}
	table := NewTable(states, choices, gamma, 0.5)
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		s, a := r.IntN(states), r.IntN(choices)
		m := grid[s][a]
		table.Learn(s, a, m.Reward, m.Next, m.Terminated)
	}
	for s := range grid {
		for a, m := range grid[s] {
			want := m.Reward
			if !m.Terminated {
				want += gamma * v[m.Next]
			}
			if math.Abs(table.Q[s][a]-want) > 1e-6 {
				t.Errorf("state %d, choice %d: %v, value iteration %v", s, a, table.Q[s][a], want)
			}
		}
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	for says, change := range map[string]func(c *Config){
		"choices 1":  func(c *Config) { c.NumActions = 1 },
		"gamma 1":    func(c *Config) { c.Gamma = 1 },
		"rate, norm": func(c *Config) { c.LearningRate = 0 },
		"batch 9":    func(c *Config) { c.Batch, c.Capacity = 9, 8 },
		"epsilon":    func(c *Config) { c.First = 2 },
		"alpha, b":   func(c *Config) { c.Prioritised, c.Alpha = true, 2 },
		"warmup, ev": func(c *Config) { c.TargetUpdateEvery = 0 },
		"hidden []":  func(c *Config) { c.Hidden = nil },
		"state 0":    func(c *Config) { c.State = 0 },
	} {
		if _, err := New(small(change)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
