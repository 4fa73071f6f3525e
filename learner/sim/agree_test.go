package sim_test

import (
	"math"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/simtest"
)

func agrees(t *testing.T, cases int, draw simtest.Draw) {
	all, err := simtest.Agree(cases, 1, draw)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if x.Utilisation > 0.02 {
			t.Errorf("utilisation is %.3f off: %s", x.Utilisation, x.What)
		}
	}
	for _, x := range all[len(all)*9/10:] {
		t.Logf("%.2f: fluid %.4f s, requests %.4f s: %s", x.Error, x.Fluid.P99, x.Requests.P99, x.What)
	}
	median, p95 := simtest.Summary(all)
	t.Logf("error of p99: median %.3f, 95th percentile %.3f", median, p95)
	if median > 0.10 || p95 > 0.25 {
		t.Errorf("error of p99: median %.3f (at most 0.10), 95th percentile %.3f (at most 0.25)", median, p95)
	}
}

func TestFluidAgreesWithRequestsOnSingleServices(t *testing.T) {
	cases := 200
	if testing.Short() {
		cases = 40
	}
	agrees(t, cases, simtest.Single)
}

func TestFluidAgreesWithRequestsOnGraphs(t *testing.T) { agrees(t, 40, simtest.Tree) }

// A service behind one that is throttled gets its requests in crowds: what is held
// until the start of a slice calls it at once, and what shares a quota ends together.
// Without that the fluid level's p99 is a sixth too low here.
func TestFluidAgreesWithRequestsBehindAThrottledService(t *testing.T) {
	app := simtest.One(sim.Service{Threads: 64, Procs: 8, Variation: 0.3, Size: mdp.Size{CPU: 280}}, 11*time.Millisecond, 0)
	back := app.Services[0]
	back.Name, back.Size.CPU = "back", 205
	app.Services = append(app.Services, back)
	app.Operations[0].Stages = [][]sim.Call{{{Operation: "get", Share: 1}}}
	app.Operations = append(app.Operations, sim.Operation{Name: "get", Service: "back", Work: 8 * time.Millisecond})
	fluid, err := simtest.Run(app, sim.Steady(19), sim.Fluid, 1, 3*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	requests, err := simtest.Run(app, sim.Steady(19), sim.Requests, 2, 3*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("p99 %.3f s, and %.3f s by requests", fluid.P99, requests.P99)
	if e := fluid.P99/requests.P99 - 1; math.Abs(e) > 0.15 {
		t.Errorf("p99 %.3f s, and %.3f s by requests: %+.2f", fluid.P99, requests.P99, e)
	}
}
