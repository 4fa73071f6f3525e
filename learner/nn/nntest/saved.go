package nntest

import (
	"testing"

	"awarescale.dev/aware/learner/nn/weights"
)

// Saved is the whole state of a learner as it is written to a file. Two learners
// with equal bytes go on in the same way.
func Saved(t testing.TB, learner interface{ Save() (weights.File, error) }) []byte {
	t.Helper()
	f, err := learner.Save()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := weights.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
