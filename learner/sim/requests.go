package sim

import (
	"container/heap"
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
type requests struct {
	w      *World
	rng    *rand.Rand
	now    float64    // seconds since the start of the world
	events events     // in the future
	serial uint64     // of the last event
	pods   [][]*pod   // per service: the replicas that serve requests
	done   *histogram // latencies of finished client requests
}

// pod is the request level's state of a replica.
type pod struct {
	s         *service
	inside    int      // number of requests that occupy a thread
	line      []*visit // requests that wait for a thread
	ready     []*visit // requests that wait for a processor
	running   []*visit // requests that compute
	left      float64  // quota left in this slice, in CPU seconds
	used      float64  // CPU seconds used in this slice
	at        float64  // time in seconds up to which the running work is computed
	version   uint64   // events with an older version are ignored
	throttled bool     // the quota of this slice is used up
}

// visit is one request at one service.
type visit struct {
	op      int // operation
	parent  *visit
	pod     *pod
	began   float64 // time in seconds at which the caller sent it
	entered float64 // time in seconds at which it reached the service
	rest    float64 // CPU seconds of work left
	stage   int     // next stage of calls
	pending int     // calls of the current stage without an answer
	waits   bool    // the parent waits for the answer
	lost    bool    // it failed
}

// event is one event of the simulation.
type event struct {
	at      float64 // time in seconds
	serial  uint64  // orders events at the same time
	visit   *visit  // it arrives, or its I/O is done
	arrives bool    // the visit arrives
	pod     *pod    // some of its work is done, or its quota is used up
	version uint64  // of the pod when the event was created
}

// events is a heap, the earliest event first.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || (e[i].at == e[j].at && e[i].serial < e[j].serial)
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// newRequests creates the engine of the request level.
func newRequests(w *World) *requests {
	return &requests{
		w:    w,
		rng:  rand.New(w.rng),
		pods: make([][]*pod, len(w.graph.Services)),
		done: &histogram{},
	}
}

// push schedules an event.
func (q *requests) push(e event) {
	q.serial++
	e.serial = q.serial
	heap.Push(&q.events, e)
}

// slice implements [engine].
func (q *requests) slice(w *World) {
	start := float64(w.now) * slice
	q.now = start
	q.begin(w)
	for k, e := range w.graph.endpoints {
		n := int(distuv.Poisson{Lambda: max(1e-12, w.rate*w.graph.shares[k]*slice), Src: q.rng}.Rand())
		for range n {
			at := start + q.rng.Float64()*slice
			delay := w.services[w.graph.ops[e].service].delay
			q.push(event{at: at + delay, arrives: true, visit: &visit{op: e, began: at}})
		}
	}
	end := start + slice
	for len(q.events) > 0 && q.events[0].at < end {
		e := heap.Pop(&q.events).(event)
		q.now = e.at
		switch {
		case e.pod != nil:
			if e.version == e.pod.version {
				q.compute(e.pod)
			}
		case e.arrives:
			q.enter(e.visit)
		default:
			q.proceed(e.visit)
		}
	}
	q.now = end
	q.finish(w)
}

// begin gives every replica its quota.
func (q *requests) begin(w *World) {
	for i := range w.services {
		s := &w.services[i]
		q.pods[i] = q.pods[i][:0]
		for k := range s.replicas {
			r := &s.replicas[k]
			s.given += r.quota
			if w.now < r.ready {
				continue
			}
			p, ok := r.request.(*pod)
			if !ok {
				p = &pod{s: s}
				r.request = p
			}
			p.left = r.capacity
			p.used = 0
			p.throttled = false
			p.at = q.now
			q.pods[i] = append(q.pods[i], p)
			q.schedule(p)
		}
	}
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
			p := r.request.(*pod)
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
				r.backlog += v.rest
			}
			for _, v := range p.ready {
				r.queued += v.rest
			}
			for _, v := range p.line {
				r.queued += w.graph.ops[v.op].work * s.slow
			}
			r.backlog += r.queued
		}
	}
}

// enter assigns a request to a replica of its service.
func (q *requests) enter(v *visit) {
	o := &q.w.graph.ops[v.op]
	s := &q.w.services[o.service]
	s.arrived++
	v.entered = q.now
	shape := 1 / (s.Variation * s.Variation)
	v.rest = o.work * s.slow * distuv.Gamma{Alpha: shape, Beta: shape, Src: q.rng}.Rand()
	pods := q.pods[o.service]
	if len(pods) == 0 {
		q.fail(v)
		return
	}
	p := pods[q.rng.IntN(len(pods))]
	v.pod = p
	if p.inside >= s.Threads {
		p.line = append(p.line, v)
		return
	}
	p.inside++
	p.ready = append(p.ready, v)
	q.compute(p)
}

// advance computes the work that a replica did since its last event.
func (q *requests) advance(p *pod) {
	if n := len(p.running); n > 0 && p.left > 0 {
		each := min((q.now-p.at)/p.s.span, p.left/float64(n))
		for _, v := range p.running {
			v.rest -= each
		}
		p.left -= each * float64(n)
		p.used += each * float64(n)
	}
	p.at = q.now
}

// tiny is the work in CPU seconds below which a request is done.
const tiny = 1e-11

