package workload_test

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// azureNodes are the machines of Autothrottle's experiments: five of 32 cores
// and 128 GiB.
var azureNodes = sim.Uniform(5, mdp.Size{CPU: 32000, Memory: 128 << 30})

// newWorld fails the test when there is none.
func newWorld(t testing.TB, app sim.App, load sim.Load, level sim.Fidelity) *sim.World {
	t.Helper()
	w, err := sim.New(sim.Config{App: app, Cluster: azureNodes, Load: load, Seed: 1, Fidelity: level})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestInitialSizesMeetTheSLOInAutothrottlesExperiments(t *testing.T) {
	for _, name := range workload.Apps() {
		app, err := workload.NamedApp(name)
		if err != nil {
			t.Fatal(err)
		}
		cores := 0.0
		for _, s := range app.Services {
			cores += s.Size.CPU.Cores() * float64(s.Replicas)
		}
		if cores > 150 {
			t.Errorf("%s starts with %.1f cores: the cluster has 160", name, cores)
		}
		for _, trace := range []string{"diurnal", "constant", "noisy", "bursty"} {
			load, err := workload.Cell(name, trace)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, app, load, sim.Fluid)
			start, worst := w.Snapshot(), time.Duration(0)
			for w.Elapsed() < load.Length() {
				w.Advance(10 * time.Second)
				l, _ := w.Latency(99)
				worst = max(worst, l)
			}
			p99, ok := w.Overall(start, 99)
			a := w.Totals()
			t.Logf("%s under %s, mean %.0f/s: hourly p99 %v, worst of 10 s %v, SLO %v; uses %.1f of %.1f cores, %d kills",
				name, trace, load.Mean(), p99, worst, app.SLO.Latency, a.Used/3600, a.Allocated/3600, a.OOMKills)
			if !ok || p99 > app.SLO.Latency {
				t.Errorf("%s under %s: hourly p99 %v, over the SLO of %v", name, trace, p99, app.SLO.Latency)
			}
			if a.OOMKills > 0 {
				t.Errorf("%s under %s: %d replicas killed for memory", name, trace, a.OOMKills)
			}
		}
	}
}

func TestEveryApplicationRunsAtBothLevels(t *testing.T) {
	for _, name := range workload.Apps() {
		app, err := workload.NamedApp(name)
		if err != nil {
			t.Fatal(err)
		}
		load, err := workload.Cell(name, "constant")
		if err != nil {
			t.Fatal(err)
		}
		need := 0.0
		for level, of := range map[sim.Fidelity]string{sim.Fluid: "fluid", sim.Requests: "requests"} {
			w := newWorld(t, app, load, level)
			w.Advance(time.Minute)
			p99, ok := w.Latency(99)
			used := w.Totals().Used / 60
			t.Logf("%s, %s: p99 %v, uses %.2f cores", name, of, p99, used)
			if !ok || p99 > app.SLO.Latency {
				t.Errorf("%s, %s: p99 %v, over the SLO of %v", name, of, p99, app.SLO.Latency)
			}
			if need > 0 && (used/need > 1.1 || used/need < 0.9) {
				t.Errorf("%s: one level uses %.2f cores, the other %.2f", name, used, need)
			}
			need = used
		}
	}
}

// The published applications, each tenth of them, under a load that their first
// size is made for, before and after updates.
func TestGeneratedApplicationsInitiallyMeetTheirSLO(t *testing.T) {
	missed := 0
	for i, c := range workload.Compositions() {
		if i%10 != 0 {
			continue
		}
		for _, u := range workload.Updates() {
			c, _ = u.Apply(c)
		}
		app, err := c.App(40)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, app, sim.Steady(40), sim.Fluid)
		m := w.Snapshot()
		w.Advance(time.Minute)
		p99, ok := w.Overall(m, 99)
		if !ok {
			t.Fatalf("%v: no latency", c)
		}
		if p99 > app.SLO.Latency {
			missed++
			t.Logf("%v: p99 %v, SLO %v, size %v, work %v", c, p99, app.SLO.Latency, app.Services[0].Size, c.Work())
		}
	}
	if missed > 0 {
		t.Errorf("%d of 100 do not hold their SLO", missed)
	}
}
