package discrete

import (
	"math"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Config is all settings of an Agent. Default returns the usual ones. There is
// no discount among them: the data was recorded with one (replay.Transition).
type Config struct {
	State      int // numbers in an observation
	NumActions int // actions

	Hidden       []int   // widths of the hidden layers of both networks
	Tau          float64 // Polyak factor of the target after an update, in (0, 1]
	LearningRate float64 // Adam's step size
	Batch        int     // transitions of an update

	// Threshold: an action is allowed when it is more than this share as likely as the likeliest; 0 allows all, which is double
	// DQN.
	Threshold float64
	Flat      float64 // weight of the mean square of the behaviour network's outputs in its loss

	Seed uint64
}

// Default is what the authors' code has for small states, but for the widths:
// 64-64 instead of 256-256, for two cores of a CPU, and Adam's step, 1e-3
// instead of 3e-4, for as few updates as these take.
func Default(state, choices int) Config {
	return Config{
		State:        state,
		NumActions:   choices,
		Hidden:       []int{64, 64},
		Tau:          0.005,
		LearningRate: 1e-3,
		Batch:        100,
		Threshold:    0.3,
		Flat:         0.01,
	}
}

// Check returns nil for valid settings. Otherwise it names the wrong one and
// what it must be.
func (c Config) Check() error {
	bad := agent.BadSetting("discrete bcq")
	switch {
	case c.State < 1:
		return bad("state", c.State, "at least 1")
	case c.NumActions < 2:
		return bad("choices", c.NumActions, "at least 2")
	case len(c.Hidden) == 0 || slices.Min(c.Hidden) < 1:
		return bad("hidden", c.Hidden, "one layer at least, each of one unit at least")
	case !(c.Tau > 0 && c.Tau <= 1):
		return bad("tau", c.Tau, "in (0, 1]")
	case !(c.LearningRate > 0) || math.IsInf(c.LearningRate, 0):
		return bad("rate", c.LearningRate, "finite and above 0")
	case c.Batch < 1:
		return bad("batch", c.Batch, "at least 1")
	case !(c.Threshold >= 0 && c.Threshold < 1):
		return bad("threshold", c.Threshold, "in [0, 1): the likeliest action is always allowed")
	case !(c.Flat >= 0) || math.IsInf(c.Flat, 0):
		return bad("flat", c.Flat, "finite and at least 0")
	}
	return nil
}

// Network is either of the two: the actions' values, or their unnormalised
// logarithms of probability.
func (c Config) Network() kernel.MLP {
	return kernel.NewMLP(kernel.ReLU, kernel.Linear, append(append([]int{c.State}, c.Hidden...), c.NumActions)...)
}

// identity is what a saved state and an Agent must have in common.
type identity struct {
	State      int   `json:"state"`
	NumActions int   `json:"num_actions"`
	Hidden     []int `json:"hidden"`
}

func (c Config) identity() identity {
	return identity{State: c.State, NumActions: c.NumActions, Hidden: c.Hidden}
}

// updates are the settings that an Updater depends on.
func (c Config) updates() Config {
	c.LearningRate = 0
	c.Seed = 0
	return c
}

func (c Config) shape() agent.Shape {
	return agent.Shape{Algorithm: "discrete bcq", Envs: 1, State: c.State, Action: 1, NumActions: c.NumActions}
}

// Choose is the legal action of largest value among those that the data's policy
// could have taken: those for which pi(a|s) / max pi(.|s) > Threshold. The
// maximum is over the legal actions. The softmax cancels, and only differences
// of logits are left. Legal nil is all.
func (c Config) Choose(values, logits []float64, legal []bool) int {
	likeliest := nn.Best(logits, legal)
	least := logits[likeliest] + math.Log(c.Threshold)
	best := -1
	for a, v := range values {
		if legal != nil && !legal[a] || !(logits[a] > least) {
			continue
		}
		if best < 0 || v > values[best] {
			best = a
		}
	}
	if best < 0 {
		return likeliest // the logits are not finite
	}
	return best
}
