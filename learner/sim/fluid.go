package sim

import "math"

// fluid simulates requests as an amount of work. A slice of a replica is one
// step of Lindley's recursion: the CPU work of the arrivals (a Poisson number
// of requests with gamma distributed work) is added to the backlog, the quota
// of the slice is subtracted, and the rest waits. Throttling, usage and backlog
// are therefore the values that a cgroup reports.
//
// Latency has two sources. In a slice that is throttled, or that starts with
// queued work, a few sample requests are followed. In all other slices a
// request waits for a free processor (Erlang C) and runs. When a service
// completes more or fewer requests than its mean, the arrivals of its callees
// change too, by a smaller factor.
type fluid struct {
	stations []station   // per service
	vectors  [][]float64 // per operation: latencies in seconds of the same sample of requests
	own      []float64   // buffer for the latencies of one stage
	order    []int       // of services, callers first where possible
}

// station is the fluid level's state of a service: constants of the current
// second, and samples of the current window.
type station struct {
	shape  *[tableSize]float64 // quantiles of a request's work, with mean 1
	feeds  []feed
	isFeed bool    // some other service has it in its feeds
	debt   float64 // arrivals below zero, carried over from earlier slices, relative to the mean of a slice
	flow   float64 // completed requests in this slice, relative to their mean

	// Constants of the current second.
	inputs       inputs  // the values they are computed from
	mean         float64 // arrivals per slice and replica
	work         float64 // mean CPU seconds of a request
	perWork      float64 // requests per CPU second: 1 / work
	inverseShape float64 // shape of the work of a request: 1 / squared coefficient of variation
	cube         [cubes]cube
	procs        float64 // processors per replica
	maxWork      float64 // CPU seconds that processors and threads can do in a slice
	residual     float64 // mean CPU seconds left of a request in progress
	busyChance   float64 // probability that work is in progress at the end of a slice
	left         float64 // mean CPU seconds in progress in that case
	waitChance   float64 // probability that a request waits for a processor in an unthrottled slice
	wait         float64 // mean wait in that case, in seconds

	// Sums over the current window.
	unthrottled   float64 // requests in unthrottled slices
	followed      float64 // requests that the samples represent
	waitSum       float64 // seconds of waiting in unthrottled slices
	waitChanceSum float64 // requests that waited in unthrottled slices
	samples       []sample
}

// feed is one source of a service's arrivals.
type feed struct {
	caller int     // index of the calling service
	weight float64 // its share of the arrivals
}

// sample is a measured latency.
type sample struct {
	latency float64 // from arrival to the end of the work, in seconds
	weight  float64 // number of requests that it represents
}

// newFluid creates the engine of the fluid level.
func newFluid(w *World) *fluid {
	f := &fluid{
		stations: make([]station, len(w.graph.Services)),
		vectors:  make([][]float64, len(w.graph.ops)),
	}
	tables := map[float64]*[tableSize]float64{}
	for i, s := range w.graph.Services {
		if tables[s.Variation] == nil {
			tables[s.Variation] = gammaTable(s.Variation)
		}
		f.stations[i] = station{shape: tables[s.Variation]}
	}
	for i := range f.vectors {
		f.vectors[i] = make([]float64, draws)
	}
	f.own = make([]float64, draws)
	seen := make([]bool, len(f.stations))
	visit := func(i int) {
		if !seen[i] {
			seen[i] = true
			f.order = append(f.order, i)
		}
	}
	for k := len(w.graph.order) - 1; k >= 0; k-- {
		visit(w.graph.ops[w.graph.order[k]].service)
	}
	for i := range f.stations {
		f.stations[i].flow = 1
		visit(i) // services without callers too
	}
	return f
}

// connect finds the sources of each service's arrivals.
func (f *fluid) connect(w *World) {
	for i := range f.stations {
		f.stations[i].feeds = f.stations[i].feeds[:0]
		f.stations[i].isFeed = false
	}
	for k := range w.graph.ops {
		o := &w.graph.ops[k]
		caller := &w.services[o.service]
		call := func(e edge) {
			to := w.graph.ops[e.op].service
			if rate := w.opRate[k] * caller.gain * e.share; rate > 0 {
				st := &f.stations[to]
				st.feeds = append(st.feeds, feed{o.service, rate / w.services[to].rate})
				f.stations[o.service].isFeed = true
			}
		}
		for _, stage := range o.stages {
			for _, e := range stage {
				call(e)
			}
		}
		for _, e := range o.background {
			call(e)
		}
	}
}

