package lifecycle_test

import (
	"math"
	"testing"

	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
)

func TestTotalsAreOfCompleteEpisodes(t *testing.T) {
	p := &lifecycle.Profile{Steps: 10, Keep: 2}
	if _, _, _, ok := p.Totals(); ok {
		t.Error("a summary of nothing")
	}
	add := func(n int, r mdp.Reward) {
		for range n {
			p.Add(mdp.Transition{Reward: r, RewardKnown: true})
		}
	}
	add(5, 1.5)
	if mean, _, n, ok := p.Totals(); !ok || n != 0 || math.Abs(mean-15) > 1e-9 {
		t.Errorf("running episode: %v after %d, want 15: half of it, scaled", mean, n)
	}
	add(5, 1.5)
	add(10, 1)
	add(10, 2)
	mean, std, n, _ := p.Totals()
	if n != 3 || math.Abs(mean-15) > 1e-9 || math.Abs(std-5) > 1e-9 {
		t.Errorf("mean %v, std %v, %d episodes; want 15, 5 (of the last two) and 3", mean, std, n)
	}
}

// A step of which nothing is known makes the coverage less, and the mean no other.
func TestAGapIsInTheCoverageOnly(t *testing.T) {
	p := &lifecycle.Profile{Steps: 4, Keep: 3}
	for _, r := range []struct {
		reward mdp.Reward
		known  bool
	}{
		{1, true}, {99, false}, {2, true}, {99, false},
		{5, false}, {5, false}, {5, false}, {5, false},
		{3, true}, {3, true}, {3, true}, {3, true},
	} {
		p.Add(mdp.Transition{Reward: r.reward, RewardKnown: r.known})
	}
	s := p.Summary()
	if s.Episodes != 3 || s.Mean != (1.5+3)/2 || s.Deviation != 0.75 || s.Coverage != 0.5 {
		t.Errorf("%+v: want 3 episodes of mean 2.25, deviation 0.75, half of it known", s)
	}
	if mean, deviation, ok := p.Usual(); !ok || mean != 2.5 || math.Abs(deviation-math.Sqrt(41.0/6-6.25)) > 1e-12 {
		t.Errorf("a step earns %v, deviation %v, %v", mean, deviation, ok)
	}
	if _, _, ok := lifecycle.NewProfile().Usual(); ok {
		t.Error("what is usual of nothing")
	}
}
