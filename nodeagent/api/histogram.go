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
	At     time.Time // when it was read; zero is not known
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
	d = Histogram{Upper: h.Upper, Counts: make([]uint64, len(h.Counts)), At: h.At}
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
	sum := Histogram{Upper: h.Upper, Counts: slices.Clone(h.Counts), At: h.At}
	for i, n := range other.Counts {
		sum.Counts[i] += n
	}
	return sum, nil
}

// Quantile is the latency that the given percentile of requests did not exceed. It is
// linear within a bucket, between its bounds. In the last bucket, which has no end, it
// is the lower bound. In the first one it is the upper bound: where between 0 and that
// bound the requests are is not known, and most are far below it. ok is false when
// there were no requests, or there is no bound at all.
func (h Histogram) Quantile(percentile float64) (q Quantile, ok bool) {
	total := h.Total()
	if total == 0 {
		return Quantile{}, false
	}
	rank := percentile / 100 * float64(total)
	i := slices.IndexFunc(h.Counts, func(n uint64) bool { return float64(n) >= rank })
	if math.IsInf(h.Upper[i], 1) {
		if i == 0 {
			return Quantile{}, false
		}
		q.Lower = seconds(h.Upper[i-1])
		return Quantile{Latency: q.Lower, Lower: q.Lower, Upper: math.MaxInt64}, true
	}
	q.Upper = seconds(h.Upper[i])
	if i == 0 {
		q.Latency = q.Upper
		return q, true
	}
	below := h.Counts[i-1]
	within := (rank - float64(below)) / float64(h.Counts[i]-below)
	q.Lower = seconds(h.Upper[i-1])
	q.Latency = seconds(h.Upper[i-1] + (h.Upper[i]-h.Upper[i-1])*within)
	return q, true
}

// Above is the share of the requests that took longer than a threshold. It is linear within a bucket, between its
// bounds. ok is false where the bounds do not say it: when there were no requests, and when some lie in the bucket of the
// threshold and that is the first or the last one.
func (h Histogram) Above(threshold time.Duration) (share float64, ok bool) {
	total := h.Total()
	if total == 0 {
		return 0, false
	}
	at := threshold.Seconds()
	i, exact := slices.BinarySearch(h.Upper, at)
	if exact {
		return float64(total-h.Counts[i]) / float64(total), true
	}
	i = min(i, len(h.Upper)-1)
	below := uint64(0)
	if i > 0 {
		below = h.Counts[i-1]
	}
	in := h.Counts[i] - below
	switch {
	case in == 0:
		return float64(total-below) / float64(total), true
	case i == 0 || math.IsInf(h.Upper[i], 1):
		return 0, false
	}
	within := float64(below) + float64(in)*(at-h.Upper[i-1])/(h.Upper[i]-h.Upper[i-1])
	return 1 - within/float64(total), true
}

// Quantile is a quantile of a histogram.
type Quantile struct {
	Latency time.Duration // estimated
	Lower   time.Duration // bound of the bucket that it lies in, exclusive; 0 of the first one
	Upper   time.Duration // and inclusive; the largest Duration of the last one
}

// Within reports whether the quantile is at most a threshold, as the bounds of its
// bucket say it. known is false when the threshold lies between them.
func (q Quantile) Within(threshold time.Duration) (is, known bool) {
	switch {
	case q.Upper <= threshold:
		return true, true
	case q.Lower >= threshold:
		return false, true
	}
	return false, false
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
