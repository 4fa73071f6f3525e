package main

import (
	"math"
	"testing"
	"time"
)

// Twice what the peak asks for is enough in the simulated world, and half of the mean is not. What AWARE's rules hold in
// force is between what is used and the ceiling.
func TestTheSimulatedWorldPredictsASlice(t *testing.T) {
	shape, err := options{}.shape()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fitted(4*time.Millisecond, options{peak: 0.9})
	if err != nil {
		t.Fatal(err)
	}
	load, err := shape.Scale(0.5, f.RPS)
	if err != nil {
		t.Fatal(err)
	}
	if got := perSecond(load); len(got.Rates) != 90 || math.Abs(got.Mean()-load.Mean()) > 0.05*load.Mean() {
		t.Errorf("%d seconds of %.1f requests in the mean, want 90 of %.1f", len(got.Rates), got.Mean(), load.Mean())
	}
	for _, c := range []struct {
		run         string
		milli       int
		least, most float64 // cores
		late        bool
	}{
		{static, 900, 1.8, 1.8, false},
		{atMean, 100, 0.2, 0.2, true},
		{cpuFast, peakMilli, 0.3, 1.8, false},
		{aware, peakMilli, 0.2, 1.8, false},
		{demand, peakMilli, 0.2, 1.8, false},
	} {
		got, err := predict(t.Context(), slice{run: c.run, seed: 1}, f, load, c.milli)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.3f cores, %.2f %% late", c.run, got.MeanCoresAllocated, 100*got.SLOViolationRatio)
		cores, late := got.MeanCoresAllocated, got.SLOViolationRatio > 0.2
		if cores < c.least-1e-6 || cores > c.most+1e-6 || late != c.late {
			t.Errorf("%s: %+v, want %g to %g cores, and late %v", c.run, *got, c.least, c.most, c.late)
		}
	}
	for _, s := range []slice{{run: hpaVPA, seed: 1}, {run: aware, seed: 1, neighbour: true}} {
		if got, err := predict(t.Context(), s, f, load, peakMilli); got != nil || err != nil {
			t.Errorf("%s: %+v, %v; that is not simulated", s.name(), got, err)
		}
	}
}
