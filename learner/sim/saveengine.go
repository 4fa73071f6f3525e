package sim

import "math"

// state implements [engine]. The sample requests and their timeline are made anew
// at the end of each window, and are not saved.
func (f *fluid) state(a *archive) {
	for _, came := range f.arrivals {
		a.amounts(came)
	}
	for i := range f.moves {
		m := &f.moves[i]
		for k := range int64(ring) {
			slice := f.world.now + k
			m.crowds[slice&(ring-1)].state(a, f.came(slice)[i])
		}
		integer(a, &m.until)
		float(a, &m.jobs, &m.credit, &m.ok, &m.mean, &m.answered)
		for k := range m.routes {
			m.routes[k].state(a)
		}
	}
	for i := range f.stations {
		f.stations[i].state(a)
	}
	for i := range f.world.services {
		replicas := f.world.services[i].replicas
		for k := range replicas {
			replicas[k].flow.state(a, int(slots(f.world.window+foresight)))
		}
	}
}

// state writes or reads what changes of a route.
func (r *route) state(a *archive) {
	lag := r.lag
	float(a, &lag)
	a.check(lag >= 0, "calls %v slices after the work: it must not be negative", lag)
	if a.reading && a.err == nil {
		r.setLag(lag)
	}
	for k := range r.calls {
		float(a, &r.calls[k].tasks)
	}
}

// state writes or reads what comes together of n requests.
func (t *crowdSum) state(a *archive, n float64) {
	float(a, &t.n, &t.times)
	a.check(t.n >= 0 && t.n <= n && t.times >= 0 && t.times <= t.n, "%v of %v requests come together, at %v", t.n, n, t.times)
}

// state writes or reads a crowd.
func (c *crowd) state(a *archive) {
	float(a, &c.share, &c.at)
	a.check(c.share >= 0 && c.share <= 1 && c.at >= 0 && c.at <= 1, "crowd of %v at %v: both must be from 0 to 1", c.share, c.at)
}

// state writes or reads the constants of a second. The table of cubes follows
// from them.
func (st *station) state(a *archive) {
	for k := range st.crowds {
		st.crowds[k].state(a)
	}
	integer(a, &st.crowded)
	integer(a, &st.mark)
	in := &st.inputs
	integer(a, &in.live)
	float(a, &in.rate, &in.mix, &in.square, &in.slow, &in.hold)
	float(a, &st.mean, &st.work, &st.perWork, &st.inverseShape, &st.procs, &st.maxWork)
	float(a, &st.residual, &st.busyChance, &st.left, &st.waitChance, &st.wait)
	if a.reading && st.inverseShape > 0 {
		st.tabulate()
	}
}

// state writes or reads a flow whose history has the given length once it has
// begun.
func (fl *flow) state(a *archive, length int) {
	float(a, &fl.jobs, &fl.arrived, &fl.gone)
	integer(a, &fl.turn)
	integer(a, &fl.killed)
	integer(a, &fl.rough)
	list(a, &fl.past, func(v *float64) { float(a, v) })
	list(a, &fl.history, func(sp *spell) {
		float(a, &sp.backlog, &sp.work, &sp.c, &sp.n)
		integer(a, &sp.state)
		a.check(sp.state <= killed, "state of a replica in a slice %d: it must be at most %d", sp.state, killed)
	})
	a.check(fl.turn >= 0 && fl.turn < pasts, "turn %d: it must be from 0 to %d", fl.turn, pasts-1)
	a.check(len(fl.past) == 0 || len(fl.past) == pasts, "%d past values: it must be %d", len(fl.past), pasts)
	a.check(len(fl.history) == 0 || len(fl.history) == length, "history of %d slices: it must be %d",
		len(fl.history), length)
}

// state implements [engine]. Which pods take requests is found anew in each
// slice, and is not saved.
func (q *requests) state(a *archive) {
	float(a, &q.now, &q.end)
	elapsed := q.w.Elapsed().Seconds()
	a.check(math.Abs(q.now-elapsed) < 1e-3 && math.Abs(q.end-elapsed) < 1e-3,
		"requests at %v s and %v s: the world is at %v s", q.now, q.end, elapsed)
	n := len(q.visits)
	a.length(&n)
	pods := len(q.pods)
	a.length(&pods)
	if a.reading {
		q.visits, q.pods = nil, nil
	}
	for i := 0; i < n && a.err == nil; i++ {
		if a.reading {
			q.visits = append(q.visits, visit{})
		}
		q.visits[i].state(a, q, n, pods)
	}
	list(a, &q.events.heap, func(e *event) {
		float(a, &e.at)
		a.serial(&e.serial)
		integer(a, &e.kind)
		a.index(&e.who, 0, n, "visit of an event")
		integer(a, &e.stamp)
		// Between two slices no visit's end is scheduled: see requests.schedule.
		a.check(e.kind < computed, "event of kind %d: it must be below %d", e.kind, computed)
	})
	a.serial(&q.events.serial)
	a.indexes(&q.free, n, "unused visit")
	for k := 0; k < pods && a.err == nil; k++ {
		if a.reading {
			q.pods = append(q.pods, pod{})
		}
		q.pods[k].state(a, q)
	}
	a.indexes(&q.unused, pods, "unused pod")
	for _, d := range []*deadlines{&q.clients, &q.tasks} {
		left := d.items[d.head:]
		list(a, &left, func(o *deadline) {
			float(a, &o.began)
			a.index(&o.visit, 0, n, "visit of a deadline")
			integer(a, &o.stamp)
		})
		if a.reading {
			*d = deadlines{items: left}
		}
	}
	for i := range q.wires {
		a.bools(&q.wires[i].open)
		a.indexes(&q.wires[i].waiting, n, "visit that waits for a connection")
	}
	q.done.state(a)
	if a.reading && a.err == nil {
		q.consistent(a)
	}
}

