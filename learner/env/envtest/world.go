package envtest

import (
	"encoding/binary"
	"fmt"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
)

// World is a small environment whose rules a test writes. Its episodes are only
// ever truncated, as those of autoscaling. The observation is one number: the
// share of the episode that is over, or 1 always (Blind).
type World struct {
	Choices int  // of a discrete action; 0 is one continuous number in [-1, 1]
	Limit   int  // steps of an episode
	Blind   bool // the observation is always 1, so that every state is the same
	// Pay is the reward of a step by the action that took force, and whether it
	// is known.
	Pay func(step int, action float64) (reward float64, known bool)
	// Execute is the action that takes force, by the proposed one; nil is that
	// one.
	Execute func(step int, action float64) float64
	// Allow says whether a choice is legal; nil allows all.
	Allow func(step, choice int) bool

	step     int
	running  bool
	executed float64
}

// Masked is a World with a mask.
type Masked struct{ *World }

// Guarded is a World in which other actions than the proposed ones take force.
type Guarded struct{ *World }

// Workload is a World with both, as a workload's decision process has them.
type Workload struct{ *World }

// Legal is for env.Masker.
func (w Masked) Legal(legal []bool) { w.legal(legal) }

// Legal is for env.Masker.
func (w Workload) Legal(legal []bool) { w.legal(legal) }

// Executed is for env.Executor.
func (w Guarded) Executed(action []float64) { action[0] = w.executed }

// Executed is for env.Executor.
func (w Workload) Executed(action []float64) { action[0] = w.executed }

func (w *World) legal(legal []bool) {
	for i := range legal {
		legal[i] = w.Allow == nil || w.Allow(w.step, i)
	}
}

// Name is for env.Env.
func (w *World) Name() string { return "World" }

// Observation is for env.Env.
func (w *World) Observation() env.Space { return env.Box(1) }

// Action is for env.Env.
func (w *World) Action() env.Space {
	if w.Choices > 0 {
		return env.Discrete(w.Choices)
	}
	return env.Box(1)
}

// Reset is for env.Env.
func (w *World) Reset(_ uint64, obs []float64) error {
	w.step = 0
	w.running = true
	return w.Observe(obs)
}

// Step is for env.Env.
func (w *World) Step(action, obs []float64) (env.Outcome, error) {
	if !w.running {
		return env.Outcome{}, env.ErrNotRunning
	}
	if err := w.Action().Check(action); err != nil {
		return env.Outcome{}, err
	}
	out := env.Outcome{Effect: mdp.Applied}
	w.executed = action[0]
	if w.Execute != nil {
		w.executed = w.Execute(w.step, action[0])
	}
	if w.executed != action[0] {
		out.Effect = mdp.Refused
	}
	out.Reward, out.RewardKnown = w.Pay(w.step, w.executed)
	w.step++
	out.Truncated = w.step >= w.Limit
	w.running = !out.Truncated
	w.see(obs)
	return out, nil
}

// Observe is for env.Env.
func (w *World) Observe(obs []float64) error {
	if !w.running && w.step == 0 {
		return env.ErrNotRunning
	}
	w.see(obs)
	return nil
}

func (w *World) see(obs []float64) {
	obs[0] = 1
	if !w.Blind {
		obs[0] = float64(w.step) / float64(w.Limit)
	}
}

// MarshalBinary is for env.Env.
func (w *World) MarshalBinary() ([]byte, error) {
	running := byte(0)
	if w.running {
		running = 1
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(w.step)), running), nil
}

// UnmarshalBinary is for env.Env.
func (w *World) UnmarshalBinary(b []byte) error {
	if len(b) != 5 {
		return fmt.Errorf("world: %d bytes: it must be 5", len(b))
	}
	w.step = int(binary.LittleEndian.Uint32(b))
	w.running = b[4] == 1
	return nil
}

// Constant pays r at every step.
func Constant(r float64) func(int, float64) (float64, bool) {
	return func(int, float64) (float64, bool) { return r, true }
}
