package margins_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/train/margins"
)

// One margin for two applications: cores are compared with the first margin's, in the same hours, so that the small one counts
// as much. A far too wide one costs cores in both, and is not taken. The same worlds give the same figures.
func TestACommonMarginIsComparedInTheSameHours(t *testing.T) {
	var cells []bench.Cell
	for _, i := range []int{3, 11} {
		w, err := aware.Of(i)
		if err != nil {
			t.Fatal(err)
		}
		c, err := w.Cell()
		if err != nil {
			t.Fatal(err)
		}
		cells = append(cells, c)
	}
	choice, err := bench.Named("demand-1s")
	if err != nil {
		t.Fatal(err)
	}
	choice = choice.With([]string{"share"}, []float64{0}) // no error budget, which would mend what a margin spoils
	world := func(k int) uint64 { return 40 + uint64(k) }
	run := func() ([]margins.Part, int) {
		t.Helper()
		hours := 0
		parts := []margins.Part{{Level: 1}, {Level: 3}, {Level: -5}}
		best, err := margins.Common(t.Context(), cells, choice, parts, world, func(of int) {
			if hours++; of != 6 {
				t.Errorf("%d hours are said to be run", of)
			}
		})
		if err != nil || hours != 6 {
			t.Fatalf("%d hours, %v", hours, err)
		}
		return parts, best
	}
	parts, best := run()
	first, wide := parts[0], parts[1]
	if first.Cores != 1 || !reflect.DeepEqual(first.Hours, []float64{1, 1}) {
		t.Errorf("with a margin %+v", first)
	}
	if best != 0 || len(wide.Hours) != 2 || wide.Hours[0] < 1.1 || wide.Hours[1] < 1.1 ||
		math.Abs(wide.Cores-(wide.Hours[0]+wide.Hours[1])/2) > 1e-12 {
		t.Errorf("part %d is taken; with a wide margin %+v", best, wide)
	}
	if none := parts[2]; first.Broken != 0 || none.Broken != 2 || none.Cores >= 1 {
		t.Errorf("with a margin %+v, with hardly a limit %+v: fewer cores, and both miss their SLO", first, none)
	}
	if again, _ := run(); !reflect.DeepEqual(again, parts) {
		t.Errorf("%+v, and again %+v", parts, again)
	}
	_, err = margins.Common(t.Context(), cells, choice, []margins.Part{{Level: 9}}, world, nil)
	if err == nil || !strings.Contains(err.Error(), cells[0].Application) && !strings.Contains(err.Error(), cells[1].Application) {
		t.Errorf("a margin of 9: %v", err)
	}
}