func (v *visit) state(a *archive, q *requests, visits, pods int) {
	a.index(&v.op, 0, len(q.w.graph.ops), "operation of a visit")
	a.index(&v.parent, -1, visits, "parent of a visit")
	a.index(&v.pod, -1, pods, "pod of a visit")
	integer(a, &v.slot)
	integer(a, &v.stamp)
	integer(a, &v.pending)
	integer(a, &v.stage)
	a.bools(&v.root, &v.task, &v.threaded, &v.lost, &v.closed)
	a.index(&v.wire, 0, len(q.wires)+1, "connection of a visit")
	float(a, &v.began, &v.entered, &v.rest)
	a.check(v.root == (v.parent < 0), "a visit with parent %d: only a root has none", v.parent)
	a.check(v.stage >= 0, "stage %d of a visit: it must not be negative", v.stage)
}

func (p *pod) state(a *archive, q *requests) {
	visits := len(q.visits)
	a.index(&p.service, 0, len(q.w.services), "service of a pod")
	a.bools(&p.dead, &p.throttled)
	integer(a, &p.stamp)
	integer(a, &p.threads)
	a.indexes(&p.all, visits, "visit in a pod")
	for _, line := range []*fifo{&p.line, &p.ready} {
		waiting := line.waiting()
		a.indexes(&waiting, visits, "visit that waits in a pod")
		if a.reading {
			*line = fifo{items: waiting}
		}
	}
	list(a, &p.running, func(r *run) {
		float(a, &r.until)
		a.index(&r.visit, 0, visits, "visit on a processor")
	})
	float(a, &p.given, &p.at, &p.left, &p.used)
	most := q.end / q.w.services[p.service].span
	a.check(p.given >= 0 && p.given <= most+1, "a processor has given %v CPU seconds: it must be in [0, %v]", p.given, most)
}

// consistent checks what the engine relies on: indexes that refer to each other
// agree, and everything is in one place only.
func (q *requests) consistent(a *archive) {
	placed := make([]bool, len(q.visits))
	place := func(v int32, pod int32, where string) {
		a.check(!placed[v] && q.visits[v].pod == pod, "visit %d %s: it is in another place too, or belongs to pod %d",
			v, where, q.visits[v].pod)
		placed[v] = true
	}
	inside := 0
	for k := range q.pods {
		p := &q.pods[k]
		inside += len(p.all)
		for slot, v := range p.all {
			a.check(q.visits[v].pod == int32(k) && int(q.visits[v].slot) == slot,
				"visit %d in slot %d of pod %d: it says slot %d of pod %d", v, slot, k, q.visits[v].slot, q.visits[v].pod)
		}
		for _, v := range p.line.waiting() {
			place(v, int32(k), "waits for a thread")
		}
		for _, v := range p.ready.waiting() {
			place(v, int32(k), "waits for a processor")
		}
		for _, r := range p.running {
			place(r.visit, int32(k), "is on a processor")
		}
	}
	for i := range q.visits {
		if q.visits[i].pod >= 0 {
			inside--
		}
	}
	a.check(inside == 0, "%d more visits are in pods than say so", inside)
	for _, e := range q.events.heap {
		if v := &q.visits[e.who]; v.stamp == e.stamp {
			pod := int32(-1)
			if e.kind == ioDone {
				pod = v.pod
			}
			place(e.who, pod, "has an event")
		}
	}
	for i := range q.wires {
		for _, v := range q.wires[i].waiting {
			place(v, -1, "waits for a connection")
		}
	}
	for _, v := range q.free {
		place(v, -1, "is unused")
	}
	q.podsBelong(a)
}

// podsBelong checks that each pod belongs to one replica, or is unused and empty.
func (q *requests) podsBelong(a *archive) {
	taken := make([]bool, len(q.pods))
	for i := range q.w.services {
		for _, r := range q.w.services[i].replicas {
			if r.pod == -1 {
				continue
			}
			if r.pod < 0 || int(r.pod) >= len(q.pods) {
				a.fail("replica with pod %d: there are %d", r.pod, len(q.pods))
				return
			}
			a.check(!taken[r.pod] && int(q.pods[r.pod].service) == i, "pod %d: two replicas have it, or another service",
				r.pod)
			taken[r.pod] = true
		}
	}
	for _, k := range q.unused {
		a.check(!taken[k] && len(q.pods[k].all) == 0, "unused pod %d: it has a replica or requests", k)
		taken[k] = true
	}
}
