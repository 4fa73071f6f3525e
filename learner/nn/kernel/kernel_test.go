package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/nntest"
)

// Widths 128, 256 and 512 are where gorgonia's Slice and Concat go wrong; ours
// are checked there, too.
func TestGradientsOfDenseLayers(t *testing.T) {
	for _, act := range []kernel.Activation{kernel.Linear, kernel.Tanh, kernel.ReLU} {
		for _, s := range [][3]int{{1, 1, 1}, {8, 40, 64}, {40, 5, 64}, {256, 256, 20}, {512, 256, 7}, {255, 257, 3}} {
			d, batch := kernel.Dense{In: s[0], Out: s[1], Act: act}, s[2]
			theta := nntest.Normal(1, d.Params(), 1/math.Sqrt(float64(d.In)))
			x, weights := nntest.Normal(2, batch*d.In, 1), nntest.Normal(3, batch*d.Out, 1)
			if act == kernel.ReLU && d.In == 1 {
				theta[0] = 0.5
				theta[1] = 0.5
				x[0] = 1 // awake
			}
			y := make([]float64, batch*d.Out)
			loss := func() float64 {
				kernel.DenseForward(d, theta, x, batch, y)
				return nntest.Dot(y, weights)
			}
			loss()
			delta := append([]float64(nil), weights...)
			kernel.DenseDelta(act, y, delta)
			dtheta, dx := make([]float64, len(theta)), make([]float64, len(x))
			kernel.DenseParams(d, x, delta, batch, dtheta)
			kernel.DenseInput(d, theta, delta, batch, dx)
			name := fmt.Sprintf("%v %dx%d, batch %d", act, d.In, d.Out, batch)
			nntest.Gradient(t, name+", parameters", loss, theta, dtheta, 40)
			nntest.Gradient(t, name+", input", loss, x, dx, 40)
		}
	}
}

func TestGradientsOfAnMLP(t *testing.T) {
	m := kernel.NewMLP(kernel.Tanh, kernel.Linear, 13, 40, 40, 1)
	theta, x := nntest.Normal(1, m.Params(), 0.3), nntest.Normal(2, 64*13, 1)
	tape := kernel.NewTape[float64](m, 64)
	weights := nntest.Normal(3, 64, 1)
	loss := func() float64 { return nntest.Dot(tape.Forward(theta, x, 64), weights) }
	loss()
	copy(tape.Out(), weights)
	dtheta, dx := make([]float64, len(theta)), make([]float64, len(x))
	tape.Backward(theta, dtheta, dx)
	nntest.Gradient(t, "parameters", loss, theta, dtheta, 200)
	nntest.Gradient(t, "input", loss, x, dx, 200)
}

func TestGradientsOfGRUs(t *testing.T) {
	for _, both := range []bool{false, true} {
		for _, s := range [][4]int{{1, 1, 1, 1}, {3, 5, 4, 2}, {11, 256, 3, 2}, {512, 256, 2, 2}, {256, 128, 2, 3}} {
			g := kernel.GRU{In: s[0], Hidden: s[1], Bidirectional: both}
			time := s[2]
			batch := s[3]
			theta := nntest.Normal(1, g.Params(), 1/math.Sqrt(float64(g.Hidden)))
			x, weights := nntest.Normal(2, time*batch*g.In, 1), nntest.Normal(3, time*batch*g.Out(), 1)
			y, tape := make([]float64, len(weights)), kernel.NewGRUTape[float64](g, time, batch)
			loss := func() float64 {
				tape.Forward(theta, x, y)
				return nntest.Dot(y, weights)
			}
			loss()
			dtheta, dx := make([]float64, len(theta)), make([]float64, len(x))
			tape.Backward(theta, x, weights, dtheta, dx)
			name := fmt.Sprintf("%d to %d, bidirectional %v, time %d, batch %d", g.In, g.Hidden, both, time, batch)
			if time == 1 { // Wh has nothing to multiply
				continue
			}
			nntest.Gradient(t, name+", parameters", loss, theta, dtheta, 60)
			nntest.Gradient(t, name+", input", loss, x, dx, 40)
		}
	}
}

