package sim

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Totals counts the application's requests and resources since the start of the
// world.
type Totals struct {
	Requests   float64 // sent by clients
	Ended      float64 // of Requests, those whose outcome is known
	Lost       float64 // of Ended, those without an answer within the timeout: failed, dropped or given up
	Missed     float64 // of Ended, those lost or answered later than the SLO's latency
	Tasks      float64 // background requests, each one call that nobody waits for
	TasksEnded float64 // of Tasks, those whose outcome is known
	TasksLate  float64 // of TasksEnded, those failed or not done in time

	Allocated float64       // core-seconds of CPU limits in effect, all services
	Acting    float64       // core-seconds that the nodes' agents used for resizes through the container runtime
	Used      float64       // core-seconds of CPU time, all services
	Memory    float64       // byte-seconds of memory limits in effect, all services
	Started   int           // replicas started after the initial ones
	Resizes   int           // changes of a replica's limits
	Calls     int           // of the container runtime by the nodes' agents
	OOMKills  int           // out-of-memory kills of replicas
	Elapsed   time.Duration // since the start of the world
}

// Totals returns the counts up to now.
func (w *World) Totals() Totals {
	a := w.totals
	a.Elapsed = w.Elapsed()
	for i := range w.services {
		a.Used += w.services[i].used
		a.Allocated += w.services[i].given
	}
	return a
}

// Rate is the current rate of client requests per second.
func (w *World) Rate() mdp.Rate { return mdp.Rate(w.rate) }

// Latency is the percentile of the application's latency over the last complete
// window. ok is false before the end of the first window, and when the window
// had no requests.
func (w *World) Latency(percentile float64) (l time.Duration, ok bool) {
	return w.latency.quantile(percentile)
}

// Overall is the same percentile over all windows since the given snapshot. A
// request that has no answer yet counts as one that took the timeout.
func (w *World) Overall(since Snapshot, percentile float64) (l time.Duration, ok bool) {
	t := *w.all
	t.sub(since.all)
	if clients, _ := w.engine.open(); clients > 0 {
		t.put(w.timeout, clients)
	}
	return t.quantile(percentile)
}

// Above is the share of the requests since the given snapshot that took longer than a latency. One
// that has no answer yet counts as one that took the timeout.
func (w *World) Above(since Snapshot, latency time.Duration) float64 {
	t := *w.all
	t.sub(since.all)
	if clients, _ := w.engine.open(); clients > 0 {
		t.put(w.timeout, clients)
	}
	return t.above(latency.Seconds())
}

// Open is the number of requests of clients, and of background requests, whose
// outcome is not known yet.
func (w *World) Open() (clients, tasks float64) { return w.engine.open() }

// Snapshot is the state of the counters at one time. It is used to measure what
// happened after that time.
type Snapshot struct {
	Totals Totals
	all    *histogram
}

// Snapshot returns the counters at the current time.
func (w *World) Snapshot() Snapshot {
	all := *w.all
	return Snapshot{w.Totals(), &all}
}

// Flow counts a service's requests since the start of the world. Each request
// that arrived is completed, failed or inside. The fluid level counts fractions
// of requests.
type Flow struct {
	Service   string // name
	Arrived   float64
	Completed float64
	Failed    float64
	Inside    float64 // not finished yet
}

// Flows returns the Flow of each service.
func (w *World) Flows() []Flow {
	fs := make([]Flow, len(w.services))
	for i := range w.services {
		s := &w.services[i]
		inside := 0.0
		for k := range s.replicas {
			inside += w.engine.inside(&s.replicas[k])
		}
		fs[i] = Flow{s.Name, s.arrived, s.completed, s.failed, inside}
	}
	return fs
}
