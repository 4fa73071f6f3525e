package api

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Histogram is a cumulative latency histogram as Prometheus keeps it: Counts[i]
// requests took at most Upper[i] seconds, since the process started. The last
// bucket is +Inf. The zero Histogram is unknown.
type Histogram struct {
	Upper  []float64 // seconds, ascending
	Counts []uint64  // ascending
}

// Known reports whether there is a histogram.
func (h Histogram) Known() bool { return len(h.Upper) > 0 }

// Total is the number of requests.
func (h Histogram) Total() uint64 {
	if !h.Known() {
		return 0
	}
	return h.Counts[len(h.Counts)-1]
}

// Since is the requests after an earlier reading of the same process. A process that
// restarted has fewer counts than before; then all its requests are new. ok is false
// when the two have different buckets.
func (h Histogram) Since(before Histogram) (d Histogram, ok bool) {
	if !before.Known() || h.Total() < before.Total() {
		return h, h.Known()
	}
	if !slices.Equal(h.Upper, before.Upper) {
		return Histogram{}, false
	}
	d = Histogram{Upper: h.Upper, Counts: make([]uint64, len(h.Counts))}
	for i := range h.Counts {
		if h.Counts[i] < before.Counts[i] {
			return h, true
		}
		d.Counts[i] = h.Counts[i] - before.Counts[i]
	}
	return d, true
}

// Plus is the sum of two histograms with the same buckets, such as those of two
// replicas.
func (h Histogram) Plus(other Histogram) (Histogram, error) {
	switch {
	case !h.Known():
		return other, nil
	case !other.Known():
		return h, nil
	case !slices.Equal(h.Upper, other.Upper):
		return Histogram{}, fmt.Errorf("histograms of different buckets: %d of them up to %v s, %d up to %v s",
			len(h.Upper), h.Upper[len(h.Upper)-1], len(other.Upper), other.Upper[len(other.Upper)-1])
	}
	sum := Histogram{Upper: h.Upper, Counts: slices.Clone(h.Counts)}
	for i, n := range other.Counts {
		sum.Counts[i] += n
	}
	return sum, nil
}

// Quantile is the latency that the given percentile of requests did not exceed. It is
// linear within a bucket. In the last bucket, which has no end, it is the lower end. ok
// is false when there were no requests.
func (h Histogram) Quantile(percentile float64) (latency time.Duration, ok bool) {
	total := h.Total()
	if total == 0 {
		return 0, false
	}
	rank := percentile / 100 * float64(total)
	i := slices.IndexFunc(h.Counts, func(n uint64) bool { return float64(n) >= rank })
	lower := 0.0
	below := uint64(0)
	if i > 0 {
		lower = h.Upper[i-1]
		below = h.Counts[i-1]
	}
	if math.IsInf(h.Upper[i], 1) {
		return seconds(lower), true
	}
	within := (rank - float64(below)) / float64(h.Counts[i]-below)
	return seconds(lower + (h.Upper[i]-lower)*within), true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
