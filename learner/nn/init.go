package nn

import (
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/nn/kernel"
	"gonum.org/v1/gonum/mat"
)

// Orthogonal fills a layer's weights with orthogonal rows, or columns where
// there are fewer, times gain, and its biases with zero (Saxe et al. 2014): the
// Q of a normally distributed matrix, signs by R's diagonal.
func Orthogonal(d kernel.Dense, theta []float64, gain float64, r *rand.Rand) {
	tall, narrow := max(d.Out, d.In), min(d.Out, d.In)
	g := mat.NewDense(tall, narrow, nil)
	for i := range tall {
		for j := range narrow {
			g.Set(i, j, r.NormFloat64())
		}
	}
	var qr mat.QR
	qr.Factorize(g)
	var q, upper mat.Dense
	qr.QTo(&q)
	qr.RTo(&upper)
	for i := range d.Out {
		for j := range d.In {
			a, b := i, j
			if d.Out < d.In {
				a, b = j, i
			}
			v := q.At(a, b)
			if upper.At(b, b) < 0 {
				v = -v
			}
			theta[i*d.In+j] = gain * v
		}
	}
	clear(theta[d.Out*d.In:][:d.Out])
}

// Uniform fills a layer's weights and biases with numbers between -bound and
// bound; bound 0 is one over the root of the layer's inputs, PyTorch's default.
func Uniform(d kernel.Dense, theta []float64, bound float64, r *rand.Rand) {
	if bound == 0 {
		bound = 1 / math.Sqrt(float64(d.In))
	}
	for i := range theta[:d.Params()] {
		theta[i] = bound * (2*r.Float64() - 1)
	}
}

// OrthogonalMLP initialises a network for PPO: gain sqrt 2 in hidden layers,
// last in the last.
func OrthogonalMLP(m kernel.MLP, theta []float64, last float64, r *rand.Rand) {
	for i, d := range m {
		gain := math.Sqrt2
		if i == len(m)-1 {
			gain = last
		}
		Orthogonal(d, theta, gain, r)
		theta = theta[d.Params():]
	}
}

// UniformMLP initialises a network as PyTorch does; last, when it is not 0,
// bounds the last layer's parameters.
func UniformMLP(m kernel.MLP, theta []float64, last float64, r *rand.Rand) {
	for i, d := range m {
		bound := 0.0
		if i == len(m)-1 {
			bound = last
		}
		Uniform(d, theta, bound, r)
		theta = theta[d.Params():]
	}
}

// UniformGRU initialises a recurrent layer as PyTorch does: all parameters
// between plus and minus one over the root of its width.
func UniformGRU(g kernel.GRU, theta []float64, r *rand.Rand) {
	bound := 1 / math.Sqrt(float64(g.Hidden))
	for i := range theta[:g.Params()] {
		theta[i] = bound * (2*r.Float64() - 1)
	}
}
