package main

import (
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A repetition that is done is not run again, more of them go on from there, others may be run alone, and the
// folder of other settings is refused.
func TestRepetitionsAreKept(t *testing.T) {
	dir := t.TempDir()
	ran, reports := 0, 0
	run := func(seed, n int, first uint) ([]int, error) {
		cmd := &cobra.Command{}
		cmd.SetContext(context.Background())
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		return repetitions[int]{
			out: dir, made: map[string]int{"seed": seed}, first: first, n: n, steps: 1,
			run:    func(_ context.Context, i int, _ func(string)) ([]int, error) { ran++; return []int{10 * i}, nil },
			report: func([]int) error { reports++; return nil },
		}.all(cmd)
	}
	if all, err := run(1, 2, 0); err != nil || len(all) != 2 || ran != 2 {
		t.Fatalf("%v, %d were run (%v)", all, ran, err)
	}
	all, err := run(1, 3, 0)
	if err != nil || len(all) != 3 || all[2] != 20 || ran != 3 || reports == 0 {
		t.Errorf("%v, %d were run (%v)", all, ran, err)
	}
	if all, err := run(1, 2, 2); err != nil || !slices.Equal(all, []int{20, 30}) || ran != 4 {
		t.Errorf("those from number 2 on: %v, %d were run (%v)", all, ran, err)
	}
	for _, first := range []uint{1022, math.MaxUint} {
		if _, err := run(1, 3, first); err == nil || !strings.Contains(err.Error(), "below 1024") {
			t.Errorf("three from number %d on: %v", first, err)
		}
	}
	if _, err := run(2, 3, 0); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("settings of another seed: %v", err)
	}
}
