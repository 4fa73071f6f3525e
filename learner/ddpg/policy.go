package ddpg

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Network is a network's parameters, its target's, and its optimiser.
type Network struct {
	Theta, Target []float64
	Adam          *nn.Adam
}

// Policy is everything that an update changes.
type Policy struct {
	Actor   Network
	Critics []Network
	Updates int // of the critics that were made
}

// NewPolicy begins: uniform weights, small ones in the last layers, targets that are exact copies.
func NewPolicy(c Config, r *rand.Rand) *Policy {
	begin := func(m kernel.MLP, rate, last float64) Network {
		n := Network{Theta: make([]float64, m.Params()), Target: make([]float64, m.Params()), Adam: nn.NewAdam(m.Params(), rate, 1e-8)}
		nn.UniformMLP(m, n.Theta, last, r)
		nn.Follow(n.Target, n.Theta, 1)
		return n
	}
	const last = 3e-3 // Lillicrap et al., section 7
	p := &Policy{Actor: begin(c.Actor(), c.ActorRate, last)}
	for range c.critics() {
		critic := begin(c.Critic(), c.CriticRate, last)
		critic.Adam.Decay = c.Decay
		p.Critics = append(p.Critics, critic)
	}
	return p
}

func (n *Network) save(f weights.File, name string) {
	for part, data := range map[string][]float64{"": n.Theta, ".target": n.Target, ".adam.m": n.Adam.M, ".adam.v": n.Adam.V} {
		f.Tensors[name+part] = weights.Tensor{Shape: []int{len(data)}, Data: append([]float64(nil), data...)}
	}
	f.Meta[name+".adam.steps"] = strconv.Itoa(n.Adam.Steps)
}

// restored is the network as it was saved; the receiver stays as it is.
func (n Network) restored(f weights.File, name string) (Network, error) {
	adam := *n.Adam
	for part, to := range map[string]*[]float64{"": &n.Theta, ".target": &n.Target, ".adam.m": &adam.M, ".adam.v": &adam.V} {
		data, err := f.Take(name+part, len(*to))
		if err != nil {
			return n, err
		}
		if !nn.Finite(data) {
			return n, fmt.Errorf("tensor %q holds what is no number", name+part)
		}
		*to = append([]float64(nil), data...)
	}
	steps, err := strconv.Atoi(f.Meta[name+".adam.steps"])
	if err != nil || steps < 0 {
		return n, fmt.Errorf("metadata %q: %q: it must be a number of steps", name+".adam.steps", f.Meta[name+".adam.steps"])
	}
	adam.Steps = steps
	n.Adam = &adam
	return n, nil
}
