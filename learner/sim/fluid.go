package sim

import "math"

// fluid moves requests as work. A slice of a replica is one step of Lindley's recursion: the CPU work that arrives
// (Poisson many requests of gamma distributed work) joins the backlog, the slice's quota is taken from it, and what is
// left waits. So throttling, usage and backlog come out as the cgroup would show them. For latency a slice that is cut
// short by its quota, or begins with work queued, gives a few sample requests; requests of the other slices only wait
// for a free processor (Erlang C) and run. What a service completes more or less than usual its callees get, damped.
type fluid struct {
	stations []station
	vectors  [][]float64 // per operation: latencies of the same draws of requests
	own      []float64
	order    []int // services, callers first where that can be
}

// station is what the fluid level knows of a service: the second's constants, and the window's samples.
type station struct {
	shape *[tableSize]float64 // quantiles of a request's work, mean 1
	feeds []feed
	heard bool    // it is some service's feed
	debt  float64 // of slices whose callers passed on less than nothing, in means of a slice's arrivals
	flow  float64 // requests that were completed in this slice, in means of it

	// A second's constants.
	inputs       inputs  // that they were computed from
	mean         float64 // arrivals per slice and replica
	work         float64 // CPU seconds of a request, mean
	perWork      float64 // and requests of a CPU second
	inverseShape float64 // of the gamma distribution of a request's work: its squared coefficient of variation, inverted
	cube         [cubes]cube
	procs        float64
	most         float64 // CPU seconds that processors and threads can do in a slice
	residual     float64 // CPU seconds that are left of a request in progress, mean
	busyChance   float64 // that some work is in progress at a slice's end
	left         float64 // and how much then, in CPU seconds
	waitChance   float64 // of waiting for a processor, in a slice that is not cut short
	wait         float64 // and how long then, in seconds

	// The window's books.
	unthrottled, followed  float64 // requests of slices that were not cut short, and those that samples stand for
	waitSum, waitChanceSum float64
	samples                []sample
}

// feed is one source of a service's arrivals.
type feed struct {
	caller int
	weight float64 // its share of the arrivals
}

// sample is the time of some requests from arrival until their work was done, in seconds.
type sample struct{ latency, weight float64 }

func newFluid(w *World) *fluid {
	f := &fluid{stations: make([]station, len(w.graph.Services)), vectors: make([][]float64, len(w.graph.ops))}
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
		visit(i) // those that nobody calls, too
	}
	return f
}

