package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"awarescale.dev/aware/learner/sim/workload"
	"awarescale.dev/aware/test/apps/client"
	"awarescale.dev/aware/test/apps/trace"
	"awarescale.dev/aware/test/apps/traces"
	"awarescale.dev/aware/test/perf/pace"
)

// fit is the load as it is right for this machine.
type fit struct {
	Cost time.Duration `json:"cpu_per_request_ns"` // of the application, without other work beside it
	Peak float64       `json:"peak_cores"`         // that the load asks for
	RPS  float64       `json:"mean_rps"`           // requests a second, in the mean of the trace
	SLO  time.Duration `json:"slo_ns"`
	Pace time.Duration `json:"pace_ns"` // the CPU time of a piece of work that is always the same
}

// sharper is the power to which the trace's rates are raised. As it is, the trace asks at its peak for
// 2.4 times its mean, which is less than what an autoscaler with a strict objective has in force. The
// bursts of the demo ask for 4.5 times the mean.
const sharper = 2

// What --trace takes.
const (
	bursty = "bursty" // Autothrottle's, sharpened
	pulses = "pulses" // the simulated world's
)

// shape is the trace of the demo, of 3 minutes, with a mean of one request a second.
func (o options) shape() (trace.Trace, error) {
	if o.trace != pulses {
		return traces.Bursty3Min().Sharpen(sharper)
	}
	const seed = 1
	p, err := workload.Pulses(1, 3, 5, 20*time.Second, 3*time.Minute, seed)
	if err != nil {
		return trace.Trace{}, fmt.Errorf("making a trace of pulses: %w", err)
	}
	return trace.Trace{Step: p.Step, Rates: p.Rates}.Scale(1, 1/p.Mean())
}

// shaped says what the trace is.
func (o options) shaped() string {
	if o.trace == pulses {
		return "pulses of one second in each twenty, 3 to 5 times as high"
	}
	return fmt.Sprintf("bursty-3min, rates to the power of %d", sharper)
}

func fitted(cost time.Duration, o options) (fit, error) {
	t, err := o.shape()
	if err != nil {
		return fit{}, err
	}
	f := fit{Cost: cost, Peak: o.peak, RPS: o.peak / cost.Seconds() / t.Peak(), SLO: o.slo}
	if f.SLO == 0 {
		// A request meets others, and the limits are throttled in periods of 100 ms: less than a few
		// periods can be held by nobody.
		const least = 100 * time.Millisecond
		f.SLO = max(least, (30 * cost).Round(10*time.Millisecond))
	}
	return f, nil
}

func (f fit) String() string {
	return fmt.Sprintf("a request costs %.1f ms of CPU on this machine: "+
		"%.0f requests/s in the mean ask for %.2f cores at the peak; the SLO is %v",
		1000*f.Cost.Seconds(), f.RPS, f.Peak, f.SLO)
}

const (
	fitWarm   = 3 * time.Second // requests before the cost is measured
	fitTimes  = 4
	fitFor    = 3 * time.Second // each time
	fitLeast  = 20              // requests that are measured each time, at least
	fitWithin = 5 * time.Minute // the machine is fast, or it is fitted as it is
)

// measured is what a request costs, and how fast the machine was meanwhile.
type measured struct{ cost, pace time.Duration }

// fittest are those of the measurements that met a fast machine: about as fast as it was ever seen to be, before (0: not known)
// or in one of them.
func fittest(all []measured, fastest time.Duration) (of []measured) {
	for _, m := range all {
		if fastest == 0 || m.pace < fastest {
			fastest = m.pace
		}
	}
	for _, m := range all {
		if float64(m.pace) <= pace.Fast*float64(fastest) {
			of = append(of, m)
		}
	}
	return of
}

// measureFit runs the static application, and measures what a request costs: one after
// the other, so that none waits for another. A request costs more while others of the machine's host are busy, and a load that is
// fitted to that is an easy one later. So it waits until the machine is about as fast as it was seen to be, for some minutes, and
// of several times the least counts.
func (s *stage) measureFit(ctx context.Context, fastest time.Duration) (fit, error) {
	s.fit = fit{SLO: time.Second} // the manifests need one; nobody reads it in this run
	watch, stop := context.WithCancel(ctx)
	defer stop()
	sampler, err := watchPods(watch, s.clients, namespaceOf(static), s.cluster.CgroupParent())
	if err != nil {
		return fit{}, err
	}
	if err := s.deploy(ctx, static, peakMilli); err != nil {
		return fit{}, err
	}
	url, err := s.target(ctx, static)
	if err != nil {
		return fit{}, err
	}
	c := client.New(client.Config{ConnMaxRequests: 20})
	defer c.CloseIdleConnections()
	send := func(until time.Time) (n int, err error) {
		for time.Now().Before(until) && err == nil {
			err = get(ctx, c, url)
			n++
		}
		return n, err
	}
	if _, err := send(time.Now().Add(fitWarm)); err != nil {
		return fit{}, err
	}
	var all []measured
	for began := time.Now(); len(fittest(all, fastest)) < fitTimes && (len(all) < fitTimes || time.Since(began) < fitWithin); {
		if len(all) == fitTimes {
			s.screen.say("fitting the load: the machine is slower now than it can be; waiting %v at most", fitWithin)
		}
		one, err := measureCost(sampler, send)
		if err != nil {
			return fit{}, err
		}
		all = append(all, one)
	}
	of := fittest(all, fastest)
	if len(of) == 0 {
		of = all // as slow all the time: the fastest of these
	}
	if err := s.remove(ctx, static); err != nil {
		return fit{}, err
	}
	best := slices.MinFunc(of, func(a, b measured) int { return cmp.Compare(a.cost, b.cost) })
	f, err := fitted(best.cost, s.options)
	f.Pace = slices.MinFunc(of, func(a, b measured) int { return cmp.Compare(a.pace, b.pace) }).pace
	return f, err
}

// measureCost sends requests for some seconds. The machine's pace is that before or after them, whichever is slower.
func measureCost(sampler *sampler, send func(until time.Time) (int, error)) (measured, error) {
	first, err := pace.Now()
	if err != nil {
		return measured{}, err
	}
	before, err := sampler.cpuTime()
	if err != nil {
		return measured{}, err
	}
	n, err := send(time.Now().Add(fitFor))
	if err != nil {
		return measured{}, err
	}
	after, err := sampler.cpuTime()
	if err != nil {
		return measured{}, err
	}
	if n < fitLeast {
		return measured{}, fmt.Errorf("only %d requests in %v: the machine has too much else to do", n, fitFor)
	}
	last, err := pace.Now()
	return measured{(after - before) / time.Duration(n), max(first, last)}, err
}

// cpuTime is the CPU time that all running containers have used.
func (s *sampler) cpuTime() (time.Duration, error) {
	var sum time.Duration
	for _, pod := range s.podsNow() {
		for _, c := range containersOf(pod, s.parent) {
			r, err := s.host.read(c.path)
			if err != nil {
				return 0, fmt.Errorf("reading the CPU time of %s: %w", pod.Name, err)
			}
			sum += r.usage
		}
	}
	return sum, nil
}
