package kernel

// MLP is dense layers after each other. Its parameters are those of the layers,
// in order.
type MLP []Dense

// NewMLP is layers of the given widths, the first of them the input's; all but
// the last have the activation hidden.
func NewMLP(hidden, last Activation, widths ...int) MLP {
	m := make(MLP, len(widths)-1)
	for i := range m {
		m[i] = Dense{widths[i], widths[i+1], hidden}
	}
	m[len(m)-1].Act = last
	return m
}

// In is the width of the input.
func (m MLP) In() int { return m[0].In }

// Out is the width of the output.
func (m MLP) Out() int { return m[len(m)-1].Out }

// Params is the number of parameters of all layers.
func (m MLP) Params() int {
	n := 0
	for _, d := range m {
		n += d.Params()
	}
	return n
}

// Tape keeps what the backward pass of an MLP needs, for batches up to a size.
type Tape[T Float] struct {
	mlp   MLP
	batch int
	x     []T
	y     [][]T // of each layer
	dy    [][]T
}

// NewTape makes a tape.
func NewTape[T Float](m MLP, batch int) *Tape[T] {
	t := &Tape[T]{mlp: m, batch: batch}
	for _, d := range m {
		t.y = append(t.y, make([]T, batch*d.Out))
		t.dy = append(t.dy, make([]T, batch*d.Out))
	}
	return t
}

// Forward gives the output for x [batch][In]. It is the tape's own, until the
// next pass, and x must stay until Backward.
func (t *Tape[T]) Forward(theta, x []T, batch int) []T {
	t.x, t.batch = x, batch
	for i, d := range t.mlp {
		DenseForward(d, theta, x, batch, t.y[i])
		theta, x = theta[d.Params():], t.y[i][:batch*d.Out]
	}
	return x
}

// Out is where Backward reads the gradient of the output: fill it before.
func (t *Tape[T]) Out() []T { return t.dy[len(t.dy)-1][:t.batch*t.mlp.Out()] }

// Backward computes the gradients of the parameters and of the input; either
// may be nil and is left out then.
func (t *Tape[T]) Backward(theta, dtheta, dx []T) {
	end := t.mlp.Params()
	for i := len(t.mlp) - 1; i >= 0; i-- {
		d := t.mlp[i]
		begin := end - d.Params()
		delta := t.dy[i][:t.batch*d.Out]
		DenseDelta(d.Act, t.y[i], delta)
		x := t.x
		if i > 0 {
			x = t.y[i-1]
		}
		if dtheta != nil {
			DenseParams(d, x, delta, t.batch, dtheta[begin:end])
		}
		switch {
		case i > 0:
			DenseInput(d, theta[begin:end], delta, t.batch, t.dy[i-1])
		case dx != nil:
			DenseInput(d, theta[begin:end], delta, t.batch, dx)
		}
		end = begin
	}
}
