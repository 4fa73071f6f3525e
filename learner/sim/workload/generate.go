package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// maxLength is the maximum length of a generated trace: a month with steps of
// one second needs 20 MB.
const maxLength = 31 * 24 * time.Hour

// second generates a trace from the rate of each second. Rates are limited to
// the range from zero to [MaxRate].
func second(name string, length time.Duration, rate func(i int) float64, params ...param) (Trace, error) {
	for _, p := range params {
		if !(p.value >= p.lowest && p.value <= p.highest) {
			return Trace{}, fmt.Errorf("trace %s: %s %v: it must be in [%g, %g]", name, p.name, p.value, p.lowest, p.highest)
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

// param is a parameter of a generator and its allowed range.
type param struct {
	name    string
	value   float64
	lowest  float64
	highest float64
}

// aRate is a parameter in requests per second.
func aRate(name string, value float64) param { return param{name, value, 0, MaxRate} }

// aTime is a parameter in seconds.
func aTime(name string, value time.Duration, lowest float64) param {
	return param{name + " in seconds", value.Seconds(), lowest, maxLength.Seconds()}
}

// source is the random source of a generator.
func source(seed uint64) *rand.PCG { return rand.NewPCG(seed, 0x10ad) }

// Constant is a constant rate.
func Constant(rate float64, length time.Duration) (Trace, error) {
	return second("constant", length, func(int) float64 { return rate }, aRate("rate", rate))
}

// Ramp changes linearly from one rate to another.
func Ramp(from, to float64, length time.Duration) (Trace, error) {
	n := max(1, length.Seconds()-1)
	return second("ramp", length, func(i int) float64 {
		return from + (to-from)*float64(i)/n
	}, aRate("from", from), aRate("to", to))
}

// Diurnal is a sine with the given mean and period. It starts at its minimum.
// swing is its amplitude and noise the standard deviation of the noise, both as
// shares of the mean. The noise has a correlation time of 30 s.
func Diurnal(mean, swing, noise float64, period, length time.Duration, seed uint64) (Trace, error) {
	r := rand.New(source(seed))
	const keep = 0.967 // share of the noise of the previous second: exp(-1/30)
	drift := r.NormFloat64()
	return second("diurnal", length, func(i int) float64 {
		drift = keep*drift + math.Sqrt(1-keep*keep)*r.NormFloat64()
		return mean * (1 - swing*math.Cos(2*math.Pi*float64(i)/period.Seconds()) + noise*drift)
	}, aRate("mean", mean), param{"swing", swing, 0, 1}, param{"noise", noise, 0, 1}, aTime("period", period, 2))
}

// Poisson is the number of arrivals per second of independent clients.
func Poisson(mean float64, length time.Duration, seed uint64) (Trace, error) {
	if mean == 0 {
		return second("poisson", length, func(int) float64 { return 0 })
	}
	d := distuv.Poisson{Lambda: mean, Src: source(seed)}
	return second("poisson", length, func(int) float64 { return d.Rand() }, aRate("mean", mean))
}

// Bursty alternates between a base rate and bursts with factor times this rate.
// The lengths of both phases are exponentially distributed, with the means
// every and lasting. The phase at the start of a second determines its rate.
func Bursty(base, factor float64, every, lasting, length time.Duration, seed uint64) (Trace, error) {
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
			return base * factor
		}
		return base
	}, aRate("calm", base), param{"factor", factor, 1, MaxRate},
		aTime("every", every, 1), aTime("lasting", lasting, 1))
}

// Spikes is a base rate with spikes. A spike adds height requests per second,
// and halves every ten seconds. The times between spikes are random with mean
// every.
func Spikes(base, height float64, every, length time.Duration, seed uint64) (Trace, error) {
	r := rand.New(source(seed))
	fade := math.Pow(0.5, 0.1)
	next, extra := every.Seconds()*r.ExpFloat64(), 0.0
	return second("spikes", length, func(i int) float64 {
		extra *= fade
		for next <= float64(i) {
			extra += height
			next += every.Seconds() * r.ExpFloat64()
		}
		return base + extra
	}, aRate("calm", base), aRate("height", height), aTime("every", every, 1))
}