// connect finds where each service's arrivals come from.
func (f *fluid) connect(w *World) {
	for i := range f.stations {
		f.stations[i].feeds, f.stations[i].heard = f.stations[i].feeds[:0], false
	}
	for k := range w.graph.ops {
		o := &w.graph.ops[k]
		caller := &w.services[o.service]
		call := func(e edge) {
			to := w.graph.ops[e.op].service
			if rate := w.opRate[k] * caller.gain * e.share; rate > 0 {
				st := &f.stations[to]
				st.feeds = append(st.feeds, feed{o.service, rate / w.services[to].rate})
				f.stations[o.service].heard = true
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

// passedOn is the share of a caller's swings that its callees get within the same slice: waits and answers smear the
// rest. Found by the tests of agreement with the request level.
const passedOn = 0.4

// arrivals is the mean of a service's arrivals in this slice, for each of its replicas: when a caller that was throttled
// lets go, its callees have more to do than usual.
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

// inputs are what a second's constants depend on.
type inputs struct {
	live                          int // replicas that take requests
	rate, mix, square, slow, hold float64
}

// prepare computes what is constant for a second.
func (st *station) prepare(s *service, live int) {
	now := inputs{live, s.rate, s.mix, s.square, s.slow, s.hold}
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
	if shape := 1 / max(0.01, s.square-1); math.Abs(shape-st.inverseShape) > 1e-9*shape { // not for rounding
		st.inverseShape = shape
		st.tabulate()
	}
	st.procs = float64(s.Procs)
	st.most = st.procs / s.span * slice
	if hold := s.hold; hold > 0 {
		st.most = min(st.most, st.work*float64(s.Threads)/hold*slice)
	}
	servers := min(s.Procs, s.Threads)
	time := st.work * s.span
	a := rate * time
	st.residual = st.work * s.square / 2
	st.waitChance, st.wait = 0, 0
	if a < float64(servers) {
		st.waitChance = queue(servers, a)
		st.wait = time * s.square / 2 / (float64(servers) - a)
		// No wait grows within a slice beyond what a slice's arrivals can deviate: what takes longer is in the backlog.
		st.wait = min(st.wait, inSlice*math.Sqrt(2/math.Pi*st.mean*s.square)*time/float64(servers))
	}
	st.busyChance = 1 - math.Exp(-a)
	st.left = 0
	if st.busyChance > 0 {
		st.left = (min(a, float64(servers))*st.residual + st.waitChance*st.wait*float64(servers)) / st.busyChance
	}
}

func (f *fluid) slice(w *World) {
	slot := w.now % samples
	begins := w.now%slicesPerSecond == 0
	if begins {
		f.connect(w)
	}
	for _, i := range f.order {
		s, st := &w.services[i], &f.stations[i]
		live := w.live(s)
		if begins || live != st.inputs.live {
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
		if usual := s.rate * s.gain * slice; st.heard && usual > 0 {
			st.flow = (s.completed - before) / usual
		}
	}
}

// replica is one slice of one replica, in which so many requests arrive on average.
func (f *fluid) replica(w *World, s *service, st *station, r *replica, slot int64, mean float64) {
	u := w.rng.Uint64()
	n := poisson(mean, float64(u>>32)*0x1p-32, normalTable[u>>20&tableMask])
	work := st.sum(n, u)
	total := r.backlog + work
	residual := 0.0
	if total > 0 && float64(u>>24&0xff)*(1.0/256) < st.busyChance {
		residual = min(total, st.left*expTable[u>>8&tableMask])
	}
	c := min(r.cap, st.most)
	demand := total - residual
	done, throttled := demand, demand > c
	s.periods++
	if throttled {
		done = c
		if c == r.quota {
			s.throttled++
		}
	}
	begun, queued := r.backlog, r.queued
	r.backlog = total - done
	r.queued = max(0, r.backlog-residual)
	r.second += done
	s.used += done
	s.alive += slice
	r.usage[slot] = float32(done)

	s.arrived += n
	lost := 0.0
	if limit := c * w.timeout * slicesPerSecond; r.backlog > limit { // the queue is as long as clients wait
		lost = (r.backlog - limit) / st.work
		r.backlog, r.queued = limit, min(r.queued, limit)
		s.failed += lost
	}
	jobs := r.backlog * st.perWork
	s.completed += r.jobs + n - lost - jobs
	r.jobs = jobs
	switch {
	case len(r.tags) > 0 || c < st.most && n > 0 && (throttled || queued > 0):
		st.follow(w, s, r, begun, work, c, n, throttled, u)
	case n > 0 && (throttled || queued > 0):
		st.inLine(w, s, begun, work, c, n, u)
	default:
		st.unthrottled += n
		st.waitSum += n * st.waitChance * st.wait
		st.waitChanceSum += n * st.waitChance
	}
}

// cube is Wilson and Hilferty's: a gamma distributed variable of shape k and mean 1 is about (shift + scale*z)^3, z being
// normal.
type cube struct{ shift, scale float64 }

func cubeOf(k float64) cube { return cube{1 - 1/(9*k), 1 / (3 * math.Sqrt(k))} }

func (c cube) at(z float64) float64 { return c.shift + c.scale*z }

// cubes is for how many requests the cube is kept.
const cubes = 64

func (st *station) tabulate() {
	for n := 1; n < cubes; n++ {
		st.cube[n] = cubeOf(float64(n) * st.inverseShape)
	}
}

// sum is the work of n requests: gamma distributed, as each of them is; for many by Wilson and Hilferty's cube.
func (st *station) sum(n float64, u uint64) float64 {
	switch {
	case n == 0:
		return 0
	case n == 1:
		return st.work * st.shape[u&tableMask]
	case n == 2:
		return st.work * (st.shape[u&tableMask] + st.shape[u>>12&tableMask])
	}
	var law cube
	if n < cubes {
		law = st.cube[int(n)]
	} else {
		law = cubeOf(n * st.inverseShape)
	}
	c := law.at(normalTable[u&tableMask])
	if c <= 0 {
		return 0
	}
	return n * st.work * c * c * c
}

// tag is some requests whose way through slices that are cut short is followed.
type tag struct {
	rest   float64 // CPU seconds of its work that are left
	age    float64 // seconds since its arrival, at the beginning of the slice
	weight float64 // requests that it stands for
}

// inSlice is the share of a slice's deviation that its waits reach; found by the tests of agreement with the request level.
const inSlice = 0.5

// Tags: how many a slice adds at most, and a replica has at most.
const (
	perSlice = 3
	maxTags  = 9
)

// follow takes the replica's tags through a slice in which so much was done, and tags some of its n new requests.
// Running requests share the quota equally, as threads do; the others wait in order of arrival.
func (st *station) follow(w *World, s *service, r *replica, begun, work, c, n float64, throttled bool, u uint64) {
	timeout := w.timeout
	kept := r.tags[:0]
	for _, t := range r.tags {
		got := slice / s.span
		switch {
		case throttled && begun >= c: // those that are there use up the quota before others come
			got = min(got, st.level(c, begun-t.rest))
		case throttled:
			got *= (c - begun) / work
		}
		if got >= t.rest {
			st.put(t.age+t.rest*s.span, t.weight, timeout)
			continue
		}
		t.rest -= got
		t.age += slice
		if t.age >= timeout {
			st.put(timeout, t.weight, timeout)
			continue
		}
		kept = append(kept, t)
	}
	r.tags = kept
	if n == 0 || !throttled && r.queued <= 0 {
		st.unthrottled += n
		return
	}
	take := min(perSlice, int(n), maxTags-len(r.tags))
	if take == 0 {
		return // the samples there are stand for these, too
	}
	first := 0.0 // a slice of one or two requests has them as they are
	if n == 2 {
		first = st.work * st.shape[u&tableMask]
	}
	v := u
	for i := range take {
		v = v*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
		mixed := (v ^ v>>32) * 0xd6e8feb86659fd93
		mixed ^= mixed >> 32
		at := (float64(i) + float64(mixed>>40)*0x1p-24) / float64(take) // of the slice
		if n == 2 {
			at = (float64(i) + 1) / 3
			at = max(0, min(1, at+normalTable[mixed>>16&tableMask]*0.236))
		}
		var x, before float64
		switch {
		case n == 1:
			x = work
		case n == 2 && i == 0:
			x = first
		case n == 2:
			x, before = work-first, first
		default: // one of n shares of gamma distributed work: a beta distribution
			g := st.shape[mixed&tableMask]
			x = work * g / (g + n - 1)
			rank := math.Floor(at * n)
			before = (work - x) * rank / (n - 1)
			at = (rank + 1) / (n + 1) // the mean of that order statistic, and its deviation
			at = max(0, min(1, at+normalTable[mixed>>16&tableMask]*math.Sqrt(at*(1-at)/(n+2))))
		}
		t := tag{rest: x, age: (1 - at) * slice, weight: n / float64(take)}
		if (begun+before)/st.residual > st.procs {
			st.put(st.inOrder(s, begun+before, x, at, c), t.weight, timeout)
			continue
		}
		got := (1 - at) * slice / s.span
		if throttled {
			got = min(got, st.share(s, begun, before, work-before-x, x, at, c))
		}
		if got >= x {
			st.put(x*s.span, t.weight, timeout)
			continue
		}
		t.rest -= got
		r.tags = append(r.tags, t)
	}
}

// share is what a request gets in the slice in which it arrives, when the quota is not enough for all: begun is the work
// that was there before, before and later are the other arrivals' work.
func (st *station) share(s *service, begun, before, later, x, at, c float64) float64 {
	if begun >= c {
		return max(0, st.level(c, begun)-at*slice/s.span)
	}
	free := c - begun - before
	if free <= 0 {
		return 0
	}
	// Of the work that comes later only what comes while it runs shares the quota with it.
	later *= min(1, x*s.span/((1-at)*slice+1e-9)) / 2
	return free * min(1, x/(x+max(0, later)))
}

// level is how much one more request gets of c when others with so much work share it equally. The others' remaining
// work is exponentially distributed: level + others * (1 - exp(-level/residual)) = c.
func (st *station) level(c, others float64) float64 {
	if others <= 0 {
		return c
	}
	l := c / (1 + others/st.residual)
	for range 3 { // Newton
		e := math.Exp(-l / st.residual)
		l -= (l + others*(1-e) - c) / (1 + others/st.residual*e)
	}
	return l
}

func (st *station) put(latency, weight, timeout float64) {
	st.samples = append(st.samples, sample{min(latency, timeout), weight})
	st.followed += weight
}

// inLine gives the latencies of some of a slice's requests when processors, not the quota, are what there is too little of.
func (st *station) inLine(w *World, s *service, begun, work, c, n float64, u uint64) {
	take := min(perSlice, int(n))
	v := u
	for i := range take {
		v = v*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
		mixed := (v ^ v>>32) * 0xd6e8feb86659fd93
		mixed ^= mixed >> 32
		at := (float64(i) + float64(mixed>>40)*0x1p-24) / float64(take)
		g := st.shape[mixed&tableMask]
		x := work * g / (g + n - 1)
		if n == 1 {
			x = work
		}
		st.put(st.inOrder(s, begun+(work-x)*at, x, at, c), n/float64(take), w.timeout)
	}
}

// inOrder is the time from the arrival of a request, at a share of its slice and with so much work ahead of it, until its
// own work x is done, when requests are served in order of arrival: more of them are there than processors.
func (st *station) inOrder(s *service, ahead, x, at, c float64) float64 {
	speed := st.procs / s.span
	run := x * s.span
	// With several processors some of the work ahead is in the others' hands when its turn comes.
	drain := max(0, (ahead-(st.procs-1)*st.residual)/speed-at*slice)
	rest := ahead - c + x // of the work ahead and its own, after this slice
	if ahead < c {
		mine := min(c-ahead, max(0, (1-at)*slice-drain)/s.span)
		if x <= mine {
			return drain + run
		}
		rest = x - mine
	}
	per := c
	if x > per {
		per = max(min(per, slice/s.span), 1e-9)
	}
	full := math.Floor(rest / per)
	over := rest - full*per
	own := min(over, x)
	return max((1-at+full)*slice+own*s.span+(over-own)/speed, drain+run)
}

func (f *fluid) drop(s *service, r *replica) float64 {
	lost := r.jobs
	r.jobs = 0
	r.backlog, r.queued, r.tags = 0, 0, r.tags[:0]
	return lost
}

func (f *fluid) move(s *service, from, to *replica) {
	to.backlog += from.backlog
	to.queued += from.queued
	to.jobs += from.jobs
	from.backlog, from.queued, from.jobs = 0, 0, 0
}

func (f *fluid) waiting(_ *service, r *replica) float64 { return r.jobs }

func (f *fluid) inside(s *service) float64 {
	n := 0.0
	for k := range s.replicas {
		n += s.replicas[k].jobs
	}
	return n
}
