package sim

import (
	"math"
	"math/bits"
)

// fluid simulates requests as an amount of work. A slice of a replica is one
// step of Lindley's recursion: the CPU work of the arrivals is added to the
// backlog, the quota of the slice is subtracted, and the rest waits. Throttling,
// usage and backlog are therefore the values that a cgroup reports.
//
// Whole requests flow through the graph: what a service completes in a slice
// arrives at its callees, a stage later by the time that the stages before take.
// Nothing is created on the way and nothing gets lost, also where services call
// each other in a cycle.
//
// Latency is computed when a window is over, from what the replicas did in its
// slices: see latency.go.
type fluid struct {
	graph    *graph
	world    *World
	stations []station   // per service
	moves    []move      // per operation
	vectors  [][]float64 // per operation: latencies in seconds of the same sample of requests
	ends     []float64   // buffer for the latencies at the end of one stage
	endsHeld [draws]bool // buffer for their held
	order    []int       // of services, callers first where possible
	rank     []int       // of each service in order
	turn     int         // rank of the service whose turn it is
	clients  []float64   // requests of clients in each of the last slices
	timeline timeline    // of the samples of a window
}

// move is the fluid level's state of an operation: its requests on their way.
type move struct {
	coming   [ring]float64 // requests that arrive in a slice, by the slice
	jobs     float64       // requests that wait in the service
	credit   float64       // completed part of the next request
	lag      []float64     // of each stage: slices from the end of the work to its calls
	ok       float64       // share of its requests that its callees answer
	mean     float64       // mean latency in the last window, in seconds, with its calls
	answered float64       // share of its requests in the last window that got an answer
	tasks    []float64     // per background call: its requests in the current window
	held     [draws]bool   // samples of the last window that end together with others that throttling has held
}

// ring is the number of slices that requests can be on their way, a power of two.
const ring = 64

// station is the fluid level's state of a service: constants of the current
// second, and samples of the current window.
type station struct {
	shape   *[tableSize]float64 // quantiles of a request's work, with mean 1
	timeout float64             // of its queue, in seconds
	granule int64               // slices per remembered value; see flow.remember

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
}

// newFluid creates the engine of the fluid level.
func newFluid(w *World) *fluid {
	f := &fluid{
		graph:    w.graph,
		world:    w,
		stations: make([]station, len(w.graph.Services)),
		moves:    make([]move, len(w.graph.ops)),
		vectors:  make([][]float64, len(w.graph.ops)),
	}
	tables := map[float64]*[tableSize]float64{}
	for i, s := range w.graph.Services {
		if tables[s.Variation] == nil {
			tables[s.Variation] = gammaTable(s.Variation)
		}
		// A service that nobody waits for keeps its work for as long as
		// background work may take.
		timeout := w.within
		for _, o := range w.graph.ops {
			if o.service == i && o.awaited > 0 {
				timeout = w.timeout
			}
		}
		f.stations[i] = station{
			shape:   tables[s.Variation],
			timeout: timeout,
			granule: max(1, int64(math.Round(timeout*slicesPerSecond/pasts))),
		}
	}
	for i := range f.moves {
		o := &w.graph.ops[i]
		f.vectors[i] = make([]float64, draws)
		f.moves[i].ok, f.moves[i].answered = 1, 1
		f.moves[i].lag = make([]float64, len(o.stages))
		f.moves[i].tasks = make([]float64, len(o.background))
		for k := range f.moves[i].lag {
			f.moves[i].lag[k] = (o.work + o.wait) / slice
		}
	}
	f.ends = make([]float64, draws)
	f.clients = make([]float64, 1<<bits.Len64(uint64(w.window+foresight)))
	f.timeline = timeline{first: make([]int32, w.window+1)}
	f.rank = make([]int, len(f.stations))
	seen := make([]bool, len(f.stations))
	visit := func(i int) {
		if !seen[i] {
			seen[i] = true
			f.rank[i] = len(f.order)
			f.order = append(f.order, i)
		}
	}
	for k := len(w.graph.order) - 1; k >= 0; k-- {
		visit(w.graph.ops[w.graph.order[k]].service)
	}
	for i := range f.stations {
		visit(i) // services without callers too
	}
	return f
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
	f.clients[int(w.now)&(len(f.clients)-1)] = 0
	for k, e := range w.graph.endpoints {
		u := w.rng.Uint64()
		n := poisson(w.rate*w.graph.shares[k]*slice, float64(u>>32)*0x1p-32, normalTable[u>>20&tableMask])
		f.moves[e].coming[w.now%ring] += n
		f.clients[int(w.now)&(len(f.clients)-1)] += n
		w.totals.Requests += n
	}
	newSecond := w.now%slicesPerSecond == 0
	for turn, i := range f.order {
		f.turn = turn
		s, st := &w.services[i], &f.stations[i]
		live := w.live(s)
		if newSecond || live != st.inputs.live {
			st.prepare(s, live)
		}
		f.service(w, s, st, live)
	}
}

// service simulates one slice of one service.
func (f *fluid) service(w *World, s *service, st *station, live int) {
	turn := w.now & (ring - 1)
	n := 0.0
	for _, o := range s.ops {
		n += f.moves[o].coming[turn]
	}
	s.arrived += n
	completed, lost := 0.0, 0.0
	if live == 0 {
		lost = n // there is no replica to connect to
	}
	rest, left := n, live
	for k := range s.replicas {
		r := &s.replicas[k]
		s.given += r.quota
		if w.now < r.ready {
			r.usage[w.now%samples] = 0
			if r.flow.killed != w.now {
				r.flow.at(w.now).state = absent
			}
			continue
		}
		share := 0.0
		if k < s.staying() {
			share = rest
			if left > 1 {
				share = binomial(rest, 1/float64(left), w.rng.Uint64())
			}
			rest -= share
			left--
		}
		done, gone := f.replica(w, s, st, r, share)
		completed += done
		lost += gone
	}
	s.completed += completed
	s.failed += lost
	f.pass(w, s, completed, lost)
}

