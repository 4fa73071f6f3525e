package ppo

import (
	"fmt"
	"math"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Config is all settings of an Agent. Default returns the usual ones.
type Config struct {
	State      int       // numbers in an observation
	NumActions int       // of a discrete action; 0 is continuous
	Low        []float64 // lower bound of each number of a continuous action
	High       []float64 // upper bounds

	Hidden     []int // widths of the hidden layers of both networks
	Activation kernel.Activation

	Envs         int     // environments at once
	Horizon      int     // steps of each in a rollout
	Minibatch    int     // transitions of an update; it divides Envs * Horizon
	Epochs       int     // passes over a rollout
	Gamma        float64 // discount of a step's future
	Lambda       float64 // of the advantage estimate
	Clip         float64 // how far a ratio may be from 1
	Value        float64 // weight of the value's loss
	Entropy      float64 // weight of the entropy
	MaxGradNorm  float64 // of a gradient
	LearningRate float64 // Adam's step size
	AnnealSteps  int     // steps over which LearningRate and, with AnnealClip, Clip go to zero; 0 keeps them

	AnnealClip           bool
	Deviation            float64 // logarithm of a continuous policy's first deviation
	NormaliseObservation bool
	NormaliseReward      bool

	Seed uint64
}

// Default returns the defaults of the reference implementations, for discrete
// actions (choices above 0) and for continuous ones.
func Default(state, choices int, low, high []float64) Config {
	c := Config{
		State: state, NumActions: choices, Low: low, High: high, Hidden: []int{64, 64}, Activation: kernel.Tanh,
		Gamma: 0.99, Lambda: 0.95, Clip: 0.2, Value: 0.5, MaxGradNorm: 0.5,
	}
	if choices > 0 {
		c.Envs = 4
		c.Horizon = 128
		c.Minibatch = 128
		c.Epochs = 4
		c.LearningRate = 2.5e-4
		c.Entropy = 0.01
	} else {
		c.Envs = 1
		c.Horizon = 2048
		c.Minibatch = 64
		c.Epochs = 10
		c.LearningRate = 3e-4
		c.NormaliseObservation, c.NormaliseReward = true, true
	}
	return c
}

// Check returns nil for valid settings. Otherwise it names the wrong one and
// what it must be.
func (c Config) Check() error {
	bad := agent.BadSetting(Algorithm)
	all := c.Envs * c.Horizon
	switch {
	case c.State < 1:
		return bad("state", c.State, "at least 1")
	case c.NumActions < 0 || c.NumActions == 1:
		return bad("choices", c.NumActions, "at least 2, or 0 for continuous actions")
	case c.NumActions > 0 && len(c.Low)+len(c.High) > 0 || c.NumActions == 0 && (len(c.Low) == 0 || len(c.Low) != len(c.High)):
		return bad("bounds", [][]float64{c.Low, c.High},
			"of continuous actions, as many lower as upper ones, and none of discrete ones")
	case len(c.Hidden) == 0 || slices.Min(c.Hidden) < 1:
		return bad("hidden", c.Hidden, "one layer at least, each of one unit at least")
	case c.Activation != kernel.Tanh && c.Activation != kernel.ReLU:
		return bad("activation", c.Activation, "tanh or relu")
	case c.Envs < 1 || c.Horizon < 1 || c.Epochs < 1:
		return bad("envs, horizon, epochs", []int{c.Envs, c.Horizon, c.Epochs}, "at least 1 each")
	case c.Minibatch < 1 || all%c.Minibatch != 0:
		return bad("minibatch", c.Minibatch, fmt.Sprintf("a divisor of envs * horizon = %d", all))
	case !(c.Gamma >= 0 && c.Gamma <= 1) || !(c.Lambda >= 0 && c.Lambda <= 1):
		return bad("gamma, lambda", []float64{c.Gamma, c.Lambda}, "in [0, 1]")
	case !(c.Clip > 0) || !(c.MaxGradNorm > 0) || !(c.LearningRate > 0):
		return bad("clip, norm, rate", []float64{c.Clip, c.MaxGradNorm, c.LearningRate}, "above 0")
	case !(c.Value >= 0) || !(c.Entropy >= 0) || c.AnnealSteps < 0:
		return bad("value, entropy, over", []any{c.Value, c.Entropy, c.AnnealSteps}, "at least 0")
	case math.IsNaN(c.Deviation) || math.IsInf(c.Deviation, 0):
		return bad("deviation", c.Deviation, "a number")
	}
	return agent.CheckBounds(Algorithm, c.Low, c.High)
}

// identity is what a saved state and an agent must have in common.
type identity struct {
	State                int       `json:"state"`
	NumActions           int       `json:"num_actions"` // 0 is continuous
	Low                  []float64 `json:"low"`
	High                 []float64 `json:"high"`
	Hidden               []int     `json:"hidden"`
	Activation           string    `json:"activation"`
	Recurrent            bool      `json:"recurrent"`
	Envs                 int       `json:"envs"`    // of a rollout
	Horizon              int       `json:"horizon"` // of a rollout
	NormaliseObservation bool      `json:"normalise_observation"`
	NormaliseReward      bool      `json:"normalise_reward"`
}

func (c Config) identity(recurrent bool) identity {
	return identity{
		State:                c.State,
		NumActions:           c.NumActions,
		Low:                  c.Low,
		High:                 c.High,
		Hidden:               c.Hidden,
		Activation:           c.Activation.String(),
		Recurrent:            recurrent,
		Envs:                 c.Envs,
		Horizon:              c.Horizon,
		NormaliseObservation: c.NormaliseObservation,
		NormaliseReward:      c.NormaliseReward,
	}
}

func (c Config) shape(algorithm string) agent.Shape {
	return agent.Shape{
		Algorithm:  algorithm,
		Envs:       c.Envs,
		State:      c.State,
		Action:     c.Action(),
		NumActions: c.NumActions,
	}
}

// Action is how many numbers an action has.
func (c Config) Action() int {
	if c.NumActions > 0 {
		return 1
	}
	return len(c.Low)
}

// Outputs is the width of the policy's output: a logit for each choice, or a
// mean for each number.
func (c Config) Outputs() int {
	if c.NumActions > 0 {
		return c.NumActions
	}
	return len(c.Low)
}

func (c Config) network(outputs int) kernel.MLP {
	return kernel.NewMLP(c.Activation, kernel.Linear, append(append([]int{c.State}, c.Hidden...), outputs)...)
}

// Policy is the network that decides.
func (c Config) Policy() kernel.MLP { return c.network(c.Outputs()) }

// Critic is the network that values states.
func (c Config) Critic() kernel.MLP { return c.network(1) }

// deviations is the number of parameters between policy and critic: the
// logarithms of a continuous policy's deviations.
func (c Config) deviations() int {
	if c.NumActions > 0 {
		return 0
	}
	return len(c.Low)
}

// Params is the number of all parameters: those of the policy, of its
// deviations, of the critic.
func (c Config) Params() int { return c.Policy().Params() + c.deviations() + c.Critic().Params() }

// updates are the settings that the graphs of an update depend on.
func (c Config) updates() Config {
	c.LearningRate = 0
	c.AnnealSteps, c.AnnealClip = 0, false
	c.Gamma, c.Lambda = 0, 0
	c.Epochs = 0
	c.Clip = 0 // a Minibatch has its own
	c.Deviation = 0
	c.NormaliseObservation, c.NormaliseReward = false, false
	c.Seed = 0
	return c
}

// annealed is the share that is left of what goes to zero, after a number of
// steps.
func (c Config) annealed(steps int) float64 {
	if c.AnnealSteps == 0 {
		return 1
	}
	return max(0, 1-float64(steps)/float64(c.AnnealSteps))
}

// parts splits the parameters.
func (c Config) parts(theta []float64) (policy, deviations, critic []float64) {
	n, d := c.Policy().Params(), c.deviations()
	return theta[:n], theta[n : n+d], theta[n+d:]
}
