package load

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// exact is a simple second implementation of digest: it keeps all latencies.
type exact []time.Duration

func (e exact) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(e))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func someLatencies(r *rand.Rand, n int) exact {
	e := make(exact, n)
	for i := range e {
		e[i] = time.Duration(math.Exp(3+1.2*r.NormFloat64()) * float64(time.Millisecond))
	}
	return e
}

func TestDigestAgreesWithKeepingEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	latencies := someLatencies(r, 10_000)
	d := newDigest(time.Minute, 100*time.Millisecond)
	over, sum := 0, time.Duration(0)
	for _, l := range latencies {
		d.add(l)
		sum += l
		if l > 100*time.Millisecond {
			over++
		}
	}
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		got, want := d.quantile(q), latencies.quantile(q)
		if off := math.Abs(float64(got-want)) / float64(want); off > 0.002 {
			t.Errorf("quantile %v is %v, want %v within 0.2 %%", q, got, want)
		}
	}
	if d.highest != slices.Max(latencies) || d.count != 10_000 || d.mean() != sum/10_000 ||
		d.shareOver() != float64(over)/10_000 {
		t.Errorf("max %v, count %d, mean %v, share over %v", d.highest, d.count, d.mean(), d.shareOver())
	}
}

func TestMergingDigestsIsAddingAllToOne(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	all := newDigest(time.Second, 50*time.Millisecond)
	merged := newDigest(time.Second, 50*time.Millisecond)
	for range 10 {
		part := newDigest(time.Second, 50*time.Millisecond)
		for _, l := range someLatencies(r, 300) {
			all.add(l)
			part.add(l)
		}
		merged.merge(part)
	}
	if !all.histogram.Equals(merged.histogram) {
		t.Error("histograms differ")
	}
	if all.count != merged.count || all.over != merged.over || all.sum != merged.sum ||
		all.highest != merged.highest {
		t.Errorf("merged %+v, want %+v", merged, all)
	}
}

func TestEdgesOfADigest(t *testing.T) {
	d := newDigest(time.Second, 100*time.Millisecond)
	if d.quantile(0.99) != 0 || d.mean() != 0 || d.highest != 0 || d.shareOver() != 0 {
		t.Error("an empty digest has latencies")
	}
	d.add(-time.Millisecond)      // a clock may step back
	d.add(100 * time.Millisecond) // exactly the SLO is within it
	d.add(time.Hour)              // beyond the longest
	if d.count != 3 || d.highest != time.Second || d.over != 1 || d.quantile(1) != time.Second ||
		d.quantile(0.01) != 0 {
		t.Errorf("%+v, quantiles 1 and 0.01: %v, %v", d, d.quantile(1), d.quantile(0.01))
	}
	tiny := newDigest(2*time.Microsecond, time.Microsecond)
	tiny.add(time.Minute)
	if tiny.highest != 2*time.Microsecond || tiny.histogram.TotalCount() != 1 {
		t.Errorf("%+v", tiny)
	}
}
