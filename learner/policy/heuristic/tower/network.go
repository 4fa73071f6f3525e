package tower

import (
	"math"
	"math/rand/v2"
)

// hidden is the number of hidden units (Vowpal Wabbit's --nn 3), rate the
// learning rate (its --l 0.5).
const (
	hidden = 3
	rate   = 0.5
)

// network predicts an action's cost: cost = bias + sum over h of out[h] *
// tanh(in[.][h] * features).
//
// An input has six features that are not zero, and a training step changes only
// their weights. Two are the notch of each group, one-hot encoded, so that the
// cost can jump at any notch. Two are the height of each notch on the ladder,
// so that the prediction for notches without data follows the others. The last
// two are the load and the constant 1.
type network struct {
	in   [features][hidden]weight
	out  [hidden]weight
	bias weight
}

// weight is a weight with the sum of its squared gradients, for AdaGrad.
// AdaGrad suits features that are rarely active.
type weight struct{ value, squares float64 }

// descend makes one step of AdaGrad.
func (w *weight) descend(gradient float64) {
	w.squares += gradient * gradient
	w.value -= rate * gradient / math.Sqrt(w.squares+1e-12)
}

// The features of an input, by index.
const (
	firstNotch  = 0               // one-hot notch of the first group
	secondNotch = len(ladder)     // one-hot notch of the second group
	firstUp     = 2 * len(ladder) // height of the first group's notch, in [-1, 1]
	secondUp    = firstUp + 1     // height of the second group's notch, in [-1, 1]
	load        = firstUp + 2     // scaled load
	one         = firstUp + 3     // constant 1
	features    = firstUp + 4     // number of features
)

// input is an action in a bin.
type input struct {
	action action
	load   float64 // scaled, usually in [-1, 1]
}

// active returns the indexes and values of the six features that are not zero.
func (x input) active() (index [6]int, value [6]float64) {
	up := func(notch int) float64 { return 2*float64(notch)/float64(len(ladder)-1) - 1 }
	i, j := x.action[0], x.action[1]
	return [6]int{firstNotch + i, secondNotch + j, firstUp, secondUp, load, one},
		[6]float64{1, 1, up(i), up(j), x.load, 1}
}

// train creates a network and trains it with draws random examples, with
// replacement.
func train(examples []example, draws int, random *rand.Rand) *network {
	n := new(network)
	// Only the weights of shared features are random at the start. The
	// weights of a notch without data stay zero.
	for f := firstUp; f < features; f++ {
		for h := range hidden {
			n.in[f][h].value = random.Float64() - 0.5
		}
	}
	for h := range hidden {
		n.out[h].value = random.Float64() - 0.5
	}
	for range draws {
		n.step(&examples[random.IntN(len(examples))])
	}
	return n
}

// predict is the predicted cost of an input.
func (n *network) predict(x input) float64 {
	index, value := x.active()
	units := n.units(&index, &value)
	return n.sum(&units)
}

// units computes the hidden layer.
func (n *network) units(index *[6]int, value *[6]float64) (units [hidden]float64) {
	for k, f := range index {
		for h := range hidden {
			units[h] += n.in[f][h].value * value[k]
		}
	}
	for h := range hidden {
		units[h] = math.Tanh(units[h])
	}
	return units
}

// sum computes the output layer.
func (n *network) sum(units *[hidden]float64) float64 {
	cost := n.bias.value
	for h := range hidden {
		cost += n.out[h].value * units[h]
	}
	return cost
}

// step makes one training step. The loss is half the squared error of one
// example.
func (n *network) step(e *example) {
	index, value := e.input.active()
	units := n.units(&index, &value)
	off := n.sum(&units) - e.cost
	n.bias.descend(off)
	for h := range hidden {
		back := off * n.out[h].value * (1 - units[h]*units[h])
		n.out[h].descend(off * units[h])
		for k, f := range index {
			n.in[f][h].descend(back * value[k])
		}
	}
}
