package bench

import (
	"bytes"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// Autothrottle's captains sample each CFS period of 100 ms (NSDI 2024, §3.3).
func TestEachRuleIsAskedAtItsInterval(t *testing.T) {
	cells, err := Cells()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"captain":      600,
		"autothrottle": 600,
		"k8s-cpu-fast": 60,
		"k8s-cpu":      4,
		"aimd":         6,
		"demand":       600,
		"demand-1s":    60,
	} {
		t.Run(name, func(t *testing.T) {
			cell := cells[0]
			w, err := sim.New(sim.Config{App: cell.App, Cluster: workload.Machines, Load: cell.Trace, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			c, err := Named(name)
			if err != nil {
				t.Fatal(err)
			}
			d, err := c.start(t.Context(), w, cell.App, nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			d.loops[0].Policy = mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
				asked++
				return mdp.Action{}, nil
			})
			for range 60 {
				if err := d.second(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if asked != want {
				t.Errorf("it was asked %d times in a minute, want %d", asked, want)
			}
		})
	}
}

// fiveMinutes is the driver of a choice after five minutes of a cell.
func fiveMinutes(t *testing.T, cell Cell, c Choice, seed uint64) *driver {
	t.Helper()
	w, err := sim.New(sim.Config{App: cell.App, Cluster: workload.Machines, Load: cell.Trace, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.start(t.Context(), w, cell.App, nil, seed)
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if err := d.second(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// The error budget is the application's: what its clients miss moves one level, which all services have. Where its hours begin
// depends on the seed, and nothing is moved without a budget.
func TestTheErrorBudgetIsTheApplications(t *testing.T) {
	cells, err := Cells()
	if err != nil {
		t.Fatal(err)
	}
	run := func(seed uint64, share float64) *driver {
		t.Helper()
		c, err := Named("demand-1s")
		if err != nil {
			t.Fatal(err)
		}
		return fiveMinutes(t, cells[4], c.with(map[string]float64{"share": share}), seed)
	}
	if d := run(1, 0); d.budget != nil || len(d.demands) != len(d.loops) {
		t.Errorf("a share of 0: budget %v, %d policies of %d services", d.budget, len(d.demands), len(d.loops))
	}
	strict, loose := run(1, 0.0001).budget.Level(), run(1, 0.4).budget.Level()
	if strict <= loose || loose >= 0 {
		t.Errorf("the level is %v with a budget of 0.0001, and %v with one of 0.4", strict, loose)
	}
	if one, other := run(1, 0.01), run(2, 0.01); one.budget == other.budget || *one.budget == *other.budget {
		t.Error("with two seeds the hours of the budget begin at one time")
	}
}

// Pulses of a second: at first most of their requests are late, and then what they need is held.
func TestSpikesOfLateWindowsAreHeld(t *testing.T) {
	cells, err := Spiky()
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range cells[1:3] { // the first one's SLO of a second leaves time for the fast lane
		c, err := Named("demand")
		if err != nil {
			t.Fatal(err)
		}
		d := fiveMinutes(t, cell, c, 1)
		holds := 0
		for _, p := range d.demands {
			if p.Holds() {
				holds++
			}
		}
		if late := d.budget.LateWindows(); late == 0 || late > 10 || holds < len(d.demands)/2 {
			t.Errorf("%s under pulses: %d of 30 windows were late, and %d of %d services hold a spike",
				cell.Application, late, holds, len(d.demands))
		}
	}
}

// Runs of several seeds begin with one warm tower, at the same time.
func TestARunLeavesTheWarmTowerAsItWas(t *testing.T) {
	cell := calmCell(t)
	c, err := Named("autothrottle")
	if err != nil {
		t.Fatal(err)
	}
	warm, err := Warm(t.Context(), cell, c.with(map[string]float64{"warm_hours": 0.1}), 1)
	if err != nil {
		t.Fatal(err)
	}
	before, err := warm.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var learned []byte
	_, err = Run(t.Context(), cell, c, Options{
		Seed: 1, Tower: warm, After: func(used *tower.Tower) { learned, err = used.Encode() },
	})
	if err != nil {
		t.Fatal(err)
	}
	after, err := warm.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the warm tower has changed")
	}
	if bytes.Equal(before, learned) {
		t.Error("the run's own tower has learned nothing: this shows nothing")
	}
}