// AWARE's released GRU read its sequence transposed. Ours reads along time:
// what comes later does not change what the first direction said before, and
// the order matters.
func TestTheFirstAxisOfAGRUIsTime(t *testing.T) {
	g := kernel.GRU{In: 3, Hidden: 4}
	const time, batch = 6, 2
	theta, x := nntest.Normal(1, g.Params(), 0.7), nntest.Normal(2, time*batch*g.In, 1)
	run := func() []float64 {
		y := make([]float64, time*batch*g.Out())
		kernel.NewGRUTape[float64](g, time, batch).Forward(theta, x, y)
		return y
	}
	before := run()
	const last = (time - 1) * batch
	for i := last * g.In; i < len(x); i++ {
		x[i]++
	}
	after := run()
	for i := range before[:last*g.Out()] {
		if before[i] != after[i] {
			t.Fatalf("step %d knew of the last one", i/(batch*g.Out()))
		}
	}
	if before[last*g.Out()] == after[last*g.Out()] {
		t.Error("the last step does not see its own input")
	}
	for i := range time / 2 {
		for j := range batch * g.In {
			a, b := &x[i*batch*g.In+j], &x[(time-1-i)*batch*g.In+j]
			*a, *b = *b, *a
		}
	}
	if reversed := run(); reversed[last*g.Out()] == after[last*g.Out()] {
		t.Error("a reversed sequence ends in the same state")
	}
}

// The second direction is the first one on the reversed sequence.
func TestTheSecondDirectionReadsFromTheEnd(t *testing.T) {
	one, two := kernel.GRU{In: 3, Hidden: 4}, kernel.GRU{In: 3, Hidden: 4, Bidirectional: true}
	const time, batch = 5, 2
	theta, x := nntest.Normal(1, two.Params(), 0.7), nntest.Normal(2, time*batch*3, 1)
	y := make([]float64, time*batch*8)
	kernel.NewGRUTape[float64](two, time, batch).Forward(theta, x, y)
	mirrored := make([]float64, len(x))
	for i := range time {
		copy(mirrored[i*batch*3:][:batch*3], x[(time-1-i)*batch*3:])
	}
	z := make([]float64, time*batch*4)
	kernel.NewGRUTape[float64](one, time, batch).Forward(theta[one.Params():], mirrored, z)
	for i := range time {
		for b := range batch {
			for j := range 4 {
				if got, want := y[(i*batch+b)*8+4+j], z[((time-1-i)*batch+b)*4+j]; math.Abs(got-want) > 1e-14 {
					t.Fatalf("time %d: %v, the first direction on the mirrored sequence %v", i, got, want)
				}
			}
		}
	}
}

// A hand-computed step of one unit: the published equations, with nothing of
// ours.
func TestOneGRUStepByHand(t *testing.T) {
	g := kernel.GRU{In: 1, Hidden: 1}
	// Wx r z n, Wh r z n, bx, bh
	theta := []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06}
	y := make([]float64, 2)
	kernel.NewGRUTape[float64](g, 2, 1).Forward(theta, []float64{1, -1}, y)
	s := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	h := 0.0
	for i, x := range []float64{1, -1} {
		r := s(0.1*x + 0.01 + 0.4*h + 0.04)
		z := s(0.2*x + 0.02 + 0.5*h + 0.05)
		n := math.Tanh(0.3*x + 0.03 + r*(0.6*h+0.06))
		h = (1-z)*n + z*h
		if math.Abs(y[i]-h) > 1e-15 {
			t.Fatalf("step %d: %v, by hand %v", i, y[i], h)
		}
	}
}

