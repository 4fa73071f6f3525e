// Package nntest compares gradients with central differences, and saved learners
// byte by byte.
package nntest

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Tolerance is the largest error of a gradient's value, as a share of the
// largest of the gradient's root mean square and the value itself.
const Tolerance = 1e-4

// Gradient fails the test unless grad is the gradient of f with respect to x,
// which f reads. It compares a number of the values, drawn by a fixed seed, or
// all of them when there are no more.
func Gradient(t testing.TB, what string, f func() float64, x, grad []float64, values int) {
	t.Helper()
	if len(x) != len(grad) {
		t.Fatalf("%s: %d values and %d gradients", what, len(x), len(grad))
	}
	scale := 0.0
	for _, g := range grad {
		scale += g * g
	}
	scale = math.Sqrt(scale / float64(len(grad)))
	if scale == 0 {
		t.Fatalf("%s: all gradients are zero: there is nothing to compare", what)
	}
	order := rand.New(rand.NewPCG(17, 4)).Perm(len(x))
	for _, i := range order[:min(values, len(x))] {
		was := x[i]
		best, found := math.Inf(1), 0.0
		for _, h := range []float64{1e-5, 1e-4, 1e-6} { // rounding and curvature pull in different directions
			h *= max(1, math.Abs(was))
			x[i] = was + h
			up := f()
			x[i] = was - h
			down := f()
			x[i] = was
			d := (up - down) / (2 * h)
			if off := math.Abs(d-grad[i]) / max(scale, math.Abs(grad[i])); off < best || math.IsNaN(off) {
				best, found = off, d
			}
			if best <= Tolerance/10 {
				break
			}
		}
		if !(best <= Tolerance) {
			t.Fatalf("%s: gradient %d is %g, by central differences %g (off by %.2g of %.3g)", what, i,
				grad[i], found, best, scale)
		}
	}
}

// Normal is n normally distributed numbers times scale, by seed.
func Normal(seed uint64, n int, scale float64) []float64 {
	r := rand.New(rand.NewPCG(seed, 99))
	x := make([]float64, n)
	for i := range x {
		x[i] = scale * r.NormFloat64()
	}
	return x
}

// Dot is the sum of products: with random weights it makes a loss of any
// output, whose gradient is the weights.
func Dot(a, b []float64) float64 {
	s := 0.0
	for i, v := range a {
		s += v * b[i]
	}
	return s
}
