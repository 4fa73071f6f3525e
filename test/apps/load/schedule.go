package load

import (
	"math/rand/v2"
	"time"

	"awarescale.dev/aware/test/apps/trace"
)

// Arrivals is the distribution of arrivals at a given rate.
type Arrivals string

const (
	// Poisson arrivals are independent of each other, as those of many users
	// are: at 100 requests/s a second has 100 ± 10 of them.
	Poisson Arrivals = "poisson"

	// Uniform arrivals are evenly spaced: at 100 requests/s, one per 10 ms.
	Uniform Arrivals = "uniform"
)

// Schedule returns the intended start of each request since the start of the
// trace, in order.
//
// It walks along the expected number of requests since the start, A(t), which
// grows by the rate times the time. Evenly spaced points on that axis, mapped
// back to t, are evenly spaced requests; points with gaps of an exponential
// distribution of mean 1 are a Poisson process that follows the rate.
func Schedule(t trace.Trace, how Arrivals, seed uint64) []time.Duration {
	r := rand.New(rand.NewPCG(seed, 0))
	gap := r.ExpFloat64
	next := 0.5 // where on the axis the next request is
	if how == Uniform {
		gap = func() float64 { return 1 }
	} else {
		next = gap()
	}

	arrivals := make([]time.Duration, 0, int(t.Requests())+1)
	reached := 0.0 // A(t) at the start of the step
	for i, rate := range t.Rates {
		start := time.Duration(i) * t.Step
		end := reached + rate*t.Step.Seconds()
		for next < end {
			within := time.Duration((next - reached) / rate * float64(time.Second))
			arrivals = append(arrivals, start+min(within, t.Step-1))
			next += gap()
		}
		reached = end
	}
	return arrivals
}
