package graph

import (
	"fmt"

	G "gorgonia.org/gorgonia"
)

// Node is a value in a graph.
type Node = G.Node

// gorgonia's own operations, by whose errors Build fails. Those of two nodes
// are number by number, of equal shapes: gorgonia refuses others.

// Add is x + y.
func (b *Builder[T]) Add(x, y *Node) *Node { return b.made(G.Add(x, y)) }

// Sub is x - y.
func (b *Builder[T]) Sub(x, y *Node) *Node { return b.made(G.Sub(x, y)) }

// Mul is x * y.
func (b *Builder[T]) Mul(x, y *Node) *Node { return b.made(G.HadamardProd(x, y)) }

// Neg is -x.
func (b *Builder[T]) Neg(x *Node) *Node { return b.made(G.Neg(x)) }

// Square is x * x.
func (b *Builder[T]) Square(x *Node) *Node { return b.made(G.Square(x)) }

// Exp is e to the power of x.
func (b *Builder[T]) Exp(x *Node) *Node { return b.made(G.Exp(x)) }

// Mean is the mean of all numbers of x.
func (b *Builder[T]) Mean(x *Node) *Node { return b.made(G.Mean(x)) }

// MeanSquare is the mean of the squares of x - y.
func (b *Builder[T]) MeanSquare(x, y *Node) *Node { return b.Mean(b.Square(b.Sub(x, y))) }

// Scale is x times a constant; the constant has a name, for gorgonia takes two
// of one name for one.
func (b *Builder[T]) Scale(name string, x *Node, by T) *Node {
	return b.made(G.Mul(x, b.constant(name, by)))
}

// Shift is x plus a constant.
func (b *Builder[T]) Shift(name string, x *Node, by T) *Node {
	return b.made(G.Add(x, b.constant(name, by)))
}

// Clamp cuts x at low and high: low + max(x - low, 0) - max(x - high, 0), as
// gorgonia has no operation for it that can be differentiated.
func (b *Builder[T]) Clamp(name string, x *Node, low, high T) *Node {
	above := b.made(G.Rectify(b.Shift(name+"/above", x, -low)))
	beyond := b.made(G.Rectify(b.Shift(name+"/beyond", x, -high)))
	return b.Shift(name+"/low", b.Sub(above, beyond), low)
}

func (b *Builder[T]) constant(name string, v T) *Node {
	var c any = v // gorgonia refuses a constant of another type than the graph's
	return G.NewConstant(c, G.WithName(b.claim(fmt.Sprintf("%s = %v", name, v))))
}

// made takes the result of one of gorgonia's operations, and remembers its error.
func (b *Builder[T]) made(n *Node, err error) *Node {
	if err != nil {
		b.fail(err)
	}
	return n
}
