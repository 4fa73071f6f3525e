package bcq

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

	Hidden     []int // widths of the hidden layers of the critics and the perturbation
	Generative []int // widths of the hidden layers of encoder and decoder
	Latent     int   // numbers that the generative model describes an action by, beside the state

	Tau          float64 // Polyak factor of the targets after an update, in (0, 1]
	LearningRate float64 // Adam's step size, of all networks
	Batch        int     // transitions of an update

	Phi            float64 // how far the perturbation moves an action, in the scale of [-1, 1]; 0 never moves it
	Lambda         float64 // share of the smaller of two critics in a target; the larger one has the rest
	Candidates     int     // actions that are generated for each next state of a target
	SampledActions int     // actions that are generated for each decision
	Divergence     float64 // weight of the Kullback-Leibler term in the generative model's loss

	Seed uint64
}

// The bounds of what is learned as a logarithm of a deviation, and of what is
// drawn in its place when there is no action to encode: the authors' code,
// BCQ.py.
const (
	leastLog = -4
	mostLog  = 15
	cut      = 0.5
)

// Default is what the paper has, but for the networks' widths: those there,
// 400-300 and 750-750, have thirty and more than a hundred times the weights of
// these, which two cores of a CPU train in a minute for states of a few
// numbers.
func Default(state int, low, high []float64) Config {
	return Config{
		State: state, Action: len(low), Low: low, High: high,
		Hidden: []int{64, 64}, Generative: []int{64, 64}, Latent: 2 * len(low),
		Tau: 0.005, LearningRate: 1e-3, Batch: 100,
		Phi: 0.05, Lambda: 0.75, Candidates: 10, SampledActions: 100, Divergence: 0.5,
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
	case len(c.Generative) == 0 || slices.Min(c.Generative) < 1:
		return bad("generative", c.Generative, "one layer at least, each of one unit at least")
	case c.Latent < 1:
		return bad("latent", c.Latent, "at least 1")
	case !(c.Tau > 0 && c.Tau <= 1):
		return bad("tau", c.Tau, "in (0, 1]")
	case !(c.LearningRate > 0) || math.IsInf(c.LearningRate, 0):
		return bad("rate", c.LearningRate, "finite and above 0")
	case c.Batch < 1:
		return bad("batch", c.Batch, "at least 1")
	case !(c.Phi >= 0 && c.Phi <= 2):
		return bad("phi", c.Phi, "in [0, 2]: actions are in [-1, 1]")
	case !(c.Lambda >= 0 && c.Lambda <= 1):
		return bad("lambda", c.Lambda, "in [0, 1]")
	case c.Candidates < 1 || c.SampledActions < 1:
		return bad("candidates and choices", []int{c.Candidates, c.SampledActions}, "at least 1")
	case !(c.Divergence >= 0) || math.IsInf(c.Divergence, 0):
		return bad("divergence", c.Divergence, "finite and at least 0")
	}
	return agent.CheckBounds(Algorithm, c.Low, c.High)
}

// identity is what a saved state and an Agent must have in common.
type identity struct {
	State      int       `json:"state"`
	Low        []float64 `json:"low"`
	High       []float64 `json:"high"`
	Hidden     []int     `json:"hidden"`
	Generative []int     `json:"generative"`
	Latent     int       `json:"latent"`
}

func (c Config) identity() identity {
	return identity{
		State:      c.State,
		Low:        c.Low,
		High:       c.High,
		Hidden:     c.Hidden,
		Generative: c.Generative,
		Latent:     c.Latent,
	}
}

// updates are the settings that an Updater depends on.
func (c Config) updates() Config {
	c.LearningRate = 0
	c.Seed = 0
	return c
}

func (c Config) shape() agent.Shape {
	return agent.Shape{Algorithm: Algorithm, Envs: 1, State: c.State, Action: c.Action}
}

// Outward scales an action of [-1, 1] to the environment's bounds, and clips it
// there.
func (c Config) Outward(to, action []float64) { kernel.Outward(to, action, c.Low, c.High) }

// Inward scales an action of the environment to [-1, 1], and clips it there.
// Recorded actions need it before they are data.
func (c Config) Inward(to, action []float64) { kernel.Inward(to, action, c.Low, c.High) }

// Trunk is the encoder's hidden layers: from a state and an action beside each
// other.
func (c Config) Trunk() kernel.MLP {
	return kernel.NewMLP(kernel.ReLU, kernel.ReLU, append([]int{c.State + c.Action}, c.Generative...)...)
}

// Latents is each of the two layers on the trunk: the latent numbers' means,
// and the logarithms of their deviations.
func (c Config) Latents() kernel.Dense {
	return kernel.Dense{In: c.Generative[len(c.Generative)-1], Out: c.Latent}
}

// Decoder is the network that makes an action of a state and latent numbers.
func (c Config) Decoder() kernel.MLP {
	return kernel.NewMLP(
		kernel.ReLU,
		kernel.Tanh,
		append(append([]int{c.State + c.Latent}, c.Generative...), c.Action)...)
}

// Perturbation is the network that moves an action: from a state and that
// action, to a part of Phi.
func (c Config) Perturbation() kernel.MLP {
	return kernel.NewMLP(
		kernel.ReLU,
		kernel.Tanh,
		append(append([]int{c.State + c.Action}, c.Hidden...), c.Action)...)
}

// Critic is the network that values a state and an action, joined in one row.
func (c Config) Critic() kernel.MLP {
	return kernel.NewMLP(kernel.ReLU, kernel.Linear, append(append([]int{c.State + c.Action}, c.Hidden...), 1)...)
}

// encoder is the number of parameters before the decoder's.
func (c Config) encoder() int { return c.Trunk().Params() + 2*c.Latents().Params() }

// clip clips an action's number at -1 and 1.
func clip(v float64) float64 { return max(-1, min(1, v)) }
