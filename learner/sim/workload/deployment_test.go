package workload_test

import (
	"math"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// Every published application can be deployed as one service. It takes the work of its segments, has the SLO of the
// application of several services, and answers as fast when it has all CPUs that it can use.
func TestAnApplicationAsOneDeployment(t *testing.T) {
	for _, c := range workload.Compositions() {
		rate := mdp.Rate(1 / c.Work().Seconds()) // a core
		app, err := c.Deployment(rate)
		if err != nil {
			t.Fatal(err)
		}
		several, err := c.App(rate)
		if err != nil {
			t.Fatal(err)
		}
		if len(app.Services) != 1 || app.SLO != several.SLO {
			t.Fatalf("%v: %d services, SLO %v; the application's is %v", c, len(app.Services), app.SLO, several.SLO)
		}
		if got := app.Operations[0].Work; got != c.Work() {
			t.Fatalf("%v: %v of work, its segments have %v", c, got, c.Work())
		}
		var wait, span time.Duration
		for _, o := range several.Operations {
			wait += o.Wait
			span += alone(several, o)
		}
		if got := app.Operations[0].Wait; got != wait {
			t.Fatalf("%v: it waits %v, its segments %v", c, got, wait)
		}
		if got := alone(app, app.Operations[0]); math.Abs(float64(got-span)) > float64(time.Microsecond) {
			t.Fatalf("%v: it computes for %v on free CPUs, its segments for %v", c, got, span)
		}
	}
	if _, err := (workload.Composition{}).Deployment(1); err == nil {
		t.Error("an application without segments")
	}
}

// alone is how long an operation computes on free CPUs, by Amdahl's law.
func alone(a sim.App, o sim.Operation) time.Duration {
	for _, s := range a.Services {
		if s.Name == o.Service {
			p := float64(max(1, s.Parallel))
			if p == 1 {
				return o.Work
			}
			return time.Duration(float64(o.Work) * (float64(s.Serial) + (1-float64(s.Serial))/p))
		}
	}
	return 0
}
