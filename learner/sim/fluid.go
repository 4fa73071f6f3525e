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
	clients  []float64      // requests of clients in each of the last slices
	start    int64          // first slice of the window of latencies
	total    float64        // requests of clients in that window
	jitter   [draws]float64 // of the samples' ranks in this window
}

// move is the fluid level's state of an operation: its requests on their way.
type move struct {
	turn     int            // place of its service in fluid.order
	coming   [ring]float64  // requests that arrive in a slice, by the slice
	crowds   [ring]together // of them: those that come together
	until    int64          // last slice in which some do
	came     []float64      // requests that arrived in each of the last slices
	jobs     float64        // requests that wait in the service
	credit   float64        // completed part of the next request
	lag      []float64      // of each stage: slices from the end of the work to its calls
	ok       float64        // share of its requests that its callees answer
	mean     float64        // mean latency in the last window, in seconds, with its calls
	answered float64        // share of its requests in the last window that got an answer
	tasks    []float64      // per background call: its requests in the current window
	timeline *timeline      // of the samples of the last window
	calm     bool           // no service that a request of it visits throttled or queued in the last window
}

// together is requests that come together in a slice: see [crowd].
type together struct {
	n     float64
	times float64 // sum of their times, as shares of the slice
}

// crowd is the crowd among n arrivals.
func (t together) crowd(n float64) crowd {
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

// newFluid creates the engine of the fluid level.
func newFluid(w *World) *fluid {
	f := &fluid{
		graph:    w.graph,
		world:    w,
		stations: make([]station, len(w.graph.Services)),
		moves:    make([]move, len(w.graph.ops)),
		vectors:  make([][]float64, len(w.graph.ops)),
	}
	slots := 1 << bits.Len64(uint64(w.window+foresight))
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
			crowds:  make([]crowd, slots),
			crowded: -1,
			shape:   tables[s.Variation],
			timeout: timeout,
			granule: max(1, int64(math.Round(timeout*slicesPerSecond/pasts))),
		}
	}
	for i := range f.moves {
		o := &w.graph.ops[i]
		f.vectors[i] = make([]float64, draws)
		f.moves[i].ok, f.moves[i].answered = 1, 1
		f.moves[i].came = make([]float64, slots)
		f.moves[i].timeline = &timeline{first: make([]int32, w.window+1)}
		f.moves[i].lag = make([]float64, len(o.stages))
		f.moves[i].tasks = make([]float64, len(o.background))
		for k := range f.moves[i].lag {
			f.moves[i].lag[k] = (o.work + o.wait) / slice
		}
	}
	f.ends = make([]float64, draws)
	f.clients = make([]float64, slots)
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
	slot := int(w.now) & (len(f.clients) - 1)
	n := 0.0
	var in, out together
	for _, o := range s.ops {
		m := &f.moves[o]
		n += m.coming[turn]
		m.came[slot] = m.coming[turn]
		if m.until >= w.now {
			in.n += m.crowds[turn].n
			in.times += m.crowds[turn].times
			m.crowds[turn] = together{}
		}
	}
	if st.crowds[slot] = in.crowd(n); in.n > 0 {
		st.crowded = w.now
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
		done, gone := f.replica(w, s, st, r, share)
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
	if n > 0 || completed > 0 || lost > 0 {
		f.pass(w, s, completed, lost, out.crowd(completed))
	}
}

// pass divides what a service has completed and lost in a slice among its
// operations, in proportion to their requests in it, and sends the calls.
func (f *fluid) pass(w *World, s *service, completed, lost float64, out crowd) {
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
		f.calls(w, o, whole, out)
	}
}

// calls sends the calls of n requests of an operation whose work is done.
func (f *fluid) calls(w *World, i int, n float64, out crowd) {
	o, m := &w.graph.ops[i], &f.moves[i]
	for k, stage := range o.stages {
		s := split(w, n, m.lag[k], out)
		for _, e := range stage {
			f.send(w, e, s)
		}
	}
	if len(o.background) == 0 {
		return
	}
	s := split(w, n, 0, out)
	for k, e := range o.background {
		sent := f.send(w, e, s)
		m.tasks[k] += sent
		w.totals.Tasks += sent
	}
}

