// Package mdptest holds the conformance suites of the mdp vocabulary: [World]
// for every pair of a Sensor and an Actuator, [Policy] for every Policy. An
// implementation passes the suite or it is not one.
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
}

// settle is how long an Action may take to come into force.
const settle = 2 * time.Minute

// World checks the laws of a Sensor/Actuator pair; start makes a fresh world
// and its clean-up.
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
		if s := w.sense(t); s != s.Mask(s.Observed) {
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
		for _, a := range []mdp.Action{w.above(), w.below()} {
			w.try(t, t.Context(), a) // it may clip, refuse, or fail
			w.Advance(settle)
			w.inside(t)
		}
	})
	t.Run("an illegal action is an error and changes nothing", func(t *testing.T) {
		w := start(t)
		before := w.sense(t)
		for _, a := range illegal(w.Knobs) {
			if effect, err := w.try(t, t.Context(), a); err == nil {
				t.Errorf("%+v: effect %v; want an error", a, effect)
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
		if effect, err := w.try(t, ctx, w.middle()); err == nil {
			t.Errorf("effect %v, and no error", effect)
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
	effect, err := w.try(t, t.Context(), a)
	if err != nil {
		t.Fatalf("acting %v: %v (%v)", a, err, effect)
	}
	return effect
}

// try acts, and holds the Actuator to what its Effect says.
func (w Setup) try(t *testing.T, ctx context.Context, a mdp.Action) (mdp.Effect, error) {
	t.Helper()
	before := w.sense(t)
	executed, effect, err := w.Actuator.Act(ctx, w.Now(), a)
	if (err != nil) != (effect == mdp.Failed) {
		t.Errorf("%v: effect %v with error %v: an error goes with failed, and only with it", a, effect, err)
	}
	if bad := executed.Check(); bad != nil || !a.Sets.Contains(executed.Sets) {
		t.Errorf("%v: executed %v (%v): it must be a legal part of the action", a, executed, bad)
	}
	switch effect {
	case mdp.Failed, mdp.Refused:
		if executed.Sets != 0 {
			t.Errorf("%v: effect %v, and yet executed is %v", a, effect, executed)
		}
	case mdp.Unchanged, mdp.Applied:
		w.holds(t, executed) // now
	}
	if effect != mdp.Applied && effect != mdp.Pending { // what is pending may come into force at any time
		if now := w.sense(t); now.Limit != before.Limit {
			t.Errorf("%v: effect %v, and the limit is now %v, not %v", a, effect, now.Limit, before.Limit)
		}
	}
	return effect, err
}

// middle is an action inside the bounds, on every knob of the world.
func (w Setup) middle() mdp.Action {
	var a mdp.Action
	for k := range w.Knobs.Signals() {
		b := w.Bounds.Knob(k)
		a = a.WithKnob(k, (b.Min+b.Max)/2)
	}
	return a
}

// above is an action beyond the upper bounds, below is the least legal one.
func (w Setup) above() mdp.Action {
	var a mdp.Action
	for k := range w.Knobs.Signals() {
		a = a.WithKnob(k, 100*w.Bounds.Knob(k).Max)
	}
	return a
}

func (w Setup) below() mdp.Action {
	var a mdp.Action
	for k := range w.Knobs.Signals() {
		a = a.WithKnob(k, mdp.KnobLeast(k))
	}
	return a
}

// holds checks that what an action sets is in force.
func (w Setup) holds(t *testing.T, want mdp.Action) {
	t.Helper()
	s := w.sense(t)
	for k := range want.Sets.Signals() {
		v, _ := want.Knob(k)
		if got := k.Int(&s); !mdp.SameKnob(k, got, v) {
			t.Errorf("%v = %s, want %s", k, mdp.FormatKnob(k, got), mdp.FormatKnob(k, v))
		}
	}
}

// inside checks that what is in force is within the bounds.
func (w Setup) inside(t *testing.T) {
	t.Helper()
	s := w.sense(t)
	for k := range w.Knobs.Signals() {
		b, v := w.Bounds.Knob(k), k.Int(&s)
		if nearest, _ := b.Clip(v); !mdp.SameKnob(k, nearest, v) {
			t.Errorf("%v = %s, outside of %v", k, mdp.FormatKnob(k, v), b)
		}
	}
}

func illegal(knobs mdp.Set) []mdp.Action {
	actions := []mdp.Action{{Sets: mdp.SetOf(mdp.Latency)}}
	for k := range knobs.Signals() {
		least := mdp.KnobLeast(k)
		actions = append(actions, mdp.Action{}.WithKnob(k, least-1), mdp.Action{}.WithKnob(k, least-6))
	}
	return actions
}
