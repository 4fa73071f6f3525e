package sim

import (
	"math"
	"time"
)

// tally is a histogram of latencies with bins of equal ratio. Weights need not be whole: the fluid level counts shares of
// requests.
type histogram struct {
	bins  [bins]float64
	total float64
	low   int // bins outside of low to high are empty; both zero in an empty tally
	high  int
}

const (
	perOctave = 32  // a bin is 2.2 % wide
	bins      = 800 // 25 octaves: 15 us to 512 s
	lowest    = -16 // log2 of the first bin's lower end, in seconds
)

func (t *histogram) reset() {
	clear(t.bins[t.low : t.high+1])
	t.total, t.low, t.high = 0, 0, 0
}

// put adds a latency in seconds.
func (t *histogram) put(latency, weight float64) {
	i := bin(latency)
	t.bins[i] += weight
	t.total += weight
	t.widen(i, i)
}

// putAll adds latencies, each later by delay and cut at most.
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

func bin(latency float64) int {
	return max(0, min(bins-1, int((fastLog2(latency)-lowest)*perOctave)))
}

// widen notes that bins are in use.
func (t *histogram) widen(low, high int) {
	if t.high == 0 {
		t.low, t.high = low, high
		return
	}
	t.low, t.high = min(t.low, low), max(t.high, high)
}

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

func (t *histogram) sub(o *histogram) {
	if o == nil {
		return
	}
	for i := o.low; i <= o.high; i++ {
		t.bins[i] -= o.bins[i]
	}
	t.total -= o.total
}

// quantile is the latency that the percentile of requests did not exceed; from the top, where percentiles are asked for.
func (t *histogram) quantile(percentile float64) (time.Duration, bool) {
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

// fastLog2 is the logarithm to within 1e-4: the exponent, and a table of the mantissa's first bits.
func fastLog2(x float64) float64 {
	if x < 1e-5 {
		return lowest
	}
	bits := math.Float64bits(x)
	return float64(int(bits>>52)-1023) + log2Table[bits>>(52-logBits)&(1<<logBits-1)]
}

const logBits = 12

var log2Table = func() (t [1 << logBits]float64) {
	for i := range t {
		t[i] = math.Log2(1 + (float64(i)+0.5)/(1<<logBits))
	}
	return t
}()
