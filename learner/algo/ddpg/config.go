package ddpg

import (
	"fmt"
	"math"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Config is all settings of an Agent. Default returns the usual ones.
type Config struct {
	State  int       // numbers in an observation
	Action int       // numbers in an action
	Low    []float64 // lower bound of each number of an action
	High   []float64 // upper bound of each number of an action

	Hidden     []int             // widths of the hidden layers of both networks
	Activation kernel.Activation // of the hidden layers

	Gamma              float64 // discount of a step's future, in [0, 1)
	Tau                float64 // Polyak factor of the targets after an update, in (0, 1]
	ActorLearningRate  float64 // Adam's step sizes
	CriticLearningRate float64
	Decay              float64 // weight decay (L2) of the critic; 0.01 in the paper
	Batch              int     // transitions of an update
	Capacity           int     // of the replay buffer
	Warmup             int     // steps that are random, before the first update
	Every              int     // steps from one round of updates to the next
	Updates            int     // updates of a round
	Delay              int     // critic updates for one of the actor and the targets: TD3 has 2, DDPG 1

	Noise       Noise
	Twin        bool    // two critics, the smaller value counts (TD3)
	TargetNoise float64 // deviation of the noise on target actions, in [-1, 1]'s scale (TD3: 0.2); 0 is none
	TargetCut   float64 // where that noise is cut (TD3: 0.5)

	// Imitation is the weight of the distance to the data's actions in the actor's loss, against the mean size of a value
	// (TD3+BC, Fujimoto and Gu 2021, whose alpha is 1 over it: 2.5). It is for data that another policy has made; 0 is none.
	Imitation float64
	// Inward is the weight of the squares of the actor's outputs before tanh, in its loss. At a bound of the actions tanh is flat:
	// an actor that was sent there once, by critics that knew too little, does not find back without. 0 is none.
	Inward float64

	Seed uint64
}

// Noise is what exploration adds to an action, in the scale of [-1, 1].
type Noise struct {
	Sigma float64 // deviation; of one step for Ornstein-Uhlenbeck
	// Theta is the rate at which an Ornstein-Uhlenbeck process returns to zero, per unit of Step; 0 is independent Gaussian noise.
	Theta       float64
	Step        float64 // dt of the process
	Final       float64 // Sigma goes linearly to this over AnnealSteps steps
	AnnealSteps int     // 0 leaves Sigma as it is
}

// After is the deviation after a number of steps.
func (n Noise) After(steps int) float64 {
	if n.AnnealSteps == 0 {
		return n.Sigma
	}
	share := min(1, float64(steps)/float64(n.AnnealSteps))
	return n.Sigma + share*(n.Final-n.Sigma)
}

// Default returns the defaults of the reference implementations.
func Default(state int, low, high []float64) Config {
	return Config{
		State:              state,
		Action:             len(low),
		Low:                low,
		High:               high,
		Hidden:             []int{64, 64},
		Activation:         kernel.ReLU,
		Gamma:              0.99,
		Tau:                0.005,
		ActorLearningRate:  1e-3,
		CriticLearningRate: 1e-3,
		Batch:              128,
		Capacity:           200_000,
		Warmup:             1000,
		Every:              1,
		Updates:            1,
		Delay:              1,
		Noise:              Noise{Sigma: 0.1},
		TargetCut:          0.5,
	}
}

// Check returns nil for valid settings. Otherwise it names the wrong one and
// what it must be.
func (c Config) Check() error {
	bad := agent.BadSetting(Algorithm)
	switch {
	case c.State < 1:
		return bad("state", c.State, "at least 1")
	case c.Action < 1 || len(c.Low) != c.Action || len(c.High) != c.Action:
		return bad("action", c.Action,
			fmt.Sprintf("at least 1, with as many bounds (there are %d and %d)", len(c.Low), len(c.High)))
	case len(c.Hidden) == 0 || slices.Min(c.Hidden) < 1:
		return bad("hidden", c.Hidden, "one layer at least, each of one unit at least")
	case c.Activation != kernel.Tanh && c.Activation != kernel.ReLU:
		return bad("activation", c.Activation, "tanh or relu")
	case !(c.Gamma >= 0 && c.Gamma < 1):
		return bad("gamma", c.Gamma, "in [0, 1)")
	case !(c.Tau > 0 && c.Tau <= 1):
		return bad("tau", c.Tau, "in (0, 1]")
	case !(c.ActorLearningRate > 0) || !(c.CriticLearningRate > 0):
		return bad("rate", min(c.ActorLearningRate, c.CriticLearningRate), "above 0")
	case !(c.Decay >= 0):
		return bad("decay", c.Decay, "at least 0")
	case c.Batch < 1 || c.Capacity < c.Batch:
		return bad("batch", c.Batch, fmt.Sprintf("in [1, capacity %d]", c.Capacity))
	case c.Warmup < 0 || c.Every < 1 || c.Updates < 1 || c.Delay < 1:
		return bad("warmup, every, updates, delay", []int{c.Warmup, c.Every, c.Updates, c.Delay},
			"at least 0, 1, 1, 1")
	case !(c.Noise.Sigma >= 0) || !(c.Noise.Theta >= 0) || c.Noise.Theta > 0 && !(c.Noise.Step > 0) ||
		!(c.Noise.Final >= 0) || c.Noise.AnnealSteps < 0:
		return bad("noise", c.Noise, "of sigma, theta and final at least 0, with a step above 0")
	case !(c.TargetNoise >= 0) || !(c.TargetCut >= 0):
		return bad("target noise", c.TargetNoise, "at least 0")
	case !(c.Imitation >= 0) || math.IsInf(c.Imitation, 0):
		return bad("imitation", c.Imitation, "finite and at least 0")
	case !(c.Inward >= 0) || math.IsInf(c.Inward, 0):
		return bad("inward", c.Inward, "finite and at least 0")
	}
	return agent.CheckBounds(Algorithm, c.Low, c.High)
}

// Actor is the network that decides.
func (c Config) Actor() kernel.MLP {
	return kernel.NewMLP(c.Activation, kernel.Tanh, append(append([]int{c.State}, c.Hidden...), c.Action)...)
}

// Critic is the network that values a state and an action, joined in one row.
func (c Config) Critic() kernel.MLP {
	return kernel.NewMLP(
		c.Activation,
		kernel.Linear,
		append(append([]int{c.State + c.Action}, c.Hidden...), 1)...)
}

// identity is what a saved state and an Agent must have in common.
type identity struct {
	State       int       `json:"state"`
	Low         []float64 `json:"low"`
	High        []float64 `json:"high"`
	Hidden      []int     `json:"hidden"`
	Activation  string    `json:"activation"`
	Twin        bool      `json:"twin"`         // TD3
	TargetNoise bool      `json:"target_noise"` // TD3
	Delayed     bool      `json:"delayed"`      // TD3
}

func (c Config) identity() identity {
	return identity{
		State:       c.State,
		Low:         c.Low,
		High:        c.High,
		Hidden:      c.Hidden,
		Activation:  c.Activation.String(),
		Twin:        c.Twin,
		TargetNoise: c.TargetNoise > 0,
		Delayed:     c.Delay > 1,
	}
}

func (c Config) shape() agent.Shape {
	return agent.Shape{Algorithm: Algorithm, Envs: 1, State: c.State, Action: c.Action}
}

// updates are the settings that an Updater depends on.
func (c Config) updates() Config {
	c.Low, c.High = nil, nil
	c.ActorLearningRate, c.CriticLearningRate = 0, 0
	c.Decay = 0
	c.Capacity = 0
	c.Warmup = 0
	c.Every, c.Updates = 0, 0
	c.Noise = Noise{}
	c.Imitation = 0
	c.Seed = 0
	return c
}

// critics is the number of critics.
func (c Config) critics() int {
	if c.Twin {
		return 2
	}
	return 1
}
