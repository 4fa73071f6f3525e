package agent_test

import (
	"math"
	"testing"

	"awarescale.dev/aware/learner/algo/agent"
)

func TestBoundsAreFiniteWithTheLowerOneFirst(t *testing.T) {
	if err := agent.CheckBounds("x", []float64{-1, 0}, []float64{1, 5}); err != nil {
		t.Error(err)
	}
	if err := agent.CheckBounds("x", nil, nil); err != nil {
		t.Error("discrete actions have no bounds:", err)
	}
	for says, bounds := range map[string][2]float64{
		"x: bounds [2 1]: it must be finite, the lower one first":    {2, 1},
		"x: bounds [1 1]: it must be finite, the lower one first":    {1, 1},
		"x: bounds [0 +Inf]: it must be finite, the lower one first": {0, math.Inf(1)},
		"x: bounds [-Inf 0]: it must be finite, the lower one first": {math.Inf(-1), 0},
		"x: bounds [NaN 1]: it must be finite, the lower one first":  {math.NaN(), 1},
		"x: bounds [0 NaN]: it must be finite, the lower one first":  {0, math.NaN()},
	} {
		err := agent.CheckBounds("x", []float64{-1, bounds[0]}, []float64{1, bounds[1]})
		if err == nil || err.Error() != says {
			t.Errorf("%v: it must be %q", err, says)
		}
	}
}
