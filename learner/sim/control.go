package sim

import (
	"context"
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Delays is how long an action takes to come into force.
type Delays struct {
	Local           time.Duration // L1: through the container runtime, by the node's agent
	Resize          time.Duration // L2: through the API server and the kubelet
	Warm, Cold      time.Duration // a replica's container, with its image on the node and without
	WarmStd, ColdSD time.Duration // their standard deviations
}

// Measured delays: the resizes by part 1 on a real node (docs of 10-actuation: L1 p50 7 ms, L2 50 to 80 ms), the starts by
// FIRM (dissertation, table 3.5).
var Measured = Delays{
	Local: 7 * time.Millisecond, Resize: 80 * time.Millisecond,
	Warm: 45700 * time.Microsecond, WarmStd: 6900 * time.Microsecond,
	Cold: 2050800 * time.Microsecond, ColdSD: 291400 * time.Microsecond,
}

func (d Delays) check() error {
	for _, v := range []time.Duration{d.Local, d.Resize, d.Warm, d.Cold, d.WarmStd, d.ColdSD} {
		if v < 0 {
			return fmt.Errorf("delays %+v: none may be negative", d)
		}
	}
	return nil
}

// Level is the way that an action takes.
type ActuationPath int

// The levels.
const (
	L1 ActuationPath = 1 // the node's agent, through the container runtime: limits only
	L2 ActuationPath = 2 // the API server
)

// Handle is one service of a world, to be looked at and acted upon.
type Handle struct {
	w *World
	s int
}

// Service finds a service by its name.
func (w *World) Service(name string) (Handle, error) {
	i, ok := w.graph.names[name]
	if !ok {
		return Handle{}, fmt.Errorf("application %q has no service %q", w.graph.Name, name)
	}
	return Handle{w, i}, nil
}

// Services are all services in the application's order.
func (w *World) Services() []Handle {
	hs := make([]Handle, len(w.services))
	for i := range hs {
		hs[i] = Handle{w, i}
	}
	return hs
}

// Name is the service's name.
func (h Handle) Name() string { return h.w.services[h.s].Name }

// Bounds is what may be done with it.
func (h Handle) Bounds() mdp.Bounds { return h.w.services[h.s].Bounds }

// Actuator carries out Actions on the service at a level.
func (h Handle) Actuator(l ActuationPath) mdp.Actuator { return actuator{h, l} }

type actuator struct {
	Handle
	path ActuationPath
}

// Act implements [mdp.Actuator]. An Action outside of the service's bounds is an error, as an illegal one is.
func (a actuator) Act(ctx context.Context, _ time.Time, action mdp.Action) (mdp.Action, mdp.Effect, error) {
	w, s := a.w, &a.w.services[a.s]
	if err := ctx.Err(); err != nil {
		return mdp.Action{}, mdp.Failed, fmt.Errorf("acting on %s: %w", s.Name, err)
	}
	if err := action.Check(); err != nil {
		return mdp.Action{}, mdp.Failed, fmt.Errorf("acting on %s: %w", s.Name, err)
	}
	if err := s.allows(action, a.path); err != nil {
		return mdp.Action{}, mdp.Failed, err
	}
	executed, effect := action, mdp.Unchanged
	executed.Clipped = 0
	size := s.size
	if action.Sets.Has(mdp.CPULimit) {
		size.CPU = action.Limit.CPU
	}
	if action.Sets.Has(mdp.MemoryLimit) {
		size.Memory = action.Limit.Memory
	}
	if size != s.size {
		d := w.config.Cluster.Delays.Resize
		if a.path == L1 {
			d = w.config.Cluster.Delays.Local
		}
		s.size, s.due = size, w.after(d)
		w.due = min(w.due, s.due)
		effect = mdp.Pending
	} else if s.deferred {
		effect = mdp.Deferred
		executed = executed.Without(mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit))
	}
	if action.Sets.Has(mdp.Replicas) && action.Replicas != s.want {
		s.want = action.Replicas
		w.scale(s)
		if effect == mdp.Unchanged || len(s.replicas) < s.want {
			effect = mdp.Pending
		}
		if len(s.replicas) < s.want {
			effect = mdp.Deferred
			executed = executed.Without(mdp.SetOf(mdp.Replicas))
		}
	}
	return executed, effect, nil
}

