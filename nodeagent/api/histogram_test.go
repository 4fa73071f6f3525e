package api_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/nodeagent/api"
)

var buckets = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, math.Inf(1)}

func filled(latencies ...float64) api.Histogram {
	h := api.Histogram{Upper: buckets, Counts: make([]uint64, len(buckets))}
	for _, l := range latencies {
		for i, upper := range buckets {
			if l <= upper {
				h.Counts[i]++
			}
		}
	}
	return h
}

// some are up to 300 latencies.
func some(rng *rand.Rand) []float64 {
	latencies := make([]float64, 1+rng.IntN(300))
	for i := range latencies {
		latencies[i] = rng.ExpFloat64() * 0.05
	}
	return latencies
}

// The dumb twin: sort all latencies and take the one at the rank. The histogram
// must name its bucket.
func TestQuantileIsInTheBucketOfTheSortedValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		latencies := some(rng)
		h := filled(latencies...)
		slices.Sort(latencies)
		for _, p := range []float64{50, 90, 99} {
			rank := int(math.Ceil(p / 100 * float64(len(latencies))))
			twin := latencies[max(0, rank-1)]
			got, ok := h.Quantile(p)
			i := slices.IndexFunc(buckets, func(upper float64) bool { return twin <= upper })
			low, high := 0.0, buckets[i]
			if i > 0 {
				low = buckets[i-1]
			}
			if l := got.Latency.Seconds(); !ok || l < low-1e-9 || l > high+1e-9 || math.Abs(got.Lower.Seconds()-low) > 1e-9 ||
				!math.IsInf(high, 1) && math.Abs(got.Upper.Seconds()-high) > 1e-9 {
				t.Fatalf("p%v of %d latencies = %v, want in (%v, %v] s", p, len(latencies), got, low, high)
			}
		}
	}
}

func TestSinceIsTheNewRequests(t *testing.T) {
	early, late := filled(0.01, 0.04), filled(0.01, 0.04, 0.3, 0.3)
	d, ok := late.Since(early)
	if q, _ := d.Quantile(50); !ok || d.Total() != 2 || q.Latency < 200*time.Millisecond {
		t.Errorf("since: %d requests, median %v; want the two slow ones", d.Total(), q.Latency)
	}
	if d, ok = early.Since(late); !ok || d.Total() != 2 {
		t.Errorf("a process that restarted: %d requests, want all of its 2", d.Total())
	}
	if _, ok := (api.Histogram{}).Quantile(99); ok {
		t.Error("a quantile was made up from nothing")
	}
	if _, err := early.Plus(api.Histogram{Upper: []float64{1, math.Inf(1)}, Counts: []uint64{1, 1}}); err == nil {
		t.Error("histograms of different buckets were added")
	}
}

// The dumb twin: count the latencies above the threshold. The share is exact at a bound, and otherwise within
// what the bounds around it say.
func TestAboveIsTheShareOfSlowRequests(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		latencies := some(rng)
		h := filled(latencies...)
		slower := func(than float64) float64 {
			n := 0
			for _, l := range latencies {
				if l > than {
					n++
				}
			}
			return float64(n) / float64(len(latencies))
		}
		for i, bound := range buckets[:len(buckets)-1] {
			if got, ok := h.Above(time.Duration(bound * float64(time.Second))); !ok || math.Abs(got-slower(bound)) > 1e-9 {
				t.Fatalf("above %v s: %v %v, want %v", bound, got, ok, slower(bound))
			}
			if i == 0 {
				continue
			}
			within := buckets[i-1] + rng.Float64()*(bound-buckets[i-1])
			got, ok := h.Above(time.Duration(within * float64(time.Second)))
			if !ok || got < slower(bound)-1e-9 || got > slower(buckets[i-1])+1e-9 {
				t.Fatalf("above %v s: %v %v, want %v to %v", within, got, ok, slower(bound), slower(buckets[i-1]))
			}
		}
	}
}

// What the bounds do not say is not known, and not zero.
func TestAboveIsNotKnownWhereTheBoundsDoNotSayIt(t *testing.T) {
	for name, c := range map[string]struct {
		h         api.Histogram
		threshold time.Duration
		want      float64
		known     bool
	}{
		"no requests":                {api.Histogram{}, time.Second, 0, false},
		"empty buckets":              {filled(), time.Second, 0, false},
		"below the first bound":      {filled(0.001, 0.3), 5 * time.Millisecond, 0, false},
		"none below the first bound": {filled(0.3, 0.3), 5 * time.Millisecond, 1, true},
		"above the last bound":       {filled(0.001, 3), time.Second, 0, false},
		"none above the last bound":  {filled(0.001, 0.3), time.Second, 0, true},
		"only the bucket +Inf": {
			api.Histogram{Upper: []float64{math.Inf(1)}, Counts: []uint64{3}}, time.Second, 0, false,
		},
		"a quarter of the way in its bucket": {filled(0.3, 0.3, 0.001, 0.001), 275 * time.Millisecond, 0.375, true},
	} {
		if got, ok := c.h.Above(c.threshold); ok != c.known || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v %v, want %v %v", name, got, ok, c.want, c.known)
		}
	}
}
