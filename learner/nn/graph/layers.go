package graph

import (
	"fmt"

	"awarescale.dev/aware/learner/nn/kernel"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rows is the height of a matrix node.
func rows(n *G.Node) int { return n.Shape()[0] }

// width is the breadth of a matrix node.
func width(n *G.Node) int {
	if len(n.Shape()) < 2 {
		return 1
	}
	return n.Shape()[1]
}

// Dense is a layer's output for x [batch][In], with parameters of its own node.
func (b *Builder[T]) Dense(name string, d kernel.Dense, x, theta *G.Node) *G.Node {
	batch := rows(x)
	if width(x) != d.In || rows(theta) != d.Params() {
		b.fail(
			fmt.Errorf("%s: an input %d wide and %d parameters: the layer takes %d and %d", name, width(x),
				rows(theta), d.In, d.Params()),
		)
		return x
	}
	return b.apply(&op[T]{
		name: name, shape: tensor.Shape{batch, d.Out},
		do: func(in [][]T, out []T) error {
			kernel.DenseForward(d, in[1], in[0], batch, out)
			return nil
		},
		diff: func(in G.Nodes, out, grad *G.Node) (G.Nodes, error) {
			delta, err := grad, error(nil)
			if d.Act != kernel.Linear {
				if delta, err = later(&op[T]{
					name: name + "/delta", shape: tensor.Shape{batch, d.Out},
					do: func(in [][]T, out []T) error {
						copy(out, in[1])
						kernel.DenseDelta(d.Act, in[0], out)
						return nil
					},
				}, out, grad); err != nil {
					return nil, err
				}
			}
			dx, err := later(&op[T]{
				name: name + "/input", shape: tensor.Shape{batch, d.In},
				do: func(in [][]T, out []T) error {
					kernel.DenseInput(d, in[0], in[1], batch, out)
					return nil
				},
			}, in[1], delta)
			if err != nil {
				return nil, err
			}
			dtheta, err := later(&op[T]{
				name: name + "/params", shape: tensor.Shape{d.Params()},
				do: func(in [][]T, out []T) error {
					kernel.DenseParams(d, in[0], in[1], batch, out)
					return nil
				},
			}, in[0], delta)
			return G.Nodes{dx, dtheta}, err
		},
	}, x, theta)
}

// MLP is a network's output for x, its parameters being the graph's from begin
// on.
func (b *Builder[T]) MLP(name string, m kernel.MLP, x *G.Node, begin int) *G.Node {
	for i, d := range m {
		layer := fmt.Sprintf("%s/%d", name, i)
		x = b.Dense(layer, d, x, b.Params(layer+"/theta", begin, d.Params()))
		begin += d.Params()
	}
	return x
}

// FrozenMLP is a network's output for x with parameters that get no gradient.
func (b *Builder[T]) FrozenMLP(name string, m kernel.MLP, x *G.Node, theta []T) *G.Node {
	for i, d := range m {
		layer := fmt.Sprintf("%s/%d", name, i)
		x = b.Dense(layer, d, x, b.Frozen(layer+"/theta", theta[:d.Params()]))
		theta = theta[d.Params():]
	}
	return x
}

// GRU is a recurrent layer's output [time*batch][Out] for x [time*batch][In],
// its parameters being the graph's from begin on. lengths is nil, or how many steps
// each sequence has, as [kernel.GRUTape] takes it; it is read at each run.
func (b *Builder[T]) GRU(name string, g kernel.GRU, time, batch int, lengths []int, x *G.Node, begin int) *G.Node {
	if rows(x) != time*batch || width(x) != g.In {
		b.fail(fmt.Errorf("%s: an input of %v: the layer takes %d by %d", name, x.Shape(), time*batch, g.In))
		return x
	}
	theta := b.Params(name+"/theta", begin, g.Params())
	if lengths != nil && len(lengths) != batch {
		b.fail(fmt.Errorf("%s: %d lengths: there must be %d", name, len(lengths), batch))
		return x
	}
	tape := kernel.NewGRUTape[T](g, time, batch)
	tape.Lengths = lengths
	return b.apply(&op[T]{
		name: name, shape: tensor.Shape{time * batch, g.Out()},
		do: func(in [][]T, out []T) error {
			tape.Forward(in[1], in[0], out)
			return nil
		},
		diff: func(in G.Nodes, out, grad *G.Node) (G.Nodes, error) {
			// The output's node is an input of the first: the tape must have
			// been run forward. The parameters' one is an input of the second:
			// the tape must have been run back.
			dtheta, err := later(&op[T]{
				name: name + "/params", shape: tensor.Shape{g.Params()},
				do: func(in [][]T, to []T) error {
					tape.Backward(in[1], in[0], in[3], to, nil)
					return nil
				},
			}, in[0], in[1], out, grad)
			if err != nil {
				return nil, err
			}
			input, err := later(&op[T]{
				name: name + "/input", shape: tensor.Shape{time * batch, g.In},
				do: func(in [][]T, to []T) error {
					tape.Input(in[0], to)
					return nil
				},
			}, in[1], dtheta)
			return G.Nodes{input, dtheta}, err
		},
	}, x, theta)
}

// Join puts matrices of the same height beside each other.
func (b *Builder[T]) Join(name string, in ...*G.Node) *G.Node {
	all := 0
	height := rows(in[0])
	begins := make([]int, len(in))
	for i, n := range in {
		if rows(n) != height {
			b.fail(fmt.Errorf("%s: matrices of %d and %d rows", name, height, rows(n)))
			return in[0]
		}
		begins[i] = all
		all += width(n)
	}
	widths := make([]int, len(in))
	for i, n := range in {
		widths[i] = width(n)
	}
	return b.apply(&op[T]{
		name: name, shape: tensor.Shape{height, all},
		do: func(in [][]T, out []T) error {
			for i, m := range in {
				for r := range height {
					copy(out[r*all+begins[i]:][:widths[i]], m[r*widths[i]:])
				}
			}
			return nil
		},
		diff: func(_ G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			var parts G.Nodes
			for i := range begins {
				p, err := later(&op[T]{
					name: fmt.Sprintf("%s/part%d", name, i), shape: tensor.Shape{height, widths[i]},
					do: func(in [][]T, out []T) error {
						for r := range height {
							copy(out[r*widths[i]:][:widths[i]], in[0][r*all+begins[i]:])
						}
						return nil
					},
				}, grad)
				if err != nil {
					return nil, err
				}
				parts = append(parts, p)
			}
			return parts, nil
		},
	}, in...)
}

// MeanOfBundles is, for bundles of sequences, the mean of their steps' rows: x
// [time*bundles*each][width] becomes [bundles][width]. The mean is first over the
// steps that a sequence has, and then over the sequences of a bundle that have any,
// so the order of both is the same to it. lengths [bundles*each] is read at each
// run. A bundle without any sequence is zero.
func (b *Builder[T]) MeanOfBundles(name string, x *G.Node, time, bundles, each int, lengths []int) *G.Node {
	w := width(x)
	if rows(x) != time*bundles*each || len(lengths) != bundles*each {
		b.fail(fmt.Errorf("%s: %d rows and %d lengths: there must be %d and %d", name, rows(x), len(lengths),
			time*bundles*each, bundles*each))
		return x
	}
	return b.apply(&op[T]{
		name: name, shape: tensor.Shape{bundles, w},
		do: func(in [][]T, out []T) error {
			kernel.MeanOfBundles(in[0], w, each, lengths, out)
			return nil
		},
		diff: func(_ G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			d, err := later(&op[T]{
				name: name + "/input", shape: tensor.Shape{time * bundles * each, w},
				do: func(in [][]T, to []T) error {
					kernel.MeanOfBundlesBack(in[0], w, each, lengths, to)
					return nil
				},
			}, grad)
			return G.Nodes{d}, err
		},
	}, x)
}

// Rows is the rows of x that index names, which is read at each run: [len(index)][width].
func (b *Builder[T]) Rows(name string, x *G.Node, index []int) *G.Node {
	w, height := width(x), rows(x)
	return b.apply(&op[T]{
		name: name, shape: tensor.Shape{len(index), w},
		do: func(in [][]T, out []T) error {
			for i, r := range index {
				if r < 0 || r >= height {
					return fmt.Errorf("%s: row %d of %d", name, r, height)
				}
				copy(out[i*w:][:w], in[0][r*w:])
			}
			return nil
		},
		diff: func(_ G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			d, err := later(&op[T]{
				name: name + "/input", shape: tensor.Shape{height, w},
				do: func(in [][]T, to []T) error {
					clear(to)
					for i, r := range index {
						for j, v := range in[0][i*w:][:w] {
							to[r*w+j] += v
						}
					}
					return nil
				},
			}, grad)
			return G.Nodes{d}, err
		},
	}, x)
}

// Loss is one number of some nodes, with a hand-written gradient: f gets the
// nodes' values, fills the gradients of its result with respect to each, and
// returns it. Lengths of values and gradients are equal.
func (b *Builder[T]) Loss(name string, f func(in, grads [][]T) (T, error), in ...*G.Node) *G.Node {
	grads := make([][]T, len(in))
	for i, n := range in {
		grads[i] = make([]T, n.Shape().TotalSize())
	}
	shapes := make([]tensor.Shape, len(in))
	for i, n := range in {
		shapes[i] = n.Shape().Clone()
	}
	return b.apply(&op[T]{
		name: name,
		do: func(in [][]T, out []T) (err error) {
			out[0], err = f(in, grads)
			return err
		},
		diff: func(_ G.Nodes, out, grad *G.Node) (G.Nodes, error) {
			var all G.Nodes
			for i := range grads {
				// The loss is an input only so that it is computed first.
				d, err := later(&op[T]{
					name: fmt.Sprintf("%s/gradient%d", name, i), shape: shapes[i],
					do: func(in [][]T, to []T) error {
						scale := in[1][0]
						for j, g := range grads[i] {
							to[j] = scale * g
						}
						return nil
					},
				}, out, grad)
				if err != nil {
					return nil, err
				}
				all = append(all, d)
			}
			return all, nil
		},
	}, in...)
}
