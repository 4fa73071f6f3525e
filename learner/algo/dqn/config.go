package dqn

import (
	"fmt"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Config is all settings of an Agent. Default returns the usual ones.
type Config struct {
	State      int   // numbers in an observation
	NumActions int   // choices
	Hidden     []int // widths of the hidden layers
	Activation kernel.Activation

	Gamma             float64 // discount of a step's future, in [0, 1)
	LearningRate      float64 // Adam's step size
	MaxGradNorm       float64 // of a gradient
	Batch             int     // transitions of an update
	Capacity          int     // of the replay buffer
	Warmup            int     // steps before the first update
	Every             int     // steps from one round of updates to the next
	Updates           int     // updates of a round
	TargetUpdateEvery int     // steps from one copy to the target to the next
	Double            bool
	Steps             int // that are taken as one (n-step returns); 1 is none

	Prioritised bool    // replay in proportion to errors
	Alpha       float64 // exponent of the priorities, in [0, 1]
	Beta        float64 // exponent of the importance weights at the start; it grows to 1 over AnnealSteps

	First             float64 // epsilon at the start: the probability of a random choice
	Last              float64 // epsilon at the end
	EpsilonDecaySteps int     // steps over which it goes from First to Last
	AnnealSteps       int     // steps of the whole training, for Beta

	Seed uint64
}

// Default returns the defaults of the reference implementations.
func Default(state, choices int) Config {
	return Config{
		State:             state,
		NumActions:        choices,
		Hidden:            []int{64, 64},
		Activation:        kernel.ReLU,
		Gamma:             0.99,
		LearningRate:      1e-3,
		MaxGradNorm:       10,
		Batch:             64,
		Capacity:          100_000,
		Warmup:            1000,
		Every:             4,
		Updates:           1,
		TargetUpdateEvery: 500,
		Double:            true,
		Steps:             1,
		Alpha:             0.6,
		Beta:              0.4,
		First:             1,
		Last:              0.05,
		EpsilonDecaySteps: 10_000,
		AnnealSteps:       100_000,
	}
}

// Check returns nil for valid settings. Otherwise it names the wrong one and
// what it must be.
func (c Config) Check() error {
	bad := agent.BadSetting(Algorithm)
	unit := func(v float64) bool { return v >= 0 && v <= 1 }
	switch {
	case c.State < 1:
		return bad("state", c.State, "at least 1")
	case c.NumActions < 2:
		return bad("choices", c.NumActions, "at least 2")
	case len(c.Hidden) == 0 || slices.Min(c.Hidden) < 1:
		return bad("hidden", c.Hidden, "one layer at least, each of one unit at least")
	case c.Activation != kernel.Tanh && c.Activation != kernel.ReLU:
		return bad("activation", c.Activation, "tanh or relu")
	case !(c.Gamma > 0 && c.Gamma < 1):
		return bad("gamma", c.Gamma, "in (0, 1)")
	case !(c.LearningRate > 0) || !(c.MaxGradNorm > 0):
		return bad("rate, norm", []float64{c.LearningRate, c.MaxGradNorm}, "above 0")
	case c.Batch < 1 || c.Capacity < c.Batch:
		return bad("batch", c.Batch, fmt.Sprintf("in [1, capacity %d]", c.Capacity))
	case c.Warmup < 0 || c.Every < 1 || c.Updates < 1 || c.TargetUpdateEvery < 1 || c.Steps < 1:
		return bad("warmup, every, updates, copy, steps",
			[]int{c.Warmup, c.Every, c.Updates, c.TargetUpdateEvery, c.Steps}, "at least 0, 1, 1, 1, 1")
	case c.Prioritised && (!unit(c.Alpha) || !unit(c.Beta) || c.AnnealSteps < 1):
		return bad("alpha, beta, over", []any{c.Alpha, c.Beta, c.AnnealSteps},
			"in [0, 1], [0, 1], and at least 1")
	case !unit(c.First) || !unit(c.Last) || c.EpsilonDecaySteps < 0:
		return bad("epsilon", []any{c.First, c.Last, c.EpsilonDecaySteps}, "in [0, 1], over at least 0 steps")
	}
	return nil
}

// Network gives the value of every choice.
func (c Config) Network() kernel.MLP {
	return kernel.NewMLP(
		c.Activation,
		kernel.Linear,
		append(append([]int{c.State}, c.Hidden...), c.NumActions)...)
}

// identity is what a saved state and an Agent must have in common.
type identity struct {
	State       int    `json:"state"`
	NumActions  int    `json:"num_actions"`
	Hidden      []int  `json:"hidden"`
	Activation  string `json:"activation"`
	Double      bool   `json:"double"`
	Prioritised bool   `json:"prioritised"`
	Steps       int    `json:"n_step"`
}

func (c Config) identity() identity {
	return identity{
		State:       c.State,
		NumActions:  c.NumActions,
		Hidden:      c.Hidden,
		Activation:  c.Activation.String(),
		Double:      c.Double,
		Prioritised: c.Prioritised,
		Steps:       c.Steps,
	}
}

func (c Config) shape() agent.Shape {
	return agent.Shape{Algorithm: Algorithm, Envs: 1, State: c.State, Action: 1, NumActions: c.NumActions}
}

// updates are the settings that an Updater depends on.
func (c Config) updates() Config {
	return Config{
		State:       c.State,
		NumActions:  c.NumActions,
		Hidden:      c.Hidden,
		Activation:  c.Activation,
		MaxGradNorm: c.MaxGradNorm,
		Batch:       c.Batch,
		Double:      c.Double,
	}
}

// epsilon is the chance of a random choice.
func (c Config) epsilon(step int) float64 {
	if step >= c.EpsilonDecaySteps {
		return c.Last
	}
	return c.First + float64(step)/float64(c.EpsilonDecaySteps)*(c.Last-c.First)
}