// compute advances a replica, releases the requests that are done, and starts
// the ones that wait.
func (q *requests) compute(p *pod) {
	q.advance(p)
	kept := p.running[:0]
	var done []*visit
	for _, v := range p.running {
		if v.rest <= tiny {
			done = append(done, v)
		} else {
			kept = append(kept, v)
		}
	}
	p.running = kept
	for len(p.running) < p.s.Procs && len(p.ready) > 0 {
		v := p.ready[0]
		p.ready = p.ready[1:]
		if q.now-v.entered > q.w.timeout {
			q.fail(v)
			q.leave(p)
			continue
		}
		p.running = append(p.running, v)
	}
	q.schedule(p)
	for _, v := range done {
		if wait := q.w.graph.ops[v.op].wait; wait > 0 {
			q.push(event{at: q.now + wait, visit: v})
		} else {
			q.proceed(v)
		}
	}
}

// schedule creates the next event of a replica: some work is done, or the quota
// is used up.
func (q *requests) schedule(p *pod) {
	p.version++
	n := len(p.running)
	if n == 0 {
		return
	}
	if p.left <= tiny {
		p.throttled, p.left = true, 0
		return
	}
	next := p.left / float64(n)
	for _, v := range p.running {
		next = min(next, v.rest)
	}
	q.push(event{at: q.now + max(0, next)*p.s.span, pod: p, version: p.version})
}

// proceed starts the next stage of calls of a request, or ends it.
func (q *requests) proceed(v *visit) {
	o := &q.w.graph.ops[v.op]
	for v.stage < len(o.stages) {
		stage := o.stages[v.stage]
		v.stage++
		var out []int
		for _, e := range stage {
			if e.share >= 1 || q.rng.Float64() < e.share {
				out = append(out, e.op)
			}
		}
		if len(out) == 0 {
			continue
		}
		v.pending = len(out)
		for _, to := range out {
			q.call(to, v, true)
		}
		return
	}
	p := v.pod
	p.s.completed++
	q.leave(p)
	for _, e := range o.background {
		if e.share >= 1 || q.rng.Float64() < e.share {
			q.call(e.op, v, false)
		}
	}
	q.answer(v, q.now-v.began)
}

// call sends a call of operation to.
func (q *requests) call(to int, from *visit, waits bool) {
	v := &visit{op: to, parent: from, waits: waits, began: q.now}
	q.push(event{at: q.now + q.w.services[q.w.graph.ops[to].service].delay, arrives: true, visit: v})
}

// answer reports the end of a request to its caller. latency is in seconds.
func (q *requests) answer(v *visit, latency float64) {
	if v.parent == nil {
		q.done.put(min(latency, q.w.timeout), 1)
		return
	}
	if !v.waits {
		return
	}
	v.parent.pending--
	if v.parent.pending == 0 && !v.parent.lost {
		q.proceed(v.parent)
	}
}

// fail ends a request with a timeout.
func (q *requests) fail(v *visit) {
	v.lost = true
	q.w.services[q.w.graph.ops[v.op].service].failed++
	q.answer(v, q.w.timeout)
}

// leave frees a thread and gives it to the next request in the line.
func (q *requests) leave(p *pod) {
	p.inside--
	for len(p.line) > 0 && p.inside < p.s.Threads {
		v := p.line[0]
		p.line = p.line[1:]
		if q.now-v.entered > q.w.timeout {
			q.fail(v)
			continue
		}
		p.inside++
		p.ready = append(p.ready, v)
		q.push(event{at: q.now, pod: p, version: p.version})
	}
}

// histogram implements [engine].
func (q *requests) histogram(_ *World, t *histogram) {
	t.add(q.done)
	q.done.reset()
}

// drop implements [engine]. Requests that wait for the answers of their calls
// stay.
func (q *requests) drop(_ *service, r *replica) float64 {
	p, ok := r.request.(*pod)
	if !ok {
		return 0
	}
	r.request = nil
	r.backlog, r.queued = 0, 0
	for _, vs := range [][]*visit{p.running, p.ready, p.line} {
		for _, v := range vs {
			q.fail(v)
		}
	}
	p.inside -= len(p.running) + len(p.ready)
	p.running = nil
	p.ready = nil
	p.line = nil
	p.version++
	return 0 // fail has counted them
}

// move implements [engine].
func (q *requests) move(s *service, from, to *replica) {
	a, ok := from.request.(*pod)
	if !ok {
		return
	}
	b, ok := to.request.(*pod)
	if !ok {
		b = &pod{s: s}
		to.request = b
	}
	for _, v := range append(a.running, a.ready...) {
		v.pod = b
		b.inside++
		b.ready = append(b.ready, v)
	}
	for _, v := range a.line {
		v.pod = b
		b.line = append(b.line, v)
	}
	a.inside -= len(a.running) + len(a.ready)
	a.running = nil
	a.ready = nil
	a.line = nil
	a.version++
}

// waiting implements [engine].
func (q *requests) waiting(_ *service, r *replica) float64 {
	p, ok := r.request.(*pod)
	if !ok {
		return 0
	}
	return float64(len(p.running) + len(p.ready) + len(p.line))
}

// inside implements [engine].
func (q *requests) inside(s *service) float64 {
	n := 0
	for k := range s.replicas {
		if p, ok := s.replicas[k].request.(*pod); ok {
			n += p.inside + len(p.line)
		}
	}
	return float64(n)
}
