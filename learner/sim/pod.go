package sim

// pod is the request level's state of a replica: threads, processors, and the
// quota of the current slice. All running visits progress equally: a request
// that has a processor keeps it until its work is done, and all stop when the
// quota is used up.
type pod struct {
	service   int32
	dead      bool    // it is being emptied: nothing starts any more
	throttled bool    // the quota of this slice is used up
	stamp     uint32  // see event
	threads   int32   // visits that occupy a thread
	all       []int32 // all visits inside
	line      fifo    // visits that wait for a thread
	ready     fifo    // visits that wait for a processor
	running   []run
	given     float64 // CPU seconds that each processor has given since the pod started
	at        float64 // time up to which given is computed, in seconds
	left      float64 // quota left in this slice, in CPU seconds
	used      float64 // CPU seconds used in this slice
}

// run is a visit on a processor. It is done when the pod's given reaches until.
type run struct {
	until float64
	visit int32
}

// fifo is a queue of visits.
type fifo struct {
	items []int32
	head  int
}

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) push(v int32) {
	if f.head > 32 && f.head*2 > len(f.items) {
		f.items = f.items[:copy(f.items, f.items[f.head:])]
		f.head = 0
	}
	f.items = append(f.items, v)
}

func (f *fifo) pop() int32 {
	v := f.items[f.head]
	f.head++
	return v
}

func (f *fifo) reset() { f.items, f.head = f.items[:0], 0 }

// waiting lists the visits in the queue.
func (f *fifo) waiting() []int32 { return f.items[f.head:] }

// tiny is the work in CPU seconds below which a request is done. It is more than the
// distance of neighbouring floating-point numbers at a world that is a year old.
const tiny = 1e-8

// advance computes the work that a pod did since its last event.
func (q *requests) advance(p *pod) {
	if n := float64(len(p.running)); n > 0 && p.left > 0 {
		each := min((q.now-p.at)/q.w.services[p.service].span, p.left/n)
		p.given += each
		p.left -= each * n
		p.used += each * n
	}
	p.at = q.now
}

// schedule creates the next event of a pod within this slice: a visit has
// computed, or the quota is used up. Every slice schedules again.
func (q *requests) schedule(k int32) {
	p := &q.pods[k]
	p.stamp++
	n := len(p.running)
	if n == 0 {
		return
	}
	if p.left <= tiny {
		p.throttled, p.left = true, 0
		return
	}
	next := p.left / float64(n)
	for _, r := range p.running {
		next = min(next, r.until-p.given)
	}
	if at := q.now + max(0, next)*q.w.services[p.service].span; at < q.end {
		q.push(event{at: at, kind: computed, who: k, stamp: p.stamp})
	}
}

// start gives a processor to a visit, or lets it wait for one. The pod is
// advanced.
func (q *requests) start(k, v int32) {
	p := &q.pods[k]
	if len(p.running) < q.w.services[p.service].Procs {
		p.running = append(p.running, run{p.given + q.visits[v].rest, v})
		q.schedule(k)
		return
	}
	p.ready.push(v)
}

// compute handles the event of a pod: at most one visit has computed. It gives
// its processor to the next one.
func (q *requests) compute(k int32) {
	p := &q.pods[k]
	q.advance(p)
	done := int32(-1)
	least := 0
	for i, r := range p.running {
		if r.until < p.running[least].until {
			least = i
		}
	}
	if p.running[least].until-p.given <= tiny {
		done = p.running[least].visit
		p.running[least] = p.running[len(p.running)-1]
		p.running = p.running[:len(p.running)-1]
		for len(p.running) < q.w.services[p.service].Procs && p.ready.len() > 0 {
			v := p.ready.pop()
			if q.patient(v) {
				p.running = append(p.running, run{p.given + q.visits[v].rest, v})
				continue
			}
			q.fail(v)
		}
	}
	q.schedule(k)
	if done < 0 {
		return
	}
	if wait := q.w.graph.ops[q.visits[done].op].wait; wait > 0 {
		q.push(event{at: q.now + wait, kind: ioDone, who: done, stamp: q.visits[done].stamp})
		return
	}
	q.proceed(done)
}

// patient reports whether a visit that waited for its turn is still wanted.
func (q *requests) patient(v int32) bool {
	limit := q.w.timeout
	if q.visits[v].task {
		limit = q.w.within
	}
	return q.now-q.visits[v].entered <= limit
}

// admit puts a visit into a pod, where it takes a thread or waits for one.
func (q *requests) admit(k, v int32) {
	p := &q.pods[k]
	q.visits[v].pod = k
	q.visits[v].slot = int32(len(p.all))
	p.all = append(p.all, v)
	if int(p.threads) >= q.w.services[p.service].Threads {
		p.line.push(v)
		return
	}
	p.threads++
	q.visits[v].threaded = true
	q.advance(p)
	q.start(k, v)
}

// exit takes a visit out of its pod, and gives its thread to the next one in
// the line.
func (q *requests) exit(v int32) {
	k := q.visits[v].pod
	if k < 0 {
		return
	}
	p := &q.pods[k]
	last := p.all[len(p.all)-1]
	p.all[q.visits[v].slot] = last
	q.visits[last].slot = q.visits[v].slot
	p.all = p.all[:len(p.all)-1]
	q.visits[v].pod = -1
	if !q.visits[v].threaded {
		return
	}
	q.visits[v].threaded = false
	p.threads--
	for !p.dead && p.line.len() > 0 && int(p.threads) < q.w.services[p.service].Threads {
		next := p.line.pop()
		if !q.patient(next) {
			q.fail(next)
			continue
		}
		p.threads++
		q.visits[next].threaded = true
		q.advance(p)
		q.start(k, next)
	}
}
