package main

import (
	"strings"
	"testing"

	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel/gemm"
)

// What learns, and what judges what was learned, multiplies matrices by the best that the CPU has, or as --blas says. Commands of
// two levels inherit it: a command with a hook of its own would be left with gonum's, by which fig8 takes 2.6 times as long.
func TestCommandsMultiplyAsTheyAreTold(t *testing.T) {
	t.Cleanup(func() { graph.Use(gemm.Gonum().BLAS()) })
	best := gemm.Choose().Name
	for _, one := range []struct {
		args string // of a command that ends before it does anything: its settings make no sense
		want string
	}{
		{"train --steps -1", best},
		{"train --steps -1 --blas gonum", "gonum"},
		{"train --steps -1 --gemm gonum", "gonum"},
		{"train meta --apps 0", best},
		{"train meta --apps 0 --blas gonum", "gonum"},
		{"bench fig8 --apps 0", best},
		{"bench fig8 --apps 0 --blas gonum", "gonum"},
		{"bench fig1 --apps 0", best}, {"bench fig3 --apps 0", best}, {"bench fig9 --apps 0", best},
		{"bench fig10 --apps 0", best}, {"bench embedding --apps 0", best},
	} {
		graph.Use(gemm.Set{Name: "none of them"}.BLAS())
		if _, err := execute(t, strings.Fields(one.args)...); err == nil {
			t.Errorf("%s: no error", one.args)
		}
		if got := graph.Used(); got != one.want {
			t.Errorf("%s: products by %s, want %s", one.args, got, one.want)
		}
	}
	_, err := execute(t, "bench", "fig8", "--blas", "mmx")
	if err == nil || !strings.Contains(err.Error(), `--blas: matrix product "mmx"`) {
		t.Errorf("an unknown one: %v", err)
	}
}
