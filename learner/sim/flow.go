package sim

import "math"

// flow is the fluid level's state of a replica.
type flow struct {
	jobs    float64 // requests that wait
	arrived float64 // CPU seconds of all work that ever came
	gone    float64 // of it, done or given up
	past    []float64
	turn    int     // index in past of the present value
	history []spell // of the last slices, by slice; its length is a power of two
	killed  int64   // slice in which its container was killed last
	rough   int64   // last slice in which it was not calm
}

// spell is what a replica did in a slice. Latencies are computed from it when a
// window is over: see [fluid.replay].
type spell struct {
	backlog float64 // CPU seconds of work at the start
	work    float64 // CPU seconds of the arrivals
	c       float64 // CPU seconds that it could do
	n       float64 // arrivals
	state   spellState
}

// spellState says whether a replica served in a slice.
type spellState uint8

// The states of a replica in a slice.
const (
	absent spellState = iota // it had not started, or takes no more requests
	calm                     // nothing waited, and the quota was enough
	rough                    // something waited, or the quota was not enough
	killed                   // its container was killed: all requests failed
)

// pasts is the number of times within the timeout of a queue at which the
// arrived work is remembered.
const pasts = 100

// remember notes the arrived work. It returns the work that had arrived a timeout ago:
// what of it is not done by now is given up.
func (fl *flow) remember() (old float64) {
	if fl.past == nil {
		fl.past = make([]float64, pasts)
	}
	fl.turn = (fl.turn + 1) % pasts
	old = fl.past[fl.turn]
	fl.past[fl.turn] = fl.arrived
	return old
}

// at is what the replica did in a slice of the last ones.
func (fl *flow) at(slice int64) *spell {
	if len(fl.history) == 0 {
		return &spell{}
	}
	return &fl.history[int(slice)&(len(fl.history)-1)]
}

// inSlice scales the limit of a wait within a slice, relative to the deviation
// of the slice's arrivals. The value gives the best agreement with the request
// level.
const inSlice = 0.5

// replay is the time in seconds from the arrival of a request at a replica to the
// end of its work. It lets the request run through what the replica did in the
// slices from the given one on, with the limits that were in force in each: a
// limit that changes while a request waits changes its wait. g is a sample of a
// request's work with mean 1. Where all requests of the service are alike it
// selects one of the slice's arrivals; where they are mixed, a request of x CPU
// seconds takes the place of one of them. rank is its rank among them, from 0 to 1.
// Beyond the present it extrapolates with the mean capacity of the last second.
//
// held reports whether the quota of the slice of its arrival was not enough.
//
// Running requests share the quota equally, as threads do. When there are more
// requests than processors, they are served in order of arrival.
func (f *fluid) replay(
	w *World, s *service, st *station, r *replica, slot int64, rank, z, g, x float64, mixed bool,
) (latency float64, held bool) {
	sp := r.flow.at(slot)
	if sp.state == killed {
		return refused, false
	}
	// One of the arrivals, whose share of their work has a beta distribution.
	one := sp.work
	if sp.n > 1 {
		one *= g / (g + st.sum(sp.n-1, w.rng.Uint64())*st.perWork)
	}
	others := sp.work - one
	extra := 0.0 // work that the replica did not have
	if mixed || sp.n == 0 {
		extra = x - one
	} else {
		x = one
	}
	crowd := st.crowd(slot)
	before, each, arrival := 0.0, 0.0, rank
	if sp.n > 1 {
		earlier := math.Floor(rank * sp.n)
		each = others / (sp.n - 1)
		before = each * earlier
		arrival = (earlier + 1) / (sp.n + 1) // mean of the order statistic
		deviation := math.Sqrt(arrival * (1 - arrival) / (sp.n + 2))
		arrival = max(0, min(1, arrival+z*deviation))
	}
	arrival = crowd.time(arrival)
	v := st.procs / s.span // CPU seconds per second, at full speed
	throttled := sp.backlog+others+x > sp.c
	rest, ahead := x, 0.0
	if ahead = sp.backlog + before; ahead > st.procs*(st.work+st.residual)/2 {
		// It waits for a processor. With several processors, other processors
		// still do some of the work ahead when it starts.
		begin := max(0, (ahead-(st.procs-1)*st.residual)/v-arrival*slice)
		if left := sp.c - ahead; left > 0 {
			own := min(left, max(0, (1-arrival)*slice-begin)/s.span)
			if own >= x {
				return begin + x*s.span, false
			}
			rest -= own
			ahead = 0
		} else {
			ahead -= sp.c
		}
	} else {
		got := (1 - arrival) * slice / s.span
		switch left := sp.c - sp.backlog; {
		case throttled && left > 0 && crowd.has(rank): // it runs together with the rest of its crowd
			earlier, others := crowd.first()*sp.n*each, max(0, crowd.share*sp.n-1)*each
			got = min(got, max(0, st.level(max(0, left-earlier), others)))
		case throttled:
			got = min(got, st.share(s, sp.backlog, before, others-before, x, arrival, sp.c))
		}
		if got >= x {
			return x * s.span, false
		}
		rest -= got
		ahead = 0
	}
	extra = max(0, extra-max(0, sp.c-sp.backlog-sp.work))
	return f.replayRest(w, s, st, r, slot+1, request{(1 - arrival) * slice, ahead, rest, extra}), throttled
}

