package sim_test

import (
	"testing"

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
