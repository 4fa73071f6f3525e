package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Load is how much clients ask of the application.
type Load interface {
	// Rate is the number of requests per second in the second that starts at
	// the given time. Time counts from the start of the world.
	Rate(at time.Duration) mdp.Rate
}

// Steady is a constant load.
type Steady mdp.Rate

// Rate is the same at all times.
func (s Steady) Rate(time.Duration) mdp.Rate { return mdp.Rate(s) }

// Fidelity is the level of detail at which requests are simulated.
type Fidelity int

// The two levels. They share everything except the path of requests through
// replicas.
const (
	Fluid    Fidelity = iota // work flows in slices of 100 ms; for training
	Requests                 // every request is simulated; Fluid must agree with it
)

// Config describes a world.
type Config struct {
	App       App
	Cluster   Cluster
	Load      Load
	Anomalies []Anomaly     // injected during the run; may be empty
	Seed      uint64        // of all random numbers
	Fidelity  Fidelity      // Fluid or Requests
	Window    time.Duration // over which a latency percentile is computed, in whole seconds; 0 is 10 s
	Metrics   time.Duration // delay of the values that a Sensor reports
	// Connections is the number of connections of the clients; 0 is no limit. A
	// connection carries one request at a time, and the others wait for it. The
	// latency counts from the time at which a request was to be sent. Only
	// Requests can simulate it.
	Connections int
}

// Slice is the time step: one period of CFS bandwidth control.
const Slice = 100 * time.Millisecond

const (
	slice           = 0.1 // seconds
	slicesPerSecond = 10
)

// Epoch is the time at which every world starts.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// World is a simulated cluster that runs one application. One goroutine uses
// it. The same Config and the same calls give the same result, bit for bit.
type World struct {
	config   Config
	graph    *graph
	now      int64   // slices since the start
	window   int64   // length of a latency window, in slices
	timeout  float64 // of the application, in seconds
	within   float64 // time for background work, in seconds
	due      int64   // the slice in which the next pending change takes effect
	services []service
	nodes    []node
	demand   []float64 // scratch of contend
	rng      *rand.PCG
	engine   engine
	rate     float64   // of client requests now, per second
	opRate   []float64 // of each operation now, per second
	totals   Totals
	before   Totals     // at the end of the window before the last complete one
	last     Totals     // at the end of the last complete window
	latency  *histogram // of the last complete window
	all      *histogram // of all complete windows
}

// engine moves requests through replicas.
type engine interface {
	// slice simulates one slice of time.
	slice(w *World)
	// histogram adds the latencies since its last call to t.
	histogram(w *World, t *histogram)
	// drop fails all requests in a replica. It returns how many failed and are
	// not counted yet.
	drop(s *service, r *replica) float64
	// inside is the number of requests in a replica, as its flow counts them.
	inside(r *replica) float64
	// occupied is the number of requests that hold memory in a replica: those
	// that wait for an answer of another service too.
	occupied(s *service, r *replica) float64
	// open is the number of clients' requests and of background requests whose
	// outcome is not known yet.
	open() (clients, tasks float64)
	// state writes or reads all that changes: see [World.Save].
	state(a *archive)
}

// New creates a world. It checks the Config; an error names the wrong value.
func New(c Config) (*World, error) {
	g, err := compile(c.App)
	if err != nil {
		return nil, err
	}
	if err := c.Cluster.Check(); err != nil {
		return nil, err
	}
	if c.Load == nil {
		return nil, fmt.Errorf("a world without load")
	}
	if c.Window == 0 {
		c.Window = 10 * time.Second
	}
	if c.Window < time.Second || c.Window%time.Second != 0 {
		return nil, fmt.Errorf("window %v: it must be whole seconds", c.Window)
	}
	if c.Metrics < 0 {
		return nil, fmt.Errorf("metrics delay %v: it must not be negative", c.Metrics)
	}
	if c.Connections < 0 {
		return nil, fmt.Errorf("connections %d: it must not be negative", c.Connections)
	}
	if c.Connections > 0 && c.Fidelity != Requests {
		return nil, fmt.Errorf("connections %d: only the fidelity Requests simulates the connections of clients", c.Connections)
	}
	w := &World{
		config:  c,
		graph:   g,
		window:  int64(c.Window / Slice),
		timeout: g.Timeout.Seconds(),
		within:  g.Within.Seconds(),
		rng:     rand.NewPCG(c.Seed, 0x5ca1ab1e),
		due:     never,
		opRate:  make([]float64, len(g.ops)),
		latency: &histogram{},
		all:     &histogram{},
	}
	nodes := map[string]int{}
	for i, n := range c.Cluster.Nodes {
		nodes[n.Name] = i
		w.nodes = append(w.nodes, node{Node: n, free: n.Size, hasImage: make([]bool, len(g.Services)), tokens: burst})
	}
	w.demand = make([]float64, len(w.nodes))
	for _, a := range c.Anomalies {
		if err := a.check(g.names, nodes); err != nil {
			return nil, err
		}
	}
	switch c.Fidelity {
	case Fluid:
		w.engine = newFluid(w)
	case Requests:
		w.engine = newRequests(w)
	default:
		return nil, fmt.Errorf("fidelity %d: known are Fluid and Requests", c.Fidelity)
	}
	if err := w.populate(); err != nil {
		return nil, err
	}
	return w, nil
}

// populate starts the replicas of every service with their initial size. They
// are ready at once.
func (w *World) populate() error {
	w.services = make([]service, len(w.graph.Services))
	for i, spec := range w.graph.Services {
		s := &w.services[i]
		*s = service{
			Service: spec,
			index:   i,
			span:    spec.span(),
			want:    spec.Replicas,
			size:    spec.Size,
			ceiling: spec.ceiling(),
			gain:    1,
			slow:    1,
		}
		for o, op := range w.graph.ops {
			if op.service == i && op.visits > 0 {
				s.ops = append(s.ops, o)
				s.hold = max(s.hold, op.work+op.wait)
			}
		}
		for range spec.Replicas {
			if !w.place(s, 0) {
				return fmt.Errorf("service %q: the cluster has no room for a replica of %v", s.Name, s.Size)
			}
		}
	}
	w.totals.Started = 0
	return nil
}

// Now is the current time in the world.
func (w *World) Now() time.Time { return Epoch.Add(time.Duration(w.now) * Slice) }

// Elapsed is the time since the start of the world.
func (w *World) Elapsed() time.Duration { return time.Duration(w.now) * Slice }

// Advance simulates the given time, in whole slices.
func (w *World) Advance(d time.Duration) {
	for end := w.now + int64(d/Slice); w.now < end; {
		if w.now%slicesPerSecond == 0 {
			w.tick()
		}
		if w.now >= w.due {
			w.applyDue()
		}
		w.engine.slice(w)
		w.now++
		if w.now%w.window == 0 {
			w.before = w.last
			w.latency.reset()
			w.engine.histogram(w, w.latency)
			w.all.add(w.latency)
			w.last = w.totals
		}
	}
}