// allows names the knob that an Action turns too far.
func (s *service) allows(a mdp.Action, level ActuationPath) error {
	outside := func(knob mdp.Signal, value, least, most any) error {
		return fmt.Errorf("acting on %s: %v %v is outside of its action space, %v to %v", s.Name, knob, value, least, most)
	}
	b := s.Bounds
	switch {
	case level == L1 && a.Sets.Has(mdp.Replicas):
		return fmt.Errorf("acting on %s: replicas cannot be set by a node's agent", s.Name)
	case a.Sets.Has(mdp.Replicas) && !b.Replicas.Has(a.Replicas):
		return outside(mdp.Replicas, a.Replicas, b.Replicas.Min, b.Replicas.Max)
	case a.Sets.Has(mdp.CPULimit) && !b.CPU.Has(a.Limit.CPU):
		return outside(mdp.CPULimit, a.Limit.CPU, b.CPU.Min, b.CPU.Max)
	case a.Sets.Has(mdp.MemoryLimit) && !b.Memory.Has(a.Limit.Memory):
		return outside(mdp.MemoryLimit, a.Limit.Memory, b.Memory.Min, b.Memory.Max)
	}
	return nil
}

// after is the first slice that begins no sooner than d from now.
func (w *World) after(d time.Duration) int64 {
	return w.now + max(1, int64(math.Ceil(float64(d)/float64(Slice))))
}

// startTime is how long a new replica takes until its first request.
func (w *World) startTime(s *service, warm bool) time.Duration {
	d := w.config.Cluster.Delays
	mean, std := d.Cold, d.ColdSD
	if warm {
		mean, std = d.Warm, d.WarmStd
	}
	z := normalTable[w.rng.Uint64()&tableMask]
	return max(0, mean+time.Duration(float64(std)*z)) + s.Start
}

// never is a slice that no world reaches.
const never = math.MaxInt64

// comeDue brings the sizes into force whose time it is.
func (w *World) comeDue() {
	w.due = never
	for i := range w.services {
		s := &w.services[i]
		switch {
		case s.due == 0:
		case s.due <= w.now:
			s.due = 0
			w.resize(s)
		default:
			w.due = min(w.due, s.due)
		}
	}
}

// enforce tries what had no room before.
func (w *World) enforce() {
	for i := range w.services {
		s := &w.services[i]
		if s.deferred && s.due == 0 {
			w.resize(s)
		}
		if len(s.replicas) != s.want {
			w.scale(s)
		}
	}
}

// resize brings a service's size into force on every replica whose node has room for it.
func (w *World) resize(s *service) {
	s.deferred = false
	for k := range s.replicas {
		r := &s.replicas[k]
		if r.size == s.size {
			continue
		}
		n := &w.nodes[r.node]
		cpu, memory := s.size.CPU-r.size.CPU, s.size.Memory-r.size.Memory
		if (cpu > 0 && cpu > n.free.CPU) || (memory > 0 && memory > n.free.Memory) {
			s.deferred = true
			continue
		}
		n.free.CPU -= cpu
		n.free.Memory -= memory
		r.size = s.size
		r.limit()
		w.totals.Resizes++
	}
}

// scale adds replicas while there is room, and removes the newest.
func (w *World) scale(s *service) {
	for len(s.replicas) < s.want {
		if !w.place(s, 1) {
			return
		}
	}
	for len(s.replicas) > s.want {
		last := &s.replicas[len(s.replicas)-1]
		n := &w.nodes[last.node]
		n.free.CPU += last.size.CPU
		n.free.Memory += last.size.Memory
		w.engine.move(s, last, &s.replicas[0])
		s.replicas = s.replicas[:len(s.replicas)-1]
	}
}
