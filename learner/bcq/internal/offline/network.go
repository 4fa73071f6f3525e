package offline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// ErrNotFinite says that an update came to what is no number.
var ErrNotFinite = errors.New("not a finite number")

// Network is a network's parameters, its target's (none for a network that nothing follows), and its optimiser.
type Network struct {
	Theta, Target []float64
	Adam          *nn.Adam
}

// NewNetwork begins as PyTorch would, uniformly within one over the root of each layer's inputs: the layers in order, their
// parameters behind each other. With target there is a target, an exact copy.
func NewNetwork(layers kernel.MLP, rate float64, target bool, r *rand.Rand) *Network {
	n := &Network{Theta: make([]float64, layers.Params()), Adam: nn.NewAdam(layers.Params(), rate, 1e-8)}
	nn.UniformMLP(layers, n.Theta, 0, r)
	if target {
		n.Target = append([]float64(nil), n.Theta...)
	}
	return n
}

// Good is nil when a loss and its gradient can be followed, err if that is not nil, and ErrNotFinite otherwise.
func Good(loss float64, grad []float64, err error) error {
	if err == nil && !(nn.Finite(grad) && nn.Finite([]float64{loss})) {
		return ErrNotFinite
	}
	return err
}

// vectors are all numbers of a network, by the ends of their names.
func (n *Network) vectors() map[string]*[]float64 {
	all := map[string]*[]float64{"": &n.Theta, ".adam.m": &n.Adam.M, ".adam.v": &n.Adam.V}
	if n.Target != nil {
		all[".target"] = &n.Target
	}
	return all
}

func (n *Network) save(f weights.File, name string) {
	for part, data := range n.vectors() {
		f.Tensors[name+part] = weights.Tensor{Shape: []int{len(*data)}, Data: append([]float64(nil), *data...)}
	}
	f.Meta[name+".adam.steps"] = strconv.Itoa(n.Adam.Steps)
}

// restored is the network as it was saved; the receiver stays as it is.
func (n *Network) restored(f weights.File, name string) (*Network, error) {
	adam := *n.Adam
	next := &Network{Theta: n.Theta, Target: n.Target, Adam: &adam}
	for part, to := range next.vectors() {
		data, err := f.Take(name+part, len(*to))
		if err != nil {
			return nil, err
		}
		if !nn.Finite(data) {
			return nil, fmt.Errorf("tensor %q: %w", name+part, ErrNotFinite)
		}
		*to = append([]float64(nil), data...)
	}
	var err error
	adam.Steps, err = count(f, name+".adam.steps")
	return next, err
}

// count is a number in the metadata.
func count(f weights.File, key string) (int, error) {
	n, err := strconv.Atoi(f.Meta[key])
	if err != nil || n < 0 {
		return 0, fmt.Errorf("metadata %q: %q: it must be a whole number of at least 0", key, f.Meta[key])
	}
	return n, nil
}
