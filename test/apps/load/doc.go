// Package load sends requests at the times that a trace of rates asks for, and
// says how long each took.
//
// The load is open: a request is started at its intended time whether or not
// earlier ones have been answered, as users do, who do not know of each other.
// And a latency is measured from the intended start, not from when the request
// was really written. A closed loop, which waits for an answer before it asks
// again, leaves out just the requests that would have hit a stalled server:
// with one request per 5 ms and a stall of 1 s it records one slow request,
// where 200 users had a bad second. (Gil Tene calls that coordinated omission;
// wrk2 is the classic remedy. TestAStallShowsInTheTail shows both.)
//
// Every intended request is counted as exactly one of
//
//	ok         answered with a status of 2xx in time
//	error      refused, broken, or answered with another status
//	timeout    no whole answer within the timeout
//	dropped    never sent, since too many were in flight
//	abandoned  not sent or not answered when the run was canceled
//
// Errors, timeouts and dropped requests enter the latency statistics with the
// timeout as their value: a server that fails fast must not look fast. So they
// also violate the SLO. Abandoned requests enter no statistics.
//
// A request belongs to the second in which it was intended to start.
//
// The package owns arrivals, sending and statistics. Rates are package trace's
// affair, connections package client's.
package load
