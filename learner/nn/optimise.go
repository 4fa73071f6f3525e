package nn

import (
	"errors"
	"fmt"
	"math"
)

// Adam is Kingma and Ba's optimiser (2015, algorithm 1). Its exported fields
// are all its state.
type Adam struct {
	LearningRate float64 // step size; may be changed between updates
	Beta1        float64 // decay of the mean
	Beta2        float64 // decay of the squares' mean
	Epsilon      float64 // added to the root
	Decay        float64 // weight decay added to the gradient (L2); 0 is none

	Steps int       // that were made
	M     []float64 // running mean of the gradients
	V     []float64 // running mean of their squares
}

// NewAdam is Adam with the paper's constants for a number of parameters.
func NewAdam(params int, rate, epsilon float64) *Adam {
	return &Adam{
		LearningRate: rate,
		Beta1:        0.9,
		Beta2:        0.999,
		Epsilon:      epsilon,
		M:            make([]float64, params),
		V:            make([]float64, params),
	}
}

// Update changes theta against the gradient. It panics when their lengths are
// not Adam's.
func (a *Adam) Update(theta, grad []float64) {
	if len(theta) != len(a.M) || len(grad) != len(a.M) {
		panic(fmt.Sprintf("adam: %d parameters and %d gradients, made for %d", len(theta), len(grad), len(a.M)))
	}
	a.Steps++
	c1, c2 := 1-math.Pow(a.Beta1, float64(a.Steps)), 1-math.Pow(a.Beta2, float64(a.Steps))
	rate, root := a.LearningRate/c1, 1/math.Sqrt(c2)
	for i, g := range grad {
		g += a.Decay * theta[i]
		m := a.Beta1*a.M[i] + (1-a.Beta1)*g
		v := a.Beta2*a.V[i] + (1-a.Beta2)*g*g
		a.M[i], a.V[i] = m, v
		theta[i] -= rate * m / (math.Sqrt(v)*root + a.Epsilon)
	}
}

// Clip scales gradients down so that their norm over all of them together is at
// most the given one, and returns the norm before.
func Clip(most float64, grads ...[]float64) float64 {
	sum := 0.0
	for _, g := range grads {
		for _, v := range g {
			sum += v * v
		}
	}
	norm := math.Sqrt(sum)
	if scale := most / (norm + 1e-6); scale < 1 {
		for _, g := range grads {
			for i := range g {
				g[i] *= scale
			}
		}
	}
	return norm
}

// SoftUpdate moves a target network a share tau of the way to the online one
// (Polyak averaging); 1 copies.
func SoftUpdate(target, online []float64, tau float64) {
	if len(target) != len(online) {
		panic(fmt.Sprintf("soft update: a target of %d parameters for a network of %d", len(target), len(online)))
	}
	if tau == 1 {
		copy(target, online)
		return
	}
	for i, v := range online {
		target[i] += tau * (v - target[i])
	}
}

// ErrNotFinite says that a number is NaN or infinite.
var ErrNotFinite = errors.New("not a finite number")

// Finite reports whether no number is NaN or infinite.
func Finite(all ...[]float64) bool {
	sum := 0.0
	for _, x := range all {
		for _, v := range x {
			sum += v * 0 // NaN for NaN and infinity, and it stays NaN
		}
	}
	return sum == 0
}

// CheckGradient returns nil when a loss and its gradient can be applied, err if
// that is not nil, and ErrNotFinite otherwise.
func CheckGradient(loss float64, grad []float64, err error) error {
	if err == nil && !Finite(grad, []float64{loss}) {
		return ErrNotFinite
	}
	return err
}
