package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// ActuationPath is the path of an action to the replicas.
type ActuationPath int

// The actuation paths. The first two are a node agent's: they set limits only,
// and never above the limit in the API.
const (
	L0 ActuationPath = iota // the container's cgroup for CPU, followed by a commit through the container runtime
	L1                      // the container runtime
	L2                      // the API server: what a replica reserves, and its limit
)

// ErrCall is a call of the API server or of the container runtime that failed,
// as some do in a cluster with [Delays.Faults].
var ErrCall = errors.New("the call failed")

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

// Ceiling is the limit in the API of a replica, or of those to come: what a node's agent may set at most.
func (h Handle) Ceiling() mdp.Size {
	s := &h.w.services[h.s]
	if len(s.replicas) > 0 {
		return s.replicas[0].ceiling
	}
	return s.ceiling
}

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
	if f := w.config.Cluster.Delays.Faults; f > 0 && action.Sets != 0 && float64(w.rng.Uint64()>>11)*0x1p-53 < float64(f) {
		return mdp.Action{}, mdp.Failed, fmt.Errorf("acting on %s: %w", s.Name, ErrCall)
	}
	action.Clipped = 0
	if a.path == L2 {
		executed, effect := w.ask(s, action)
		return executed, effect, nil
	}
	executed, effect := w.force(s, action, a.path)
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
	case path != L2 && a.Sets.Has(mdp.Replicas):
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

// ask sets what the API server holds: the size of the replicas and their number.
func (w *World) ask(s *service, action mdp.Action) (mdp.Action, mdp.Effect) {
	executed, effect := action, mdp.Unchanged
	size, ceiling := s.size, s.ceiling
	if action.Sets.Has(mdp.CPULimit) {
		size.CPU, ceiling.CPU = action.Limit.CPU, action.Limit.CPU
	}
	if action.Sets.Has(mdp.MemoryLimit) {
		size.Memory, ceiling.Memory = action.Limit.Memory, action.Limit.Memory
	}
	if size != s.size || ceiling != s.ceiling {
		s.size, s.ceiling = size, ceiling
		w.later(s, change{due: w.after(w.config.Cluster.Delays.Resize), api: true, size: ceiling})
		effect = mdp.Pending
	} else if s.deferred {
		effect = mdp.Deferred
		executed = executed.Without(mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit))
	}
	if action.Sets.Has(mdp.Replicas) && action.Replicas != s.want {
		s.want = action.Replicas
		w.scale(s)
		if effect == mdp.Unchanged || s.staying() < s.want {
			effect = mdp.Pending
		}
		if s.staying() < s.want {
			effect = mdp.Deferred
			executed = executed.Without(mdp.SetOf(mdp.Replicas))
		}
	}
	return executed, effect
}

// applyDue applies the changes whose time has come.
func (w *World) applyDue() {
	w.due = never
	for i := range w.services {
		s := &w.services[i]
		n := 0
		for n < len(s.changes) && s.changes[n].due <= w.now && w.apply(s, s.changes[n]) {
			n++
		}
		s.changes = s.changes[:copy(s.changes, s.changes[n:])]
		if len(s.changes) > 0 {
			w.due = min(w.due, max(w.now+1, s.changes[0].due))
		}
	}
}

// apply puts a change into effect. It returns false when it has to be tried again
// in the next slice.
func (w *World) apply(s *service, c change) bool {
	if c.api {
		return w.resize(s)
	}
	return w.callRuntime(s, c)
}

// retryDeferred retries the resizes and replica starts for which there was no
// room before, and ends the replicas that have left.
func (w *World) retryDeferred() {
	for i := range w.services {
		s := &w.services[i]
		if s.leaving > 0 {
			w.reap(s)
		}
		if s.deferred && !w.resize(s) {
			w.later(s, change{due: w.now + 1, api: true, size: s.ceiling})
		}
		if s.staying() != s.want {
			w.scale(s)
		}
	}
}

// resize applies the size in the API to every replica whose node has room for
// it. The other replicas keep their size, and the service is marked as deferred.
// The kubelet's update overwrites what the node's agent has set. It returns false
// when a node's runtime is busy for longer than this slice, so that some replicas
// have to wait for their turn.
func (w *World) resize(s *service) (done bool) {
	s.deferred = false
	done = true
	for k := range s.staying() {
		r := &s.replicas[k]
		if r.request == s.size && r.ceiling == s.ceiling {
			continue
		}
		n := &w.nodes[r.node]
		cpu, memory := s.size.CPU-r.request.CPU, s.size.Memory-r.request.Memory
		if (cpu > 0 && cpu > n.free.CPU) || (memory > 0 && memory > n.free.Memory) {
			s.deferred = true
			continue
		}
		if !w.runtime(n) {
			done = false
			continue
		}
		n.free.CPU -= cpu
		n.free.Memory -= memory
		r.request, r.ceiling, r.size = s.size, s.ceiling, s.ceiling
		r.commit = commit{cpu: r.size.CPU}
		r.limit()
		w.totals.Resizes++
	}
	return done
}

// scale adds replicas while there is room, or lets the newest replicas leave.
func (w *World) scale(s *service) {
	for s.staying() < s.want {
		if !w.place(s, 1) {
			return
		}
	}
	for s.staying() > s.want {
		s.replicas[s.staying()-1].until = w.after(w.config.Cluster.Delays.Grace)
		s.leaving++
	}
}

// reap removes the leaving replicas that have answered all their requests, and
// those whose grace period is over: what they still hold fails.
func (w *World) reap(s *service) {
	kept := s.replicas[:s.staying()]
	left := s.replicas[s.staying():]
	s.leaving = 0
	for i := range left {
		r := left[i]
		if w.now >= r.ready && w.engine.inside(&r) > 0.5 && w.now < r.until {
			kept = append(kept, r)
			s.leaving++
			continue
		}
		s.failed += w.engine.drop(s, &r)
		n := &w.nodes[r.node]
		n.free.CPU += r.request.CPU
		n.free.Memory += r.request.Memory
	}
	s.replicas = kept
}
