package sim

import "math/rand/v2"

// draws is the number of sample requests per operation and window. The samples
// are stratified: each 256th of the distribution of work has one. Their order
// is random for each operation and window. A percentile then has much less
// noise than with independent samples.
const (
	drawBits = 8
	draws    = 1 << drawBits
)

// histogram implements [engine]. It computes end-to-end latencies from the
// leaves of the call graph upwards. Each operation has the same number of
// sample latencies. Stages are added, parallel calls wait for the slowest, and
// nobody waits for background calls.
func (f *fluid) histogram(w *World, t *histogram) {
	g := w.graph
	f.start = w.now - w.window - foresight
	f.total = f.sum(len(f.moves), f.start, w.window)
	for k := range f.jitter {
		f.jitter[k] = float64(w.rng.Uint64()>>11) * 0x1p-53
	}
	for _, i := range g.order {
		if g.ops[i].visits > 0 {
			f.operation(w, i)
		}
	}
	for i := range w.services {
		w.services[i].updateHold(w, f)
	}
	f.outcomes(w, t)
}

// timeline says when the samples of an operation arrived. They are divided among the
// slices as the operation's arrivals are, so that a sample finds as much company as a
// request does. The timelines join the operations: a sample that calls another
// operation meets a sample that arrived there when it called. A burst that throttles
// several services does so for the same requests.
type timeline struct {
	slot  [draws]int32   // slice of the window in which sample k arrives
	rank  [draws]float64 // its rank among the slice's arrivals, from 0 to 1
	at    [draws]float64 // its arrival, in slices since the start of the window
	first []int32        // of each slice: its first sample, and one more

	crowded bool        // some samples come together with others
	held    [draws]bool // sample k ends together with others that throttling has held
}

// foresight is the number of slices by which a window of latencies lags: for its
// last requests too, these slices are known and need not be guessed.
const foresight = 10

// plan divides the samples among the slices of a window in proportion to what arrived
// in them, and evenly when nothing did. The samples of a slice have evenly spaced
// ranks, each moved by its jitter.
func (t *timeline) plan(f *fluid, window int64, op int, st *station) {
	total := f.sum(op, f.start, window)
	scale := draws / total
	t.crowded = false
	k, before := 0, 0.0
	for i := range window {
		t.first[i] = int32(k)
		at := f.start + i
		switch {
		case total == 0:
			before += draws / float64(window)
		case at >= 0:
			before += f.came(at)[op] * scale
		}
		to := min(draws, int(before+0.5))
		if k == to {
			continue
		}
		crowd, rank, step := st.crowd(at), 0.0, 1/float64(to-k)
		t.crowded = t.crowded || crowd.share > 0
		for ; k < to; k++ {
			t.slot[k] = int32(i)
			t.rank[k] = rank + step*f.jitter[k]
			t.at[k] = float64(i) + crowd.time(t.rank[k])
			rank += step
		}
	}
	for ; k < draws; k++ { // rounding
		t.slot[k] = int32(window - 1)
		t.rank[k], t.at[k] = 0.5, float64(window)-0.5
	}
	t.first[window] = draws
}

// sum adds what came in the slices of a window: see [fluid.came].
func (f *fluid) sum(column int, start, window int64) (total float64) {
	for slice := max(0, start); slice < start+window; slice++ {
		total += f.came(slice)[column]
	}
	return total
}

// near is the range of the samples that stand for a call in a slice that has none:
// those of a slice beside it, or all.
func (t *timeline) near(slot int) (from, to int32) {
	if slot+2 < len(t.first) && t.first[slot+1] < t.first[slot+2] {
		return t.first[slot+1], t.first[slot+2]
	}
	if slot > 0 && t.first[slot-1] < t.first[slot] {
		return t.first[slot-1], t.first[slot]
	}
	return 0, draws
}

// callee is an operation that is called.
type callee struct {
	*move
	station   *station  // of its service
	start     int64     // first slice of the window
	latencies []float64 // of its samples
	network   float64   // seconds to reach it
}

// meet is the sample of a callee that stands for the call that sample k makes
// after seconds, and the time in seconds since k's arrival at which it ends.
//
// A request that throttling has held calls at the start of a slice, together with
// the others that were held: it is one of the callee's crowd in that slice, and if it
// is held again, it waits for the next slice with them. Any other request calls at its
// own time.
func (t *timeline) meet(k int, after float64, to *callee, rng *rand.PCG) (j int, end float64) {
	when := min(t.at[k]+after*slicesPerSecond, float64(len(t.first)-1)-1e-6)
	slot := int(when)
	a, b := to.timeline.first[slot], to.timeline.first[slot+1]
	own := a < b
	if !own { // nobody came in that slice
		a, b = to.timeline.near(slot)
	}
	rank, together := when-float64(slot), false
	switch {
	case !own:
		rank = float64(rng.Uint64()>>11) * 0x1p-53
	case to.timeline.crowded:
		crowd := to.station.crowd(to.start + int64(slot))
		if together = t.held[k] && crowd.share > 0; together {
			rank = crowd.first() + crowd.share*float64(rng.Uint64()>>11)*0x1p-53
		} else {
			rank = crowd.rank(rank)
		}
	}
	j = min(int(b)-1, int(a)+int(rank*float64(b-a)))
	end = after + to.latencies[j]
	if together && to.timeline.held[j] {
		end = max(after, (to.timeline.at[j]-t.at[k])*slice+to.latencies[j])
	}
	return j, end
}

