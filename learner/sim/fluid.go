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
	stations []station      // per service
	moves    []move         // per operation
	vectors  [][]float64    // per operation: latencies in seconds of the same sample of requests
	ends     []float64      // buffer for the latencies at the end of one stage
	endsHeld [draws]bool    // buffer for their held
	order    []int          // of services, callers first where possible
	turn     int            // place in order of the service whose turn it is
	arrivals [][]float64    // see fluid.came
	start    int64          // first slice of the window of latencies
	total    float64        // requests of clients in that window
	jitter   [draws]float64 // of the samples' ranks in this window
}

// move is the fluid level's state of an operation: its requests on their way.
type move struct {
	jobs     float64    // requests that wait in the service
	credit   float64    // completed part of the next request
	ok       float64    // share of its requests that its callees answer
	until    int64      // last slice in which requests of it come together
	turn     int        // place of its service in fluid.order
	routes   []route    // its calls: the stages, and then what nobody waits for
	crowds   []crowdSum // of the arrivals in each of the next slices, those that come together
	mean     float64    // mean latency in the last window, in seconds, with its calls
	answered float64    // share of its requests in the last window that got an answer
	timeline *timeline  // of the samples of the last window
	calm     bool       // no service that a request of it visits throttled or queued in the last window
}

// route is the calls that an operation makes at the same time.
type route struct {
	lag   float64 // slices from the end of the work to the calls
	late  chance  // that a request calls a slice later than the whole part of lag
	calls []leg
	tasks bool // nobody waits for them
}

// leg is one call of a route.
type leg struct {
	to    int // operation
	share chance
	tasks float64 // background calls in the current window
}

// setLag makes the calls of a route come lag slices after the work. A request ends
// early or late in its own slice; so each of them calls in the slice that the lag ends
// in or in the next one, and requests that come independently of each other stay so.
func (r *route) setLag(lag float64) {
	r.lag = min(lag, ring-3)
	r.late.set(r.lag - math.Floor(r.lag))
}

// crowdSum adds up the requests that come together in a slice: see [crowd].
type crowdSum struct {
	n     float64
	times float64 // sum of their times, as shares of the slice
}

// crowd is the crowd among n arrivals.
func (t crowdSum) crowd(n float64) crowd {
	if n <= 0 || t.n <= 0 {
		return crowd{}
	}
	return crowd{share: min(1, t.n/n), at: t.times / t.n}
}

// ring is the number of slices that requests can be on their way, a power of two.
const ring = 64

