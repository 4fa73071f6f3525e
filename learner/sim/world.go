package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim/perfmodel"
)

// Load is how much clients ask of the application.
type Load interface {
	// Rate is the requests per second in the second that begins at the given time since the world's beginning.
	Rate(at time.Duration) mdp.Rate
}

// Steady is a load that never changes.
type Steady mdp.Rate

// Rate is the steady rate.
func (s Steady) Rate(time.Duration) mdp.Rate { return mdp.Rate(s) }

// Fidelity is how finely requests are looked at.
type Fidelity int

// The two levels. They share everything but the way of requests through replicas.
const (
	Fluid    Fidelity = iota // work flows in slices of 100 ms; for training
	Requests                 // every request by itself; the oracle that Fluid must agree with
)

// Config is what a world is made of.
type Config struct {
	App       App
	Cluster   Cluster
	Load      Load
	Anomalies []Anomaly
	Seed      uint64
	Fidelity  Fidelity
	Window    time.Duration // over which a latency percentile is taken; 0 is 10 s
	Metrics   time.Duration // how old the figures of a Sensor are
}

// Slice is the grain of time: the period of CFS bandwidth control.
const Slice = 100 * time.Millisecond

const (
	slice           = 0.1 // seconds
	slicesPerSecond = 10
)

// Epoch is the time at which every world begins.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// World is a simulated cluster with one application on it. It is used by one goroutine. With the same Config and the same
// calls it does the same, bit for bit.
type World struct {
	config   Config
	graph    *graph
	now      int64   // slices
	window   int64   // slices
	timeout  float64 // seconds, of the application
	due      int64   // the slice in which the next size comes into force
	services []service
	nodes    []node
	rng      *rand.PCG
	engine   engine
	rate     float64   // requests per second now
	opRate   []float64 // per operation, per second
	totals   Totals
	latency  *histogram // of the window that is over
	all      *histogram // of all windows since the beginning
}

// engine moves requests through replicas.
type engine interface {
	slice(w *World)                   // one slice of time
	histogram(w *World, t *histogram) // the latencies since it was last asked
	drop(s *service, r *replica) float64
	move(s *service, from, to *replica)
	waiting(s *service, r *replica) float64
	inside(s *service) float64 // requests that are in any replica of it
}

// Account is what happened to the application's requests and what it was given, since the world's beginning.
type Totals struct {
	Requests  float64       // that clients sent
	Allocated float64       // core-seconds of limits in force, all services together
	Used      float64       // core-seconds
	Memory    float64       // byte-seconds of limits in force
	Started   int           // replicas
	Resizes   int           // of a replica, in place
	OOMKills  int           // of a replica
	Elapsed   time.Duration // since the beginning
}

type node struct {
	Node
	free     mdp.Size // what limits have left; can be negative after an overcommitted start
	pressure Pressure // last second's
	has      []bool   // per service: its image was pulled
}

type service struct {
	Service
	index    int
	span     float64
	replicas []replica
	want     int // replicas
	size     mdp.Size
	due      int64 // slice at which size comes into force; 0 is: it has
	deferred bool

	ops    []int
	rate   float64 // arrivals per second, all replicas
	mix    float64 // mean work of an arrival in seconds, without interference
	square float64 // its second moment, over mix squared
	slow   float64 // factor on work: interference
	hold   float64 // seconds that a request stays in a replica once it was taken in
	gain   float64 // completed over arrived, last second
	delay  float64 // seconds, network delay on calls to it

	// Counters since the beginning, all replicas.
	arrived, completed, failed float64
	used                       float64 // CPU seconds
	given                      float64 // CPU seconds of limits
	alive                      float64 // replica-seconds
	periods, throttled         float64
	kills                      int
	before                     struct{ arrived, completed float64 }
}

type replica struct {
	node    int
	ready   int64 // the slice from which on it takes requests
	size    mdp.Size
	quota   float64 // CPU seconds a slice
	cap     float64 // the same, after the node's contention
	backlog float64 // CPU seconds
	queued  float64 // part of the backlog that had to wait
	jobs    float64 // requests that the backlog is of
	second  float64 // CPU seconds used since the last full second
	usage   [samples]float32
	memory  mdp.Bytes
	tags    []tag // the fluid level's own state
	request any   // the request level's
}

// samples are the slices over which peak and deviation are taken: 5 s, as Autothrottle does.
const samples = 50

// New makes a world. The Config's parts are checked; an error names what is wrong.
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
	w := &World{
		config: c, graph: g, window: int64(c.Window / Slice), timeout: g.Timeout.Seconds(),
		rng: rand.NewPCG(c.Seed, 0x5ca1ab1e),
		due: never, opRate: make([]float64, len(g.ops)), latency: &histogram{}, all: &histogram{},
	}
	nodes := map[string]int{}
	for i, n := range c.Cluster.Nodes {
		nodes[n.Name] = i
		w.nodes = append(w.nodes, node{Node: n, free: n.Size, has: make([]bool, len(g.Services))})
	}
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

