// Package load sends requests at the times that a trace of rates gives, and measures
// their latencies.
//
// The load is an open loop: a request starts at its intended time, also when earlier
// ones have no answer yet, because users are independent of each other. A latency
// is measured from the intended start, not from the time at which the request was
// written. A closed loop waits for an answer before it sends again. It leaves out
// the very requests that a stalled server would delay: with one request per 5 ms and
// a stall of 1 s it records one slow request, where 200 users were delayed. (Gil Tene
// calls this coordinated omission; wrk2 is the classic remedy.
// TestAStallShowsInTheTail shows both.)
//
// Every intended request is counted as exactly one of
//
//	ok         answered with a status of 2xx in time
//	error      refused, broken, or answered with another status
//	timeout    no complete answer within the timeout
//	dropped    never sent, because too many were in flight
//	abandoned  not sent or not answered when the run was canceled
//
// Errors, timeouts and dropped requests enter the latency statistics with the
// timeout as their value: a server that fails fast must not look fast. So they
// also violate the SLO. Abandoned requests enter no statistics.
//
// A request belongs to the second in which it was intended to start.
//
// The package owns arrivals, sending and statistics. Package trace owns
// rates, package client connections.
package load
