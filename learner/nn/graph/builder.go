package graph

import (
	"fmt"
	"sync"

	"awarescale.dev/aware/learner/nn/kernel"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// building is held while a graph is built: gorgonia counts groups of nodes in a
// variable of the package.
var building sync.Mutex

// Graph is a loss with its gradient. One goroutine uses it at a time; different
// graphs are independent.
type Graph[T kernel.Float] struct {
	Theta []T // parameters: set them before a run
	Grad  []T // gradient of the loss, after a run

	expr  *G.ExprGraph
	plan  *Plan
	loss  *G.Node
	parts []part
}

// part is where in the flat slices a node of parameters is.
type part struct {
	node     *G.Node
	begin    int
	end      int
	gradient *G.Node
}

// Input is a matrix that is filled before a run, row by row.
type Input[T kernel.Float] struct {
	Node *G.Node
	Data []T
}

// Builder puts a graph together. It keeps the first error, and Build returns it.
type Builder[T kernel.Float] struct {
	g     *G.ExprGraph
	names map[string]bool
	theta []T
	parts []part
	err   error
}

// Build makes a graph with that number of parameters. The function build puts
// the loss together: one scalar node. Every parameter must be in it.
func Build[T kernel.Float](params int, build func(b *Builder[T]) *G.Node) (_ *Graph[T], err error) {
	building.Lock()
	defer building.Unlock()
	b := &Builder[T]{g: G.NewGraph(), names: map[string]bool{}, theta: make([]T, params)}
	defer func() { // gorgonia panics on nodes of a failed part: the first error says more
		switch p := recover(); {
		case p == nil:
		case b.err != nil:
			err = fmt.Errorf("building a graph: %w", b.err)
		default:
			err = fmt.Errorf("building a graph: %v", p)
		}
	}()
	loss := build(b)
	if b.err != nil {
		return nil, fmt.Errorf("building a graph: %w", b.err)
	}
	if loss == nil || !loss.IsScalar() {
		return nil, fmt.Errorf("building a graph: the loss is %v: it must be one number", loss)
	}
	covered := 0
	var nodes G.Nodes
	for _, p := range b.parts {
		nodes = append(nodes, p.node)
		covered += p.end - p.begin
	}
	if covered != params {
		return nil, fmt.Errorf("building a graph: layers take %d parameters of %d", covered, params)
	}
	gradients, err := G.Grad(loss, nodes...)
	if err != nil {
		return nil, fmt.Errorf("building a graph: differentiating: %w", err)
	}
	g := &Graph[T]{Theta: b.theta, Grad: make([]T, params), expr: b.g, loss: loss, parts: b.parts}
	for i := range g.parts {
		g.parts[i].gradient = gradients[i]
	}
	if g.plan, err = NewPlan(b.g, append(gradients, loss)...); err != nil {
		return nil, err
	}
	return g, nil
}

// Run computes the loss and Grad.
func (g *Graph[T]) Run() (loss T, err error) {
	if err := g.plan.Run(); err != nil {
		return 0, err
	}
	for _, p := range g.parts {
		d, err := flat[T](g.plan.Value(p.gradient))
		if err != nil {
			return 0, fmt.Errorf("gradient of %v: %w", p.node, err)
		}
		copy(g.Grad[p.begin:p.end], d)
	}
	l, err := flat[T](g.plan.Value(g.loss))
	if err != nil {
		return 0, fmt.Errorf("loss: %w", err)
	}
	return l[0], nil
}

// Gradient computes the loss at the caller's theta, and writes the gradient into
// the caller's grad: the next run overwrites Grad. Fill the inputs before. It
// allocates no more than Run. After an error grad means nothing.
func (g *Graph[T]) Gradient(theta, grad []T) (loss T, err error) {
	copy(g.Theta, theta)
	loss, err = g.Run()
	copy(grad, g.Grad)
	return loss, err
}

func (b *Builder[T]) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// claim takes a name.
func (b *Builder[T]) claim(name string) string {
	if b.names[name] {
		b.fail(fmt.Errorf("the name %q is there twice: gorgonia would take both for one", name))
	}
	b.names[name] = true
	return name
}

func (b *Builder[T]) leaf(name string, data []T, shape ...int) *G.Node {
	value := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
	return G.NewTensor(b.g, dtype[T](), len(shape), G.WithShape(shape...), G.WithName(b.claim(name)),
		G.WithValue(value))
}

// Input is a new matrix to be filled.
func (b *Builder[T]) Input(name string, rows, cols int) Input[T] {
	data := make([]T, rows*cols)
	return Input[T]{b.leaf(name, data, rows, cols), data}
}

// Frozen are parameters that the loss depends on and that get no gradient, on
// the caller's storage.
func (b *Builder[T]) Frozen(name string, data []T) *G.Node { return b.leaf(name, data, len(data)) }

// Params are the graph's parameters from begin on, n of them.
func (b *Builder[T]) Params(name string, begin, n int) *G.Node {
	if begin < 0 || n <= 0 || begin+n > len(b.theta) {
		b.fail(fmt.Errorf("%s: parameters %d to %d of %d", name, begin, begin+n, len(b.theta)))
		return b.leaf(name, make([]T, max(n, 1)), max(n, 1))
	}
	node := b.leaf(name, b.theta[begin:begin+n], n)
	b.parts = append(b.parts, part{node: node, begin: begin, end: begin + n})
	return node
}

// apply adds a node of one of our Ops.
func (b *Builder[T]) apply(o *op[T], in ...*G.Node) *G.Node {
	o.arity = len(in)
	b.claim(o.name)
	n, err := G.ApplyOp(o, in...)
	if err != nil {
		b.fail(fmt.Errorf("%s: %w", o.name, err))
		return in[0]
	}
	return n
}

// later adds a node of one of our Ops while gorgonia differentiates.
func later[T kernel.Float](o *op[T], in ...*G.Node) (*G.Node, error) {
	o.arity = len(in)
	return G.ApplyOp(o, in...)
}
