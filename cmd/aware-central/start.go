package main

import (
	_ "embed"
	"sync"

	"awarescale.dev/aware/learner/train/lesson"
)

// shipped is what the lessons of a workload begin with, as this release has it. It was made by `make start`, as its provenance
// says.
//
//go:embed start.safetensors
var shipped []byte

// shippedStart is the same, read. That it can be read is tested.
var shippedStart = sync.OnceValue(func() *lesson.Start {
	s, err := lesson.DecodeStart(shipped)
	if err != nil {
		panic(err)
	}
	return &s
})
