package perfmodel

import "math"

// Response is the mean latency in seconds for n clients with a total throughput
// of rate requests per second and a think time of think seconds between an
// answer and the next request. It is n/rate - think, the interactive
// response-time law (Denning and Buzen, ACM Computing Surveys 1978). This is
// Little's law for the loop. The result is at least alone, the latency of a
// request without queueing.
func Response(n, rate, think, alone float64) float64 {
	if !(rate > 0) {
		return math.Inf(1)
	}
	return max(alone, n/rate-think)
}

// Station is a service that each request visits.
type Station struct {
	CPU    float64 // cores allocated to it
	Demand float64 // CPU seconds of one request, all visits together
}

// Capacity is the highest request rate that the stations can serve. The
// bottleneck determines it: min cpu/demand. It is +Inf when no station has a
// demand.
func Capacity(stations []Station) float64 {
	c := math.Inf(1)
	for _, s := range stations {
		if s.Demand > 0 {
			c = min(c, s.CPU/s.Demand)
		}
	}
	return c
}

// Loop is a closed loop: each client waits for an answer before it sends the
// next request.
type Loop struct {
	Clients float64 // number of clients
	Think   float64 // seconds from an answer to the next request
	Alone   float64 // mean latency without queueing, in seconds
	Quiet   float64 // p99 below saturation, in seconds
	Spread  float64 // p99 / mean of the queueing time; [Exponential] when it is exponentially distributed
	Ceiling float64 // longest wait in seconds, after which the client gives up
}

// Exponential is p99 / mean of an exponential distribution: ln 100 = 4.605.
var Exponential = math.Log(100)

// Offered is the request rate of the clients, per second, below saturation.
func (l Loop) Offered() float64 { return l.Clients / (l.Think + l.Alone) }

// Answer is the result of the loop for stations with the given capacity in
// requests per second: the throughput per second, and mean and p99 of the
// latency in seconds. Below saturation the throughput is the offered rate.
// Above saturation it is the capacity, and the mean latency follows from
// Little's law. clients = rate * (mean + think) holds in both cases.
func (l Loop) Answer(capacity float64) (rate, mean, p99 float64) {
	rate = min(l.Offered(), capacity)
	mean = Response(l.Clients, rate, l.Think, l.Alone)
	return rate, mean, l.P99(rate)
}

// P99 is the 99th percentile of the latency, in seconds, at a throughput of
// rate requests per second:
//
//	quiet + ceiling * (1 - exp(-spread * w / ceiling)),   w = mean - alone
//
// For a short wait w it grows by spread*w. For a long wait it approaches quiet
// + ceiling, because clients give up.
func (l Loop) P99(rate float64) float64 {
	return l.Quiet + Saturate(l.Spread*(Response(l.Clients, rate, l.Think, l.Alone)-l.Alone), l.Ceiling)
}

// Saturate is about x for small x, and approaches ceiling for large x: ceiling
// * (1 - exp(-x/ceiling)).
func Saturate(x, ceiling float64) float64 {
	if !(ceiling > 0) {
		return 0
	}
	return -ceiling * math.Expm1(-x/ceiling)
}
