package segment

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"gonum.org/v1/gonum/mat"
)

func runFloat(ctx context.Context, r *rand.Rand, size int) error {
	a, b := r.Float64(), 1+9*r.Float64()
	return each(ctx, size, func() error {
		if v := integrate(a, b, 1000); math.IsNaN(v) {
			return fmt.Errorf("integrating exp(-%g x) sin(%g x): not a number", a, b)
		}
		return nil
	})
}

// integrate returns the integral of exp(-a x) sin(b x) for x from 0 to 1, by
// Simpson's rule with n intervals; n must be even. Its error is below 1e-8 for
// a <= 1, b <= 10, n = 1000.
func integrate(a, b float64, n int) float64 {
	f := func(x float64) float64 { return math.Exp(-a*x) * math.Sin(b*x) }
	h := 1 / float64(n)
	sum := f(0) + f(1)
	for i := 1; i < n; i++ {
		weight := 4.0
		if i%2 == 0 {
			weight = 2
		}
		sum += weight * f(float64(i)*h)
	}
	return sum * h / 3
}

// matmulSide is the size of gonum's own blocks: a product this small is not
// spread over goroutines, so one request uses one core.
const matmulSide = 64

func runMatmul(ctx context.Context, r *rand.Rand, size int) error {
	a, b := randomMatrix(r, matmulSide, matmulSide), randomMatrix(r, matmulSide, matmulSide)
	product := mat.NewDense(matmulSide, matmulSide, nil)
	return each(ctx, size, func() error {
		product.Mul(a, b)
		return nil
	})
}

// randomMatrix has entries in [-1, 1).
func randomMatrix(r *rand.Rand, rows, columns int) *mat.Dense {
	data := make([]float64, rows*columns)
	for i := range data {
		data[i] = 2*r.Float64() - 1
	}
	return mat.NewDense(rows, columns, data)
}

func runInference(ctx context.Context, r *rand.Rand, size int) error {
	model := sharedModel()
	return each(ctx, size, func() error {
		model.classify(randomMatrix(r, 16, model.hidden.RawMatrix().Rows))
		return nil
	})
}

// perceptron has one hidden layer of rectified units and no biases.
type perceptron struct {
	hidden *mat.Dense // inputs x hidden units
	output *mat.Dense // hidden units x classes
}

var sharedModel = sync.OnceValue(func() perceptron {
	r := rand.New(rand.NewPCG(64, 10))
	return perceptron{randomMatrix(r, 64, 128), randomMatrix(r, 128, 10)}
})

// classify returns the most probable class of each row of inputs.
func (p perceptron) classify(inputs *mat.Dense) []int {
	var h, scores mat.Dense
	h.Mul(inputs, p.hidden)
	h.Apply(func(_, _ int, v float64) float64 { return max(0, v) }, &h)
	scores.Mul(&h, p.output)
	rows, _ := scores.Dims()
	classes := make([]int, rows)
	for i := range classes {
		row := scores.RawRowView(i)
		for j, v := range row {
			if v > row[classes[i]] {
				classes[i] = j
			}
		}
	}
	return classes
}
