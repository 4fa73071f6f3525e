package sim

import (
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// requests simulates every request as discrete events. It is slow and simple,
// and it is the reference for the fluid level.
//
// A request takes a thread of a random replica, or waits for one. It computes
// on one of the replica's processors in order of arrival, waits for I/O, makes
// its calls, and answers. All processors of a replica stop when the quota of a
// period of 100 ms is used up. They continue in the next period.
//
// A request that fails (no replica, too long in a queue, its container killed)
// fails the request that waits for it, up to the client. A client gives up after
// the timeout; the servers do not know and work on.
//
// Visits and pods are in two arrays, and refer to each other by index: the
// garbage collector has nothing to follow, and the state can be saved as it is.
type requests struct {
	w       *World
	rng     *rand.Rand
	now     float64 // seconds since the start of the world
	end     float64 // of the current slice
	events  eventQueue
	visits  []visit
	free    []int32   // unused visits
	pods    []pod     // of replicas, by replica.pod
	unused  []int32   // unused pods
	serving [][]int32 // per service: the pods that take requests
	work    []distuv.Gamma
	clients deadlines    // open requests of clients, oldest first
	tasks   deadlines    // open background requests, oldest first
	wires   []connection // of the client; empty when any number of requests may be open
	coming  []float64    // times of the clients' requests in this slice, as sums of gaps
	done    *histogram
}

// visit is one request at one service.
type visit struct {
	op       int32
	parent   int32 // the visit that called it; -1 for a root
	pod      int32 // -1 when it is in none
	slot     int32 // in the pod's list of all visits
	stamp    uint32
	pending  int32   // calls of the current stage without an answer
	stage    int16   // next stage of calls
	root     bool    // a client or a background call began it
	task     bool    // it is background work
	threaded bool    // it occupies a thread
	lost     bool    // it failed
	closed   bool    // a root whose outcome is counted
	wire     int32   // a client's request: 1 + index of its connection; 0 without connections
	began    float64 // time in seconds at which the caller sent it
	entered  float64 // time in seconds at which it reached the service
	rest     float64 // CPU seconds of work
}

// deadlines are open roots in the order of their beginning.
type deadlines struct {
	items []deadline
	head  int
}

// deadline is one open root.
type deadline struct {
	began float64
	visit int32
	stamp uint32
}

// newRequests creates the engine of the request level.
func newRequests(w *World) *requests {
	q := &requests{
		w:       w,
		rng:     rand.New(w.rng),
		serving: make([][]int32, len(w.graph.Services)),
		done:    &histogram{},
		wires:   make([]connection, w.config.Connections),
	}
	for _, s := range w.graph.Services {
		shape := 1 / (s.Variation * s.Variation)
		q.work = append(q.work, distuv.Gamma{Alpha: shape, Beta: shape, Src: w.rng})
	}
	return q
}

// push schedules an event.
func (q *requests) push(e event) { q.events.push(e) }

// newVisit takes an unused visit.
func (q *requests) newVisit(v visit) int32 {
	v.pod = -1
	if n := len(q.free); n > 0 {
		i := q.free[n-1]
		q.free = q.free[:n-1]
		v.stamp = q.visits[i].stamp
		q.visits[i] = v
		return i
	}
	q.visits = append(q.visits, v)
	return int32(len(q.visits) - 1)
}

// release makes a visit that has ended unused, when no call of it is open.
func (q *requests) release(i int32) {
	if q.visits[i].pending > 0 {
		return
	}
	q.visits[i].stamp++
	q.free = append(q.free, i)
}

// slice implements [engine].
func (q *requests) slice(w *World) {
	start := float64(w.now) * slice
	q.now, q.end = start, start+slice
	q.begin(w)
	n := 0
	if w.rate > 0 {
		n = int(distuv.Poisson{Lambda: w.rate * slice, Src: w.rng}.Rand())
	}
	// Arrivals are uniform in the slice: their gaps are exponential, scaled so
	// that all fit.
	q.coming = q.coming[:0]
	sum := 0.0
	for range n {
		sum += q.rng.ExpFloat64()
		q.coming = append(q.coming, sum)
	}
	scale := slice / (sum + q.rng.ExpFloat64())
	for next := 0; ; {
		if next < n {
			at := start + q.coming[next]*scale
			if len(q.events.heap) == 0 || at <= q.events.heap[0].at {
				next++
				q.now = at
				q.client()
				continue
			}
		}
		if len(q.events.heap) == 0 || q.events.heap[0].at >= q.end {
			break
		}
		e := q.events.pop()
		q.now = e.at
		switch {
		case e.kind == computed:
			if e.stamp == q.pods[e.who].stamp {
				q.compute(e.who)
			}
		case e.stamp != q.visits[e.who].stamp:
		case e.kind == arrives:
			q.enter(e.who)
		default:
			q.proceed(e.who)
		}
	}
	q.now = q.end
	q.finish(w)
	q.expire(&q.clients, w.timeout)
	q.expire(&q.tasks, w.within)
}

// client begins a request of a client.
func (q *requests) client() {
	u, e := q.rng.Float64(), 0
	for shares := q.w.graph.shares; e < len(shares)-1 && u >= shares[e]; e++ {
		u -= shares[e]
	}
	v := q.newVisit(visit{op: int32(q.w.graph.endpoints[e]), parent: -1, root: true, began: q.now})
	q.w.totals.Requests++
	q.clients.items = append(q.clients.items, deadline{q.now, v, q.visits[v].stamp})
	if q.connect(v) {
		q.send(v)
	}
}

// begin gives every replica its quota.
func (q *requests) begin(w *World) {
	for i := range w.services {
		s := &w.services[i]
		q.serving[i] = q.serving[i][:0]
		for k := range s.replicas {
			r := &s.replicas[k]
			s.given += r.quota
			if w.now < r.ready {
				continue
			}
			if r.pod < 0 {
				r.pod = q.newPod(int32(i))
			}
			p := &q.pods[r.pod]
			p.left = r.capacity
			p.used = 0
			p.throttled = false
			p.at = q.now
			if k < s.staying() {
				q.serving[i] = append(q.serving[i], r.pod)
			}
			q.schedule(r.pod)
		}
	}
}

// newPod takes an unused pod.
func (q *requests) newPod(service int32) int32 {
	if n := len(q.unused); n > 0 {
		k := q.unused[n-1]
		q.unused = q.unused[:n-1]
		p := &q.pods[k]
		*p = pod{service: service, stamp: p.stamp, all: p.all[:0], running: p.running[:0]}
		return k
	}
	q.pods = append(q.pods, pod{service: service})
	return int32(len(q.pods) - 1)
}

// finish updates the counters of the replicas at the end of a slice.
func (q *requests) finish(w *World) {
	for i := range w.services {
		s := &w.services[i]
		for k := range s.replicas {
			r := &s.replicas[k]
			if w.now < r.ready {
				r.usage[w.now%samples] = 0
				continue
			}
			p := &q.pods[r.pod]
			q.advance(p)
			s.periods++
			if p.throttled && r.capacity == r.quota {
				s.throttled++
			}
			s.alive += slice
			s.used += p.used
			r.second += p.used
			r.usage[w.now%samples] = float32(p.used)
			r.backlog, r.queued = 0, 0
			for _, v := range p.running {
				r.backlog += v.until - p.given
			}
			for _, v := range p.ready.waiting() {
				r.queued += q.visits[v].rest
			}
			r.queued += float64(p.line.len()) * s.mix * s.slow
			r.backlog += r.queued
		}
	}
}

// expire counts the roots that are open after their deadline as lost. Their
// servers do not know, and work on.
func (q *requests) expire(d *deadlines, limit float64) {
	for d.head < len(d.items) && d.items[d.head].began < q.now-limit {
		o := d.items[d.head]
		d.head++
		if v := &q.visits[o.visit]; v.stamp == o.stamp {
			q.close(o.visit, true)
		}
	}
	if d.head > 1024 && d.head*2 > len(d.items) {
		d.items = d.items[:copy(d.items, d.items[d.head:])]
		d.head = 0
	}
}

// close counts the outcome of a root once.
func (q *requests) close(i int32, lost bool) {
	v := &q.visits[i]
	if v.closed {
		return
	}
	v.closed = true
	t := &q.w.totals
	if v.task {
		t.TasksEnded++
		if lost || q.now-v.began > q.w.within {
			t.TasksLate++
		}
		return
	}
	latency := q.now - v.began
	t.Ended++
	if lost || latency > q.w.timeout {
		t.Lost++
		latency = q.w.timeout
	}
	if slo := q.w.graph.SLO.Latency.Seconds(); lost || slo > 0 && latency > slo {
		t.Missed++
	}
	q.done.put(latency, 1)
}

// enter assigns a request to a replica of its service.
func (q *requests) enter(i int32) {
	v := &q.visits[i]
	o := &q.w.graph.ops[v.op]
	s := &q.w.services[o.service]
	s.arrived++
	v.entered = q.now
	v.rest = o.work * s.slow * q.work[o.service].Rand()
	pods := q.serving[o.service]
	if len(pods) == 0 {
		q.fail(i)
		return
	}
	k := pods[0]
	if len(pods) > 1 {
		k = pods[q.rng.IntN(len(pods))]
	}
	q.admit(k, i)
}

// proceed starts the next stage of calls of a request, or ends it.
func (q *requests) proceed(i int32) {
	o := &q.w.graph.ops[q.visits[i].op]
	for int(q.visits[i].stage) < len(o.stages) {
		stage := o.stages[q.visits[i].stage]
		q.visits[i].stage++
		q.visits[i].pending = 1 // until all calls are sent
		for _, e := range stage {
			if q.visits[i].lost {
				break
			}
			if e.share >= 1 || q.rng.Float64() < e.share {
				q.visits[i].pending++
				q.send(q.newVisit(visit{op: int32(e.op), parent: i, task: q.visits[i].task, began: q.now}))
			}
		}
		q.visits[i].pending--
		if q.visits[i].lost {
			q.release(i)
			return
		}
		if q.visits[i].pending > 0 {
			return
		}
	}
	q.complete(i, o)
}

// complete ends a request with an answer.
func (q *requests) complete(i int32, o *op) {
	s := &q.w.services[o.service]
	s.completed++
	s.answered++
	q.exit(i)
	for _, e := range o.background {
		if e.share >= 1 || q.rng.Float64() < e.share {
			v := q.newVisit(visit{op: int32(e.op), parent: -1, root: true, task: true, began: q.now})
			q.w.totals.Tasks++
			q.tasks.items = append(q.tasks.items, deadline{q.now, v, q.visits[v].stamp})
			q.send(v)
		}
	}
	if q.visits[i].root {
		q.close(i, false)
		q.disconnect(i)
		q.release(i)
		return
	}
	parent := q.visits[i].parent
	q.release(i)
	q.visits[parent].pending--
	switch {
	case q.visits[parent].lost:
		q.release(parent)
	case q.visits[parent].pending == 0:
		q.proceed(parent)
	}
}

// send delivers a request to its service.
func (q *requests) send(i int32) {
	if delay := q.w.services[q.w.graph.ops[q.visits[i].op].service].delay; delay > 0 {
		q.push(event{at: q.now + delay, kind: arrives, who: i, stamp: q.visits[i].stamp})
		return
	}
	q.enter(i)
}

// fail ends a request without an answer. It is in no queue of its pod any more.
// The request that waits for it fails too.
func (q *requests) fail(i int32) {
	v := &q.visits[i]
	v.lost = true
	q.w.services[q.w.graph.ops[v.op].service].failed++
	q.exit(i)
	v = &q.visits[i]
	if v.root {
		q.close(i, true)
		q.disconnect(i)
		q.release(i)
		return
	}
	parent := v.parent
	q.release(i)
	q.visits[parent].pending--
	if !q.visits[parent].lost {
		q.fail(parent)
	} else {
		q.release(parent)
	}
}

// histogram implements [engine].
func (q *requests) histogram(_ *World, t *histogram) {
	t.add(q.done)
	q.done.reset()
}

// drop implements [engine].
func (q *requests) drop(_ *service, r *replica) float64 {
	if r.pod < 0 {
		return 0
	}
	p := &q.pods[r.pod]
	p.dead = true
	p.stamp++
	p.line.reset()
	p.ready.reset()
	p.running = p.running[:0]
	for len(q.pods[r.pod].all) > 0 {
		q.fail(q.pods[r.pod].all[0])
	}
	q.unused = append(q.unused, r.pod)
	r.pod = -1
	r.backlog, r.queued = 0, 0
	return 0 // fail has counted them
}

// inside implements [engine].
func (q *requests) inside(r *replica) float64 {
	if r.pod < 0 {
		return 0
	}
	return float64(len(q.pods[r.pod].all))
}

// occupied implements [engine].
func (q *requests) occupied(_ *service, r *replica) float64 { return q.inside(r) }

// open implements [engine].
func (q *requests) open() (clients, tasks float64) {
	t := &q.w.totals
	return t.Requests - t.Ended, t.Tasks - t.TasksEnded
}
