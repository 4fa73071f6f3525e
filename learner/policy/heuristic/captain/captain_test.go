package captain_test

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
)

func TestCaptainIsAPolicy(t *testing.T) {
	mdptest.Policy(t, func() mdp.Policy { return captain.New(captain.Default) })
}

// container is a small model of CFS: demand above the limit throttles, and usage never
// exceeds the limit.
func container(limit, demand mdp.MilliCPU, second int) mdp.State {
	s := mdp.State{
		At:       time.Unix(int64(second), 0),
		Observed: mdp.SetOf(mdp.CPULimit, mdp.Throttled, mdp.CPUPeak, mdp.CPUDeviation),
		Limit:    mdp.Size{CPU: limit}, CPUPeak: min(limit, demand), CPUDeviation: demand / 50,
	}
	if demand > limit {
		s.Throttled = 1 - mdp.Ratio(limit)/mdp.Ratio(demand)
	}
	return s
}

func TestLimitFollowsABurstWithinSecondsAndDropsAfterIt(t *testing.T) {
	c := captain.New(captain.Default)
	limit := mdp.MilliCPU(500)
	run := func(from, to int, demand mdp.MilliCPU) {
		for i := from; i < to; i++ {
			a, err := c.Decide(container(limit, demand, i))
			if err != nil {
				t.Fatal(err)
			}
			if a.Sets.Has(mdp.CPULimit) {
				limit = a.Limit.CPU
			}
		}
	}
	run(0, 30, 100)
	if limit < 100 || limit > 150 {
		t.Fatalf("at a demand of 100m the limit is %v, want a little above", limit)
	}
	run(30, 40, 400)
	if left := container(limit, 400, 0).Throttled; left > 3*captain.Default.Target {
		t.Errorf("ten seconds into a burst of 400m the limit is %v, and %.2f of the periods are throttled", limit, left)
	}
	run(40, 80, 100)
	if limit > 200 {
		t.Errorf("forty seconds after the burst the limit is still %v", limit)
	}
}

func TestDecreaseThatThrottlesIsRolledBackTwice(t *testing.T) {
	c := captain.New(captain.Default)
	a, _ := c.Decide(container(1000, 600, 0)) // peak 600 + 3 deviations of 12
	if a.Limit.CPU != 635 && a.Limit.CPU != 636 {
		t.Fatalf("shrink to %v, want 636m", a.Limit.CPU)
	}
	b, _ := c.Decide(container(a.Limit.CPU, 900, 1))
	if want := 2*1000 - a.Limit.CPU; b.Limit.CPU != want {
		t.Errorf("rollback to %v, want %v", b.Limit.CPU, want)
	}
}

func TestOneDecisionAtMostHalvesTheLimit(t *testing.T) {
	a, _ := captain.New(captain.Default).Decide(container(1000, 1, 0))
	if a.Limit.CPU != 500 {
		t.Errorf("limit = %v, want 500m", a.Limit.CPU)
	}
}

func TestErrorNamesTheWrongSetting(t *testing.T) {
	c := captain.Default
	c.Target = 1.5
	if err := c.Check(); err == nil || err.Error() != "captain target 1.5: it must be in [0, 1)" {
		t.Errorf("err = %v", err)
	}
}
