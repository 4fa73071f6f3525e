package sim

import (
	"context"
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Delays says how long an action takes until it is in effect.
type Delays struct {
	Local   time.Duration // of a resize at L1: by the node agent, through the container runtime
	Resize  time.Duration // of a resize at L2: through the API server and the kubelet
	Warm    time.Duration // mean start time of a container when the node has its image
	Cold    time.Duration // mean start time of a container when the node pulls its image
	WarmStd time.Duration // standard deviation of Warm
	ColdSD  time.Duration // standard deviation of Cold
}

// Measured holds measured delays. The resizes were measured with the node agent
// on a real node (L1: p50 7 ms; L2: 50 to 80 ms). The start times are FIRM's
// (dissertation, table 3.5).
var Measured = Delays{
	Local:   7 * time.Millisecond,
	Resize:  80 * time.Millisecond,
	Warm:    45700 * time.Microsecond,
	WarmStd: 6900 * time.Microsecond,
	Cold:    2050800 * time.Microsecond,
	ColdSD:  291400 * time.Microsecond,
}

// check returns an error when a delay is negative.
func (d Delays) check() error {
	for _, v := range []time.Duration{d.Local, d.Resize, d.Warm, d.Cold, d.WarmStd, d.ColdSD} {
		if v < 0 {
			return fmt.Errorf("delays %+v: none may be negative", d)
		}
	}
	return nil
}

// ActuationPath is the path of an action to the replicas.
type ActuationPath int

// The actuation paths.
const (
	L1 ActuationPath = 1 // the node agent, through the container runtime; limits only
	L2 ActuationPath = 2 // the API server
)

// Handle gives access to one service of a world.
type Handle struct {
	w *World
	s int
}

// Service returns the service with the given name.
func (w *World) Service(name string) (Handle, error) {
	i, ok := w.graph.names[name]
	if !ok {
		return Handle{}, fmt.Errorf("application %q has no service %q", w.graph.Name, name)
	}
	return Handle{w, i}, nil
}

// Services returns all services in the order of the application.
func (w *World) Services() []Handle {
	hs := make([]Handle, len(w.services))
	for i := range hs {
		hs[i] = Handle{w, i}
	}
	return hs
}

// Name is the service's name.
func (h Handle) Name() string { return h.w.services[h.s].Name }

// Bounds is the range of actions that the service's owner allows.
func (h Handle) Bounds() mdp.Bounds { return h.w.services[h.s].Bounds }

// Actuator executes Actions on the service through the given path.
func (h Handle) Actuator(path ActuationPath) mdp.Actuator { return actuator{h, path} }

type actuator struct {
	Handle
	path ActuationPath
}

// Act implements [mdp.Actuator]. An Action outside the bounds of the service is
// an error.
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

// allows returns an error that names the knob for which the Action is out of
// bounds.
func (s *service) allows(a mdp.Action, path ActuationPath) error {
	outside := func(knob mdp.Signal, value, lowest, highest any) error {
		return fmt.Errorf("acting on %s: %v %v is outside of its action space, %v to %v",
			s.Name, knob, value, lowest, highest)
	}
	b := s.Bounds
	switch {
	case path == L1 && a.Sets.Has(mdp.Replicas):
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

// after is the first slice that starts at least d from now.
func (w *World) after(d time.Duration) int64 {
	return w.now + max(1, int64(math.Ceil(float64(d)/float64(Slice))))
}

// startTime samples the time from the creation of a replica to its first
// request. warm means that the node has the image.
func (w *World) startTime(s *service, warm bool) time.Duration {
	d := w.config.Cluster.Delays
	mean, std := d.Cold, d.ColdSD
	if warm {
		mean, std = d.Warm, d.WarmStd
	}
	z := normalTable[w.rng.Uint64()&tableMask]
	return max(0, mean+time.Duration(float64(std)*z)) + s.Start
}

// never is a slice that is never reached.
const never = math.MaxInt64

// applyDueSizes applies the pending sizes whose delay is over.
func (w *World) applyDueSizes() {
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

// retryDeferred retries the resizes and replica starts for which there was no
// room before.
func (w *World) retryDeferred() {
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

// resize applies the desired size to every replica whose node has room for it.
// The other replicas keep their size, and the service is marked as deferred.
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

// scale adds replicas while there is room, or removes the newest replicas.
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