// passedOn is the share of a change in a caller's output that reaches its
// callees in the same slice. Waiting and the calls' own latency spread the rest
// over time. The value gives the best agreement with the request level.
const passedOn = 0.4

// arrivals is the mean number of arrivals per replica in this slice. It is
// above st.mean when a caller was throttled before and now catches up.
func (f *fluid) arrivals(st *station) float64 {
	if len(st.feeds) == 0 {
		return st.mean
	}
	swing := st.debt
	for _, from := range st.feeds {
		swing += passedOn * from.weight * (f.stations[from.caller].flow - 1)
	}
	st.debt = min(0, 1+swing)
	return st.mean * (1 + swing - st.debt)
}

// inputs are the values from which the constants of a second are computed. The
// fields from rate to hold are copies from service.
type inputs struct {
	live   int // replicas that serve requests
	rate   float64
	mix    float64
	square float64
	slow   float64
	hold   float64
}

// prepare computes the constants of a second.
func (st *station) prepare(s *service, live int) {
	now := inputs{
		live:   live,
		rate:   s.rate,
		mix:    s.mix,
		square: s.square,
		slow:   s.slow,
		hold:   s.hold,
	}
	if now == st.inputs {
		return
	}
	st.inputs = now
	if live == 0 {
		return
	}
	rate := s.rate / float64(live)
	st.work = s.mix * s.slow
	st.perWork = 1 / st.work
	st.mean = rate * slice
	// The table is computed again only when the change is more than a rounding
	// error.
	if shape := 1 / max(0.01, s.square-1); math.Abs(shape-st.inverseShape) > 1e-9*shape {
		st.inverseShape = shape
		st.tabulate()
	}
	st.procs = float64(s.Procs)
	st.maxWork = st.procs / s.span * slice
	if hold := s.hold; hold > 0 {
		st.maxWork = min(st.maxWork, st.work*float64(s.Threads)/hold*slice)
	}
	servers := min(s.Procs, s.Threads)
	time := st.work * s.span
	a := rate * time
	st.residual = st.work * s.square / 2
	st.waitChance, st.wait = 0, 0
	if a < float64(servers) {
		st.waitChance = erlangC(servers, a)
		st.wait = time * s.square / 2 / (float64(servers) - a)
		// Within a slice a wait is limited by the deviation of the arrivals of
		// one slice. Longer waits are in the backlog.
		st.wait = min(st.wait, inSlice*math.Sqrt(2/math.Pi*st.mean*s.square)*time/float64(servers))
	}
	st.busyChance = 1 - math.Exp(-a)
	st.left = 0
	if st.busyChance > 0 {
		st.left = (min(a, float64(servers))*st.residual + st.waitChance*st.wait*float64(servers)) / st.busyChance
	}
}

// slice implements [engine].
func (f *fluid) slice(w *World) {
	slot := w.now % samples
	newSecond := w.now%slicesPerSecond == 0
	if newSecond {
		f.connect(w)
	}
	for _, i := range f.order {
		s, st := &w.services[i], &f.stations[i]
		live := w.live(s)
		if newSecond || live != st.inputs.live {
			st.prepare(s, live)
		}
		if live == 0 {
			n := s.rate * slice
			s.arrived += n
			s.failed += n
			st.put(w.timeout, n, w.timeout)
		}
		mean, before := f.arrivals(st), s.completed
		for k := range s.replicas {
			r := &s.replicas[k]
			s.given += r.quota
			if w.now >= r.ready {
				f.replica(w, s, st, r, slot, mean)
			} else {
				r.usage[slot] = 0
			}
		}
		if usual := s.rate * s.gain * slice; st.isFeed && usual > 0 {
			st.flow = (s.completed - before) / usual
		}
	}
}