// station is the fluid level's state of a service: constants of the current
// second, and samples of the current window.
type station struct {
	shape   *[tableSize]float64 // quantiles of a request's work, with mean 1
	timeout float64             // of its queue, in seconds
	granule int64               // slices per remembered value; see flow.remember
	mark    int64               // next slice to remember
	crowds  []crowd             // in each of the last slices
	crowded int64               // last slice with a crowd

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

// crowd is the crowd in one of the last slices.
func (st *station) crowd(slice int64) *crowd { return &st.crowds[int(slice)&(len(st.crowds)-1)] }

// newFluid creates the engine of the fluid level.
func newFluid(w *World) *fluid {
	f := &fluid{
		graph:    w.graph,
		world:    w,
		stations: make([]station, len(w.graph.Services)),
		moves:    make([]move, len(w.graph.ops)),
		vectors:  make([][]float64, len(w.graph.ops)),
	}
	f.arrivals = make([][]float64, slots(w.window+foresight+ring))
	for k := range f.arrivals {
		f.arrivals[k] = make([]float64, len(f.moves)+1)
	}
	for i, s := range w.graph.Services {
		// A service that nobody waits for keeps its work for as long as
		// background work may take.
		timeout := w.within
		for _, o := range w.graph.ops {
			if o.service == i && o.awaited > 0 {
				timeout = w.timeout
			}
		}
		f.stations[i] = station{
			crowds:  make([]crowd, slots(w.window+foresight)),
			crowded: -1,
			shape:   gammaTable(s.Variation),
			timeout: timeout,
			granule: max(1, int64(math.Round(timeout*slicesPerSecond/pasts))),
		}
	}
	for i := range f.moves {
		o := &w.graph.ops[i]
		f.vectors[i] = make([]float64, draws)
		f.moves[i].ok, f.moves[i].answered = 1, 1
		f.moves[i].crowds = make([]crowdSum, ring)
		f.moves[i].timeline = &timeline{first: make([]int32, w.window+1)}
		for _, stage := range o.stages {
			f.moves[i].addRoute(stage, (o.work+o.wait)/slice, false)
		}
		if len(o.background) > 0 {
			f.moves[i].addRoute(o.background, 0, true)
		}
	}
	f.ends = make([]float64, draws)
	turn := make([]int, len(f.stations))
	seen := make([]bool, len(f.stations))
	visit := func(i int) {
		if !seen[i] {
			seen[i] = true
			turn[i] = len(f.order)
			f.order = append(f.order, i)
		}
	}
	for k := len(w.graph.order) - 1; k >= 0; k-- {
		visit(w.graph.ops[w.graph.order[k]].service)
	}
	for i := range f.stations {
		visit(i) // services without callers too
	}
	for i := range f.moves {
		f.moves[i].turn = turn[w.graph.ops[i].service]
	}
	return f
}

// addRoute adds calls that an operation makes at the same time.
func (m *move) addRoute(calls []edge, lag float64, tasks bool) {
	r := route{tasks: tasks, calls: make([]leg, len(calls))}
	r.setLag(lag)
	for k, e := range calls {
		r.calls[k].to = e.op
		r.calls[k].share.set(e.share)
	}
	m.routes = append(m.routes, r)
}

// slots is the length of a list that holds values of the last slices: a power of two.
func slots(slices int64) int64 { return 1 << bits.Len64(uint64(slices)) }

// came is the requests that arrive in a slice, per operation, and last those of
// clients. It knows the slices of a window of latencies, and those in which the requests
// arrive that are on their way.
func (f *fluid) came(slice int64) []float64 { return f.arrivals[int(slice)&(len(f.arrivals)-1)] }

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
	clear(f.came(w.now + ring))
	came := f.came(w.now)
	for k, e := range w.graph.endpoints {
		u := w.rng.Uint64()
		n := poisson(w.rate*w.graph.shares[k]*slice, float64(u>>32)*0x1p-32, normalTable[u>>20&tableMask])
		came[e] += n
		came[len(f.moves)] += n
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
		f.service(w, s, st, live, came)
	}
}

// service simulates one slice of one service, in which requests came.
func (f *fluid) service(w *World, s *service, st *station, live int, came []float64) {
	slot := w.now & (ring - 1)
	n := 0.0
	var in, out crowdSum
	for _, o := range s.ops {
		n += came[o]
		if m := &f.moves[o]; m.until >= w.now {
			in.n += m.crowds[slot].n
			in.times += m.crowds[slot].times
			m.crowds[slot] = crowdSum{}
		}
	}
	if *st.crowd(w.now) = in.crowd(n); in.n > 0 {
		st.crowded = w.now
	}
	s.arrived += n
	completed, lost := 0.0, 0.0
	if live == 0 {
		lost = n // there is no replica to connect to
	}
	remember := w.now >= st.mark
	if remember {
		st.mark += st.granule
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
			r.flow.rough = w.now
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
		queued := r.flow.jobs
		done, gone := f.replica(w, s, st, r, share, remember)
		completed += done
		lost += gone
		// What throttling has held ends first, after the half of its work that was
		// left in the mean, and then what came as a crowd.
		held := min(done, queued)
		if held > 0 {
			out.n += held
			out.times -= held * st.work * s.span / (2 * slice)
		}
		if in.n > 0 {
			crowd := min(done-held, share*in.n/n)
			out.n += crowd
			out.times += crowd * in.times / in.n
		}
	}
	s.completed += completed
	s.failed += lost
	switch {
	case completed != n || lost > 0:
		f.pass(w, s, came, completed, lost, out.crowd(completed))
	case n > 0: // all that came is done
		crowd := out.crowd(completed)
		for _, o := range s.ops {
			if came[o] > 0 {
				s.answered += came[o] * f.moves[o].ok
				f.calls(w, &f.moves[o], came[o], crowd)
			}
		}
	}
}

// pass divides what a service has completed and lost in a slice among its
// operations, in proportion to their requests in it, and sends the calls.
func (f *fluid) pass(w *World, s *service, came []float64, completed, lost float64, out crowd) {
	inside := 0.0
	for _, o := range s.ops {
		m := &f.moves[o]
		m.jobs += came[o]
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
		if whole := math.Floor(m.credit + 1e-6); whole > 0 {
			m.credit -= whole
			f.calls(w, m, whole, out)
		}
	}
}

