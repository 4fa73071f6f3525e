package lifecycle_test

import (
	"math"
	"testing"

	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
)

func TestSummaryUsesTotalRewardsOfCompleteEpisodes(t *testing.T) {
	p := &lifecycle.Profile{Steps: 10, Keep: 2}
	if _, _, _, ok := p.Summary(); ok {
		t.Error("a summary of nothing")
	}
	add := func(n int, r mdp.Reward) {
		for range n {
			p.Add(r)
		}
	}
	add(5, 1.5)
	if mean, _, n, ok := p.Summary(); !ok || n != 0 || math.Abs(mean-15) > 1e-9 {
		t.Errorf("running episode: %v after %d, want 15: half of it, scaled", mean, n)
	}
	add(5, 1.5)
	add(10, 1)
	add(10, 2)
	mean, std, n, _ := p.Summary()
	if n != 3 || math.Abs(mean-15) > 1e-9 || math.Abs(std-5) > 1e-9 {
		t.Errorf("mean %v, std %v, %d episodes; want 15, 5 (of the last two) and 3", mean, std, n)
	}
}
