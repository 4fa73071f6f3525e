package sim

// A client with connections sends as wrk2 does in the variant of
// DeathStarBench. Requests arrive at the offered rate, and each belongs to a
// random connection. A connection carries one request at a time: the server
// answers in order, and begins with a request when it has answered the one
// before. A request that waits for its connection is not lost. Its latency
// counts from the time at which it was to be sent, so there is no coordinated
// omission. A client that gives up does not cancel the request, so the
// connection is free when the server has answered.
//
// With N connections and a response time R at most N/R requests are completed
// per second, however high the offered rate is. Above it the requests that wait
// grow without bound.

// connection is one connection of the client.
type connection struct {
	open    bool    // it carries a request
	waiting []int32 // requests that wait for it, the oldest first
}

// connect gives a client's request a connection. It reports whether the request
// can be sent now; otherwise it waits.
func (q *requests) connect(i int32) bool {
	if len(q.wires) == 0 {
		return true
	}
	k := q.rng.IntN(len(q.wires))
	q.visits[i].wire = int32(k) + 1
	c := &q.wires[k]
	if c.open {
		c.waiting = append(c.waiting, i)
		return false
	}
	c.open = true
	return true
}

// disconnect frees the connection of a client's request that has ended, and
// sends the next one.
func (q *requests) disconnect(i int32) {
	k := q.visits[i].wire
	if k == 0 {
		return
	}
	c := &q.wires[k-1]
	if len(c.waiting) == 0 {
		c.open = false
		return
	}
	next := c.waiting[0]
	c.waiting = c.waiting[1:]
	v := &q.visits[next]
	delay := q.w.services[q.w.graph.ops[v.op].service].delay
	q.push(event{at: q.now + delay, kind: arrives, who: next, stamp: v.stamp})
}
