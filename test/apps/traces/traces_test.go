package traces

import (
	"math"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/test/apps/trace"
)

func TestTracesAreWhatTheREADMESays(t *testing.T) {
	for name, c := range map[string]struct {
		trace  trace.Trace
		length time.Duration
		bursts int
	}{
		"bursty-3min.txt": {Bursty3Min(), 180 * time.Second, 2},
		"bursty-20s.txt":  {Bursty20s(), 20 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if c.trace.Duration() != c.length {
				t.Errorf("%v long, want %v", c.trace.Duration(), c.length)
			}
			if mean := c.trace.Mean(); math.Abs(mean-1) > 0.001 {
				t.Errorf("mean %v, want 1", mean)
			}
			if got := bursts(c.trace.Rates); got != c.bursts {
				t.Errorf("%d bursts, want %d", got, c.bursts)
			}
		})
	}
}

// bursts counts the times the rate rises over twice its median.
func bursts(rates []float64) int {
	sorted := slices.Sorted(slices.Values(rates))
	high := 2 * sorted[len(sorted)/2]
	n := 0
	for i, rate := range rates {
		if rate > high && (i == 0 || rates[i-1] <= high) {
			n++
		}
	}
	return n
}
