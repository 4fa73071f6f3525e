package sim

import (
	"math"
	"time"
)

// histogram counts latencies in bins of equal ratio. Weights need not be
// integers: the fluid level counts fractions of requests.
type histogram struct {
	bins  [bins]float64
	total float64 // weight in all bins
	low   int     // first bin in use; 0 in an empty histogram
	high  int     // last bin in use; 0 in an empty histogram
}

const (
	perOctave = 32  // a bin is 2.2 % wide
	bins      = 800 // 25 octaves: 15 us to 512 s
	lowest    = -16 // log2 of the lower end of the first bin, in seconds
)

// reset empties the histogram.
func (t *histogram) reset() {
	clear(t.bins[t.low : t.high+1])
	t.total = 0
	t.low = 0
	t.high = 0
}

// put adds a latency in seconds.
func (t *histogram) put(latency, weight float64) {
	i := bin(latency)
	t.bins[i] += weight
	t.total += weight
	t.widen(i, i)
}

// putAll adds latencies in seconds. It adds delay to each, and limits the sum
// to most.
func (t *histogram) putAll(latencies []float64, delay, most, weight float64) {
	low, high := bins, 0
	for _, l := range latencies {
		i := bin(min(l+delay, most))
		t.bins[i] += weight
		low, high = min(low, i), max(high, i)
	}
	t.total += weight * float64(len(latencies))
	t.widen(low, high)
}

// bin is the index of the bin of a latency in seconds.
func bin(latency float64) int {
	return max(0, min(bins-1, int((fastLog2(latency)-lowest)*perOctave)))
}

// widen marks the bins from low to high as in use.
func (t *histogram) widen(low, high int) {
	if t.high == 0 {
		t.low, t.high = low, high
		return
	}
	t.low, t.high = min(t.low, low), max(t.high, high)
}

// add adds the counts of another histogram.
func (t *histogram) add(o *histogram) {
	if o.total == 0 {
		return
	}
	for i := o.low; i <= o.high; i++ {
		t.bins[i] += o.bins[i]
	}
	t.total += o.total
	t.widen(o.low, o.high)
}

// sub subtracts the counts of another histogram; nil is empty.
func (t *histogram) sub(o *histogram) {
	if o == nil {
		return
	}
	for i := o.low; i <= o.high; i++ {
		t.bins[i] -= o.bins[i]
	}
	t.total -= o.total
}

// quantile is the given percentile of the latencies. It searches from the
// highest bin, because most percentiles in use are high. ok is false when the
// histogram is empty.
func (t *histogram) quantile(percentile float64) (latency time.Duration, ok bool) {
	if t.total <= 0 {
		return 0, false
	}
	above := t.total * (1 - percentile/100)
	for i := t.high; i >= t.low; i-- {
		if v := t.bins[i]; v > 0 && v >= above {
			part := 1 - above/v
			return time.Duration(math.Exp2((float64(i)+part)/perOctave+lowest) * float64(time.Second)), true
		}
		above -= max(0, t.bins[i])
	}
	return 0, true
}

// above is the share of the latencies above one, in seconds; 0 of an empty histogram. A bin is
// divided in proportion.
func (t *histogram) above(latency float64) float64 {
	if t.total <= 0 {
		return 0
	}
	at := bin(latency)
	part := 1 - ((fastLog2(latency)-lowest)*perOctave - float64(at))
	sum := min(1, max(0, part)) * max(0, t.bins[at])
	for i := at + 1; i <= t.high; i++ {
		sum += max(0, t.bins[i])
	}
	return min(1, sum/t.total)
}

// fastLog2 is the binary logarithm with an error of at most 1e-4. It adds the
// exponent and a table value for the first bits of the mantissa.
func fastLog2(x float64) float64 {
	if x < 1e-5 {
		return lowest
	}
	bits := math.Float64bits(x)
	return float64(int(bits>>52)-1023) + log2Table[bits>>(52-logBits)&(1<<logBits-1)]
}

// logBits is the number of bits of the mantissa that fastLog2 uses.
const logBits = 12

// log2Table holds log2 of the mantissas from 1 to 2.
var log2Table = func() (t [1 << logBits]float64) {
	for i := range t {
		t[i] = math.Log2(1 + (float64(i)+0.5)/(1<<logBits))
	}
	return t
}()
