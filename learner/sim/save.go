package sim

import (
	"fmt"
	"hash/fnv"

	"awarescale.dev/aware/learner/mdp"
)

// worldHead begins every saved world. The number is the version of the format: it
// changes when the state of a world does.
const worldHead = "aware world 2\n"

// Save returns all state of the world: clock, random numbers, services,
// replicas, nodes, pending changes, counters, and the requests in flight. It does
// not change the world. Sensors have a state of their own: see [Handle.Sensor].
func (w *World) Save() ([]byte, error) {
	a := &archive{data: []byte(worldHead)}
	for _, p := range w.config.fingerprint() {
		a.text(&p.value)
	}
	w.state(a)
	if a.err != nil {
		return nil, fmt.Errorf("save a world of %q: %w", w.graph.Name, a.err)
	}
	return a.checksum(), nil
}

// Restore returns the world that was saved. It goes on exactly as the saved one
// would have. The Config must be the same; an error names what differs. Of the
// Load only the present rate is compared: the caller gives the same one.
func Restore(c Config, state []byte) (*World, error) {
	w, err := New(c)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*World, error) {
		return nil, fmt.Errorf("restore a world of %q from %d bytes: %w", c.App.Name, len(state), err)
	}
	a, err := open(state, worldHead)
	if err != nil {
		return fail(err)
	}
	for _, p := range w.config.fingerprint() {
		var saved string
		if a.text(&saved); a.err == nil && saved != p.value {
			a.fail("%s %s: the config has %s", p.key, saved, p.value)
		}
	}
	if a.err == nil {
		w.state(a)
	}
	if err := a.end(); err != nil {
		return fail(err)
	}
	return w, nil
}

// part is one part of a Config, as text.
type part struct {
	key   string
	value string
}

// fingerprint describes all of a Config that determines the state, but the Load.
func (c Config) fingerprint() []part {
	sum := func(v any) string {
		h := fnv.New64a()
		fmt.Fprintf(h, "%#v", v) // %#v does not round
		return fmt.Sprintf("%016x", h.Sum64())
	}
	return []part{
		{"application", fmt.Sprintf("%q (fingerprint %s)", c.App.Name, sum(c.App))},
		{"cluster", fmt.Sprintf("of %d nodes (fingerprint %s)", len(c.Cluster.Nodes), sum(c.Cluster))},
		{"anomalies", fmt.Sprintf("%d (fingerprint %s)", len(c.Anomalies), sum(c.Anomalies))},
		{"seed", fmt.Sprint(c.Seed)},
		{"fidelity", fmt.Sprint(int(c.Fidelity))},
		{"window", c.Window.String()},
		{"metrics delay", c.Metrics.String()},
		{"connections", fmt.Sprint(c.Connections)},
	}
}

// state writes or reads what changes in a world.
func (w *World) state(a *archive) {
	const last = (1<<63 - 1) / int64(Slice) / 2
	integer(a, &w.now)
	integer(a, &w.due)
	a.check(w.now >= 0 && w.now <= last, "slice %d: it must be from 0 to %d", w.now, int64(last))
	a.random(w)
	float(a, &w.rate)
	if a.reading && a.err == nil {
		want := w.lastRate()
		a.check(w.rate == want, "request rate %v: the load of the config has %v", w.rate, want)
	}
	a.floats(w.opRate)
	for i := range w.nodes {
		w.nodes[i].state(a)
	}
	for i := range w.services {
		w.services[i].state(a, len(w.nodes))
	}
	for _, t := range []*Totals{&w.totals, &w.before, &w.last} {
		t.state(a)
	}
	w.latency.state(a)
	w.all.state(a)
	w.engine.state(a)
}

// lastRate is the request rate since the last full second.
func (w *World) lastRate() float64 {
	if w.now == 0 {
		return 0
	}
	then := *w
	then.now = (w.now - 1) / slicesPerSecond * slicesPerSecond
	then.rate = max(0, float64(w.config.Load.Rate(then.Elapsed())))
	then.applyAnomalies()
	return then.rate
}

// random writes or reads the state of the random numbers. The engines share the
// source, so it is restored in place.
func (a *archive) random(w *World) {
	const length = 20 // of a saved rand.PCG
	if a.reading {
		if b := a.take(length); a.err == nil {
			if err := w.rng.UnmarshalBinary(b); err != nil {
				a.fail("random source: %w", err)
			}
		}
		return
	}
	b, err := w.rng.AppendBinary(a.data)
	if err != nil {
		a.fail("random source: %w", err)
		return
	}
	a.data = b
}

func (n *node) state(a *archive) {
	a.anySize(&n.free)
	a.floats(n.pressure[:])
	for i := range n.hasImage {
		a.bools(&n.hasImage[i])
	}
	integer(a, &n.starts)
	float(a, &n.tokens, &n.busy)
	a.bools(&n.contended)
}