// populate starts every service at its first size, ready at once.
func (w *World) populate() error {
	w.services = make([]service, len(w.graph.Services))
	for i, spec := range w.graph.Services {
		s := &w.services[i]
		*s = service{Service: spec, index: i, span: spec.span(), want: spec.Replicas, size: spec.Size, gain: 1, slow: 1}
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

// place starts a replica on the node with the most room; it is ready at the given slice. It is false when there is none.
func (w *World) place(s *service, ready int64) bool {
	best := -1
	for i := range w.nodes {
		free := w.nodes[i].free
		if free.CPU >= s.size.CPU && free.Memory >= s.size.Memory && (best < 0 || free.CPU > w.nodes[best].free.CPU) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	n := &w.nodes[best]
	n.free.CPU -= s.size.CPU
	n.free.Memory -= s.size.Memory
	if ready > 0 {
		ready = w.after(w.startTime(s, n.has[s.index]))
	}
	n.has[s.index] = true
	r := replica{node: best, ready: ready, size: s.size, memory: s.Memory.Base}
	r.limit()
	s.replicas = append(s.replicas, r)
	w.totals.Started++
	return true
}

func (r *replica) limit() {
	r.quota = r.size.CPU.Cores() * slice
	r.cap = r.quota
}

// Now is the world's time.
func (w *World) Now() time.Time { return Epoch.Add(time.Duration(w.now) * Slice) }

// Elapsed is the time since the world's beginning.
func (w *World) Elapsed() time.Duration { return time.Duration(w.now) * Slice }

// Advance lets time pass, in whole slices.
func (w *World) Advance(d time.Duration) {
	for end := w.now + int64(d/Slice); w.now < end; {
		if w.now%slicesPerSecond == 0 {
			w.tick()
		}
		if w.now >= w.due {
			w.comeDue()
		}
		w.engine.slice(w)
		w.now++
		if w.now%w.window == 0 {
			w.latency.reset()
			w.engine.histogram(w, w.latency)
			w.all.add(w.latency)
		}
	}
}

// Account is what happened so far.
func (w *World) Totals() Totals {
	a := w.totals
	a.Elapsed = w.Elapsed()
	for i := range w.services {
		a.Used += w.services[i].used
		a.Allocated += w.services[i].given
	}
	return a
}

// Rate is what clients ask for now, per second.
func (w *World) Rate() mdp.Rate { return mdp.Rate(w.rate) }

// Latency is the percentile of the application's latency over the window that ended last; ok is false before the first
// one is over and when it had no requests.
func (w *World) Latency(percentile float64) (l time.Duration, ok bool) {
	return w.latency.quantile(percentile)
}

// Overall is the same over all windows since the given mark.
func (w *World) Overall(since Snapshot, percentile float64) (l time.Duration, ok bool) {
	t := *w.all
	t.sub(since.all)
	return t.quantile(percentile)
}

// Mark remembers a moment, to ask later what happened since.
type Snapshot struct {
	Totals Totals
	all    *histogram
}

// Mark is the present moment.
func (w *World) Snapshot() Snapshot {
	all := *w.all
	return Snapshot{w.Totals(), &all}
}

// Flow is a service's requests since the world's beginning: what arrived is completed, failed, or inside. The fluid level
// counts in parts of requests.
type Flow struct {
	Service                    string
	Arrived, Completed, Failed float64
	Inside                     float64
}

// Flows are those of all services.
func (w *World) Flows() []Flow {
	fs := make([]Flow, len(w.services))
	for i := range w.services {
		s := &w.services[i]
		fs[i] = Flow{s.Name, s.arrived, s.completed, s.failed, w.engine.inside(s)}
	}
	return fs
}

// second does what changes slowly: load, neighbours, memory, replicas that come and go.
func (w *World) tick() {
	w.rate = max(0, float64(w.config.Load.Rate(w.Elapsed())))
	var delay map[int]float64
	var stress []Pressure
	for _, a := range w.config.Anomalies {
		if at := w.Elapsed(); at < a.From || at >= a.To {
			continue
		}
		if r, ok := a.presses(); ok {
			if stress == nil {
				stress = make([]Pressure, len(w.nodes))
			}
			for i := range w.nodes {
				if w.nodes[i].Name == a.Target {
					stress[i][r] = min(fullStress, stress[i][r]+fullStress*a.Intensity)
				}
			}
			continue
		}
		switch a.Kind {
		case WorkloadVariation:
			w.rate *= 1 + fullVariation*a.Intensity
		case NetworkDelay:
			if delay == nil {
				delay = map[int]float64{}
			}
			delay[w.graph.names[a.Target]] += fullDelay * a.Intensity
		}
	}
	w.totals.Requests += w.rate
	w.enforce()
	w.updatePressure(stress)
	for i := range w.services {
		s := &w.services[i]
		s.delay = delay[i]
		w.updateMemory(s)
		w.totals.Memory += float64(s.size.Memory) * float64(len(s.replicas))
		s.gain = 1
		if arrived := s.arrived - s.before.arrived; arrived > 0 && s.congested() {
			s.gain = max(0, min(4, (s.completed-s.before.completed)/arrived))
		}
		s.before.arrived, s.before.completed = s.arrived, s.completed
	}
	w.propagateLoad()
}

// congested tells whether a service holds work back for longer than a slice, so that what it passes on differs from what
// it takes in.
func (s *service) congested() bool {
	for i := range s.replicas {
		if r := &s.replicas[i]; r.queued > r.cap {
			return true
		}
	}
	return false
}

// flow takes the clients' rate through the graph.
func (w *World) propagateLoad() {
	g := w.graph
	for i := range w.opRate {
		w.opRate[i] = 0
	}
	for k, e := range g.endpoints {
		w.opRate[e] += w.rate * g.shares[k]
	}
	for i := range w.services {
		s := &w.services[i]
		s.rate, s.mix, s.square = 0, 0, 0
	}
	for k := len(g.order) - 1; k >= 0; k-- {
		o := &g.ops[g.order[k]]
		rate := w.opRate[g.order[k]]
		s := &w.services[o.service]
		s.rate += rate
		s.mix += rate * o.work
		s.square += rate * o.work * o.work * (1 + s.Variation*s.Variation)
		rate *= s.gain
		for _, stage := range o.stages {
			for _, e := range stage {
				w.opRate[e.op] += rate * e.share
			}
		}
		for _, e := range o.background {
			w.opRate[e.op] += rate * e.share
		}
	}
	for i := range w.services {
		if s := &w.services[i]; s.rate > 0 {
			s.mix /= s.rate
			s.square /= s.rate * s.mix * s.mix
		} else {
			s.mix, s.square = w.graph.ops[s.ops[0]].work, 1+s.Variation*s.Variation
		}
	}
}

// press finds what each node's containers and neighbours take of what they share, and what it costs them.
func (w *World) updatePressure(stress []Pressure) {
	for i := range w.nodes {
		w.nodes[i].pressure = Pressure{}
		if stress != nil {
			w.nodes[i].pressure = stress[i]
		}
	}
	for i := range w.services {
		s := &w.services[i]
		for k := range s.replicas {
			r := &s.replicas[k]
			p := &w.nodes[r.node].pressure
			for shared, e := range s.Exerts {
				p[shared] += e * r.second
			}
		}
	}
	for i := range w.services {
		s := &w.services[i]
		slow, n := 0.0, 0.0
		for k := range s.replicas {
			slow += slowdown(s.Sensitive, w.nodes[s.replicas[k].node].pressure)
			n++
		}
		s.slow = 1
		if n > 0 {
			s.slow = slow / n
		}
	}
	w.contend(stress)
}

// slowdown is by how much work grows under pressure on all resources together: perfmodel.Slowdown, without its maps.
func slowdown(sensitive, pressure Pressure) float64 {
	f := 1.0
	for r := range sensitive {
		f *= perfmodel.Slower(sensitive[r], pressure[r])
	}
	return f
}

// contend shares a node's CPUs in proportion to what its containers ask for, when they ask for more than there is.
func (w *World) contend(stress []Pressure) {
	asked := make([]float64, len(w.nodes))
	for i := range w.services {
		s := &w.services[i]
		for k := range s.replicas {
			r := &s.replicas[k]
			asked[r.node] += min(r.quota*slicesPerSecond, r.second+r.queued)
		}
	}
	for i := range w.services {
		s := &w.services[i]
		for k := range s.replicas {
			r := &s.replicas[k]
			have := w.nodes[r.node].Size.CPU.Cores()
			if stress != nil {
				have *= 1 - stress[r.node][SharedCPU]
			}
			r.cap = r.quota
			if asked[r.node] > have {
				r.cap = min(r.quota, max(0.01*slice, min(r.quota*slicesPerSecond, r.second+r.queued)*have/asked[r.node]*slice))
			}
			r.second = 0
		}
	}
}

// memory follows what replicas hold, and kills those that hold more than they may.
func (w *World) updateMemory(s *service) {
	for k := range s.replicas {
		r := &s.replicas[k]
		if w.now < r.ready {
			continue
		}
		inside := w.engine.waiting(s, r) + s.rate/float64(max(1, len(s.replicas)))*s.hold
		r.memory = s.Memory.Base + mdp.Bytes(inside*float64(s.Memory.PerRequest))
		if r.memory > r.size.Memory {
			s.failed += w.engine.drop(s, r)
			s.kills++
			w.totals.OOMKills++
			r.ready = w.after(w.startTime(s, true))
			r.memory = r.size.Memory // as its cgroup shows
		}
	}
}

// live is the number of replicas that take requests.
func (w *World) live(s *service) int {
	n := 0
	for k := range s.replicas {
		if w.now >= s.replicas[k].ready {
			n++
		}
	}
	return n
}