// Sequences of different lengths in one batch: each is read as if it were alone, whatever stands beyond its end, and its
// gradient is that of the sequence alone.
func TestWhatIsBeyondASequencesEndIsNotRead(t *testing.T) {
	g := kernel.GRU{In: 3, Hidden: 4, Bidirectional: true}
	const time, batch = 6, 3
	lengths := []int{6, 2, 0}
	theta, x := nntest.Normal(1, g.Params(), 0.7), nntest.Normal(2, time*batch*g.In, 1)
	weights := nntest.Normal(3, time*batch*g.Out(), 1)
	run := func(padding float64) (y, dtheta, dx []float64) {
		x := slices.Clone(x)
		for s := range time {
			for b, n := range lengths {
				if s >= n {
					x[(s*batch+b)*g.In] += padding
				}
			}
		}
		y, dtheta, dx = make([]float64, len(weights)), make([]float64, len(theta)), make([]float64, len(x))
		tape := kernel.NewGRUTape[float64](g, time, batch)
		tape.Lengths = lengths
		tape.Forward(theta, x, y)
		tape.Backward(theta, x, weights, dtheta, dx)
		return y, dtheta, dx
	}
	y, dtheta, dx := run(0)
	other, dother, _ := run(1e6)
	if !slices.Equal(y, other) || !slices.Equal(dtheta, dother) {
		t.Error("the padding is read")
	}
	sum := make([]float64, len(theta))
	for b, n := range lengths {
		alone, w := make([]float64, n*g.In), make([]float64, n*g.Out())
		for s := range n {
			copy(alone[s*g.In:][:g.In], x[(s*batch+b)*g.In:])
			copy(w[s*g.Out():][:g.Out()], weights[(s*batch+b)*g.Out():])
		}
		out, d, din := make([]float64, len(w)), make([]float64, len(theta)), make([]float64, len(alone))
		tape := kernel.NewGRUTape[float64](g, n, 1)
		tape.Forward(theta, alone, out)
		tape.Backward(theta, alone, w, d, din)
		for i, v := range d {
			sum[i] += v
		}
		for s := range time {
			for j := range g.Out() {
				want := 0.0
				if s < n {
					want = out[s*g.Out()+j]
				}
				if got := y[(s*batch+b)*g.Out()+j]; math.Abs(got-want) > 1e-14 {
					t.Fatalf("sequence %d of %d steps, step %d: %v, alone %v", b, n, s, got, want)
				}
			}
			for j := range g.In {
				want := 0.0
				if s < n {
					want = din[s*g.In+j]
				}
				if got := dx[(s*batch+b)*g.In+j]; math.Abs(got-want) > 1e-14 {
					t.Fatalf("sequence %d of %d steps, gradient of step %d: %v, alone %v", b, n, s, got, want)
				}
			}
		}
	}
	for i, want := range sum {
		if math.Abs(dtheta[i]-want) > 1e-12 {
			t.Fatalf("gradient of parameter %d: %v, of the sequences alone %v", i, dtheta[i], want)
		}
	}
}

// The mean of a bundle by hand: first over the steps of each sequence, then over the sequences that there are.
func TestTheMeanOfABundleCountsEachSequenceOnce(t *testing.T) {
	lengths := []int{2, 1, 0, 0} // two bundles of two; the second has none
	x := []float64{1, 10, 99, 99, 3, 99, 99, 99}
	got := make([]float64, 2)
	kernel.MeanOfBundles(x, 1, 2, lengths, got)
	if want := []float64{(2.0 + 10) / 2, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	dx := make([]float64, len(x))
	kernel.MeanOfBundlesBack([]float64{4, 7}, 1, 2, lengths, dx)
	if want := []float64{1, 2, 0, 0, 1, 0, 0, 0}; !slices.Equal(dx, want) {
		t.Errorf("gradient %v, want %v", dx, want)
	}
}

// Acting step by step is the pass over the whole sequence.
func TestSingleStepsAgreeWithTheSequence(t *testing.T) {
	g := kernel.GRU{In: 3, Hidden: 5}
	const time, batch = 7, 2
	theta, x := nntest.Normal(1, g.Params(), 0.7), nntest.Normal(2, time*batch*3, 1)
	y := make([]float64, time*batch*5)
	kernel.NewGRUTape[float64](g, time, batch).Forward(theta, x, y)
	h, gates := make([]float64, batch*5), make([]float64, 6*batch*5)
	for i := range time {
		kernel.GRUStep(g, theta, x[i*batch*3:], h, batch, gates)
		for j, v := range h {
			if math.Abs(v-y[i*batch*5+j]) > 1e-14 {
				t.Fatalf("step %d: %v, in the sequence %v", i, v, y[i*batch*5+j])
			}
		}
	}
}

// Float32 does the same within its own precision: nothing is computed in the
// wrong type.
func TestFloat32AgreesWithFloat64(t *testing.T) {
	m := kernel.NewMLP(kernel.Tanh, kernel.Linear, 8, 64, 64, 5)
	theta, x := nntest.Normal(1, m.Params(), 0.2), nntest.Normal(2, 16*8, 1)
	want := kernel.NewTape[float64](m, 16).Forward(theta, x, 16)
	got := kernel.NewTape[float32](m, 16).Forward(narrow(theta), narrow(x), 16)
	for i := range want {
		if math.Abs(float64(got[i])-want[i]) > 1e-5 {
			t.Fatalf("output %d: %v and %v", i, got[i], want[i])
		}
	}
}

func narrow(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

func TestPassesDoNotAllocate(t *testing.T) {
	m := kernel.NewMLP(kernel.ReLU, kernel.Tanh, 8, 40, 40, 5)
	theta := nntest.Normal(1, m.Params(), 0.2)
	x := nntest.Normal(2, 64*8, 1)
	dtheta := make([]float64, m.Params())
	tape := kernel.NewTape[float64](m, 64)
	if n := testing.AllocsPerRun(50, func() {
		tape.Forward(theta, x, 64)
		tape.Backward(theta, dtheta, nil)
		tape.Forward(theta, x, 1)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
