package graph

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/nntest"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// square is the mean of squared differences by gorgonia's own operations.
func square(b *Builder[float64], x, y *G.Node) *G.Node {
	return b.MeanSquare(x, y)
}

// regression is an MLP with that loss.
func regression(t testing.TB, m kernel.MLP, batch int) (*Graph[float64], []float64, []float64) {
	t.Helper()
	var x, y Input[float64]
	g, err := Build(m.Params(), func(b *Builder[float64]) *G.Node {
		x, y = b.Input("x", batch, m.In()), b.Input("y", batch, m.Out())
		return square(b, b.MLP("net", m, x.Node, 0), y.Node)
	})
	if err != nil {
		t.Fatal(err)
	}
	copy(g.Theta, nntest.Normal(1, m.Params(), 1/math.Sqrt(float64(m[0].Out))))
	copy(x.Data, nntest.Normal(2, len(x.Data), 1))
	copy(y.Data, nntest.Normal(3, len(y.Data), 1))
	return g, x.Data, y.Data
}

func run(t testing.TB, g *Graph[float64]) float64 {
	t.Helper()
	l, err := g.Run()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var shapes = []struct {
	mlp   kernel.MLP
	batch int
}{
	{kernel.NewMLP(kernel.Tanh, kernel.Tanh, 8, 40, 40, 5), 64},
	{kernel.NewMLP(kernel.ReLU, kernel.Linear, 13, 40, 40, 1), 64},
	{kernel.NewMLP(kernel.Tanh, kernel.Linear, 4, 256, 256, 2), 32},
	{kernel.NewMLP(kernel.ReLU, kernel.Linear, 20, 512, 256, 3), 8},
	{kernel.NewMLP(kernel.ReLU, kernel.Linear, 1, 1, 1), 1},
}

// The graph computes what the hand-written passes compute.
func TestGorgoniaAgreesWithHand(t *testing.T) {
	for _, s := range shapes {
		g, x, y := regression(t, s.mlp, s.batch)
		for i := range g.Theta {
			g.Theta[i] = math.Abs(g.Theta[i]) * float64(1-2*(i%2)*(len(s.mlp)%2)) // so that the smallest net is awake
		}
		loss := run(t, g)
		tape := kernel.NewTape[float64](s.mlp, s.batch)
		out := tape.Forward(g.Theta, x, s.batch)
		want, n := 0.0, float64(len(out))
		for i, v := range out {
			want += (v - y[i]) * (v - y[i]) / n
			tape.Out()[i] = 2 * (v - y[i]) / n
		}
		grad := make([]float64, len(g.Grad))
		tape.Backward(g.Theta, grad, nil)
		if math.Abs(loss-want) > 1e-12*want {
			t.Errorf("%v: loss %v, by hand %v", s.mlp, loss, want)
		}
		scale := 0.0
		for _, v := range grad {
			scale = max(scale, math.Abs(v))
		}
		for i := range grad {
			if math.Abs(grad[i]-g.Grad[i]) > 1e-12*scale {
				t.Fatalf("%v: gradient %d is %v, by hand %v", s.mlp, i, g.Grad[i], grad[i])
			}
		}
	}
}

func TestGradientsAtProductionShapes(t *testing.T) {
	for _, s := range shapes[:4] {
		g, _, _ := regression(t, s.mlp, s.batch)
		run(t, g)
		grad := append([]float64(nil), g.Grad...)
		nntest.Gradient(t, fmt.Sprint(s.mlp), func() float64 { return run(t, g) }, g.Theta, grad, 60)
	}
}

// The caller's parameters decide, not those that the graph held before, and the
// gradient that the caller has stays when the graph runs again.
func TestAGradientBelongsToTheCaller(t *testing.T) {
	s := shapes[0]
	byHand, _, _ := regression(t, s.mlp, s.batch)
	wantLoss := run(t, byHand)
	g, _, _ := regression(t, s.mlp, s.batch)
	theta, grad := slices.Clone(g.Theta), make([]float64, len(g.Grad))
	clear(g.Theta)
	loss, err := g.Gradient(theta, grad)
	if err != nil {
		t.Fatal(err)
	}
	if loss != wantLoss {
		t.Errorf("loss %v, by Run %v", loss, wantLoss)
	}
	clear(g.Theta)
	run(t, g)
	if slices.Equal(grad, g.Grad) {
		t.Error("other parameters have the same gradient: the test shows nothing")
	}
	if !slices.Equal(grad, byHand.Grad) {
		t.Error("the gradient is not that of Run, or the next run has changed it")
	}
}

// two trajectories of time steps through two bidirectional layers.
func encoder(t testing.TB, in, hidden, time, batch int) (*Graph[float64], []float64) {
	t.Helper()
	one := kernel.GRU{In: in, Hidden: hidden, Bidirectional: true}
	two := kernel.GRU{In: one.Out(), Hidden: hidden, Bidirectional: true}
	head := kernel.NewMLP(kernel.Tanh, kernel.Linear, two.Out(), 8)
	var x, y Input[float64]
	g, err := Build(one.Params()+two.Params()+head.Params(), func(b *Builder[float64]) *G.Node {
		x, y = b.Input("x", time*batch, in), b.Input("y", time*batch, 8)
		h := b.GRU("one", one, time, batch, nil, x.Node, 0)
		h = b.GRU("two", two, time, batch, nil, h, one.Params())
		return square(b, b.MLP("head", head, h, one.Params()+two.Params()), y.Node)
	})
	if err != nil {
		t.Fatal(err)
	}
	copy(g.Theta, nntest.Normal(1, len(g.Theta), 1/math.Sqrt(float64(hidden))))
	copy(x.Data, nntest.Normal(2, len(x.Data), 1))
	return g, x.Data
}

// In gorgonia's own Concat and Slice a 2x256 encoder's gradient is 40 % off
// while its loss is right to 15 digits.
func TestGradientsOfAnEncoder(t *testing.T) {
	for _, s := range [][4]int{{5, 7, 4, 2}, {11, 256, 3, 2}} {
		g, _ := encoder(t, s[0], s[1], s[2], s[3])
		run(t, g)
		grad := append([]float64(nil), g.Grad...)
		nntest.Gradient(t, fmt.Sprint(s), func() float64 { return run(t, g) }, g.Theta, grad, 60)
	}
}

// The meta-learner's shape: bundles of sequences of different lengths, and rows of a batch that read the mean of their bundle.
func TestGradientsThroughBundlesAndRows(t *testing.T) {
	const time, bundles, each, batch = 5, 2, 3, 7
	gru := kernel.GRU{In: 4, Hidden: 6, Bidirectional: true}
	head := kernel.NewMLP(kernel.Tanh, kernel.Linear, gru.Out(), 3)
	lengths, index := []int{5, 3, 0, 1, 2, 5}, []int{0, 1, 1, 0, 0, 1, 0}
	var x, y Input[float64]
	g, err := Build(gru.Params()+head.Params(), func(b *Builder[float64]) *G.Node {
		x, y = b.Input("x", time*bundles*each, gru.In), b.Input("y", batch, 3)
		h := b.GRU("gru", gru, time, bundles*each, lengths, x.Node, 0)
		e := b.MLP("head", head, b.MeanOfBundles("mean", h, time, bundles, each, lengths), gru.Params())
		return square(b, b.Rows("rows", e, index), y.Node)
	})
	if err != nil {
		t.Fatal(err)
	}
	copy(g.Theta, nntest.Normal(1, len(g.Theta), 0.4))
	copy(x.Data, nntest.Normal(2, len(x.Data), 1))
	copy(y.Data, nntest.Normal(3, len(y.Data), 1))
	run(t, g)
	grad := append([]float64(nil), g.Grad...)
	nntest.Gradient(t, "bundles", func() float64 { return run(t, g) }, g.Theta, grad, 200)
	index[0] = 2
	if _, err := g.Run(); err == nil || !strings.Contains(err.Error(), "row 2 of 2") {
		t.Errorf("a row that is not there: %v", err)
	}
}

func TestGradientsOfJoinedInputs(t *testing.T) {
	const batch = 3
	left, right := kernel.Dense{
		In:  2,
		Out: 256,
		Act: kernel.Tanh,
	}, kernel.Dense{In: 3, Out: 256, Act: kernel.Tanh}
	top := kernel.NewMLP(kernel.Tanh, kernel.Linear, 512, 1)
	n := left.Params() + right.Params() + top.Params()
	var x, y Input[float64]
	g, err := Build(n, func(b *Builder[float64]) *G.Node {
		x, y = b.Input("x", batch, 2), b.Input("y", batch, 3)
		l := b.Dense("left", left, x.Node, b.Params("left/theta", 0, left.Params()))
		r := b.Dense("right", right, y.Node, b.Params("right/theta", left.Params(), right.Params()))
		out := b.MLP("top", top, b.Join("both", l, r), left.Params()+right.Params())
		return b.Neg(b.Mean(out))
	})
	if err != nil {
		t.Fatal(err)
	}
	copy(g.Theta, nntest.Normal(1, n, 0.2))
	copy(x.Data, nntest.Normal(2, len(x.Data), 1))
	copy(y.Data, nntest.Normal(3, len(y.Data), 1))
	run(t, g)
	nntest.Gradient(t, "joined", func() float64 { return run(t, g) }, g.Theta, append([]float64(nil), g.Grad...), 200)
}

// Plan computes what gorgonia's own machine computes, bit for bit, again and
// again.
func TestPlanAgreesWithTapeMachine(t *testing.T) {
	g, x, _ := regression(t, shapes[0].mlp, 64)
	same(t, g, x)
	e, x := encoder(t, 5, 16, 6, 3)
	same(t, e, x)
}

func same(t *testing.T, g *Graph[float64], x []float64) {
	t.Helper()
	m := G.NewTapeMachine(g.expr)
	defer m.Close()
	for round := range 3 {
		run(t, g)
		grad := append([]float64(nil), g.Grad...)
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		for _, p := range g.parts {
			d := p.gradient.Value().(*tensor.Dense).Float64s()
			for i, v := range d {
				if v != grad[p.begin+i] {
					t.Fatalf("round %d: gradient %d of %v is %v, TapeMachine's %v", round, i, p.node,
						grad[p.begin+i], v)
				}
			}
		}
		m.Reset()
		for i := range x {
			x[i] += 0.1
		}
	}
}

func TestANameCanBeGivenOnce(t *testing.T) {
	_, err := Build(0, func(b *Builder[float64]) *G.Node {
		x, y := b.Input("x", 2, 2), b.Input("x", 2, 2)
		return square(b, x.Node, y.Node)
	})
	if err == nil || !strings.Contains(err.Error(), `"x" is there twice`) {
		t.Error(err)
	}
}

// Two layers of equal shape are two layers.
func TestLayersOfEqualShapeAreNotMerged(t *testing.T) {
	d := kernel.Dense{In: 3, Out: 3, Act: kernel.Tanh}
	var x Input[float64]
	g, err := Build(2*d.Params(), func(b *Builder[float64]) *G.Node {
		x = b.Input("x", 2, 3)
		one := b.Dense("one", d, x.Node, b.Params("one/theta", 0, d.Params()))
		two := b.Dense("two", d, x.Node, b.Params("two/theta", d.Params(), d.Params()))
		return b.Mean(b.Mul(one, two))
	})
	if err != nil {
		t.Fatal(err)
	}
	copy(g.Theta, nntest.Normal(1, len(g.Theta), 1))
	copy(x.Data, nntest.Normal(2, 6, 1))
	run(t, g)
	nntest.Gradient(t, "two layers", func() float64 { return run(t, g) }, g.Theta, append([]float64(nil), g.Grad...), 100)
}

func TestBadGraphsAreRefused(t *testing.T) {
	d := kernel.Dense{In: 3, Out: 3}
	for name, c := range map[string]struct {
		params int
		build  func(b *Builder[float64]) *G.Node
		says   string
	}{
		"a loss that is not a scalar": {
			0, func(b *Builder[float64]) *G.Node { return b.Input("x", 2, 2).Node }, "must be one number",
		},
		"parameters left over": {20, func(b *Builder[float64]) *G.Node {
			return b.Mean(b.Dense("d", d, b.Input("x", 2, 3).Node, b.Params("t", 0, 12)))
		}, "12 parameters of 20"},
		"parameters beyond the end": {10, func(b *Builder[float64]) *G.Node {
			return b.Mean(b.Dense("d", d, b.Input("x", 2, 3).Node, b.Params("t", 0, 12)))
		}, "0 to 12 of 10"},
		"an input too wide": {12, func(b *Builder[float64]) *G.Node {
			return b.Mean(b.Dense("d", d, b.Input("x", 2, 4).Node, b.Params("t", 0, 12)))
		}, "an input 4 wide"},
		"a loss of two shapes": {12, func(b *Builder[float64]) *G.Node {
			return square(b, b.Dense("d", d, b.Input("x", 2, 3).Node, b.Params("t", 0, 12)), b.Input("y", 2, 1).Node)
		}, "hape"},
	} {
		if _, err := Build(c.params, c.build); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRandomNodesCannotBePlanned(t *testing.T) {
	g := G.NewGraph()
	x := G.GaussianRandomNode(g, tensor.Float64, 0, 1, 3)
	if _, err := NewPlan(g, x); err == nil || !strings.Contains(err.Error(), "cannot be planned") {
		t.Error(err)
	}
}

// Graphs that are built and run at the same time give the same results.
func TestGraphsOfManyGoroutinesGiveTheSameResults(t *testing.T) {
	const n = 8
	var grads [n][]float64
	var wait sync.WaitGroup
	for k := range n {
		wait.Go(func() {
			g, _, _ := regression(t, shapes[1].mlp, 64)
			for range 5 {
				run(t, g)
				for i := range g.Theta {
					g.Theta[i] -= 0.01 * g.Grad[i]
				}
			}
			grads[k] = g.Grad
		})
	}
	wait.Wait()
	for k := range grads {
		for i, v := range grads[k] {
			if v != grads[0][i] {
				t.Fatalf("graph %d, gradient %d: %v and %v", k, i, v, grads[0][i])
			}
		}
	}
}

func TestFloat32Graphs(t *testing.T) {
	m := kernel.NewMLP(kernel.Tanh, kernel.Linear, 5, 32, 3)
	var x Input[float32]
	g, err := Build(m.Params(), func(b *Builder[float32]) *G.Node {
		x = b.Input("x", 4, 5)
		return b.Mean(b.Square(b.MLP("net", m, x.Node, 0)))
	})
	if err != nil {
		t.Fatal(err)
	}
	theta := nntest.Normal(1, m.Params(), 0.3)
	for i, v := range theta {
		g.Theta[i] = float32(v)
	}
	for i, v := range nntest.Normal(2, 20, 1) {
		x.Data[i] = float32(v)
	}
	loss, err := g.Run()
	if err != nil || !(loss > 0) {
		t.Fatal(loss, err)
	}
	wide, xs, ys := regression(t, m, 4)
	copy(wide.Theta, theta)
	copy(xs, nntest.Normal(2, 20, 1))
	clear(ys)
	want := run(t, wide)
	if math.Abs(float64(loss)-want) > 1e-5 {
		t.Errorf("loss %v, in float64 %v", loss, want)
	}
	for i := range g.Grad {
		if math.Abs(float64(g.Grad[i])-wide.Grad[i]) > 1e-5 {
			t.Fatalf("gradient %d: %v, in float64 %v", i, g.Grad[i], wide.Grad[i])
		}
	}
}
