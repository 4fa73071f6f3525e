package graph

import (
	"unsafe"

	"awarescale.dev/aware/learner/nn/kernel"
)

// one is the slice of one number.
func one[T kernel.Float](p *T) []T { return unsafe.Slice(p, 1) }
