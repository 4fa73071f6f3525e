package sim

import "math"

// tag is a sample request that is followed through throttled slices.
type tag struct {
	rest   float64 // CPU seconds of work left
	age    float64 // seconds since its arrival, at the start of the slice
	weight float64 // number of requests that it represents
}

// inSlice scales the limit of a wait within a slice, relative to the deviation
// of the slice's arrivals. The value gives the best agreement with the request
// level.
const inSlice = 0.5

// The number of tags is limited.
const (
	perSlice = 3 // new tags per slice and replica
	maxTags  = 9 // tags per replica
)

// follow advances the tags of a replica by one slice, and tags some of the n
// arrivals. backlog is the CPU seconds at the start of the slice, work those of
// the arrivals, and c the CPU seconds that the slice can do. Running requests
// share the quota equally, as threads do. The others wait in order of arrival.
func (st *station) follow(
	w *World, s *service, r *replica, backlog, work, c, n float64, throttled bool, u uint64,
) {
	st.advanceTags(w, s, r, backlog, work, c, throttled)
	if n == 0 || !throttled && r.queued <= 0 {
		st.unthrottled += n
		return
	}
	st.tagArrivals(w, s, r, backlog, work, c, n, throttled, u)
}

// advanceTags advances the tags of a replica by one slice. Its parameters are
// the ones of follow.
func (st *station) advanceTags(w *World, s *service, r *replica, backlog, work, c float64, throttled bool) {
	timeout := w.timeout
	kept := r.tags[:0]
	for _, t := range r.tags {
		got := slice / s.span
		switch {
		case throttled && backlog >= c: // the backlog uses up the quota
			got = min(got, st.level(c, backlog-t.rest))
		case throttled:
			got *= (c - backlog) / work
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
}

// tagArrivals tags some of the n arrivals of a slice. Its parameters are the
// ones of follow.
func (st *station) tagArrivals(
	w *World, s *service, r *replica, backlog, work, c, n float64, throttled bool, u uint64,
) {
	timeout := w.timeout
	take := min(perSlice, int(n), maxTags-len(r.tags))
	if take == 0 {
		return // the existing tags represent these requests too
	}
	first := 0.0 // work of the first of two requests; sum used the same random number
	if n == 2 {
		first = st.work * st.shape[u&tableMask]
	}
	v := u
	for i := range take {
		v = v*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
		mixed := (v ^ v>>32) * 0xd6e8feb86659fd93
		mixed ^= mixed >> 32
		at := (float64(i) + float64(mixed>>40)*0x1p-24) / float64(take) // arrival, as a share of the slice
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
		default: // one of n parts of gamma distributed work has a beta distribution
			g := st.shape[mixed&tableMask]
			x = work * g / (g + n - 1)
			rank := math.Floor(at * n)
			before = (work - x) * rank / (n - 1)
			at = (rank + 1) / (n + 1) // mean of the order statistic
			deviation := math.Sqrt(at * (1 - at) / (n + 2))
			at = max(0, min(1, at+normalTable[mixed>>16&tableMask]*deviation))
		}
		t := tag{rest: x, age: (1 - at) * slice, weight: n / float64(take)}
		if (backlog+before)/st.residual > st.procs {
			st.put(st.inOrder(s, backlog+before, x, at, c), t.weight, timeout)
			continue
		}
		got := (1 - at) * slice / s.span
		if throttled {
			got = min(got, st.share(s, backlog, before, work-before-x, x, at, c))
		}
		if got >= x {
			st.put(x*s.span, t.weight, timeout)
			continue
		}
		t.rest -= got
		r.tags = append(r.tags, t)
	}
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

// put adds a sample to the window. Its latency is limited to the timeout.
func (st *station) put(latency, weight, timeout float64) {
	st.samples = append(st.samples, sample{min(latency, timeout), weight})
	st.followed += weight
}

// inLine samples latencies of a slice in which requests wait for processors and
// not for quota.
func (st *station) inLine(w *World, s *service, backlog, work, c, n float64, u uint64) {
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
		st.put(st.inOrder(s, backlog+(work-x)*at, x, at, c), n/float64(take), w.timeout)
	}
}

// inOrder is the latency in seconds of a request when there are more requests
// than processors, so that they are served in order of arrival. ahead is the
// CPU seconds before it in the queue, x its own CPU seconds, at its arrival as
// a share of the slice, and c the CPU seconds per slice.
func (st *station) inOrder(s *service, ahead, x, at, c float64) float64 {
	speed := st.procs / s.span
	run := x * s.span
	// With several processors, other processors still do some of the work ahead
	// when the request starts.
	drain := max(0, (ahead-(st.procs-1)*st.residual)/speed-at*slice)
	rest := ahead - c + x // CPU seconds of both, after this slice
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