// calls sends the calls of n requests of an operation whose work is done. Those of the
// crowd among them come together.
func (f *fluid) calls(w *World, m *move, n float64, out crowd) {
	for i := range m.routes {
		r := &m.routes[i]
		u := w.rng.Uint64()
		together, at := 0.0, 0.0
		if out.share > 0 {
			together = math.Floor(n*out.share + float64(u&(1<<11-1))*0x1p-11)
			at = max(0, out.at+r.lag)
		}
		late := r.late.of(n-together, u)
		for k := range r.calls {
			call := &r.calls[k]
			sent := f.send(w, call, int64(r.lag), n-together-late, late)
			if together > 0 {
				sent += f.sendCrowd(w, call, together, at)
			}
			if r.tasks {
				call.tasks += sent
				w.totals.Tasks += sent
			}
		}
	}
}

// send makes the share of the requests that do so call an operation: some lag slices
// from now, some one more slice later. It returns the number of calls.
func (f *fluid) send(w *World, l *leg, lag int64, single, late float64) float64 {
	if l.share.p < 1 {
		single = l.share.of(single, w.rng.Uint64())
		if late > 0 {
			late = l.share.of(late, w.rng.Uint64())
		}
	}
	to := l.to
	at := w.now + lag
	if lag == 0 && f.moves[to].turn <= f.turn { // its turn in this slice is over
		at++
	}
	f.came(at)[to] += single
	f.came(at + 1)[to] += late
	return single + late
}

// sendCrowd makes the share of the requests that do so call an operation together,
// some slices from now. It returns the number of calls.
func (f *fluid) sendCrowd(w *World, l *leg, n, slices float64) float64 {
	if l.share.p < 1 {
		n = l.share.of(n, w.rng.Uint64())
	}
	to := &f.moves[l.to]
	whole := math.Floor(slices)
	part := slices - whole
	if whole == 0 && to.turn <= f.turn {
		whole, part = 1, 0
	}
	at := w.now + int64(whole)
	f.came(at)[l.to] += n
	crowd := &to.crowds[at&(ring-1)]
	crowd.n += n
	crowd.times += n * part
	to.until = max(to.until, at)
	return n
}

// replica simulates one slice of one replica with n arrivals. It returns the
// requests that it completed, and those that it gave up.
func (f *fluid) replica(
	w *World, s *service, st *station, r *replica, n float64, remember bool,
) (completed, lost float64) {
	fl := &r.flow
	if n == 0 && r.backlog == 0 && fl.jobs == 0 { // it has nothing to do
		s.periods++
		s.alive += slice
		r.usage[w.now%samples] = 0
		r.queued = 0
		if remember {
			fl.remember()
		}
		*f.spell(w, fl) = spell{c: min(r.capacity, st.maxWork), state: calm}
		return 0, 0
	}
	u := w.rng.Uint64()
	work := st.sum(n, u)
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
	if remember {
		if old := fl.remember(); old > fl.gone {
			dropped := min(old-fl.gone, r.backlog)
			fl.gone = old
			r.backlog -= dropped
			lost = dropped * st.perWork
		}
	}
	// What computes at the end of a slice is on its way already: its calls lag. Without
	// throttling that is all there is, but for rounding.
	r.queued = 0
	if throttled {
		r.queued = max(0, r.backlog-residual)
	}
	inside := max(0, fl.jobs+n-lost)
	fl.jobs = min(st.unfinished(r.queued), inside)
	sp := f.spell(w, fl)
	sp.backlog, sp.work, sp.c, sp.n, sp.state = backlog, work, c, n, calm
	if throttled || queued > 0 {
		sp.state = rough
		fl.rough = w.now
	}
	return inside - fl.jobs, lost
}

// spell is where a flow keeps what its replica does in the present slice.
func (f *fluid) spell(w *World, fl *flow) *spell {
	if fl.history == nil { // it did not serve in the slices before
		fl.history = make([]spell, slots(w.window+foresight))
		fl.rough = w.now - 1
	}
	return fl.at(w.now)
}

// unfinished is the number of requests that have an amount of work left, in CPU
// seconds. Those that run share the processors equally, so that each of them is done
// in part when the quota is used up, and none sooner than the others: that makes
// them end together. Those that wait for a processor have all of their work left.
func (st *station) unfinished(work float64) float64 {
	running := st.procs * st.residual
	if work <= running {
		return work / st.residual
	}
	return st.procs + (work-running)*st.perWork
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
	r.flow.rough = f.world.now
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
