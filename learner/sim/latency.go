package sim

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
	f.plan(w)
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

// timeline joins the samples of all operations in time. Sample k of every
// operation arrived in the same slice: a burst that throttles several services
// does so for the same requests.
type timeline struct {
	slot  [draws]int32   // slice of the window in which sample k of every operation arrives
	phase [draws]float64 // its arrival, as a share of the slice
	first []int32        // of each slice: its first sample, and one more

	start   int64   // first slice of the window
	clients float64 // requests of clients in the window
}

// foresight is the number of slices by which a window of latencies lags: for its
// last requests too, these slices are known and need not be guessed.
const foresight = 10

// plan divides the samples among the slices in proportion to the clients'
// requests in them.
func (f *fluid) plan(w *World) {
	t := &f.timeline
	t.start = w.now - w.window - foresight
	t.clients = 0
	for slot := max(0, t.start); slot < t.start+w.window; slot++ {
		t.clients += f.clients[int(slot)&(len(f.clients)-1)]
	}
	k, sum := 0, 0.0
	for i := range w.window {
		t.first[i] = int32(k)
		if t.start+i >= 0 {
			sum += f.clients[int(t.start+i)&(len(f.clients)-1)]
		}
		for k < draws && (float64(k)+0.5)*t.clients <= sum*draws && sum > 0 {
			t.slot[k] = int32(i)
			k++
		}
	}
	for ; k < draws; k++ {
		t.slot[k] = int32(w.window - 1)
	}
	t.first[w.window] = draws
	for k := range draws {
		a, b := t.first[t.slot[k]], t.first[t.slot[k]+1]
		t.phase[k] = (float64(k-int(a)) + float64(w.rng.Uint64()>>11)*0x1p-53) / float64(max(1, b-a))
	}
}

// callee is an operation that is called.
type callee struct {
	*move
	latencies []float64 // of its samples
	network   float64   // seconds to reach it
	together  bool      // all its requests come to one replica
}

// meet is the sample of a callee that stands for the call that sample k makes
// after seconds, and the time in seconds since k's arrival at which it ends.
//
// A request that throttling has held calls at the start of a slice, together with
// the others that were held: its rank among the callee's arrivals in the slice is
// random, and if it is held again, it waits for the next slice with them. Any
// other request calls at its own time.
func (t *timeline) meet(k int, after float64, held bool, to *callee, u uint64) (j int, end float64) {
	slots := len(t.first) - 1
	when := min(float64(t.slot[k])+t.phase[k]+after*slicesPerSecond, float64(slots)-1e-6)
	slot := int(when)
	a, b := t.first[slot], t.first[slot+1]
	if a == b { // nobody came in that slice: take a neighbour
		a = min(draws-1, a)
		b = a + 1
	}
	if !held {
		j = int(a) + int((when-float64(slot))*float64(b-a))
		return j, after + to.latencies[j]
	}
	j = int(a) + int(uint64(uint32(u))*uint64(b-a)>>32)
	if !to.held[j] && to.together {
		// Those that come together to one replica share its quota, so that more of
		// them are held than of requests that come one by one: a second try.
		j = int(a) + int(uint64(uint32(u>>32))*uint64(b-a)>>32)
	}
	if !to.held[j] || int(t.slot[j]) != slot {
		return j, after + to.latencies[j]
	}
	own := (float64(slot) + t.phase[j] - float64(t.slot[k]) - t.phase[k]) * slice
	return j, max(after, own+to.latencies[j])
}

// outcomes counts how the requests of the window fared, and adds the clients'
// latencies to t.
func (f *fluid) outcomes(w *World, t *histogram) {
	g := w.graph
	slo := g.SLO.Latency.Seconds()
	clients := f.timeline.clients
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
		for k, e := range g.ops[i].background {
			n := f.moves[i].tasks[k]
			f.moves[i].tasks[k] = 0
			late := 0
			for _, l := range f.vectors[e.op] {
				if l > w.within {
					late++
				}
			}
			w.totals.TasksEnded += n
			w.totals.TasksLate += n * float64(late) / draws
		}
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
	f.draw(w, s, o, m, out)
	lag := o.work*s.slow*s.span + o.wait
	m.ok = 1
	for k, stage := range o.stages {
		m.lag[k] = lag / slice
		longest := 0.0
		for _, e := range stage {
			callee := &f.moves[e.op]
			longest = max(longest, callee.mean*e.share)
			m.ok *= 1 - e.share*(1-callee.answered)
		}
		lag += longest
		f.stage(w, stage, out, &m.held)
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
func (f *fluid) stage(w *World, stage []edge, out []float64, held *[draws]bool) {
	copy(f.ends, out)
	f.endsHeld = *held
	for _, e := range stage {
		s := &w.services[w.graph.ops[e.op].service]
		to := callee{&f.moves[e.op], f.vectors[e.op], s.delay, len(s.replicas) == 1}
		f.forShare(w, e.share, func(k int) {
			j, end := f.timeline.meet(k, out[k]+to.network, held[k], &to, w.rng.Uint64())
			if end > f.ends[k] {
				f.ends[k], f.endsHeld[k] = end, held[k] || to.held[j]
			}
		})
	}
	copy(out, f.ends)
	*held = f.endsHeld
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
// calls. A request that arrives in a slice in which nothing waits and the quota
// is enough waits for a free processor (Erlang C) and runs. All others run
// through what their replica did.
func (f *fluid) draw(w *World, s *service, o *op, m *move, out []float64) {
	held := &m.held
	st := &f.stations[o.service]
	work := o.work * s.slow
	chance := uint32(st.waitChance * 4095)
	order := w.rng.Uint64()
	stride, shift := order|1, order>>32
	for k := range out {
		u := w.rng.Uint64()
		stratum := (uint64(k)*stride + shift) & (draws - 1)
		g := st.shape[stratum<<(tableBits-drawBits)|u&(1<<(tableBits-drawBits)-1)]
		x := work * g
		slot := max(0, f.timeline.start+int64(f.timeline.slot[k]))
		r := s.servedBy(slot, u>>48)
		if r == nil {
			out[k] = refused
			continue
		}
		held[k] = false
		sp := r.flow.at(slot)
		arrival := f.timeline.phase[k]
		if sp.state == calm && arrival*slice+x*s.span <= slice && sp.backlog+sp.work+x <= sp.c {
			out[k] = o.wait + x*s.span
		} else {
			out[k], held[k] = f.replay(w, s, st, r, slot, arrival, normalTable[u>>36&tableMask], g, x, len(s.ops) > 1)
			out[k] += o.wait
			if sp.state != calm {
				continue
			}
		}
		if uint32(u>>20&tableMask) < chance {
			out[k] += st.wait * expTable[u>>32&tableMask]
		}
	}
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