// outcomes counts how the requests of the window fared, and adds the clients'
// latencies to t.
func (f *fluid) outcomes(w *World, t *histogram) {
	g := w.graph
	slo := g.SLO.Latency.Seconds()
	clients := f.total
	for k, e := range g.endpoints {
		delay := w.services[g.ops[e].service].delay
		weight := clients * g.shares[k] / draws
		if weight == 0 {
			continue
		}
		t.putAll(f.vectors[e], delay, w.timeout, weight)
		lost, missed := 0, 0
		for _, l := range f.vectors[e] {
			if l+delay > w.timeout {
				lost++
			}
			if slo > 0 && l+delay > slo || l+delay > w.timeout {
				missed++
			}
		}
		w.totals.Lost += float64(lost) * weight
		w.totals.Missed += float64(missed) * weight
	}
	w.totals.Ended += clients
	for i := range f.moves {
		for _, r := range f.moves[i].routes {
			if r.tasks {
				f.tasksEnd(w, r.calls)
			}
		}
	}
}

// tasksEnd counts how the background calls of the window fared.
func (f *fluid) tasksEnd(w *World, calls []leg) {
	for k := range calls {
		late := 0
		for _, l := range f.vectors[calls[k].to] {
			if l > w.within {
				late++
			}
		}
		w.totals.TasksEnded += calls[k].tasks
		w.totals.TasksLate += calls[k].tasks * float64(late) / draws
		calls[k].tasks = 0
	}
}

// neverAnswered is the latency of a request that fails after a long wait, refused
// that of one that fails at once, because no container runs. Both are more than
// any timeout, and still so when other latencies are added.
const (
	neverAnswered = 1e9
	refused       = 1e12
)

// operation samples the latencies of an operation, with its calls.
func (f *fluid) operation(w *World, i int) {
	o := &w.graph.ops[i]
	m := &f.moves[i]
	s := &w.services[o.service]
	out := f.vectors[i]
	m.calm = f.isCalm(s, o)
	if !m.calm {
		m.timeline.plan(f, w.window, i, &f.stations[o.service])
	}
	f.draw(w, s, o, m, out)
	lag := o.work*s.slow*s.span + o.wait
	m.ok = 1
	for k, stage := range o.stages {
		m.routes[k].setLag(lag / slice)
		longest := 0.0
		for _, e := range stage {
			callee := &f.moves[e.op]
			longest = max(longest, callee.mean*e.share)
			m.ok *= 1 - e.share*(1-callee.answered)
		}
		lag += longest
		f.stage(w, stage, out, m)
	}
	m.summarise(out, w.timeout)
}

// summarise computes the mean latency of an operation in this window, and the
// share of its requests that got an answer. A latency counts up to the timeout,
// a refused request with zero.
func (m *move) summarise(latencies []float64, timeout float64) {
	sum, failed := 0.0, 0
	for _, l := range latencies {
		if l >= neverAnswered {
			failed++
		}
		if l < refused {
			sum += min(l, timeout)
		}
	}
	m.mean = sum / draws
	m.answered = 1 - float64(failed)/draws
}

// stage lets the samples make the calls of a stage, and wait for the slowest.
func (f *fluid) stage(w *World, stage []edge, out []float64, m *move) {
	t := m.timeline
	copy(f.ends, out)
	if !m.calm {
		f.endsHeld = t.held
	}
	for _, e := range stage {
		service := w.graph.ops[e.op].service
		to := callee{&f.moves[e.op], &f.stations[service], f.start, f.vectors[e.op], w.services[service].delay}
		if to.calm { // when a request comes makes no difference, and which of them it is neither
			f.forShare(w, e.share, func(k int) { f.ends[k] = max(f.ends[k], out[k]+to.network+to.latencies[k]) })
			continue
		}
		f.forShare(w, e.share, func(k int) {
			j, end := t.meet(k, out[k]+to.network, &to, w.rng)
			if end > f.ends[k] {
				f.ends[k], f.endsHeld[k] = end, t.held[k] || to.timeline.held[j]
			}
		})
	}
	copy(out, f.ends)
	if !m.calm {
		t.held = f.endsHeld
	}
}

