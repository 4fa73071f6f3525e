package calibrate

import (
	"math"
	"slices"
	"testing"
)

// These tests hold the facts about the records that docs/validation.md states.

func shippedWindows(t *testing.T) map[string][]Window {
	t.Helper()
	in, err := load(Shipped())
	if err != nil {
		t.Fatal(err)
	}
	return choose(in.windows.Rows, len(in.windows.Rows))
}

func TestOneOfThePoliciesNeverChangesItsAllocation(t *testing.T) {
	if a := audit(shippedWindows(t)["propfair"]); a.Windows != 1408 || a.Commonest != 1401 {
		t.Errorf("%d of %d windows have one allocation", a.Commonest, a.Windows)
	}
}

func TestLearningPoliciesHaveP99sThatWrk2DoesNotPrint(t *testing.T) {
	share := func(policy string) float64 {
		a := audit(shippedWindows(t)[policy])
		return float64(a.Printed) / float64(a.Windows)
	}
	if p := share("propfair"); p < 0.99 {
		t.Errorf("propfair: %.3f are as wrk2 prints them", p)
	}
	for _, policy := range []string{"ucbopt", "msevoopt"} {
		if p := share(policy); math.Abs(p-0.1) > 0.025 { // a tenth by chance
			t.Errorf("%s: %.3f are as wrk2 prints them", policy, p)
		}
	}
}

func TestUnsaturatedP99sAreUniformAndGoWithNothing(t *testing.T) {
	all := shippedWindows(t)
	var band []Window
	low, lowCalm := 0, 0
	for _, w := range slices.Concat(all["ucbopt"], all["msevoopt"]) {
		if w.P99 <= 120 && w.Mean <= 70 {
			band = append(band, w)
		}
		if w.Load < 0.6*89325 {
			low++
			if w.P99 < 120 {
				lowCalm++
			}
		}
	}
	if len(band) != 1639 {
		t.Errorf("%d windows in the band", len(band))
	}
	p99 := column(band, func(w Window) float64 { return w.P99 })
	slices.Sort(p99)
	distance := 0.0 // Kolmogorov-Smirnov
	for i, v := range p99 {
		u := (v - 100) / 20
		distance = max(distance, u-float64(i)/float64(len(p99)), float64(i+1)/float64(len(p99))-u)
	}
	if bound := 1.358 / math.Sqrt(float64(len(p99))); distance > bound {
		t.Errorf("distance %.3f from a uniform distribution, above %.3f", distance, bound)
	}
	for name, other := range map[string]func(Window) float64{
		"mean":      func(w Window) float64 { return w.Mean },
		"deviation": func(w Window) float64 { return w.Deviation },
		"completed": Window.Rate,
	} {
		var points []Point
		for _, w := range band {
			points = append(points, Point{"", w.P99, other(w)})
		}
		if r := or(spearman(points)); math.Abs(r) > 0.05 {
			t.Errorf("p99 and %s: %.3f", name, r)
		}
	}
	if low != 107 || lowCalm != 68 {
		t.Errorf("%d of %d windows that completed little have a low p99", lowCalm, low)
	}
}

func TestManyRecordsContradictThemselves(t *testing.T) {
	for policy, want := range map[string]int{"propfair": 0, "ucbopt": 746, "msevoopt": 539} {
		if got := audit(shippedWindows(t)[policy]).Impossible; got != want {
			t.Errorf("%s: %d windows, want %d", policy, got, want)
		}
	}
}

// The reported latencies are of the seconds 10 to 30, so that the mean is 20 s
// times the share that was not completed.
func TestUnchangedRecordsFollowTheClientsLaw(t *testing.T) {
	var off []float64
	for _, w := range shippedWindows(t)["propfair"][12:] { // the first ones warm up
		off = append(off, math.Abs(w.Mean/(20_000*(1-w.Load/89325))-1))
	}
	if m := median(off); m > 0.08 {
		t.Errorf("median difference %.3f", m)
	}
}
