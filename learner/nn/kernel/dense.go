package kernel

import (
	"fmt"
	"math"
)

// Activation is what a layer does to its sums.
type Activation uint8

// The activations.
const (
	Linear Activation = iota
	Tanh
	ReLU
)

var activationNames = [...]string{"linear", "tanh", "relu"}

func (a Activation) String() string {
	if int(a) >= len(activationNames) {
		return fmt.Sprintf("activation(%d)", uint8(a))
	}
	return activationNames[a]
}

// ActivationNamed is the inverse of String.
func ActivationNamed(name string) (Activation, error) {
	for i, one := range activationNames {
		if one == name {
			return Activation(i), nil
		}
	}
	return 0, fmt.Errorf("activation %q: known are %v", name, activationNames)
}

// Dense is a fully connected layer: y = act(W x + b). Its parameters are W
// [Out][In], then b [Out].
type Dense struct {
	In  int
	Out int
	Act Activation
}

// Params is the number of the layer's parameters.
func (d Dense) Params() int { return d.Out*d.In + d.Out }

// DenseForward computes y [batch][Out] from x [batch][In].
func DenseForward[T Float](d Dense, theta, x []T, batch int, y []T) {
	w, b := theta[:d.Out*d.In], theta[d.Out*d.In:][:d.Out]
	y = y[:batch*d.Out]
	for i := range batch {
		copy(y[i*d.Out:][:d.Out], b)
	}
	if batch == 1 {
		gemv(d.Out, d.In, w, x[:d.In], y)
	} else {
		Gemm(false, true, batch, d.Out, d.In, 1, x[:batch*d.In], w, 1, y)
	}
	activate(d.Act, y)
}

func activate[T Float](a Activation, y []T) {
	switch a {
	case Tanh:
		for i, v := range y {
			y[i] = tanh(v)
		}
	case ReLU:
		for i, v := range y {
			y[i] = max(v, 0)
		}
	}
}

// DenseDelta turns the gradient of y into that of the sums, W x + b, in place:
// the first step backwards.
func DenseDelta[T Float](a Activation, y, dy []T) {
	switch a {
	case Tanh:
		for i, v := range y[:len(dy)] {
			dy[i] *= 1 - v*v
		}
	case ReLU:
		// Which units are active is close to random, and a branch would be
		// mispredicted half of the time. y is not negative, so the sign bit of
		// its negated bits is set where y is not zero.
		switch y := any(y).(type) {
		case []float64:
			dy := any(dy).([]float64)
			for i, v := range y[:len(dy)] {
				awake := uint64(-int64(math.Float64bits(v)) >> 63)
				dy[i] = math.Float64frombits(math.Float64bits(dy[i]) & awake)
			}
		case []float32:
			dy := any(dy).([]float32)
			for i, v := range y[:len(dy)] {
				awake := uint32(-int32(math.Float32bits(v)) >> 31)
				dy[i] = math.Float32frombits(math.Float32bits(dy[i]) & awake)
			}
		}
	}
}

// DenseParams computes the gradient of the parameters from that of the sums.
func DenseParams[T Float](d Dense, x, delta []T, batch int, dtheta []T) {
	Gemm(true, false, d.Out, d.In, batch, 1, delta[:batch*d.Out], x[:batch*d.In], 0, dtheta[:d.Out*d.In])
	db := dtheta[d.Out*d.In:][:d.Out]
	clear(db)
	for i := range batch {
		for j, v := range delta[i*d.Out:][:d.Out] {
			db[j] += v
		}
	}
}

// DenseInput computes the gradient of x from that of the sums.
func DenseInput[T Float](d Dense, theta, delta []T, batch int, dx []T) {
	Gemm(false, false, batch, d.In, d.Out, 1, delta[:batch*d.Out], theta[:d.Out*d.In], 0, dx[:batch*d.In])
}

// tanh is the hyperbolic tangent by one exponential.
func tanh[T Float](x T) T {
	switch {
	case x > 20:
		return 1
	case x < -20:
		return -1
	case x > -0.05 && x < 0.05: // the difference below would lose digits
		s := x * x
		return x * (1 - s*(1.0/3-s*(2.0/15-s*(17.0/315-s*(62.0/2835)))))
	}
	e := math.Exp(2 * float64(x))
	return T((e - 1) / (e + 1))
}

// sigmoid is the logistic function.
func sigmoid[T Float](x T) T { return T(1 / (1 + math.Exp(-float64(x)))) }
