// Package mdptest holds the conformance suites of the mdp vocabulary: [World] for every pair of a
// Sensor and an Actuator, [Policy] for every Policy. An implementation passes the suite or it is not one.
package mdptest

import (
	"context"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Setup is one world under test, fresh for each law.
type Setup struct {
	Sensor   mdp.Sensor
	Actuator mdp.Actuator
	Now      func() time.Time    // the world's time
	Advance  func(time.Duration) // lets that much time pass, in which accepted Actions come into force
	Bounds   mdp.Bounds          // what the Actuator may do; its middle must be reachable from the start
	Knobs    mdp.Set             // what the Actuator can set
	CPUStep  mdp.MilliCPU        // how coarse a CPU limit may be kept
}

// settle is how long an Action may take to come into force.
const settle = 2 * time.Minute

// World checks the laws of a Sensor/Actuator pair; start makes a fresh world and its clean-up.
func World(t *testing.T, start func(t *testing.T) Setup) {
	t.Run("a state says when it was sensed and what was observed", func(t *testing.T) {
		w := start(t)
		s := w.sense(t)
		if s.At.After(w.Now()) {
			t.Errorf("state is of %v, after now (%v)", s.At, w.Now())
		}
		if !s.Observed.Contains(w.Knobs) {
			t.Errorf("observed %v: a world that sets %v must see it", s.Observed, w.Knobs)
		}
	})
	t.Run("what was not observed is left zero", func(t *testing.T) {
		w := start(t)
		if s := w.sense(t); s != Masked(s, s.Observed) {
			t.Errorf("state %+v has figures outside of %v", s, s.Observed)
		}
	})
	t.Run("an action that sets nothing changes nothing", func(t *testing.T) {
		w := start(t)
		before := w.sense(t)
		if effect := w.act(t, mdp.Action{}); effect != mdp.Unchanged {
			t.Errorf("effect %v, want %v", effect, mdp.Unchanged)
		}
		w.Advance(settle)
		if after := w.sense(t); after.Limit != before.Limit || after.Replicas != before.Replicas {
			t.Errorf("limit %v x%d became %v x%d", before.Limit, before.Replicas, after.Limit, after.Replicas)
		}
	})
	t.Run("an action comes into force and is seen", func(t *testing.T) {
		w := start(t)
		want := w.middle()
		if effect := w.act(t, want); effect != mdp.Applied && effect != mdp.Pending && effect != mdp.Unchanged {
			t.Fatalf("effect of %v is %v", want, effect)
		}
		w.Advance(settle)
		w.holds(t, want)
	})
	t.Run("the same action again is unchanged", func(t *testing.T) {
		w := start(t)
		w.act(t, w.middle())
		w.Advance(settle)
		w.sense(t)
		if effect := w.act(t, w.middle()); effect != mdp.Unchanged {
			t.Errorf("second time: %v, want %v", effect, mdp.Unchanged)
		}
	})
	t.Run("no action leads outside the bounds", func(t *testing.T) {
		w := start(t)
		for _, a := range []mdp.Action{w.corner(100), w.corner(-100)} {
			if a.Check() != nil {
				continue
			}
			w.Actuator.Act(t.Context(), w.Now(), a) // it may clip, refuse, or fail, as it likes
			w.Advance(settle)
			w.inside(t)
		}
	})
	t.Run("an illegal action is an error and changes nothing", func(t *testing.T) {
		w := start(t)
		before := w.sense(t)
		for _, a := range illegal(w.Knobs) {
			if effect, err := w.Actuator.Act(t.Context(), w.Now(), a); err == nil || effect == mdp.Applied || effect == mdp.Pending {
				t.Errorf("%+v: effect %v, err %v; want an error", a, effect, err)
			}
		}
		w.Advance(settle)
		if after := w.sense(t); after.Limit != before.Limit || after.Replicas != before.Replicas {
			t.Errorf("limit %v x%d became %v x%d", before.Limit, before.Replicas, after.Limit, after.Replicas)
		}
	})
	t.Run("a cancelled context changes nothing", func(t *testing.T) {
		w := start(t)
		before := w.sense(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Actuator.Act(ctx, w.Now(), w.middle()); err == nil {
			t.Error("no error")
		}
		w.Advance(settle)
		if after := w.sense(t); after.Limit != before.Limit || after.Replicas != before.Replicas {
			t.Errorf("limit %v x%d became %v x%d", before.Limit, before.Replicas, after.Limit, after.Replicas)
		}
	})
}

func (w Setup) sense(t *testing.T) mdp.State {
	t.Helper()
	s, err := w.Sensor.Sense(t.Context(), w.Now())
	if err != nil {
		t.Fatalf("sensing: %v", err)
	}
	return s
}

func (w Setup) act(t *testing.T, a mdp.Action) mdp.Effect {
	t.Helper()
	effect, err := w.Actuator.Act(t.Context(), w.Now(), a)
	if err != nil {
		t.Fatalf("acting %v: %v (%v)", a, err, effect)
	}
	return effect
}

// middle is an action inside the bounds, on every knob of the world.
func (w Setup) middle() mdp.Action {
	return w.only(mdp.Action{}.
		WithReplicas((w.Bounds.Replicas.Min + w.Bounds.Replicas.Max) / 2).
		WithCPU((w.Bounds.CPU.Min + w.Bounds.CPU.Max) / 2).
		WithMemory((w.Bounds.Memory.Min + w.Bounds.Memory.Max) / 2))
}

// corner is an action beyond the upper bounds, or with a negative distance below the lower ones.
func (w Setup) corner(beyond int) mdp.Action {
	b := w.Bounds
	if beyond > 0 {
		return w.only(mdp.Action{}.WithReplicas(b.Replicas.Max + beyond).
			WithCPU(b.CPU.Max * mdp.MilliCPU(beyond)).WithMemory(b.Memory.Max * mdp.Bytes(beyond)))
	}
	return w.only(mdp.Action{}.WithReplicas(0).WithCPU(1).WithMemory(1))
}

func (w Setup) only(a mdp.Action) mdp.Action {
	a.Sets &= w.Knobs
	return a
}

func (w Setup) holds(t *testing.T, want mdp.Action) {
	t.Helper()
	s := w.sense(t)
	if want.Sets.Has(mdp.Replicas) && s.Replicas != want.Replicas {
		t.Errorf("replicas = %d, want %d", s.Replicas, want.Replicas)
	}
	if off := s.Limit.CPU - want.Limit.CPU; want.Sets.Has(mdp.CPULimit) && max(off, -off) > w.CPUStep {
		t.Errorf("cpu limit = %v, want %v within %v", s.Limit.CPU, want.Limit.CPU, w.CPUStep)
	}
	const page = 4096
	if off := s.Limit.Memory - want.Limit.Memory; want.Sets.Has(mdp.MemoryLimit) && max(off, -off) >= page {
		t.Errorf("memory limit = %v, want %v", s.Limit.Memory, want.Limit.Memory)
	}
}

func (w Setup) inside(t *testing.T) {
	t.Helper()
	s, b := w.sense(t), w.Bounds
	if w.Knobs.Has(mdp.Replicas) && !b.Replicas.Has(s.Replicas) {
		t.Errorf("replicas = %d, outside of %v", s.Replicas, b.Replicas)
	}
	if w.Knobs.Has(mdp.CPULimit) && (s.Limit.CPU < b.CPU.Min-w.CPUStep || s.Limit.CPU > b.CPU.Max+w.CPUStep) {
		t.Errorf("cpu limit = %v, outside of %v", s.Limit.CPU, b.CPU)
	}
	if w.Knobs.Has(mdp.MemoryLimit) && !b.Memory.Has(s.Limit.Memory) {
		t.Errorf("memory limit = %v, outside of %v", s.Limit.Memory, b.Memory)
	}
}

func illegal(knobs mdp.Set) []mdp.Action {
	actions := []mdp.Action{{Sets: mdp.SetOf(mdp.Latency)}}
	if knobs.Has(mdp.Replicas) {
		actions = append(actions, mdp.Action{}.WithReplicas(-1))
	}
	if knobs.Has(mdp.CPULimit) {
		actions = append(actions, mdp.Action{}.WithCPU(0), mdp.Action{}.WithCPU(-5))
	}
	if knobs.Has(mdp.MemoryLimit) {
		actions = append(actions, mdp.Action{}.WithMemory(0))
	}
	return actions
}

// Masked is the State with only the given signals: every other figure is zero.
func Masked(s mdp.State, keep mdp.Set) mdp.State {
	m := mdp.State{At: s.At, Observed: s.Observed & keep}
	for _, c := range []struct {
		signal mdp.Signal
		copy   func()
	}{
		{mdp.Replicas, func() { m.Replicas = s.Replicas }},
		{mdp.CPULimit, func() { m.Limit.CPU = s.Limit.CPU }},
		{mdp.MemoryLimit, func() { m.Limit.Memory = s.Limit.Memory }},
		{mdp.CPUUsage, func() { m.Usage.CPU = s.Usage.CPU }},
		{mdp.MemoryUsage, func() { m.Usage.Memory = s.Usage.Memory }},
		{mdp.CPUPeak, func() { m.CPUPeak = s.CPUPeak }},
		{mdp.CPUDeviation, func() { m.CPUDeviation = s.CPUDeviation }},
		{mdp.Throttled, func() { m.Throttled = s.Throttled }},
		{mdp.CPUPressure, func() { m.CPUPressure = s.CPUPressure }},
		{mdp.MemoryPressure, func() { m.MemoryPressure = s.MemoryPressure }},
		{mdp.IOPressure, func() { m.IOPressure = s.IOPressure }},
		{mdp.IORate, func() { m.IORate = s.IORate }},
		{mdp.Latency, func() { m.Latency = s.Latency }},
		{mdp.Throughput, func() { m.Throughput = s.Throughput }},
		{mdp.LoadChange, func() { m.LoadChange = s.LoadChange }},
		{mdp.OOMKills, func() { m.OOMKills = s.OOMKills }},
	} {
		if keep.Has(c.signal) {
			c.copy()
		}
	}
	return m
}