func (s *service) state(a *archive, nodes int) {
	list(a, &s.replicas, func(r *replica) { r.state(a, nodes) })
	integer(a, &s.leaving)
	a.check(s.leaving >= 0 && s.leaving <= len(s.replicas), "service %q: %d of %d replicas leave: it must be fewer",
		s.Name, s.leaving, len(s.replicas))
	integer(a, &s.want)
	a.size(&s.size, "size in the API")
	a.size(&s.ceiling, "limit in the API")
	a.check(s.Bounds.Replicas.Has(s.want), "service %q: %d replicas: it must be within its bounds (%d to %d)",
		s.Name, s.want, s.Bounds.Replicas.Min, s.Bounds.Replicas.Max)
	list(a, &s.changes, func(c *change) {
		integer(a, &c.due)
		a.bools(&c.api)
		integer(a, &c.sets)
		a.anySize(&c.size)
		a.check(!c.sets.Has(mdp.CPULimit) || c.size.CPU > 0, "change to %v of CPU: it must be above zero", c.size.CPU)
	})
	a.bools(&s.deferred)
	float(a, &s.rate, &s.mix, &s.square, &s.slow, &s.hold, &s.gain, &s.delay)
	float(a, &s.arrived, &s.completed, &s.answered, &s.failed)
	float(a, &s.used, &s.given, &s.alive, &s.periods, &s.throttled)
	integer(a, &s.kills)
	float(a, &s.before.arrived, &s.before.completed)
}

// state writes or reads a replica, but for its flow, which the fluid level does.
func (r *replica) state(a *archive, nodes int) {
	integer(a, &r.node)
	a.check(r.node >= 0 && r.node < nodes, "replica on node %d: the cluster has %d", r.node, nodes)
	integer(a, &r.ready)
	integer(a, &r.until)
	a.size(&r.request, "request of a replica")
	a.size(&r.ceiling, "API limit of a replica")
	a.size(&r.size, "limit of a replica")
	integer(a, &r.commit.cpu)
	integer(a, &r.commit.since)
	a.check(r.commit.cpu > 0, "committed CPU %v: it must be above zero", r.commit.cpu)
	float(a, &r.quota, &r.capacity, &r.backlog, &r.queued, &r.second)
	for i := range r.usage {
		v := float64(r.usage[i])
		float(a, &v)
		r.usage[i] = float32(v)
	}
	integer(a, &r.memory)
	integer(a, &r.crashes)
	integer(a, &r.pod)
}

func (t *Totals) state(a *archive) {
	float(a, &t.Requests, &t.Ended, &t.Lost, &t.Missed, &t.Tasks, &t.TasksEnded, &t.TasksLate)
	float(a, &t.Allocated, &t.Acting, &t.Used, &t.Memory)
	integer(a, &t.Started)
	integer(a, &t.Resizes)
	integer(a, &t.Calls)
	integer(a, &t.OOMKills)
	integer(a, &t.Elapsed)
}

func (t *histogram) state(a *archive) {
	integer(a, &t.low)
	integer(a, &t.high)
	a.check(0 <= t.low && t.low <= t.high && t.high < bins, "histogram of bins %d to %d: they must be from 0 to %d",
		t.low, t.high, bins-1)
	float(a, &t.total)
	if a.err == nil {
		a.floats(t.bins[t.low : t.high+1])
	}
}

// sensorHead begins every saved sensor.
const sensorHead = "aware sensor 2\n"

// MarshalBinary saves what the sensor remembers. It does not save the world.
func (s *sensor) MarshalBinary() ([]byte, error) {
	a := &archive{data: []byte(sensorHead)}
	name := s.Name()
	a.text(&name)
	s.state(a)
	return a.checksum(), a.err
}

// UnmarshalBinary restores what a sensor of the same service has saved. On an
// error nothing has changed.
func (s *sensor) UnmarshalBinary(data []byte) error {
	fail := func(err error) error {
		return fmt.Errorf("restore a sensor of %q from %d bytes: %w", s.Name(), len(data), err)
	}
	a, err := open(data, sensorHead)
	if err != nil {
		return fail(err)
	}
	var name string
	a.text(&name)
	a.check(name == s.Name(), "service %q: it must be %q", name, s.Name())
	again := sensor{Handle: s.Handle}
	again.state(a)
	if err := a.end(); err != nil {
		return fail(err)
	}
	*s = again
	return nil
}

func (s *sensor) state(a *archive) {
	c := &s.since
	integer(a, &c.at)
	float(a, &c.used, &c.alive, &c.periods, &c.throttled, &c.arrived, &c.answered)
	integer(a, &c.kills)
	integer(a, &c.windows)
	float(a, &s.rate)
	integer(a, &s.peak.First)
	integer(a, &s.peak.Last)
	for i := range s.peak.Parts {
		float(a, &s.peak.Parts[i])
	}
	list(a, &s.history, a.state)
	a.state(&s.shown)
}
