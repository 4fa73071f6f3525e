package clone

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/kernel/gemm"
	"awarescale.dev/aware/learner/nn/nntest"
	"gonum.org/v1/gonum/blas/blas64"
)

func TestMain(m *testing.M) {
	blas64.Use(gemm.Choose().BLAS())
	os.Exit(m.Run())
}

func continuous() Config {
	return Config{
		State:        2,
		Low:          []float64{-4},
		High:         []float64{0},
		Hidden:       []int{32},
		LearningRate: 3e-3,
		Batch:        32,
		Seed:         1,
	}
}

func discrete() Config {
	return Config{State: 2, NumActions: 3, Hidden: []int{32}, LearningRate: 3e-3, Batch: 32, Seed: 1}
}

// record is what a policy did in random states.
func record(t testing.TB, policy func(r *rand.Rand, s []float64) float64) *replay.Uniform {
	t.Helper()
	u, err := replay.NewUniform(replay.Config{Capacity: 1000, State: 2, Action: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		s := []float64{2*r.Float64() - 1, 2*r.Float64() - 1}
		if err := u.Add(replay.Transition{
			State:    s,
			Action:   []float64{policy(r, s)},
			Next:     s,
			Discount: 1,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

func made(t testing.TB, c Config, u *replay.Uniform, updates int) *Agent {
	t.Helper()
	a, err := New(c, u)
	if err == nil {
		err = a.Learn(updates)
	}
	if err != nil || a.SkippedUpdates > 0 {
		t.Fatal(err, a.LastError)
	}
	return a
}

func act(t testing.TB, a *Agent, s ...float64) float64 {
	t.Helper()
	action := []float64{0}
	if err := a.Act(s, nil, action); err != nil {
		t.Fatal(err)
	}
	return action[0]
}

// Of two actions that are taken alike the regression takes the mean, which
// nobody took, stretched to the bounds.
func TestTheMeanOfActionsIsCloned(t *testing.T) {
	either := func(r *rand.Rand, s []float64) float64 { return s[0]/2 + 0.4*float64(2*r.IntN(2)-1) }
	a := made(t, continuous(), record(t, either), 1500)
	for _, s := range [][]float64{{0.8, 0}, {-0.8, 0.5}, {0, -0.5}} {
		if got, want := act(t, a, s...), -2+2*s[0]/2; math.Abs(got-want) > 0.3 {
			t.Errorf("in %v the action is %v: it must be %v", s, got, want)
		}
	}
}

// Of three choices the likeliest is taken, always.
func TestTheLikeliestChoiceIsCloned(t *testing.T) {
	a := made(t, discrete(), record(t, func(r *rand.Rand, s []float64) float64 {
		if r.IntN(10) < 4 {
			return 1
		}
		if s[0] > 0 {
			return 2
		}
		return 0
	}), 800)
	for s, want := range map[float64]float64{0.5: 2, -0.5: 0} {
		if got := act(t, a, s, 0.1); got != want {
			t.Errorf("in %v the choice is %v: it must be %v", s, got, want)
		}
	}
	out := a.tape.Forward(a.Network.Theta, []float64{0.5, 0.1}, 1)
	if most := out[2] - out[1]; math.Abs(most-math.Log(1.5)) > 0.4 || out[2]-out[0] < 3 { // six to four, and never
		t.Errorf("logarithms of probability %v", out)
	}
}

func TestGradients(t *testing.T) {
	for name, c := range map[string]Config{"continuous": continuous(), "discrete": discrete()} {
		c.State, c.Hidden = 9, []int{256, 256}
		theta := nntest.Normal(1, c.Network().Params(), 0.06)
		s, a := nntest.Normal(2, 32*9, 1), make([]float64, 32)
		for i := range a {
			a[i] = float64(i%3) / 2
			if c.NumActions > 0 {
				a[i] = float64(i % 3)
			}
		}
		g, err := Gorgonia(c)
		if err != nil {
			t.Fatal(err)
		}
		grad := make([]float64, len(theta))
		want := make([]float64, len(theta))
		unread := make([]float64, len(theta))
		loss, err := g.Clone(theta, s, a, grad)
		byHand, _ := Hand(c).Clone(theta, s, a, want)
		if err != nil || math.Abs(loss-byHand) > 1e-12 {
			t.Errorf("%s: loss %v, by hand %v (%v)", name, loss, byHand, err)
		}
		most := max(slices.Max(want), -slices.Min(want))
		for i := range grad {
			if !(math.Abs(grad[i]-want[i]) <= 1e-12*most) {
				t.Fatalf("%s: gradient %d is %v, by hand %v", name, i, grad[i], want[i])
			}
		}
		nntest.Gradient(t, name, func() float64 {
			v, _ := g.Clone(theta, s, a, unread)
			return v
		}, theta, grad, 80)
	}
}

func TestResumedIsUninterruptedAndServedIsDecided(t *testing.T) {
	one := made(t, continuous(), record(t, func(_ *rand.Rand, s []float64) float64 { return s[0] }), 5)
	f, err := one.Save()
	if err != nil {
		t.Fatal(err)
	}
	two := made(t, continuous(), record(t, func(_ *rand.Rand, s []float64) float64 { return -s[0] }), 2)
	if err := two.Restore(f); err != nil {
		t.Fatal(err)
	}
	var raw [2][]byte
	for i, a := range []*Agent{one, two} { // one is saved before two learns: they must share nothing
		if err := a.Learn(5); err != nil {
			t.Fatal(err)
		}
		raw[i] = nntest.Saved(t, a)
	}
	if !bytes.Equal(raw[0], raw[1]) {
		t.Error("resumed is not uninterrupted")
	}
	var s kernel.Server
	var scratch kernel.Scratch
	if err := s.Publish(one.Snapshot()); err != nil {
		t.Fatal(err)
	}
	out, _, ok := s.Decide([]float64{0.3, 0.4}, 1, &scratch)
	action := []float64{0}
	if one.GreedyAction(out, nil, action); !ok || action[0] != act(t, one, 0.3, 0.4) {
		t.Errorf("served %v", action)
	}
}

func TestInvalidClonesAreRefused(t *testing.T) {
	u := record(t, func(_ *rand.Rand, s []float64) float64 { return 1.5 })
	for name, says := range map[string]string{
		"continuous": "action 0 of the batch is 1.5",
		"discrete":   "action of row 0 is 1.5",
	} {
		c := map[string]Config{"continuous": continuous(), "discrete": discrete()}[name]
		a, err := New(c, u)
		if err == nil {
			err = a.Learn(2)
		}
		if err != nil || a.SkippedUpdates != 2 || !strings.Contains(a.LastError.Error(), says) || a.Network.Adam.Steps != 0 {
			t.Errorf("%s: %v, %d skipped: %v", name, err, a.SkippedUpdates, a.LastError)
		}
	}
	for says, spoil := range map[string]func(c *Config){
		"state 0":   func(c *Config) { c.State = 0 },
		"choices 3": func(c *Config) { c.NumActions = 3 },
		"choices 0": func(c *Config) { c.Low, c.High = nil, nil },
		"hidden []": func(c *Config) { c.Hidden = nil },
		"rate -1":   func(c *Config) { c.LearningRate = -1 },
		"batch 0":   func(c *Config) { c.Batch = 0 },
		"bounds":    func(c *Config) { c.High = []float64{-4} },
	} {
		c := continuous()
		spoil(&c)
		if _, err := New(c, u); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	a, err := New(continuous(), u)
	if err != nil {
		t.Fatal(err)
	}
	b, err := replay.NewBatch(replay.Config{Capacity: 1, State: 2, Action: 1}, 32)
	if err != nil {
		t.Fatal(err)
	}
	b.State[0] = math.NaN()
	if err := a.Update(b); err == nil || !errors.Is(a.LastError, err) || a.Network.Adam.Steps != 0 {
		t.Errorf("NaN: %v", err)
	}
}
