package graph

import (
	"fmt"
	"hash"
	"hash/fnv"

	"awarescale.dev/aware/learner/nn/kernel"
	"github.com/chewxy/hm"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// op is an Op of ours: a function of flat slices, and how its gradient is made
// of other nodes.
type op[T kernel.Float] struct {
	name  string // unique in its graph, for gorgonia merges Ops of equal hash
	arity int
	shape tensor.Shape // of the result; empty for a scalar
	do    func(in [][]T, out []T) error
	diff  func(in G.Nodes, out, grad *G.Node) (G.Nodes, error) // nil: this Op is part of a gradient, and has none
	in    [][]T
}

var (
	_ G.SDOp            = (*op[float64])(nil)
	_ G.UsePreallocDoer = (*op[float64])(nil)
)

func (o *op[T]) Arity() int { return o.arity }

// Type is a function from anything to the result's type.
func (o *op[T]) Type() hm.Type {
	types := make([]hm.Type, 0, o.arity+1)
	for i := range o.arity {
		types = append(types, hm.TypeVariable(rune('c'+i))) // a and b are gorgonia's own
	}
	var result hm.Type = dtype[T]()
	if len(o.shape) > 0 {
		result = G.TensorType{Dims: len(o.shape), Of: dtype[T]()}
	}
	return hm.NewFnType(append(types, result)...)
}

func (o *op[T]) InferShape(...G.DimSizer) (tensor.Shape, error) { return o.shape.Clone(), nil }

// Do computes a new value.
func (o *op[T]) Do(in ...G.Value) (G.Value, error) {
	if len(o.shape) == 0 {
		return o.UsePreallocDo(scalar[T](), in...)
	}
	return o.UsePreallocDo(
		tensor.New(tensor.WithShape(o.shape...), tensor.WithBacking(make([]T, o.shape.TotalSize()))),
		in...)
}

// UsePreallocDo computes into a value that is there already.
func (o *op[T]) UsePreallocDo(to G.Value, in ...G.Value) (G.Value, error) {
	if len(in) != o.arity {
		return nil, fmt.Errorf("%s: %d inputs instead of %d", o.name, len(in), o.arity)
	}
	if len(o.in) != o.arity {
		o.in = make([][]T, o.arity)
	}
	for i, v := range in {
		var err error
		if o.in[i], err = flat[T](v); err != nil {
			return nil, fmt.Errorf("%s: input %d: %w", o.name, i, err)
		}
	}
	out, err := flat[T](to)
	if err != nil {
		return nil, fmt.Errorf("%s: result: %w", o.name, err)
	}
	if err := o.do(o.in, out); err != nil {
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	return to, nil
}

func (o *op[T]) ReturnsPtr() bool      { return true }
func (o *op[T]) CallsExtern() bool     { return false }
func (o *op[T]) OverwritesInput() int  { return -1 }
func (o *op[T]) WriteHash(h hash.Hash) { fmt.Fprintf(h, "aware %T %s", o, o.name) }
func (o *op[T]) String() string        { return o.name }
func (o *op[T]) DiffWRT(n int) []bool  { return fill(make([]bool, n), o.diff != nil) }
func fill[V any](all []V, with V) []V {
	for i := range all {
		all[i] = with
	}
	return all
}

func (o *op[T]) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *op[T]) SymDiff(in G.Nodes, out, grad *G.Node) (G.Nodes, error) {
	if o.diff == nil {
		return nil, fmt.Errorf("%s has no gradient", o.name)
	}
	return o.diff(in, out, grad)
}

func dtype[T kernel.Float]() tensor.Dtype {
	var zero T
	if _, ok := any(zero).(float32); ok {
		return tensor.Float32
	}
	return tensor.Float64
}

func scalar[T kernel.Float]() G.Value {
	if dtype[T]() == tensor.Float32 {
		return G.NewF32(0)
	}
	return G.NewF64(0)
}

// flat is a value's storage.
func flat[T kernel.Float](v G.Value) ([]T, error) {
	var all any
	switch v := v.(type) {
	case *tensor.Dense:
		if v.Dtype() != dtype[T]() {
			return nil, fmt.Errorf("a %v instead of a %v", v.Dtype(), dtype[T]())
		}
		if !v.DataOrder().IsContiguous() || v.DataOrder().IsColMajor() {
			return nil, fmt.Errorf("a tensor of shape %v that is not row by row", v.Shape())
		}
		switch any(*new(T)).(type) {
		case float32:
			s := v.Float32s()
			return *(any(&s).(*[]T)), nil
		default:
			s := v.Float64s()
			return *(any(&s).(*[]T)), nil
		}
	case *G.F64:
		all = v
	case *G.F32:
		all = v
	}
	switch p := all.(type) {
	case *G.F64:
		if q, ok := any((*float64)(p)).(*T); ok {
			return one(q), nil
		}
	case *G.F32:
		if q, ok := any((*float32)(p)).(*T); ok {
			return one(q), nil
		}
	}
	return nil, fmt.Errorf("a %T cannot be computed with", v)
}