// calling is requests that make their calls, by the slice in which these arrive.
type calling struct {
	together, single, late float64 // numbers of requests
	crowd                  float64 // slices until the calls of those together arrive
	lag                    int64   // slices until those of the single ones do; those of the late ones, one more
}

// split divides n requests whose calls come lag slices after the work that they do
// before. The crowd's come together. Of the others each comes in the slice that the
// lag ends in or in the next one, as it ended early or late in its own slice:
// requests that come independently of each other stay so.
func split(w *World, n, lag float64, out crowd) calling {
	lag = min(lag, ring-3)
	whole := math.Floor(lag)
	s := calling{single: n, lag: int64(whole)}
	u := w.rng.Uint64()
	if out.share > 0 {
		s.together = math.Floor(n*out.share + float64(u&(1<<11-1))*0x1p-11)
		s.single -= s.together
		s.crowd = max(0, out.at+lag)
	}
	s.late = binomial(s.single, lag-whole, u)
	s.single -= s.late
	return s
}

// send makes the share of the requests that do so call an operation. It returns the
// number of calls.
func (f *fluid) send(w *World, e edge, s calling) float64 {
	if e.share < 1 {
		s.single = binomial(s.single, e.share, w.rng.Uint64())
		if s.late > 0 {
			s.late = binomial(s.late, e.share, w.rng.Uint64())
		}
		if s.together > 0 {
			s.together = binomial(s.together, e.share, w.rng.Uint64())
		}
	}
	to := &f.moves[e.op]
	over := to.turn <= f.turn // its turn in this slice is over
	at := w.now + s.lag
	if over && s.lag == 0 {
		at++
	}
	to.coming[at&(ring-1)] += s.single
	to.coming[(at+1)&(ring-1)] += s.late
	if s.together > 0 {
		whole := math.Floor(s.crowd)
		part := s.crowd - whole
		if over && whole == 0 {
			whole, part = 1, 0
		}
		at := w.now + int64(whole)
		to.coming[at&(ring-1)] += s.together
		to.crowds[at&(ring-1)].n += s.together
		to.crowds[at&(ring-1)].times += s.together * part
		to.until = max(to.until, at)
	}
	return s.together + s.single + s.late
}

// replica simulates one slice of one replica with n arrivals. It returns the
// requests that it completed, and those that it gave up.
func (f *fluid) replica(w *World, s *service, st *station, r *replica, n float64) (completed, lost float64) {
	fl := &r.flow
	if n == 0 && r.backlog == 0 && fl.jobs == 0 { // it has nothing to do
		s.periods++
		s.alive += slice
		r.usage[w.now%samples] = 0
		r.queued = 0
		fl.remember(w.now, st.granule)
		f.note(w, fl, spell{c: min(r.capacity, st.maxWork), state: calm})
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
	if old := fl.remember(w.now, st.granule); old > fl.gone {
		dropped := min(old-fl.gone, r.backlog)
		fl.gone = old
		r.backlog -= dropped
		lost = dropped * st.perWork
	}
	// What computes at the end of a slice is on its way already: its calls lag. Without
	// throttling that is all there is, but for rounding.
	r.queued = 0
	if throttled {
		r.queued = max(0, r.backlog-residual)
	}
	inside := max(0, fl.jobs+n-lost)
	fl.jobs = min(st.unfinished(r.queued), inside)
	state := calm
	if throttled || queued > 0 {
		state = rough
	}
	f.note(w, fl, spell{backlog: backlog, work: work, c: c, n: n, state: state})
	return inside - fl.jobs, lost
}

// note keeps what a replica did in the present slice.
func (f *fluid) note(w *World, fl *flow, sp spell) {
	if fl.history == nil { // it did not serve in the slices before
		fl.history = make([]spell, len(f.clients))
		fl.rough = w.now - 1
	}
	fl.history[int(w.now)&(len(fl.history)-1)] = sp
	if sp.state != calm {
		fl.rough = w.now
	}
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
