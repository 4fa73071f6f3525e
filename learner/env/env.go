package env

import (
	"encoding"
	"errors"
	"fmt"
	"math"

	"awarescale.dev/aware/learner/mdp"
)

// Env is a world that runs in episodes. One goroutine uses it at a time. The
// caller owns all slices, and no call but saving and restoring allocates.
type Env interface {
	// Name tells environments apart, such as CartPole-v1.
	Name() string
	// Observation and Action are always the same. Their slices are shared and
	// must not be changed.
	Observation() Space
	Action() Space
	// Reset starts an episode and writes its first observation into obs, of
	// length Observation().Dim(). The seed determines all randomness of the
	// episode.
	Reset(seed uint64, obs []float64) error
	// Step carries an action out and writes the next observation into obs. When
	// the episode ends, obs is its true final observation. On an error nothing
	// has happened; the error is ErrNotRunning before the first Reset and after
	// the end of an episode.
	Step(action, obs []float64) (Outcome, error)
	// Observe writes the present observation into obs again, which is needed
	// after a restore. Before the first Reset it returns ErrNotRunning.
	Observe(obs []float64) error
	// MarshalBinary saves all state. UnmarshalBinary restores it in an Env of
	// the same name; on an error nothing has changed.
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Outcome is what one step led to.
type Outcome struct {
	Reward      float64    // meaningful when RewardKnown
	RewardKnown bool       // false: the signals that the reward is made of were not observed; Reward must not be learned from
	Effect      mdp.Effect // of the action; environments without an actuator say mdp.Applied
	Terminated  bool       // the task itself has ended; nothing is earned after it
	Truncated   bool       // the episode was cut off from outside, such as by a time limit
}

// Ended reports whether the episode is over. Both ends may come at once.
func (o Outcome) Ended() bool { return o.Terminated || o.Truncated }

// Masker is an Env with discrete actions in which not every choice is legal at
// all times.
type Masker interface {
	// Legal writes for each of the Action().N choices whether it is legal in the
	// next Step. At least one is. It can be called after a Reset, after every
	// Step (also after the one that ended the episode) and after a restore.
	Legal(legal []bool)
}

// Executor is an Env in which another action than the proposed one may take
// force: a guard clips it, or an actuator refuses it.
type Executor interface {
	// Executed writes, after a Step, the action that took force in it.
	Executed(action []float64)
}

// ErrNotRunning says that no episode is running.
var ErrNotRunning = errors.New("no episode is running: step before reset, or after the end; Reset begins one")

// Space is the set of values of an observation or an action. A discrete Space has
// N > 0 choices, and a value is one number, the index of the choice. A continuous
// one has N = 0, and a Low and a High for each number of a value.
type Space struct {
	N    int       // choices; 0 is continuous
	Low  []float64 // lower bound of each number
	High []float64 // upper bound of each number
}

// Discrete is the space of the indices 0 to n-1.
func Discrete(n int) Space { return Space{N: n} }

// Box is the space of as many numbers as there are in high, each between minus
// its bound and its bound.
func Box(high ...float64) Space {
	low := make([]float64, len(high))
	for i, h := range high {
		low[i] = -h
	}
	return Space{Low: low, High: high}
}

// Dim is how many numbers a value has.
func (s Space) Dim() int {
	if s.N > 0 {
		return 1
	}
	return len(s.Low)
}

// Check is nil for what an environment takes as an action. In a discrete space
// that is an index in it. In a continuous one it is numbers whose squares are
// finite, as rewards charge for squares; they may lie beyond the bounds, where
// the environment clips them (a Gaussian policy samples unbounded actions).
func (s Space) Check(action []float64) error {
	if len(action) != s.Dim() {
		return fmt.Errorf("action %v has %d numbers: it must have %d", action, len(action), s.Dim())
	}
	if s.N > 0 {
		if a := action[0]; !IsIndex(a, s.N) {
			return fmt.Errorf("action %v: it must be a whole number from 0 to %d", a, s.N-1)
		}
		return nil
	}
	for i, a := range action {
		if q := a * a; math.IsNaN(q) || math.IsInf(q, 0) {
			return fmt.Errorf("action[%d] = %v: it and its square must be finite", i, a)
		}
	}
	return nil
}

// Contains says whether v is a value of the space, the bounds included.
func (s Space) Contains(v []float64) bool {
	if len(v) != s.Dim() {
		return false
	}
	if s.N > 0 {
		return IsIndex(v[0], s.N)
	}
	for i, x := range v {
		if !(x >= s.Low[i] && x <= s.High[i]) {
			return false
		}
	}
	return true
}

// Equal reports whether two spaces have the same values.
func (s Space) Equal(t Space) bool {
	if s.N != t.N || len(s.Low) != len(t.Low) {
		return false
	}
	for i := range s.Low {
		if s.Low[i] != t.Low[i] || s.High[i] != t.High[i] {
			return false
		}
	}
	return true
}

// IsIndex reports whether x is a whole number from 0 to n-1. It is false for NaN.
func IsIndex(x float64, n int) bool { return x >= 0 && x < float64(n) && x == math.Trunc(x) }
