package nn_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/nntest"
	"gonum.org/v1/gonum/stat"
)

// Three steps of the published algorithm, computed by hand for gradients 1, -2,
// 0.5 and rate 0.1.
func TestAdamByHand(t *testing.T) {
	a := nn.NewAdam(1, 0.1, 1e-8)
	theta := []float64{1}
	m := 0.0
	v := 0.0
	want := 1.0
	for i, g := range []float64{1, -2, 0.5} {
		m = 0.9*m + 0.1*g
		v = 0.999*v + 0.001*g*g
		mHat, vHat := m/(1-math.Pow(0.9, float64(i+1))), v/(1-math.Pow(0.999, float64(i+1)))
		want -= 0.1 * mHat / (math.Sqrt(vHat) + 1e-8)
		a.Update(theta, []float64{g})
		if math.Abs(theta[0]-want) > 1e-15 {
			t.Fatalf("step %d: %v, by hand %v", i+1, theta[0], want)
		}
	}
	if math.Abs(theta[0]-0.9) < 0.1 && theta[0] > 1 { // the first step alone is one rate long
		t.Error(theta)
	}
}

func TestAdamRefusesOtherLengths(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("two gradients for three parameters were taken")
		}
	}()
	nn.NewAdam(3, 0.1, 1e-8).Update(make([]float64, 3), make([]float64, 2))
}

func TestGradientsAreClippedTogether(t *testing.T) {
	a, b := []float64{3, 0}, []float64{0, 4}
	if norm := nn.Clip(0.5, a, b); norm != 5 {
		t.Errorf("norm %v", norm)
	}
	if got := math.Hypot(a[0], b[1]); math.Abs(got-0.5) > 1e-6 || math.Abs(a[0]/b[1]-0.75) > 1e-12 {
		t.Errorf("%v %v", a, b)
	}
	c := []float64{0.3}
	if nn.Clip(0.5, c); c[0] != 0.3 {
		t.Errorf("a short gradient became %v", c)
	}
}

// FIRM's released code never copied the online network: a target is initialised
// as an exact copy.
func TestSoftUpdate(t *testing.T) {
	online, target := []float64{1, 2}, []float64{0, 0}
	nn.SoftUpdate(target, online, 1)
	if target[0] != 1 || target[1] != 2 {
		t.Fatalf("a copy is %v", target)
	}
	online[0] = 3
	nn.SoftUpdate(target, online, 0.25)
	if target[0] != 1.5 || target[1] != 2 {
		t.Errorf("a quarter of the way is %v", target)
	}
}

func TestNumbersThatAreNotFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if nn.Finite([]float64{1, bad, 2}) {
			t.Errorf("%v is finite", bad)
		}
	}
	if !nn.Finite([]float64{1, -1e300}) || !nn.Finite(nil) {
		t.Error("numbers are not finite")
	}
}

func TestOrthogonalLayers(t *testing.T) {
	for _, d := range []kernel.Dense{{
		In:  8,
		Out: 64,
	}, {In: 64, Out: 64}, {In: 64, Out: 3}, {In: 256, Out: 256}, {In: 1, Out: 1}} {
		theta := nntest.Normal(9, d.Params(), 1)
		nn.Orthogonal(d, theta, math.Sqrt2, rand.New(rand.NewPCG(1, 2)))
		short := min(d.In, d.Out)
		at := func(i, j int) float64 { // the j-th value of the i-th of the orthogonal vectors
			if d.Out <= d.In {
				return theta[i*d.In+j]
			}
			return theta[j*d.In+i]
		}
		for i := range short {
			for k := range short {
				dot, want := 0.0, 0.0
				for j := range max(d.In, d.Out) {
					dot += at(i, j) * at(k, j)
				}
				if i == k {
					want = 2
				}
				if math.Abs(dot-want) > 1e-12 {
					t.Fatalf("%v: vectors %d and %d have product %v", d, i, k, dot)
				}
			}
		}
		for _, b := range theta[d.In*d.Out:] {
			if b != 0 {
				t.Fatalf("%v: bias %v", d, b)
			}
		}
	}
}

func TestUniformLayersStayWithinTheirBound(t *testing.T) {
	m := kernel.NewMLP(kernel.ReLU, kernel.Tanh, 16, 100, 2)
	theta := make([]float64, m.Params())
	nn.UniformMLP(m, theta, 3e-3, rand.New(rand.NewPCG(1, 2)))
	first, last := theta[:m[0].Params()], theta[m[0].Params():]
	most := func(x []float64) (v float64) {
		for _, w := range x {
			v = max(v, math.Abs(w))
		}
		return v
	}
	if a, b := most(first), most(last); a > 0.25 || a < 0.24 || b > 3e-3 || b < 2.8e-3 {
		t.Errorf("largest are %v of 0.25 and %v of 0.003", a, b)
	}
}

func TestANormaliserHasMeanAndDeviation(t *testing.T) {
	n := nn.NewNormaliser(1)
	x := nntest.Normal(5, 1000, 3)
	for i := range x {
		x[i] += 100
		n.Observe(x[i : i+1])
	}
	mean, variance := stat.PopMeanVariance(x, nil)
	if math.Abs(n.Mean[0]-mean) > 1e-9 || math.Abs(n.Deviation(0)-math.Sqrt(variance)) > 1e-6 {
		t.Errorf("mean %v of %v, deviation %v of %v", n.Mean[0], mean, n.Deviation(0), math.Sqrt(variance))
	}
	n.Frozen = true
	n.Observe([]float64{1e9})
	to := make([]float64, 1)
	if n.Normalise(to, []float64{mean}); math.Abs(to[0]) > 1e-9 {
		t.Errorf("evaluation changed it: the mean became %v", to[0])
	}
	if n.Normalise(to, []float64{1e9}); to[0] != 10 {
		t.Errorf("not cut: %v", to[0])
	}
}

func TestANormaliserWithoutDataChangesNothing(t *testing.T) {
	to := make([]float64, 1)
	nn.NewNormaliser(1).Normalise(to, []float64{3})
	if to[0] != 3 {
		t.Error(to)
	}
}
