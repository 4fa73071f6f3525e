package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// maxLength is the longest trace that is generated: a month by seconds is 20 MB.
const maxLength = 31 * 24 * time.Hour

// second is a generated trace: the rate in each second of its length, what is below zero or above [MaxRate] cut off.
func second(name string, length time.Duration, rate func(i int) float64, params ...param) (Trace, error) {
	for _, p := range params {
		if !(p.value >= p.least && p.value <= p.most) {
			return Trace{}, fmt.Errorf("trace %s: %s %v: it must be in [%g, %g]", name, p.name, p.value, p.least, p.most)
		}
	}
	if length < time.Second || length > maxLength || length%time.Second != 0 {
		return Trace{}, fmt.Errorf("trace %s: length %v: it must be whole seconds, from 1s to %v", name, length, maxLength)
	}
	t := Trace{Name: name, Step: time.Second, Rates: make([]float64, length/time.Second)}
	for i := range t.Rates {
		t.Rates[i] = min(MaxRate, max(0, rate(i)))
	}
	return t, nil
}

// param is a generator's parameter and what it may be.
type param struct {
	name               string
	value, least, most float64
}

func aRate(name string, value float64) param { return param{name, value, 0, MaxRate} }

func source(seed uint64) *rand.PCG { return rand.NewPCG(seed, 0x10ad) }

// Constant is the same rate all the time.
func Constant(rate float64, length time.Duration) (Trace, error) {
	return second("constant", length, func(int) float64 { return rate }, aRate("rate", rate))
}

// Ramp goes from one rate to another in a straight line.
func Ramp(from, to float64, length time.Duration) (Trace, error) {
	n := max(1, length.Seconds()-1)
	return second("ramp", length, func(i int) float64 { return from + (to-from)*float64(i)/n }, aRate("from", from), aRate("to", to))
}

// Diurnal is a day of the given period: a sine around the mean that swings by a share of it, starting at the night's end,
// with noise that has a standard deviation of a share of the mean and forgets itself within half a minute.
func Diurnal(mean, swing, noise float64, period, length time.Duration, seed uint64) (Trace, error) {
	r := rand.New(source(seed))
	const keep = 0.967 // exp(-1/30): of the noise of a second ago
	drift := r.NormFloat64()
	return second("diurnal", length, func(i int) float64 {
		drift = keep*drift + math.Sqrt(1-keep*keep)*r.NormFloat64()
		return mean * (1 - swing*math.Cos(2*math.Pi*float64(i)/period.Seconds()) + noise*drift)
	}, aRate("mean", mean), param{"swing", swing, 0, 1}, param{"noise", noise, 0, 1}, param{"period in seconds", period.Seconds(), 2, maxLength.Seconds()})
}

// Poisson is the number of arrivals in each second of clients that do not know of each other.
func Poisson(mean float64, length time.Duration, seed uint64) (Trace, error) {
	if mean == 0 {
		return second("poisson", length, func(int) float64 { return 0 })
	}
	d := distuv.Poisson{Lambda: mean, Src: source(seed)}
	return second("poisson", length, func(int) float64 { return d.Rand() }, aRate("mean", mean))
}

// Bursty is a calm rate with bursts of factor times as much. Calm and burst last for exponentially distributed times with
// the given means; a second belongs to what it begins with.
func Bursty(calm, factor float64, every, lasting, length time.Duration, seed uint64) (Trace, error) {
	r := rand.New(source(seed))
	burst, until := false, every.Seconds()*r.ExpFloat64()
	return second("bursty", length, func(i int) float64 {
		for until <= float64(i) {
			burst = !burst
			last := every
			if burst {
				last = lasting
			}
			until += last.Seconds() * r.ExpFloat64()
		}
		if burst {
			return calm * factor
		}
		return calm
	}, aRate("calm", calm), param{"factor", factor, 1, MaxRate},
		param{"every in seconds", every.Seconds(), 1, maxLength.Seconds()}, param{"lasting in seconds", lasting.Seconds(), 1, maxLength.Seconds()})
}

// Spikes is a calm rate with sudden additions of height that halve each ten seconds, at random times that are a mean of every
// apart.
func Spikes(calm, height float64, every, length time.Duration, seed uint64) (Trace, error) {
	r := rand.New(source(seed))
	fade := math.Pow(0.5, 0.1)
	next, extra := every.Seconds()*r.ExpFloat64(), 0.0
	return second("spikes", length, func(i int) float64 {
		extra *= fade
		for next <= float64(i) {
			extra += height
			next += every.Seconds() * r.ExpFloat64()
		}
		return calm + extra
	}, aRate("calm", calm), aRate("height", height), param{"every in seconds", every.Seconds(), 1, maxLength.Seconds()})
}
