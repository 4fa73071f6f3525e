package sim

import (
	"context"
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Sensor returns a sensor of the service. A State covers the time since the
// last call of Sense. Latency is the application's latency, as its clients see
// it, over the last complete window. When Config.Metrics is above zero, the
// State is that much older than now; until the first State is old enough, only
// the knobs are known.
//
// The sensor is an [encoding.BinaryMarshaler] and an
// [encoding.BinaryUnmarshaler], for what it remembers of the last call. Who
// restores a world restores its sensors too.
func (h Handle) Sensor() mdp.Sensor {
	return &sensor{Handle: h, since: h.w.cursor(h.s), peak: h.w.past(h.s)}
}

type sensor struct {
	Handle
	since   cursor      // counters at the last call
	rate    float64     // throughput at the last call, in requests per second
	peak    mdp.Peak    // of the load
	history []mdp.State // too new to be reported, oldest first; empty without delay
	shown   mdp.State   // the last reported State, when metrics are delayed
}

// cursor is a copy of a service's counters at one time.
type cursor struct {
	at        int64   // slice
	used      float64 // CPU seconds
	alive     float64 // replica-seconds
	periods   float64 // CFS periods
	throttled float64 // CFS periods in which the quota was used up
	arrived   float64 // requests
	answered  float64 // requests
	kills     int     // out-of-memory kills
	windows   int64   // complete latency windows
}

// past is the load of service i until now, for loads that have a past.
func (w *World) past(i int) (p mdp.Peak) {
	visits := 0.0
	for k := range w.graph.ops {
		if o := &w.graph.ops[k]; o.service == i {
			visits += o.visits
		}
	}
	now := w.Now()
	for ago := mdp.PeakPast; ago > 0; ago -= time.Minute {
		if rate := w.config.Load.Rate(now.Sub(Epoch) - ago); rate > 0 {
			p.See(now.Add(-ago), mdp.Rate(visits)*rate)
		}
	}
	return p
}

// cursor returns the counters of service i now.
func (w *World) cursor(i int) cursor {
	s := &w.services[i]
	return cursor{
		at:        w.now,
		used:      s.used,
		alive:     s.alive,
		periods:   s.periods,
		throttled: s.throttled,
		arrived:   s.arrived,
		answered:  s.answered,
		kills:     s.kills,
		windows:   w.now / w.window,
	}
}

// Sense implements [mdp.Sensor]. It fails only when ctx is done.
func (s *sensor) Sense(ctx context.Context, _ time.Time) (mdp.State, error) {
	if err := ctx.Err(); err != nil {
		return mdp.State{}, fmt.Errorf("sensing %s: %w", s.Name(), err)
	}
	state := s.read()
	if s.w.config.Metrics == 0 {
		return state, nil
	}
	s.history = append(s.history, state)
	for len(s.history) > 0 && !s.history[0].At.After(state.At.Add(-s.w.config.Metrics)) {
		s.shown, s.history = s.history[0], s.history[1:]
	}
	late := s.shown
	if late.Observed == 0 {
		late.At = state.At
	}
	late.Observed |= mdp.LimitKnobs
	late.Replicas, late.Limit = state.Replicas, state.Limit
	return late, nil
}

// read returns the State of the time since the last read.
func (s *sensor) read() mdp.State {
	w, svc := s.w, &s.w.services[s.s]
	state := mdp.State{At: w.Now(), Observed: mdp.LimitKnobs, Replicas: w.live(svc), Limit: svc.size}
	if len(svc.replicas) > 0 {
		state.Limit = svc.replicas[0].size
	}
	now, was := w.cursor(s.s), s.since
	if now.at == was.at {
		return state
	}
	s.since = now
	state.Observed |= mdp.SetOf(mdp.OOMKills, mdp.Throughput, mdp.Arrivals)
	state.OOMKills = now.kills - was.kills
	seconds := float64(now.at-was.at) * slice
	rate := (now.answered - was.answered) / seconds
	state.Arrivals = mdp.Rate((now.arrived - was.arrived) / seconds)
	state.Throughput = mdp.Rate(rate)
	if s.rate > 0 {
		state.Observed |= mdp.SetOf(mdp.LoadChange)
		state.LoadChange = mdp.Ratio(rate / s.rate)
	}
	s.rate = rate
	s.peak.See(state.At, max(state.Arrivals, state.Throughput))
	if highest, ok := s.peak.Highest(state.At); ok {
		state.Observed |= mdp.SetOf(mdp.LoadPeak)
		state.LoadPeak = highest
	}
	if alive := now.alive - was.alive; alive > 0 {
		state.Observed |= mdp.SetOf(mdp.CPUUsage)
		state.Usage.CPU = milli((now.used - was.used) / alive)
	}
	if periods := now.periods - was.periods; periods > 0 {
		state.Observed |= mdp.SetOf(mdp.Throttled)
		state.Throttled = mdp.Ratio((now.throttled - was.throttled) / periods)
	}
	w.readPeaks(svc, &state)
	w.readMemory(svc, &state, now.kills > was.kills)
	if now.windows > was.windows {
		w.readOutcomes(&state)
	}
	return state
}

// readOutcomes reads how the application's requests fared in the last complete
// window. Without requests there is nothing to read.
func (w *World) readOutcomes(state *mdp.State) {
	if slo := w.graph.SLO; slo.Percentile > 0 {
		if l, ok := w.latency.quantile(slo.Percentile); ok {
			state.Observed |= mdp.SetOf(mdp.Latency)
			state.Latency = l
		}
	}
	if n := w.last.Ended - w.before.Ended; n > 0 {
		state.Observed |= mdp.SetOf(mdp.Missed, mdp.Lost)
		state.Missed = mdp.Ratio((w.last.Missed - w.before.Missed) / n)
		state.Lost = mdp.Ratio((w.last.Lost - w.before.Lost) / n)
	}
	if n := w.last.TasksEnded - w.before.TasksEnded; n > 0 {
		state.Observed |= mdp.SetOf(mdp.BackgroundLate)
		state.BackgroundLate = mdp.Ratio((w.last.TasksLate - w.before.TasksLate) / n)
	}
}

// readMemory reads the mean memory use of the replicas that run. After a kill the
// killed ones count too, with their use at that time.
func (w *World) readMemory(svc *service, state *mdp.State, killed bool) {
	sum, n := mdp.Bytes(0), mdp.Bytes(0)
	for k := range svc.replicas {
		if r := &svc.replicas[k]; killed || w.now >= r.ready {
			sum += r.memory
			n++
		}
	}
	if n == 0 {
		return
	}
	state.Observed |= mdp.SetOf(mdp.MemoryUsage)
	state.Usage.Memory = sum / n
}

// readPeaks computes peak and deviation of CPU use from the samples of single
// slices.
func (w *World) readPeaks(svc *service, state *mdp.State) {
	have := int(min(samples, w.now))
	live := 0
	var peak, deviation float64
	for k := range svc.replicas {
		r := &svc.replicas[k]
		if w.now-r.ready < int64(have) {
			continue
		}
		live++
		var sum, squares float32
		top := float32(0)
		for _, u := range r.usage[:have] {
			sum += u
			squares += u * u
			top = max(top, u)
		}
		mean := float64(sum) / float64(have)
		peak = max(peak, float64(top)/slice)
		deviation += math.Sqrt(max(0, float64(squares)/float64(have)-mean*mean)) / slice
	}
	if live == 0 || have == 0 {
		return
	}
	state.Observed |= mdp.SetOf(mdp.CPUPeak, mdp.CPUDeviation)
	state.CPUPeak = milli(peak)
	state.CPUDeviation = milli(deviation / float64(live))
}

// milli converts cores to millicores.
func milli(cores float64) mdp.MilliCPU { return mdp.MilliCPU(math.Round(cores * 1000)) }
