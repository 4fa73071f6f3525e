package load

import (
	"math"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/test/apps/trace"
)

func steps(rates ...float64) trace.Trace { return trace.Trace{Step: time.Second, Rates: rates} }

func TestUniformArrivalsAreEvenlySpaced(t *testing.T) {
	got := Schedule(steps(2, 0, 4), Uniform, 0)
	ms := time.Millisecond
	want := []time.Duration{250 * ms, 750 * ms, 2125 * ms, 2375 * ms, 2625 * ms, 2875 * ms}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestARateBelowOnePerSecondAddsUp(t *testing.T) {
	got := Schedule(steps(slices.Repeat([]float64{0.25}, 8)...), Uniform, 0)
	if want := []time.Duration{2 * time.Second, 6 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Invariants for any trace, seed and kind of arrivals.
func TestArrivalsFollowTheRate(t *testing.T) {
	for name, tr := range map[string]trace.Trace{
		"constant":        steps(slices.Repeat([]float64{100}, 100)...),
		"with gaps":       steps(slices.Repeat([]float64{400, 0, 0, 50}, 25)...),
		"short steps":     {Step: 10 * time.Millisecond, Rates: slices.Repeat([]float64{1000, 3000}, 200)},
		"steps of no fit": {Step: 1234567 * time.Microsecond, Rates: []float64{300, 700, 0, 100}},
		"nothing at all":  steps(0, 0, 0),
	} {
		for _, how := range []Arrivals{Poisson, Uniform} {
			for seed := range uint64(5) {
				t.Run(name+", "+string(how), func(t *testing.T) {
					arrivals := Schedule(tr, how, seed)
					if !slices.IsSorted(arrivals) {
						t.Error("not in order")
					}
					counts := make([]float64, len(tr.Rates))
					for _, at := range arrivals {
						if tr.At(at) == 0 {
							t.Errorf("a request at %v, where the rate is 0", at)
						}
						counts[at/tr.Step]++
					}
					total := 0.0
					for i, n := range counts {
						total += n
						near(t, how, n, tr.Rates[i]*tr.Step.Seconds())
					}
					near(t, how, total, tr.Requests())
				})
			}
		}
	}
}

// near allows one request off for uniform arrivals, and six standard
// deviations for Poisson's, which is one failure in 10^8 or so; the seeds are
// fixed anyway.
func near(t *testing.T, how Arrivals, got, want float64) {
	t.Helper()
	off := 1.0
	if how == Poisson {
		off = 6*math.Sqrt(want) + 1
	}
	if math.Abs(got-want) > off {
		t.Errorf("%v requests, want %v ± %.1f", got, want, off)
	}
}

func TestPoissonGapsAreExponential(t *testing.T) {
	arrivals := Schedule(steps(slices.Repeat([]float64{1000}, 20)...), Poisson, 3)
	// Of exponential gaps, 1-1/e = 63.2 % are below the mean, and they vary as
	// much as their mean.
	below, squares := 0.0, 0.0
	for i := 1; i < len(arrivals); i++ {
		gap := (arrivals[i] - arrivals[i-1]).Seconds() * 1000
		if gap < 1 {
			below++
		}
		squares += (gap - 1) * (gap - 1)
	}
	n := float64(len(arrivals) - 1)
	if share := below / n; math.Abs(share-0.632) > 0.02 {
		t.Errorf("%.3f of the gaps are below the mean, want 0.632", share)
	}
	if variance := squares / n; math.Abs(variance-1) > 0.1 {
		t.Errorf("variance %.3f of the squared mean, want 1", variance)
	}
}

func TestTheSeedDecidesTheSchedule(t *testing.T) {
	tr := steps(50, 150, 20)
	if !slices.Equal(Schedule(tr, Poisson, 1), Schedule(tr, Poisson, 1)) {
		t.Error("the same seed gave two schedules")
	}
	if slices.Equal(Schedule(tr, Poisson, 1), Schedule(tr, Poisson, 2)) {
		t.Error("two seeds gave the same schedule")
	}
	if !slices.Equal(Schedule(tr, Uniform, 1), Schedule(tr, Uniform, 2)) {
		t.Error("uniform arrivals depend on the seed")
	}
}
