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
	for _, i := range g.order {
		if g.ops[i].visits > 0 {
			f.operation(w, i)
		}
	}
	for i := range w.services {
		w.services[i].updateHold(w, f)
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
		st.followed = 0
		st.unthrottled = 0
		st.waitSum = 0
		st.waitChanceSum = 0
	}
}

// operation samples the latencies of an operation, with its calls.
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

// call adds a callee's latencies to the share of requests that call it.
func (f *fluid) call(w *World, e edge, out []float64) {
	from := f.vectors[e.op]
	shift := int(w.rng.Uint64() % draws)
	network := w.services[w.graph.ops[e.op].service].delay
	if e.share >= 1 {
		for k := range out {
			out[k] += from[(k+shift)%draws] + network
		}
		return
	}
	f.forShare(w, e.share, func(k int) { out[k] += from[(k+shift)%draws] + network })
}

// slowest raises the latencies of a stage to those of a callee where the callee
// is slower.
func (f *fluid) slowest(w *World, e edge) {
	from := f.vectors[e.op]
	shift := int(w.rng.Uint64() % draws)
	network := w.services[w.graph.ops[e.op].service].delay
	f.forShare(w, e.share, func(k int) { f.own[k] = max(f.own[k], from[(k+shift)%draws]+network) })
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
// calls. Throttled slices use the samples of followed requests. Unthrottled
// slices use the queueing formula.
func (st *station) draw(w *World, s *service, o *op, out []float64) {
	work := o.work * s.slow * s.span
	chance, wait := 0.0, 0.0
	if st.waitChanceSum > 0 {
		chance, wait = st.waitChanceSum/st.unthrottled, st.waitSum/st.waitChanceSum
	}
	unthrottled := uint32((1 << 32) - 1)
	if st.followed > 0 {
		unthrottled = uint32(st.unthrottled / (st.unthrottled + st.followed) * ((1 << 32) - 1))
	}
	waits := uint32(chance * 4095)
	// The draws for throttled slices take samples at equal steps of their
	// cumulated weight.
	step, next := 0.0, 0.0
	sum, at := 0.0, -1
	if len(st.samples) > 0 {
		step = (st.followed + st.unthrottled) / draws
		next = step * float64(w.rng.Uint64()>>11) * 0x1p-53
	}
	order := w.rng.Uint64()
	stride, shift := order|1, order>>32
	for k := range out {
		u := w.rng.Uint64()
		if uint32(u>>32) <= unthrottled {
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
