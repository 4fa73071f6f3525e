package workload

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// The spiky traces of [Named]: an hour each, with a mean near the 230 requests
// per second of Autothrottle's diurnal-2. The values are chosen; no cluster was
// measured. Between the spikes they are constant, so that only the spikes can be
// what a policy finds hard.
const (
	spikyLength = time.Hour
	spikySeed   = 1
)

// spiky are the names of the spiky traces.
var spiky = []string{"pulses", "clusters", "flash-crowd", "on-off"}

// Spiky returns the names of the four traces with spikes that [Named] knows.
func Spiky() []string { return slices.Clone(spiky) }

// namedSpiky is the spiky trace with the given name.
func namedSpiky(name string) (Trace, error) {
	switch name {
	case "pulses":
		return Pulses(200, 3, 5, 20*time.Second, spikyLength, spikySeed)
	case "clusters":
		return Clusters(200, 3, 5, 6, 4*time.Second, time.Minute, spikyLength, spikySeed)
	case "flash-crowd":
		return FlashCrowd(120, 5, 5*time.Second, 4*time.Minute, 20*time.Minute, spikyLength, spikySeed)
	default:
		return OnOff(400, 40, 40*time.Second, 40*time.Second, spikyLength, spikySeed)
	}
}

// Pulses is a base rate with regular spikes of one second, such as those of
// clients with the same timer. The first one is at a random second of the first
// period. In a spike the rate is base times a factor that is uniform in
// [lowest, highest]. every is rounded down to whole seconds.
//
// With p = every in seconds, the mean rate is
// base (1 + ((lowest + highest)/2 - 1)/p).
func Pulses(base, lowest, highest float64, every, length time.Duration, seed uint64) (Trace, error) {
	r := rand.New(source(seed))
	period := max(1, int(every/time.Second))
	first := r.IntN(period)
	return second("pulses", length, func(i int) float64 {
		if i%period != first {
			return base
		}
		return base * uniform(r, lowest, highest)
	}, aRate("base", base), param{"lowest", lowest, 1, MaxRate}, param{"highest", highest, lowest, MaxRate},
		aTime("every", every, 2))
}

// Clusters is a base rate with clusters of spikes of one second. A cluster has
// count spikes. Between two of its spikes are one to apart seconds at the base
// rate, uniformly distributed, with apart rounded down to whole seconds. The time from the
// end of a cluster to the next one is exponential with mean every, rounded up to
// whole seconds. In a spike the rate is base times a factor that is uniform in
// [lowest, highest].
//
// A cluster with its gaps lasts count + (count-1)(1+a)/2 seconds on average, with
// a = apart in seconds. The wait for the next one is 1/(1 - exp(-1/e)) seconds on
// average, with e = every in seconds. count spikes come in the sum of both.
func Clusters(
	base, lowest, highest float64, count int, apart, every, length time.Duration, seed uint64,
) (Trace, error) {
	r := rand.New(source(seed))
	wait := func() int { return max(1, int(math.Ceil(every.Seconds()*r.ExpFloat64()))) }
	next, left := wait(), count
	return second("clusters", length, func(i int) float64 {
		if i != next {
			return base
		}
		if left--; left > 0 {
			next += 2 + r.IntN(max(1, int(apart/time.Second)))
		} else {
			next, left = next+1+wait(), count
		}
		return base * uniform(r, lowest, highest)
	}, aRate("base", base), param{"lowest", lowest, 1, MaxRate}, param{"highest", highest, lowest, MaxRate},
		param{"count", float64(count), 1, 1e6}, aTime("apart", apart, 1), aTime("every", every, 1))
}

// FlashCrowd is a base rate with crowds. In each period of length every, one
// crowd comes at a random second. The rate then rises linearly to factor times
// the base within rise, and what is above the base halves every half. Where two
// crowds overlap, the rate is that of the larger one.
func FlashCrowd(base, factor float64, rise, half, every, length time.Duration, seed uint64) (Trace, error) {
	r := rand.New(source(seed))
	period := max(1, int(every/time.Second))
	begin, extra := 0, 0.0 // of the present crowd; extra is the share of its height
	fade := math.Pow(0.5, 1/max(1, half.Seconds()))
	return second("flash-crowd", length, func(i int) float64 {
		if i%period == 0 {
			begin = i + r.IntN(period)
		}
		extra *= fade
		if since := float64(i - begin); since >= 0 && since < rise.Seconds() {
			extra = max(extra, min(1, (since+1)/rise.Seconds()))
		}
		return base * (1 + (factor-1)*extra)
	}, aRate("base", base), param{"factor", factor, 1, MaxRate}, aTime("rise", rise, 1),
		aTime("half", half, 1), aTime("every", every, rise.Seconds()))
}

// OnOff alternates between the rates on and off, such as the load of a batch
// client. The lengths of the phases are exponential with the means lastsOn and
// lastsOff. The first phase is on with the probability that any second is. The
// rate of a second is its mean within the second, so that phases shorter than a
// second count too: the mean rate is
// (on lastsOn + off lastsOff)/(lastsOn + lastsOff).
func OnOff(on, off float64, lastsOn, lastsOff, length time.Duration, seed uint64) (Trace, error) {
	r := rand.New(source(seed))
	mean := [2]float64{lastsOff.Seconds(), lastsOn.Seconds()}
	rates := [2]float64{off, on}
	phase := 0
	if r.Float64()*(mean[0]+mean[1]) < mean[1] {
		phase = 1
	}
	until := mean[phase] * r.ExpFloat64()
	return second("on-off", length, func(i int) float64 {
		sum, at := 0.0, float64(i)
		for end := float64(i + 1); until < end; {
			sum += rates[phase] * (until - at)
			at, phase = until, 1-phase
			until += mean[phase] * r.ExpFloat64()
		}
		return sum + rates[phase]*(float64(i+1)-at)
	}, aRate("on", on), aRate("off", off), aTime("lastsOn", lastsOn, 1), aTime("lastsOff", lastsOff, 1))
}

// uniform is a number that is uniform in [low, high].
func uniform(r *rand.Rand, low, high float64) float64 { return low + (high-low)*r.Float64() }
