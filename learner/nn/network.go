package nn

import (
	"math/rand/v2"

	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Network is a network's parameters, those of its target network (nil where
// there is none), and its optimiser.
type Network struct {
	Theta  []float64 // parameters
	Target []float64 // parameters of the target network; nil where there is none
	Adam   *Adam     // optimiser of Theta
}

// NewNetwork initialises a network as PyTorch does (UniformMLP, with its last),
// layer by layer. With target set it has a target network, an exact copy.
func NewNetwork(layers kernel.MLP, rate, last float64, target bool, r *rand.Rand) *Network {
	n := &Network{Theta: make([]float64, layers.Params()), Adam: NewAdam(layers.Params(), rate, 1e-8)}
	UniformMLP(layers, n.Theta, last, r)
	if target {
		n.Target = append([]float64(nil), n.Theta...)
	}
	return n
}

// State adds the network to a learner's state under a name.
func (n *Network) State(s *weights.State, name string) {
	s.Numbers[name] = n.Theta
	if n.Target != nil {
		s.Numbers[name+".target"] = n.Target
	}
	n.Adam.State(s, name+".adam")
}

// State adds the optimiser to a learner's state under a name.
func (a *Adam) State(s *weights.State, name string) {
	s.Numbers[name+".m"], s.Numbers[name+".v"] = a.M, a.V
	s.Counts[name+".steps"] = weights.Count{At: &a.Steps}
}
