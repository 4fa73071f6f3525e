package discrete

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/algo/bcq/clone"
	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/kernel/gemm"
	"awarescale.dev/aware/learner/nn/nntest"
	"awarescale.dev/aware/learner/nn/weights"
	"gonum.org/v1/gonum/blas/blas64"
)

func TestMain(m *testing.M) {
	blas64.Use(gemm.Choose().BLAS())
	os.Exit(m.Run())
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// indices are n actions of so many choices.
func indices(n, choices int) []float64 {
	a, r := make([]float64, n), rng(8)
	for i := range a {
		a[i] = float64(r.IntN(choices))
	}
	return a
}

func TestGradients(t *testing.T) {
	for _, widths := range [][]int{{64, 64}, {256, 256}} {
		c := Default(9, 5)
		c.Batch = 16
		c.Hidden = widths
		c.Flat = 0.3
		theta := nntest.Normal(1, c.Network().Params(), 1/math.Sqrt(float64(widths[0])))
		s := nntest.Normal(2, 16*9, 1)
		a := indices(16, 5)
		y := nntest.Normal(3, 16, 2) // errors on both sides of 1
		g, err := Gorgonia(c)
		if err != nil {
			t.Fatal(err)
		}
		h := Hand(c)
		for name, f := range map[string]func(g Gradients, grad []float64) (float64, error){
			"values":    func(g Gradients, grad []float64) (float64, error) { return g.Values(theta, s, a, y, grad) },
			"behaviour": func(g Gradients, grad []float64) (float64, error) { return g.Behaviour(theta, s, a, grad) },
		} {
			grad := make([]float64, len(theta))
			want := make([]float64, len(theta))
			unread := make([]float64, len(theta))
			loss, err := f(g, grad)
			wanted, _ := f(h, want)
			if err != nil || math.Abs(loss-wanted) > 1e-12 {
				t.Errorf("%s %v: loss %v, by hand %v (%v)", name, widths, loss, wanted, err)
			}
			most := max(slices.Max(want), -slices.Min(want))
			for i := range grad {
				if !(math.Abs(grad[i]-want[i]) <= 1e-12*most) {
					t.Fatalf("%s %v: gradient %d is %v, by hand %v", name, widths, i, grad[i], want[i])
				}
			}
			nntest.Gradient(t, fmt.Sprint(name, widths), func() float64 {
				v, _ := f(g, unread)
				return v
			}, theta, grad, 80)
		}
	}
}

// Huber's loss and the cross-entropy of two rows, worked out on paper.
func TestLossesByHand(t *testing.T) {
	grad := make([]float64, 4)
	if got := nn.Huber([]float64{1.5, 9, 9, -2}, []float64{0, 1}, []float64{1, 1}, nil, grad, nil); got != (0.125+2.5)/2 ||
		!slices.Equal(grad, []float64{0.25, 0, 0, -0.5}) {
		t.Errorf("huber %v, gradient %v", got, grad)
	}
	c := Default(1, 2)
	c.Batch = 1
	c.Hidden = []int{1}
	c.Flat = 0.1
	theta := make([]float64, c.Network().Params())
	theta[len(theta)-2], theta[len(theta)-1] = math.Log(3), 0 // logits: 3 to 1
	got, err := Hand(c).Behaviour(theta, []float64{0}, []float64{1}, make([]float64, len(theta)))
	if want := math.Log(4) + 0.1*math.Log(3)*math.Log(3)/2; err != nil || math.Abs(got-want) > 1e-15 {
		t.Errorf("cross-entropy %v: it must be %v", got, want)
	}
}

// An action counts when it is more than three tenths as likely as the likeliest.
func TestOnlyLikelyActionsAreChosen(t *testing.T) {
	c := Default(1, 3)
	logits := []float64{math.Log(0.60), math.Log(0.19), math.Log(0.17)} // shares 1, 0.317, 0.283
	values := []float64{1, 2, 3}
	for _, x := range []struct {
		threshold float64
		want      int
	}{{0.3, 1}, {0.32, 0}, {0.28, 2}, {0, 2}, {0.999, 0}} {
		c.Threshold = x.threshold
		if got := c.Choose(values, logits, nil); got != x.want {
			t.Errorf("threshold %v: action %d: it must be %d", x.threshold, got, x.want)
		}
	}
	c.Threshold = 0 // an impossible action is unlikely, not forbidden
	if got := c.Choose(values, []float64{0, 0, -800}, nil); got != 2 {
		t.Errorf("without a threshold the action is %d", got)
	}
}

// An illegal action is not chosen, however valuable and likely it is, and the
// share of likelihood is that of the likeliest legal one.
func TestOnlyLegalActionsAreChosen(t *testing.T) {
	c := Default(1, 3)
	logits := []float64{math.Log(0.90), math.Log(0.06), math.Log(0.04)}
	values := []float64{9, 1, 2}
	for _, x := range []struct {
		legal []bool
		want  int
	}{{nil, 0}, {[]bool{true, true, true}, 0}, {[]bool{false, true, true}, 2}, {[]bool{false, true, false}, 1}} {
		if got := c.Choose(values, logits, x.legal); got != x.want {
			t.Errorf("legal %v: action %d: it must be %d", x.legal, got, x.want)
		}
	}
}

// The online network chooses, the target says what that is worth, and nothing
// is worth anything after an end.
func TestTargetsByHand(t *testing.T) {
	c := Default(1, 2)
	c.Batch, c.Hidden = 2, []int{1}
	p := NewPolicy(c, rng(1))
	constant := func(theta []float64, a, b float64) {
		clear(theta)
		theta[len(theta)-2], theta[len(theta)-1] = a, b
	}
	constant(p.Values.Theta, 5, 6)
	constant(p.Values.Target, 10, 20)
	constant(p.Behaviour.Theta, 0, 0)
	b := record(t, c)
	copy(b.Reward, []float64{1, 2})
	copy(b.Bootstrap, []float64{0.5, 0})
	u := NewUpdater(c, Hand(c))
	if u.targets(p, b); u.y[0] != 11 || u.y[1] != 2 {
		t.Errorf("y %v: it must be 11 and 2", u.y)
	}
	b.NextLegal = []bool{true, false, true, true}
	if u.targets(p, b); u.y[0] != 6 {
		t.Errorf("y %v: the illegal action counted", u.y[0])
	}
	b.NextLegal = nil
	constant(p.Behaviour.Theta, 3, 0) // the second action is e^-3 as likely
	if u.targets(p, b); u.y[0] != 6 {
		t.Errorf("y %v: the unlikely action counted", u.y[0])
	}
}

func record(t testing.TB, c Config) *replay.Batch {
	t.Helper()
	b, err := replay.NewBatch(replay.Config{Capacity: 1, State: c.State, Action: 1}, c.Batch)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// grid is the record of a bad policy in Grid4x4-v0, one step at a time from
// cells at random: it goes up two times in five, and each of the other moves
// one time in five, but never the way "without" (-1: none). Cells are one-hot.
func grid(t testing.TB, n, without int) *replay.Uniform {
	t.Helper()
	u, err := replay.NewUniform(replay.Config{Capacity: n, State: classic.GridCells, Action: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	table, r := classic.GridTable(), rng(2)
	ways := []int{0, 1, 2, 3, 3}
	for range n {
		cell, way := 1+r.IntN(classic.GridCells-2), without
		for way == without {
			way = ways[r.IntN(len(ways))]
		}
		m := table[cell][way]
		if err := u.Add(replay.Transition{
			State:      seen(cell),
			Action:     []float64{float64(way)},
			Reward:     m.Reward,
			Next:       seen(m.Next),
			Discount:   0.95,
			Terminated: m.Terminated,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

func seen(cell int) []float64 {
	x := make([]float64, classic.GridCells)
	x[cell] = 1
	return x
}

// walk is the mean return from all cells; a walk ends after 100 moves.
func walk(t testing.TB, act func(obs []float64, legal []bool, action []float64) error) (mean float64) {
	t.Helper()
	table, action := classic.GridTable(), []float64{0}
	for start := 1; start < classic.GridCells-1; start++ {
		cell, over := start, false
		for range 100 {
			if err := act(seen(cell), nil, action); err != nil {
				t.Fatal(err)
			}
			m := table[cell][int(action[0])]
			cell, over = m.Next, m.Terminated
			mean += m.Reward / (classic.GridCells - 2)
			if over {
				break
			}
		}
	}
	return mean
}

func settings() Config {
	c := Default(classic.GridCells, classic.GridMoves)
	c.Tau, c.Seed = 0.02, 1
	return c
}

func mustAgent(t testing.TB, c Config, u *replay.Uniform, updates int) *Agent {
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

// The record's policy mostly walks into the wall: its clone does so always.
// What is learned of the same record is the best there is, from each cell to
// the nearest corner.
func TestTheBestActionsOfABadPolicyAreLearned(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes under the race detector, and nothing is concurrent here")
	}
	best := 0.0
	for cell := 1; cell < classic.GridCells-1; cell++ {
		row, column := cell/4, cell%4
		best -= float64(min(row+column, 6-row-column)) / (classic.GridCells - 2)
	}
	for _, seed := range []uint64{1, 2, 3} {
		c := settings()
		c.Seed = seed
		a := mustAgent(t, c, grid(t, 3000, -1), 1500)
		copied, err := clone.New(clone.Config{
			State:        classic.GridCells,
			NumActions:   classic.GridMoves,
			Hidden:       c.Hidden,
			LearningRate: c.LearningRate,
			Batch:        c.Batch,
			Seed:         seed,
		}, grid(t, 3000, -1))
		if err == nil {
			err = copied.Learn(1500)
		}
		if err != nil {
			t.Fatal(err)
		}
		bcq, bc := walk(t, a.Act), walk(t, copied.Act)
		t.Logf("seed %d: bcq %.2f, clone %.2f, best %.2f", seed, bcq, bc, best)
		if math.Abs(bcq-best) > 1e-9 || bc > -50 {
			t.Errorf("seed %d: bcq %v of %v, its clone %v", seed, bcq, best, bc)
		}
	}
}

// A way that the record never goes is never gone, nor counted in what others
// are worth: cells to the right of which a corner lies nearest go round.
// Without the restriction, it is gone.
func TestAMoveThatIsNotInTheDataIsNotTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes under the race detector, and nothing is concurrent here")
	}
	const right = 2
	gone := func(threshold float64) (n int) {
		c := settings()
		c.Threshold = threshold
		a := mustAgent(t, c, grid(t, 3000, right), 1500)
		action := []float64{0}
		for cell := 1; cell < classic.GridCells-1; cell++ {
			if err := a.Act(seen(cell), nil, action); err != nil {
				t.Fatal(err)
			}
			if action[0] == right {
				n++
			}
		}
		return n
	}
	if n := gone(0.3); n != 0 {
		t.Errorf("it is gone in %d cells", n)
	}
	if n := gone(0); n == 0 {
		t.Error("without the restriction it is not gone either: the test shows nothing")
	}
}

// What is served is what decides.
func TestTheSnapshotDecidesLikeTheAgent(t *testing.T) {
	c := settings()
	c.Hidden = []int{7, 5}
	a := mustAgent(t, c, grid(t, 500, -1), 50)
	var s kernel.Server
	if err := s.Publish(a.Snapshot()); err != nil {
		t.Fatal(err)
	}
	var scratch kernel.Scratch
	for i := range 200 {
		obs := nntest.Normal(uint64(i), classic.GridCells, 1)
		want, got := []float64{0}, []float64{0}
		if err := a.Act(obs, nil, want); err != nil {
			t.Fatal(err)
		}
		out, version, ok := s.Decide(obs, 1, &scratch)
		if !ok || version != 50 {
			t.Fatal(version, ok)
		}
		for n, network := range [][]float64{a.Policy.Values.Theta, a.Policy.Behaviour.Theta} {
			for k, v := range kernel.NewTape[float64](c.Network(), 1).Forward(network, obs, 1) {
				if got := out[n*c.NumActions+k]; math.Abs(got-v) > 1e-12 {
					t.Fatalf("output %d of network %d is %v, served %v", k, n, v, got)
				}
			}
		}
		if a.GreedyAction(out, nil, got); got[0] != want[0] {
			t.Errorf("observation %d: served %v, the agent's %v", i, got, want)
		}
	}
}

func numbers(p *Policy) []float64 {
	return slices.Concat(p.Values.Theta, p.Values.Target, p.Values.Adam.M, p.Behaviour.Theta, p.Behaviour.Adam.V)
}

func TestBatchesThatAreNotFiniteAreNotLearned(t *testing.T) {
	a := mustAgent(t, settings(), grid(t, 200, -1), 3)
	for name, x := range map[string]struct {
		spoil func(b *replay.Batch)
		says  string
	}{
		"NaN in a state":     {func(b *replay.Batch) { b.State[5] = math.NaN() }, "finite"},
		"an infinite reward": {func(b *replay.Batch) { b.Reward[1] = math.Inf(1) }, "finite"},
		"a choice of none":   {func(b *replay.Batch) { b.Action[2] = 4 }, "whole number from 0 to 3"},
		"half a choice":      {func(b *replay.Batch) { b.Action[2] = 0.5 }, "whole number from 0 to 3"},
		"rewards that explode": {
			func(b *replay.Batch) { b.Reward[0], b.Reward[1] = 1.7e308, -1.7e308; b.State[0] = 1e200 },
			"finite",
		},
	} {
		b := record(t, a.c)
		x.spoil(b)
		before, refused := numbers(a.Policy), a.SkippedUpdates
		if err := a.Update(b); err == nil || !strings.Contains(err.Error(), x.says) || a.SkippedUpdates != refused+1 {
			t.Errorf("%s: %v, %d skipped", name, err, a.SkippedUpdates)
		}
		if !slices.Equal(before, numbers(a.Policy)) {
			t.Errorf("%s changed the policy", name)
		}
	}
}

func TestResumedIsUninterrupted(t *testing.T) {
	one := mustAgent(t, settings(), grid(t, 300, -1), 5)
	f, err := weights.Decode(nntest.Saved(t, one))
	if err != nil {
		t.Fatal(err)
	}
	two := mustAgent(t, settings(), grid(t, 300, 1), 2)
	if err := two.Restore(f); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(one.Learn(6), two.Learn(6)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(nntest.Saved(t, one), nntest.Saved(t, two)) {
		t.Error("resumed is not uninterrupted")
	}
	f.Meta["algorithm"] = "bcq"
	if err := two.Restore(f); err == nil || !strings.Contains(err.Error(), `it must be "bcq-discrete"`) {
		t.Errorf("continuous weights: %v", err)
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	for says, spoil := range map[string]func(c *Config){
		"state 0":     func(c *Config) { c.State = 0 },
		"choices 1":   func(c *Config) { c.NumActions = 1 },
		"hidden [0]":  func(c *Config) { c.Hidden = []int{0} },
		"tau 2":       func(c *Config) { c.Tau = 2 },
		"rate 0":      func(c *Config) { c.LearningRate = 0 },
		"batch 0":     func(c *Config) { c.Batch = 0 },
		"threshold 1": func(c *Config) { c.Threshold = 1 },
		"flat -1":     func(c *Config) { c.Flat = -1 },
	} {
		c := settings()
		spoil(&c)
		if _, err := New(c, grid(t, 5, -1)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
