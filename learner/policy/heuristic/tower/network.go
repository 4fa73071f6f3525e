package tower

import (
	"math"
	"math/rand/v2"
)

// hidden is Vowpal Wabbit's --nn 3, rate its --l 0.5.
const (
	hidden = 3
	rate   = 0.5
)

// network predicts an action's cost: cost = bias + sum over h of out[h] * tanh(in[.][h] * features).
//
// An input has six features that are not zero, and only their weights are touched: which notch each group has (a weight
// for each notch, so that the step at the SLO may be anywhere on the ladder), how far up the ladder each notch is (so
// that notches never tried follow those that were), the load, and 1.
type network struct {
	in   [features][hidden]weight
	out  [hidden]weight
	bias weight
}

// weight is one with the sum of its squared gradients: AdaGrad's, whose steps are right for weights seldom touched.
type weight struct{ value, squares float64 }

func (w *weight) descend(gradient float64) {
	w.squares += gradient * gradient
	w.value -= rate * gradient / math.Sqrt(w.squares+1e-12)
}

const (
	firstNotch  = 0
	secondNotch = len(ladder)
	firstUp     = 2 * len(ladder)
	secondUp    = firstUp + 1
	load        = firstUp + 2
	one         = firstUp + 3
	features    = firstUp + 4
)

// input is an action in a bin.
type input struct {
	action action
	load   float64 // in [-1, 1]
}

// active are the input's six features that are not zero.
func (x input) active() (index [6]int, value [6]float64) {
	up := func(notch int) float64 { return 2*float64(notch)/float64(len(ladder)-1) - 1 }
	i, j := x.action[0], x.action[1]
	return [6]int{firstNotch + i, secondNotch + j, firstUp, secondUp, load, one},
		[6]float64{1, 1, up(i), up(j), x.load, 1}
}

// train makes a network of so many draws, with replacement, from the examples.
func train(examples []example, draws int, random *rand.Rand) *network {
	n := new(network)
	// Only what every input shares begins at random: a notch that was never tried adds nothing.
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

func (n *network) predict(x input) float64 {
	index, value := x.active()
	units := n.units(&index, &value)
	return n.sum(&units)
}

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

func (n *network) sum(units *[hidden]float64) float64 {
	cost := n.bias.value
	for h := range hidden {
		cost += n.out[h].value * units[h]
	}
	return cost
}

// step descends the squared error of one example, half of it.
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