// replica simulates one slice of one replica. mean is the mean number of
// arrivals.
func (f *fluid) replica(w *World, s *service, st *station, r *replica, slot int64, mean float64) {
	u := w.rng.Uint64()
	n := poisson(mean, float64(u>>32)*0x1p-32, normalTable[u>>20&tableMask])
	work := st.sum(n, u)
	total := r.backlog + work
	residual := 0.0
	if total > 0 && float64(u>>24&0xff)*(1.0/256) < st.busyChance {
		residual = min(total, st.left*expTable[u>>8&tableMask])
	}
	c := min(r.capacity, st.maxWork)
	demand := total - residual
	done, throttled := demand, demand > c
	s.periods++
	if throttled {
		done = c
		if c == r.quota {
			s.throttled++
		}
	}
	backlog, queued := r.backlog, r.queued
	r.backlog = total - done
	r.queued = max(0, r.backlog-residual)
	r.second += done
	s.used += done
	s.alive += slice
	r.usage[slot] = float32(done)

	s.arrived += n
	lost := 0.0
	// Clients give up after the timeout, which limits the queue.
	if limit := c * w.timeout * slicesPerSecond; r.backlog > limit {
		lost = (r.backlog - limit) / st.work
		r.backlog = limit
		r.queued = min(r.queued, limit)
		s.failed += lost
	}
	jobs := r.backlog * st.perWork
	s.completed += r.jobs + n - lost - jobs
	r.jobs = jobs
	switch {
	case len(r.tags) > 0 || c < st.maxWork && n > 0 && (throttled || queued > 0):
		st.follow(w, s, r, backlog, work, c, n, throttled, u)
	case n > 0 && (throttled || queued > 0):
		st.inLine(w, s, backlog, work, c, n, u)
	default:
		st.unthrottled += n
		st.waitSum += n * st.waitChance * st.wait
		st.waitChanceSum += n * st.waitChance
	}
}

// cube is Wilson and Hilferty's approximation: a gamma distributed variable of
// shape k and mean 1 is about (shift + scale*z)^3 when z is a standard normal
// variable.
type cube struct{ shift, scale float64 }

// cubeOf is the cube of shape k.
func cubeOf(k float64) cube { return cube{1 - 1/(9*k), 1 / (3 * math.Sqrt(k))} }

// root is the cube root of the approximation at z.
func (c cube) root(z float64) float64 { return c.shift + c.scale*z }

// cubes is the length of the table of cubes, indexed by the number of requests.
const cubes = 64

// tabulate fills the table of cubes.
func (st *station) tabulate() {
	for n := 1; n < cubes; n++ {
		st.cube[n] = cubeOf(float64(n) * st.inverseShape)
	}
}

// sum samples the work of n requests, in CPU seconds. The sum of gamma
// distributed variables is gamma distributed. For three or more requests it
// uses Wilson and Hilferty's approximation.
func (st *station) sum(n float64, u uint64) float64 {
	switch {
	case n == 0:
		return 0
	case n == 1:
		return st.work * st.shape[u&tableMask]
	case n == 2:
		return st.work * (st.shape[u&tableMask] + st.shape[u>>12&tableMask])
	}
	var approx cube
	if n < cubes {
		approx = st.cube[int(n)]
	} else {
		approx = cubeOf(n * st.inverseShape)
	}
	c := approx.root(normalTable[u&tableMask])
	if c <= 0 {
		return 0
	}
	return n * st.work * c * c * c
}

// drop implements [engine].
func (f *fluid) drop(s *service, r *replica) float64 {
	lost := r.jobs
	r.jobs = 0
	r.backlog = 0
	r.queued = 0
	r.tags = r.tags[:0]
	return lost
}

// move implements [engine].
func (f *fluid) move(s *service, from, to *replica) {
	to.backlog += from.backlog
	to.queued += from.queued
	to.jobs += from.jobs
	from.backlog = 0
	from.queued = 0
	from.jobs = 0
}

// waiting implements [engine].
func (f *fluid) waiting(_ *service, r *replica) float64 { return r.jobs }

// inside implements [engine].
func (f *fluid) inside(s *service) float64 {
	n := 0.0
	for k := range s.replicas {
		n += s.replicas[k].jobs
	}
	return n
}
