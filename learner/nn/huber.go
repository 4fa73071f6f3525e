package nn

import "math"

// Huber is the mean over rows of weight * huber(q[a] - y), where huber(d) is
// d^2/2 for |d| up to 1 and |d| - 1/2 beyond, and its gradient by all values: q
// and grad are [batch][n], a (indices), y, weight and errors [batch]. weight
// nil is 1 for every row; errors gets q[a] - y unless it is nil.
func Huber(q, a, y, weight, grad, errors []float64) float64 {
	loss, batch := 0.0, float64(len(a))
	n := len(q) / len(a)
	clear(grad)
	for i := range a {
		at := i*n + int(a[i])
		d := q[at] - y[i]
		w := 1.0
		if weight != nil {
			w = weight[i]
		}
		if errors != nil {
			errors[i] = d
		}
		if math.Abs(d) <= 1 {
			loss += w * 0.5 * d * d / batch
			grad[at] = w * d / batch
		} else {
			loss += w * (math.Abs(d) - 0.5) / batch
			grad[at] = w * math.Copysign(1, d) / batch
		}
	}
	return loss
}