// pass divides what a service has completed and lost in a slice among its
// operations, in proportion to their requests in it, and sends the calls.
func (f *fluid) pass(w *World, s *service, completed, lost float64) {
	turn := w.now & (ring - 1)
	inside := 0.0
	for _, o := range s.ops {
		m := &f.moves[o]
		m.jobs += m.coming[turn]
		m.coming[turn] = 0
		inside += m.jobs
	}
	if inside <= 0 {
		return
	}
	done, gone := min(1, completed/inside), min(1, lost/inside)
	for _, o := range s.ops {
		m := &f.moves[o]
		if m.jobs <= 0 {
			continue
		}
		m.credit += m.jobs * done
		s.answered += m.jobs * done * m.ok
		m.jobs = max(0, m.jobs*(1-done-gone))
		whole := math.Floor(m.credit + 1e-6)
		if whole <= 0 {
			continue
		}
		m.credit -= whole
		f.calls(w, o, whole)
	}
}

// calls sends the calls of n requests of an operation whose work is done.
func (f *fluid) calls(w *World, i int, n float64) {
	o, m := &w.graph.ops[i], &f.moves[i]
	for k, stage := range o.stages {
		for _, e := range stage {
			f.send(w, e, n, m.lag[k])
		}
	}
	for k, e := range o.background {
		sent := f.send(w, e, n, 0)
		m.tasks[k] += sent
		w.totals.Tasks += sent
	}
}

// send makes the share of n requests that do so call an operation. They arrive
// after lag slices: a part of them in the slice before, the rest in the one
// after.
func (f *fluid) send(w *World, e edge, n, lag float64) float64 {
	if e.share < 1 {
		n = binomial(n, e.share, w.rng.Uint64())
	}
	if n == 0 {
		return 0
	}
	to := &f.moves[e.op]
	lag = min(lag, ring-3)
	whole := math.Floor(lag)
	late := math.Floor(n*(lag-whole) + float64(w.rng.Uint64()>>11)*0x1p-53)
	at := w.now + int64(whole)
	if at == w.now && f.rank[w.graph.ops[e.op].service] <= f.turn {
		at++ // its turn in this slice is over
	}
	to.coming[at&(ring-1)] += n - late
	to.coming[(at+1)&(ring-1)] += late
	return n
}

// replica simulates one slice of one replica with n arrivals. It returns the
// requests that it completed, and those that it gave up.
func (f *fluid) replica(w *World, s *service, st *station, r *replica, n float64) (completed, lost float64) {
	u := w.rng.Uint64()
	work := st.sum(n, u)
	fl := &r.flow
	total := r.backlog + work
	fl.arrived += work
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
		if r.quota < st.maxWork && c == r.quota {
			s.throttled++
		}
	}
	backlog, queued := r.backlog, r.queued
	r.backlog = total - done
	r.second += done
	s.used += done
	s.alive += slice
	r.usage[w.now%samples] = float32(done)
	fl.gone += done
	// Requests that have waited for the timeout are given up.
	if old := fl.remember(w.now, st.granule); old > fl.gone {
		dropped := min(old-fl.gone, r.backlog)
		fl.gone = old
		r.backlog -= dropped
		lost = dropped * st.perWork
	}
	r.queued = max(0, r.backlog-residual)
	// What computes at the end of a slice is on its way already: its calls lag.
	jobs := r.queued * st.perWork
	completed = fl.jobs + n - lost - jobs
	if completed < 0 { // the mix of requests has changed: their mean work is another
		jobs += completed
		completed = 0
	}
	fl.jobs = jobs
	if fl.history == nil {
		fl.history = make([]spell, len(f.clients))
	}
	sp := fl.at(w.now)
	*sp = spell{backlog: backlog, work: work, c: c, n: n, state: calm}
	if throttled || queued > 0 {
		sp.state = rough
	}
	return completed, lost
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
	lost := r.flow.jobs
	r.flow.jobs = 0
	r.flow.gone = r.flow.arrived
	r.backlog = 0
	r.queued = 0
	r.flow.at(f.world.now).state = killed
	r.flow.killed = f.world.now
	inside := 0.0
	for _, o := range s.ops {
		inside += f.moves[o].jobs
	}
	if inside > 0 {
		for _, o := range s.ops {
			f.moves[o].jobs *= max(0, 1-lost/inside)
		}
	}
	return lost
}

// inside implements [engine].
func (f *fluid) inside(r *replica) float64 { return r.flow.jobs }

// occupied implements [engine].
func (f *fluid) occupied(s *service, r *replica) float64 {
	return r.flow.jobs + s.rate/float64(max(1, s.staying()))*s.hold
}

// open implements [engine].
func (f *fluid) open() (clients, tasks float64) {
	// A request waits or computes in one service at a time, but for parallel
	// calls; so the sums are upper bounds.
	for i := range f.moves {
		o := &f.graph.ops[i]
		if o.visits > 0 {
			awaited := f.moves[i].jobs * o.awaited / o.visits
			clients += awaited
			tasks += f.moves[i].jobs - awaited
		}
	}
	return clients, tasks
}
