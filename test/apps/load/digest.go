package load

import (
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// digest summarises latencies up to a given longest one. It keeps them to three
// digits. Count, sum, maximum and the number over the SLO are exact.
type digest struct {
	longest time.Duration // larger latencies count as this one
	slo     time.Duration

	histogram *hdr.Histogram // in microseconds
	count     int64
	over      int64 // latencies over the SLO
	sum       time.Duration
	highest   time.Duration
}

func newDigest(longest, slo time.Duration) *digest {
	// The histogram requires a range of at least two.
	return &digest{longest: longest, slo: slo, histogram: hdr.New(1, max(2, longest.Microseconds()), 3)}
}

// add counts a latency. One over the longest counts as the longest.
func (d *digest) add(latency time.Duration) {
	latency = min(max(latency, 0), d.longest)
	// Within the range, so there is no error.
	_ = d.histogram.RecordValue(latency.Microseconds())
	d.count++
	d.sum += latency
	d.highest = max(d.highest, latency)
	if latency > d.slo {
		d.over++
	}
}

// merge adds other, which must have the same longest latency and SLO.
func (d *digest) merge(other *digest) {
	d.histogram.Merge(other.histogram)
	d.count += other.count
	d.over += other.over
	d.sum += other.sum
	d.highest = max(d.highest, other.highest)
}

// quantile returns the latency that a share q of 0 to 1 of all did not exceed,
// 0 if there are none. It is up to 0.1 % too high, but never over the maximum.
func (d *digest) quantile(q float64) time.Duration {
	if d.count == 0 {
		return 0
	}
	return min(time.Duration(d.histogram.ValueAtPercentile(100*q))*time.Microsecond, d.highest)
}

func (d *digest) mean() time.Duration {
	if d.count == 0 {
		return 0
	}
	return d.sum / time.Duration(d.count)
}

// share of the latencies that exceed the SLO, 0 if there are none.
func (d *digest) shareOver() float64 {
	if d.count == 0 {
		return 0
	}
	return float64(d.over) / float64(d.count)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