// forShare calls do for a random share of the samples.
func (f *fluid) forShare(w *World, share float64, do func(k int)) {
	if share >= 1 {
		for k := range draws {
			do(k)
		}
		return
	}
	threshold := uint32(share * (1 << 32))
	for k := 0; k < draws; k += 2 {
		u := w.rng.Uint64()
		if uint32(u) < threshold {
			do(k)
		}
		if uint32(u>>32) < threshold {
			do(k + 1)
		}
	}
}

// draw samples the latencies of an operation in its own service, without its
// calls. A request that nothing holds waits for a free processor (Erlang C) and runs.
func (f *fluid) draw(w *World, s *service, o *op, m *move, out []float64) {
	st := &f.stations[o.service]
	work := o.work * s.slow
	chance := uint32(st.waitChance * 4095)
	order := w.rng.Uint64()
	stride, shift := order|1, order>>32
	u := uint64(0)
	for k := range out {
		if u >>= 32; k&1 == 0 { // a random number is enough for two
			u = w.rng.Uint64()
		}
		stratum := (uint64(k)*stride + shift) & (draws - 1)
		g := st.shape[stratum<<(tableBits-drawBits)|u&(1<<(tableBits-drawBits)-1)]
		x := work * g
		latency, free := x*s.span, true
		if !m.calm {
			latency, free = f.serve(w, s, st, m.timeline, k, g, x)
		}
		out[k] = o.wait + latency
		if free && uint32(u>>4&tableMask) < chance {
			out[k] += st.wait * expTable[u>>16&tableMask]
		}
	}
}

// serve is the time in seconds that sample k of a timeline, with x CPU seconds of work,
// spends at its replica. free reports that nothing waited in its slice and the quota was
// enough; then a wait for a processor is not in the time yet. All that was not so
// straight goes through what the replica did: see [fluid.replay].
func (f *fluid) serve(
	w *World, s *service, st *station, t *timeline, k int, g, x float64,
) (latency float64, free bool) {
	u := w.rng.Uint64()
	slot := max(0, f.start+int64(t.slot[k]))
	r := s.servedBy(slot, u>>48)
	if r == nil {
		t.held[k] = false
		return refused, false
	}
	t.held[k] = t.crowded && st.crowd(slot).has(t.rank[k])
	sp := r.flow.at(slot)
	ends := (t.at[k]-float64(t.slot[k]))*slice + x*s.span
	if sp.state == calm && !t.held[k] && ends <= slice && sp.backlog+sp.work+x <= sp.c {
		return x * s.span, true
	}
	latency, throttled := f.replay(w, s, st, r, slot, t.rank[k], normalTable[u>>36&tableMask], g, x, len(s.ops) > 1)
	t.held[k] = t.held[k] || throttled
	return latency, sp.state == calm
}

// isCalm reports whether nothing in the window makes one request of an operation wait
// longer than another: its service and those that it calls neither throttled nor
// queued, and no crowd came.
func (f *fluid) isCalm(s *service, o *op) bool {
	if f.stations[o.service].crowded >= max(0, f.start) {
		return false
	}
	for k := range s.replicas {
		if fl := &s.replicas[k].flow; fl.history == nil || fl.rough >= max(0, f.start) {
			return false
		}
	}
	for _, stage := range o.stages {
		for _, e := range stage {
			if !f.moves[e.op].calm {
				return false
			}
		}
	}
	return len(s.replicas) > 0
}

// servedBy is the replica at which a random one of the requests of a slice
// arrived, and any one that served when none did; nil when none served.
func (s *service) servedBy(slot int64, u uint64) *replica {
	if len(s.replicas) == 1 {
		if r := &s.replicas[0]; r.flow.at(slot).state != absent {
			return r
		}
		return nil
	}
	n := 0.0
	var served *replica
	for k := range s.replicas {
		if sp := s.replicas[k].flow.at(slot); sp.state != absent {
			served = &s.replicas[k]
			n += sp.n
		}
	}
	n *= float64(u&0xffff) * 0x1p-16
	for k := range s.replicas {
		if sp := s.replicas[k].flow.at(slot); sp.state != absent && sp.n > 0 {
			if n -= sp.n; n < 0 {
				return &s.replicas[k]
			}
		}
	}
	return served
}

// updateHold computes how long a request occupies a thread: its own latency and
// the latency of its calls.
func (s *service) updateHold(w *World, f *fluid) {
	total, rate := 0.0, 0.0
	for _, i := range s.ops {
		o := &w.graph.ops[i]
		hold := o.work*s.slow*s.span + o.wait
		for _, stage := range o.stages {
			longest := 0.0
			for _, e := range stage {
				longest = max(longest, f.moves[e.op].mean*e.share)
			}
			hold += longest
		}
		total += hold * w.opRate[i]
		rate += w.opRate[i]
	}
	if rate > 0 {
		s.hold = total / rate
	}
}