// request is a request that a replica did not finish in the slice of its arrival.
type request struct {
	age   float64 // seconds since its arrival, at the start of the slice
	ahead float64 // CPU seconds of work before it in the queue
	rest  float64 // CPU seconds of its own work left
	extra float64 // CPU seconds of work that it brought and the replica did not have
}

// replayRest continues replay in the slices after that of the arrival.
func (f *fluid) replayRest(w *World, s *service, st *station, r *replica, slot int64, q request) float64 {
	v := st.procs / s.span
	age, ahead, rest, extra := q.age, q.ahead, q.rest, q.extra
	for ; slot < w.now; slot++ {
		sp := r.flow.at(slot)
		if sp.state == killed || age > st.timeout && ahead > 0 {
			return neverAnswered
		}
		if ahead > 0 {
			if ahead >= sp.c {
				ahead -= sp.c
				age += slice
				continue
			}
			// It is done when the work before it and its own are, but no sooner
			// than one processor can.
			own := min(sp.c-ahead, slice/s.span)
			if own >= rest {
				return age + max(rest*s.span, (ahead+rest)/v)
			}
			rest -= own
			ahead = 0
			age += slice
			continue
		}
		got := slice / s.span
		backlog := max(sp.backlog+extra, rest)
		switch {
		case backlog+sp.work <= sp.c:
		case backlog >= sp.c: // the backlog uses up the quota
			got = min(got, max(sp.c/st.procs, st.level(sp.c, backlog-rest)))
		default:
			got *= (sp.c - backlog) / sp.work
		}
		extra = max(0, extra-max(0, sp.c-sp.backlog-sp.work))
		if got >= rest {
			return age + rest*s.span
		}
		rest -= got
		age += slice
	}
	// The future is not known yet.
	c, n := 0.0, 0.0
	for k := max(0, w.now-slicesPerSecond); k < w.now; k++ {
		c += r.flow.at(k).c
		n++
	}
	c = max(c/max(1, n), 1e-9)
	wait := ahead / c * slice
	if age+wait > st.timeout {
		return neverAnswered
	}
	return age + wait + max(rest*s.span, rest/c*slice)
}

// share is the CPU seconds that a request gets in the slice of its arrival when
// the quota is not enough for all. backlog is the work at the start of the
// slice, before and later the work of earlier and later arrivals, x its own
// work, all in CPU seconds. at is its arrival as a share of the slice.
func (st *station) share(s *service, backlog, before, later, x, at, c float64) float64 {
	if backlog >= c {
		return max(0, st.level(c, backlog)-at*slice/s.span)
	}
	free := c - backlog - before
	if free <= 0 {
		return 0
	}
	// Only the work that arrives while the request runs shares the quota with
	// it.
	later *= min(1, x*s.span/((1-at)*slice+1e-9)) / 2
	return free * min(1, x/(x+max(0, later)))
}

// level is the CPU seconds that one more request gets of c when requests with
// others CPU seconds of work share c equally with it. Their remaining work is
// exponentially distributed: level + others * (1 - exp(-level/residual)) = c.
func (st *station) level(c, others float64) float64 {
	if others <= 0 {
		return c
	}
	l := c / (1 + others/st.residual)
	for range 3 { // Newton's method
		e := math.Exp(-l / st.residual)
		l -= (l + others*(1-e) - c) / (1 + others/st.residual*e)
	}
	return l
}
