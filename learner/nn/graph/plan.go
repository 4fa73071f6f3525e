package graph

import (
	"fmt"
	"strings"

	"awarescale.dev/aware/learner/nn/kernel/gemm"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	G "gorgonia.org/gorgonia"
)

// Plan runs what some nodes of a graph need, in an order found once, and keeps
// the values' storage from run to run.
type Plan struct {
	values []G.Value
	index  map[*G.Node]int
	inputs []planned
	steps  []step
}

type planned struct {
	node *G.Node
	at   int
}

type step struct {
	op   G.Op
	into G.UsePreallocDoer // nil when the Op can only make new values
	in   []int
	args []G.Value
	out  int
	name string
}

// NewPlan makes a plan for the given outputs. Statements and random Ops are
// refused: a plan is a function of its inputs.
func NewPlan(g *G.ExprGraph, outputs ...*G.Node) (*Plan, error) {
	sorted, err := G.Sort(g) // roots first
	if err != nil {
		return nil, fmt.Errorf("planning a graph: %w", err)
	}
	children := func(n *G.Node) (all []*G.Node) {
		for it := g.From(n.ID()); it.Next(); {
			all = append(all, it.Node().(*G.Node)) // in the order of arguments
		}
		return all
	}
	needed := map[*G.Node]bool{}
	var need func(n *G.Node)
	need = func(n *G.Node) {
		if !needed[n] {
			needed[n] = true
			for _, c := range children(n) {
				need(c)
			}
		}
	}
	for _, n := range outputs {
		need(n)
	}
	p := &Plan{index: map[*G.Node]int{}}
	for k := len(sorted) - 1; k >= 0; k-- {
		n := sorted[k]
		if !needed[n] {
			continue
		}
		if kind := fmt.Sprintf("%T", n.Op()); strings.HasSuffix(kind, "readOp") ||
			strings.HasSuffix(kind, "letOp") ||
			strings.HasSuffix(kind, "randomOp") {
			return nil, fmt.Errorf("planning a graph: node %v is a %s: statements and random nodes cannot be planned",
				n, kind)
		}
		at := len(p.index)
		p.index[n] = at
		from := children(n)
		if n.Op() == nil || len(from) == 0 && n.Value() != nil {
			p.inputs = append(p.inputs, planned{n, at})
			continue
		}
		s := step{op: n.Op(), out: at, args: make([]G.Value, len(from)), name: n.Name()}
		s.into, _ = n.Op().(G.UsePreallocDoer)
		for _, c := range from {
			s.in = append(s.in, p.index[c])
		}
		p.steps = append(p.steps, s)
	}
	p.values = make([]G.Value, len(p.index))
	return p, nil
}

// Run computes all values.
func (p *Plan) Run() error {
	for _, i := range p.inputs {
		p.values[i.at] = i.node.Value()
	}
	for k := range p.steps {
		s := &p.steps[k]
		for a, from := range s.in {
			s.args[a] = p.values[from]
		}
		v, err := s.run(p.values[s.out])
		if err != nil {
			return fmt.Errorf("computing %s (%v): %w", s.name, s.op, err)
		}
		p.values[s.out] = v
	}
	return nil
}

func (s *step) run(before G.Value) (G.Value, error) {
	if s.into != nil && before != nil {
		if v, err := s.into.UsePreallocDo(before, s.args...); err == nil {
			return v, nil
		}
	}
	return s.op.Do(s.args...)
}

// Value is a node's value after a run.
func (p *Plan) Value(n *G.Node) G.Value { return p.values[p.index[n]] }

// Use has gorgonia, and the kernels that graphs are made of, multiply matrices
// by a BLAS. A program calls it once, before it builds graphs; without it the
// BLAS is gonum's.
func Use(b gemm.Implementation) {
	blas64.Use(b)
	blas32.Use(b)
	G.Use(b)
}

// Used is the name of the matrix products that the kernels use.
func Used() string {
	if b, ok := blas64.Implementation().(gemm.Implementation); ok {
		return b.Name()
	}
	return gemm.Gonum().Name
}
