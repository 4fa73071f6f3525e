package perfmodel

import "math"

// Response is the mean time in seconds that each of n clients waits for an answer when together they get rate requests a
// second done and think for think seconds between an answer and the next request: n/rate - think, the interactive
// response-time law (Denning and Buzen, ACM Computing Surveys 1978), which is Little's law around the loop. It is never
// below alone, the time of a request that finds nobody before it.
func Response(n, rate, think, alone float64) float64 {
	if !(rate > 0) {
		return math.Inf(1)
	}
	return max(alone, n/rate-think)
}

// Station is a service that each request visits.
type Station struct {
	CPU    float64 // cores that it is given
	Demand float64 // s of CPU that a request needs of it, all visits together
}

// Capacity is the highest rate that the stations can serve, the bottleneck's: min cpu/demand. It is +Inf when no station
// has a demand.
func Capacity(stations []Station) float64 {
	c := math.Inf(1)
	for _, s := range stations {
		if s.Demand > 0 {
			c = min(c, s.CPU/s.Demand)
		}
	}
	return c
}

// Loop is a closed loop: clients that wait for an answer before they ask again.
type Loop struct {
	Clients float64 // how many
	Think   float64 // s from an answer to the next request
	Alone   float64 // s; mean of a request when nobody else is there
	Quiet   float64 // s; p99 while the stations keep up
	Spread  float64 // p99 / mean of the waiting that saturation adds; [Exponential] when it is exponentially distributed
	Ceiling float64 // s; no request waits longer: the client gives it up
}

// Exponential is p99 over mean of an exponential distribution: ln 100 = 4.605.
var Exponential = math.Log(100)

// Offered is the rate, in requests per second, at which the clients ask while nothing is saturated.
func (l Loop) Offered() float64 { return l.Clients / (l.Think + l.Alone) }

// Answer is what the loop sees of stations with a capacity in requests per second: the rate that gets done, and mean and
// p99 of a request in seconds. Below saturation the rate is what is offered; beyond it the rate is the capacity and the
// clients' waiting is what Little's law leaves: clients = rate * (mean + think) holds in both modes.
func (l Loop) Answer(capacity float64) (rate, mean, p99 float64) {
	rate = min(l.Offered(), capacity)
	mean = Response(l.Clients, rate, l.Think, l.Alone)
	return rate, mean, l.P99(rate)
}

// P99 is the 99th percentile, in seconds, seen by clients that get rate requests a second done:
//
//	quiet + ceiling * (1 - exp(-spread * w / ceiling)),   w = mean - alone
//
// While waiting w is short it grows by spread*w; it bends towards the ceiling, after which clients give up.
func (l Loop) P99(rate float64) float64 {
	return l.Quiet + Saturate(l.Spread*(Response(l.Clients, rate, l.Think, l.Alone)-l.Alone), l.Ceiling)
}

// Bent is x for small x, and approaches ceiling for large: ceiling * (1 - exp(-x/ceiling)).
func Saturate(x, ceiling float64) float64 {
	if !(ceiling > 0) {
		return 0
	}
	return -ceiling * math.Expm1(-x/ceiling)
}
