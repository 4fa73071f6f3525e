package tower

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// The costs of Autothrottle's utils.py: the allocation in the range of all
// minutes that met the SLO, or 2 plus the latency in the range of the others,
// and the median of an action in a bin.
func TestCostOfACellIsTheMedianOfItsMinutes(t *testing.T) {
	type minute struct {
		cpu mdp.MilliCPU
		ms  time.Duration
	}
	for _, c := range []struct {
		name  string
		cells [][]minute
		want  []float64
	}{
		{"SLO met: the allocation", [][]minute{{{100, 50}}, {{300, 99}}, {{150, 100}}}, []float64{0, 1, 0.25}},
		{"SLO violated: the latency", [][]minute{{{1, 200}}, {{2, 600}}, {{3, 300}}}, []float64{2, 3, 2.25}},
		{"one of each", [][]minute{{{100, 50}}, {{100, 200}}}, []float64{0.5, 2.5}},
		{"three minutes", [][]minute{{{100, 50}, {300, 50}, {200, 50}}}, []float64{0.5}},
		{"two minutes: the mean", [][]minute{{{100, 50}, {300, 50}}}, []float64{0.5}},
		{
			"two minutes, one violated", [][]minute{{{100, 50}, {100, 200}}, {{300, 50}}, {{1, 600}}},
			[]float64{1, 1, 3},
		},
		{"the range is of all minutes, not of the medians", [][]minute{{{100, 50}, {200, 50}, {500, 50}}}, []float64{0.25}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Default
			config.SLO = mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond}
			tw := New(config, []string{"a"}, 1)
			for bin, minutes := range c.cells {
				for _, m := range minutes {
					tw.keep(bin, action{}, sample{m.cpu, m.ms * time.Millisecond})
				}
			}
			examples, _ := tw.examples()
			for i, e := range examples {
				if e.cost != c.want[i] {
					t.Errorf("cell %d: cost %v, want %v", i, e.cost, c.want[i])
				}
			}
		})
	}
}
