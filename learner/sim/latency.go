package sim

// draws is how many requests of each operation stand for a window. Their work is stratified: each 256th of the
// distribution has one, in an order that is another one for each operation and window, so a percentile is far less noisy
// than that of as many independent draws.
const (
	drawBits = 8
	draws    = 1 << drawBits
)

// tally composes the window's end-to-end latencies: operations from the leaves up, each as the latencies of the same
// number of requests; stages add up, parallel calls wait for the slowest, and nobody waits for background calls.
func (f *fluid) histogram(w *World, t *histogram) {
	g := w.graph
	for _, i := range g.order {
		if g.ops[i].visits > 0 {
			f.operation(w, i)
		}
	}
	for i := range w.services {
		w.services[i].learnHold(w, f)
	}
	for _, e := range g.endpoints {
		s := &w.services[g.ops[e].service]
		weight := w.opRate[e] * float64(w.window) * slice / draws
		if weight > 0 {
			t.putAll(f.vectors[e], s.delay, w.timeout, weight)
		}
	}
	for i := range f.stations {
		st := &f.stations[i]
		st.samples = st.samples[:0]
		st.followed, st.unthrottled, st.waitSum, st.waitChanceSum = 0, 0, 0, 0
	}
}

// operation draws an operation's latencies.
func (f *fluid) operation(w *World, i int) {
	o := &w.graph.ops[i]
	s := &w.services[o.service]
	out := f.vectors[i]
	f.stations[o.service].draw(w, s, o, out)
	for _, stage := range o.stages {
		if len(stage) == 1 {
			f.call(w, stage[0], out)
			continue
		}
		clear(f.own)
		for _, e := range stage {
			f.slowest(w, e)
		}
		for k, l := range f.own {
			out[k] += l
		}
	}
}

// call adds a callee's latencies for the share of requests that call it.
func (f *fluid) call(w *World, e edge, out []float64) {
	from := f.vectors[e.op]
	shift := int(w.rng.Uint64() % draws)
	mesh := w.services[w.graph.ops[e.op].service].delay
	if e.share >= 1 {
		for k := range out {
			out[k] += from[(k+shift)%draws] + mesh
		}
		return
	}
	f.some(w, e.share, func(k int) { out[k] += from[(k+shift)%draws] + mesh })
}

// slowest raises the stage's latencies to a callee's.
func (f *fluid) slowest(w *World, e edge) {
	from := f.vectors[e.op]
	shift := int(w.rng.Uint64() % draws)
	mesh := w.services[w.graph.ops[e.op].service].delay
	f.some(w, e.share, func(k int) { f.own[k] = max(f.own[k], from[(k+shift)%draws]+mesh) })
}

// some does it for a share of the draws, picked at random.
func (f *fluid) some(w *World, share float64, do func(k int)) {
	if share >= 1 {
		for k := range draws {
			do(k)
		}
		return
	}
	least := uint32(share * (1 << 32))
	for k := 0; k < draws; k += 2 {
		u := w.rng.Uint64()
		if uint32(u) < least {
			do(k)
		}
		if uint32(u>>32) < least {
			do(k + 1)
		}
	}
}

// draw gives latencies of an operation in its own service: those of slices that were cut short as they were sampled, the
// others by the law.
func (st *station) draw(w *World, s *service, o *op, out []float64) {
	work := o.work * s.slow * s.span
	chance, wait := 0.0, 0.0
	if st.waitChanceSum > 0 {
		chance, wait = st.waitChanceSum/st.unthrottled, st.waitSum/st.waitChanceSum
	}
	calm := uint32((1 << 32) - 1)
	if st.followed > 0 {
		calm = uint32(st.unthrottled / (st.unthrottled + st.followed) * ((1 << 32) - 1))
	}
	waits := uint32(chance * 4095)
	step, next, sum, at := 0.0, 0.0, 0.0, -1
	if len(st.samples) > 0 { // the share of draws that is theirs is spread over them evenly
		step = (st.followed + st.unthrottled) / draws
		next = step * float64(w.rng.Uint64()>>11) * 0x1p-53
	}
	order := w.rng.Uint64()
	stride, shift := order|1, order>>32
	for k := range out {
		u := w.rng.Uint64()
		if uint32(u>>32) <= calm {
			stratum := (uint64(k)*stride + shift) & (draws - 1)
			l := o.wait + work*st.shape[stratum<<(tableBits-drawBits)|u&(1<<(tableBits-drawBits)-1)]
			if uint32(u>>12&tableMask) < waits {
				l += wait * expTable[u>>20&tableMask]
			}
			out[k] = l
			continue
		}
		for sum <= next {
			at++
			if at == len(st.samples) {
				at = 0
			}
			sum += st.samples[at].weight
		}
		next += step
		out[k] = o.wait + st.samples[at].latency
	}
}

// learnHold finds how long a request keeps a thread: its own time and that of its calls.
func (s *service) learnHold(w *World, f *fluid) {
	total, rate := 0.0, 0.0
	for _, i := range s.ops {
		o := &w.graph.ops[i]
		hold := o.work*s.slow*s.span + o.wait
		for _, stage := range o.stages {
			longest := 0.0
			for _, e := range stage {
				mean := 0.0
				for _, l := range f.vectors[e.op] {
					mean += l
				}
				longest = max(longest, mean/draws*e.share)
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
