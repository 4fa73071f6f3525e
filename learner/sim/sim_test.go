package sim_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/simtest"
)

var roomy = sim.Uniform(4, mdp.Size{CPU: 64000, Memory: 1 << 40})

func web() sim.App {
	a := simtest.One(sim.Service{
		Threads: 64, Procs: 8, Variation: 0.8, Start: time.Second, Size: mdp.Size{CPU: 1000, Memory: 512 * mdp.MiB},
		Memory: sim.Memory{Base: 64 * mdp.MiB, PerRequest: mdp.MiB},
	}, 5*time.Millisecond, time.Millisecond)
	b := &a.Services[0].Bounds
	b.Replicas.Max = 8
	b.CPU.Max = 4000
	b.Memory.Max = 8 << 30
	// Nodes' agents may go as far as the owner allows.
	a.Services[0].Ceiling = mdp.Size{CPU: b.CPU.Max, Memory: b.Memory.Max}
	return a
}

func start(t testing.TB, c sim.Config) *sim.World {
	t.Helper()
	if c.Cluster.Nodes == nil {
		c.Cluster = roomy
	}
	w, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestSensorsAndActuatorsPassTheWorldSuite(t *testing.T) {
	for _, level := range []sim.Fidelity{sim.Fluid, sim.Requests} {
		for _, path := range []sim.ActuationPath{sim.L0, sim.L1, sim.L2} {
			t.Run(fmt.Sprintf("fidelity %d, level L%d", level, path), func(t *testing.T) {
				mdptest.World(t, func(t *testing.T) mdptest.Setup {
					w := start(t, sim.Config{App: web(), Load: sim.Steady(20), Seed: 1, Fidelity: level})
					w.Advance(5 * time.Second)
					h := w.Services()[0]
					knobs := mdp.LimitKnobs
					if path != sim.L2 {
						knobs = knobs.Without(mdp.SetOf(mdp.Replicas))
					}
					return mdptest.Setup{
						Sensor:   h.Sensor(),
						Actuator: h.Actuator(path),
						Now:      w.Now,
						Advance:  w.Advance,
						Bounds:   h.Bounds(),
						Knobs:    knobs,
					}
				})
			})
		}
	}
}

func TestProductionLoopRunsInTheWorld(t *testing.T) {
	w := start(t, sim.Config{App: web(), Load: sim.Steady(60), Seed: 1})
	h := w.Services()[0]
	loop := mdp.Loop{
		Sensor: h.Sensor(), Actuator: h.Actuator(sim.L1), Policy: captain.New(captain.Default),
		Objective: mdp.Objective{SLO: web().SLO, Alpha: 0.5},
	}
	held := 0.0
	for k := range 600 {
		w.Advance(time.Second)
		d, err := loop.Step(t.Context(), w.Now())
		if err != nil {
			t.Fatal(err)
		}

		if k >= 300 {
			held += float64(d.State.Limit.CPU) / 300
		}
	}
	// 60 requests of 5 ms use 0.3 cores.
	if held < 300 || held > 900 {
		t.Errorf("in the last five minutes the captain holds %.0fm, want somewhat above 300m", held)
	}
	if l, ok := w.Latency(99); !ok || l > 200*time.Millisecond {
		t.Errorf("p99 = %v (%v)", l, ok)
	}
}

func TestSameSeedGivesSameBytes(t *testing.T) {
	for _, level := range []sim.Fidelity{sim.Fluid, sim.Requests} {
		story := func(seed uint64) string {
			app, load, _ := simtest.Tree(rand.New(rand.NewPCG(3, 3)))
			w := start(t, sim.Config{App: app, Load: load, Seed: seed, Fidelity: level, Anomalies: []sim.Anomaly{
				{Kind: sim.CPUStress, Target: "node-0", Intensity: 0.9, From: 20 * time.Second, To: 30 * time.Second},
			}})
			var b strings.Builder
			sensors := make([]mdp.Sensor, len(w.Services()))
			for i, h := range w.Services() {
				sensors[i] = h.Sensor()
			}
			for i := range 6 {
				w.Advance(10 * time.Second)
				for k, h := range w.Services() {
					s, err := sensors[k].Sense(t.Context(), w.Now())
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprintf(&b, "%+v\n", s)
					if i == 2 {
						_, _, err := h.Actuator(sim.L2).Act(t.Context(), w.Now(), mdp.Action{}.WithReplicas(3))
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				fmt.Fprintf(&b, "%+v\n", w.Totals())
			}
			return b.String()
		}
		first, again := story(5), story(5)
		if first != again {
			t.Errorf("fidelity %d: two runs of seed 5 differ", level)
		}
		if first == story(6) {
			t.Errorf("fidelity %d: seeds 5 and 6 do the same", level)
		}
	}
}

func TestArrivedRequestsAreCompletedFailedOrInside(t *testing.T) {
	for _, level := range []sim.Fidelity{sim.Fluid, sim.Requests} {
		r := rand.New(rand.NewPCG(4, 4))
		for range 20 {
			app, load, what := simtest.Tree(r)
			w := start(t, sim.Config{App: app, Load: load, Seed: 1, Fidelity: level})
			for range 6 {
				w.Advance(10 * time.Second)
				for _, f := range w.Flows() {
					if off := f.Arrived - f.Completed - f.Failed - f.Inside; math.Abs(off) > 1e-6*f.Arrived+1e-6 {
						t.Fatalf("fidelity %d, %s, %s: arrived %.3f = completed %.3f + failed %.3f + inside %.3f is off by %.3f",
							level, what, f.Service, f.Arrived, f.Completed, f.Failed, f.Inside, off)
					}
				}
			}
		}
	}
}

// Little's law: the mean number of requests in the system is their rate times
// their mean latency. The number comes from the counters of arrivals and
// departures, the latency from the histogram. The two are independent.
func TestRequestsInsideFollowLittlesLaw(t *testing.T) {
	// One processor at a utilisation of 70 % has a queue.
	app := simtest.One(sim.Service{
		Threads:   10_000,
		Procs:     1,
		Variation: 1,
		Size:      mdp.Size{CPU: 1000},
	}, 10*time.Millisecond, 0)
	w := start(t, sim.Config{App: app, Load: sim.Steady(70), Seed: 2, Fidelity: sim.Requests})
	inside, n := 0.0, 0
	m := w.Snapshot()
	for range 36_000 {
		w.Advance(sim.Slice)
		inside += w.Flows()[0].Inside
		n++
	}
	mean := 0.0
	for p := 0.5; p < 100; p++ {
		l, _ := w.Overall(m, p)
		mean += l.Seconds() / 100
	}
	if l, want := inside/float64(n), 70*mean; math.Abs(l-want) > 0.1*want {
		t.Errorf("%.2f requests are inside, and rate times latency is %.2f", l, want)
	}
}

// What computes is on its way. Only throttling makes requests wait, and be passed on
// later than their work takes.
func TestNothingWaitsWithoutThrottling(t *testing.T) {
	app := simtest.One(sim.Service{Threads: 64, Procs: 8, Variation: 0.8, Size: mdp.Size{CPU: 8000}}, 30*time.Millisecond, 0)
	w := start(t, sim.Config{App: app, Load: sim.Steady(50), Seed: 1})
	sensor := w.Services()[0].Sensor()
	for range 600 {
		w.Advance(sim.Slice)
		if f := w.Flows()[0]; f.Inside != 0 || f.Completed != f.Arrived {
			t.Fatalf("after %v %v requests wait: %v have arrived and %v are completed",
				w.Elapsed(), f.Inside, f.Arrived, f.Completed)
		}
	}
	if s, err := sensor.Sense(t.Context(), w.Now()); err != nil || s.Throughput != s.Arrivals || s.Throughput < 45 {
		t.Errorf("%v of %v requests per second are answered, want all of about 50 (%v)", s.Throughput, s.Arrivals, err)
	}
}

func TestUsedCPUIsNeverAboveTheLimits(t *testing.T) {
	for _, level := range []sim.Fidelity{sim.Fluid, sim.Requests} {
		r := rand.New(rand.NewPCG(5, 5))
		for range 20 {
			app, load, what := simtest.Tree(r)
			w := start(t, sim.Config{App: app, Load: 3 * load, Seed: 1, Fidelity: level})
			for range 100 {
				was := w.Totals()
				w.Advance(sim.Slice)
				now := w.Totals()
				if used, given := now.Used-was.Used, now.Allocated-was.Allocated; used > given*(1+1e-9) {
					t.Fatalf("fidelity %d, %s: used %.6f of %.6f core-seconds", level, what, used, given)
				}
			}
		}
	}
}

func TestMoreCPUNeverRaisesTheTail(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 40 {
		app, load, what := simtest.Single(r)
		tail := func(more, requests float64) float64 {
			bigger := app
			bigger.Services = []sim.Service{app.Services[0]}
			bigger.Services[0].Size.CPU = min(64000, mdp.MilliCPU(float64(app.Services[0].Size.CPU)*more))
			length := max(10*time.Minute, time.Duration(requests/float64(load)*float64(time.Second)))
			f, err := simtest.Run(bigger, load, sim.Fluid, 1, length)
			if err != nil {
				t.Fatal(err)
			}
			return f.P99
		}
		const bin = 1.03 // a bin of the histogram is 2.2 % wide
		last := 1.0
		p99 := tail(last, 1000)
		for _, more := range []float64{1.5, 2, 3, 5} {
			was := p99
			p99 = tail(more, 1000)
			// A rise must be there with many more requests too: 99 in 100 of a few
			// hundred leave a few, and chance.
			if p99 > bin*was {
				if before, after := tail(last, 400_000), tail(more, 400_000); after > bin*before {
					t.Errorf("%s: at %.1f times the CPU p99 rises from %.4f to %.4f", what, more, before, after)
				}
			}
			last = more
		}
	}
}

func TestRequestsAboveCapacityTimeOut(t *testing.T) {
	app := web()
	app.Services[0].Memory.PerRequest = 1024
	w := start(t, sim.Config{App: app, Load: sim.Steady(400), Seed: 1}) // 2 cores of work for 1 core
	w.Advance(2 * time.Minute)
	f := w.Flows()[0]
	if f.Failed < 0.3*f.Arrived || f.Failed > 0.6*f.Arrived {
		t.Errorf("%.0f of %.0f requests failed, want about half", f.Failed, f.Arrived)
	}
	if l, _ := w.Latency(99); l < 5*time.Second {
		t.Errorf("p99 = %v at twice the load that can be served", l)
	}
}

func TestMemoryLimitBelowUseKillsTheReplica(t *testing.T) {
	w := start(t, sim.Config{App: web(), Load: sim.Steady(20), Seed: 1})
	h := w.Services()[0]
	sensor := h.Sensor()
	if _, _, err := h.Actuator(sim.L2).Act(t.Context(), w.Now(), mdp.Action{}.WithMemory(32*mdp.MiB)); err != nil {
		t.Fatal(err)
	}
	w.Advance(10 * time.Second)
	if s, _ := sensor.Sense(t.Context(), w.Now()); s.OOMKills < 1 || s.Replicas != 0 && s.OOMKills < 2 {
		t.Errorf("%d kills, %d replicas", s.OOMKills, s.Replicas)
	}
}

func TestResizeWithoutRoomIsDeferredUntilThereIsRoom(t *testing.T) {
	app := web()
	w := start(t, sim.Config{
		App:     app,
		Cluster: sim.Uniform(1, mdp.Size{CPU: 2500, Memory: 4 << 30}),
		Load:    sim.Steady(20),
		Seed:    1,
	})
	h := w.Services()[0]
	act := func(a mdp.Action) mdp.Effect {
		_, e, err := h.Actuator(sim.L2).Act(t.Context(), w.Now(), a)
		if err != nil {
			t.Fatal(err)
		}
		w.Advance(5 * time.Second)
		return e
	}
	act(mdp.Action{}.WithReplicas(2))
	act(mdp.Action{}.WithCPU(1500)) // 3 cores of 2.5
	s, _ := h.Sensor().Sense(t.Context(), w.Now())
	if e := act(mdp.Action{}.WithCPU(1500)); e != mdp.Deferred {
		t.Errorf("asked again: %v, want %v (limit %v)", e, mdp.Deferred, s.Limit.CPU)
	}
	act(mdp.Action{}.WithReplicas(1))
	if s, _ := h.Sensor().Sense(t.Context(), w.Now()); s.Limit.CPU != 1500 {
		t.Errorf("with room the limit is %v, want 1500m", s.Limit.CPU)
	}
	if e := act(mdp.Action{}.WithReplicas(3)); e != mdp.Deferred {
		t.Errorf("three replicas of 1.5 cores on 2.5: %v, want %v", e, mdp.Deferred)
	}
}

func TestDelayedMetricsAreUnknownAtFirst(t *testing.T) {
	w := start(t, sim.Config{App: web(), Load: sim.Steady(20), Seed: 1, Metrics: 15 * time.Second})
	sensor := w.Services()[0].Sensor()
	w.Advance(10 * time.Second)
	if s, _ := sensor.Sense(t.Context(), w.Now()); s.Observed != mdp.LimitKnobs {
		t.Errorf("after 10 s of metrics that are 15 s late %v is known", s.Observed)
	}
	w.Advance(20 * time.Second)
	s, _ := sensor.Sense(t.Context(), w.Now())
	if !s.Knows(mdp.CPUUsage, mdp.Latency) || !s.At.Equal(sim.Epoch.Add(10*time.Second)) {
		t.Errorf("after 30 s: %v of %v", s.Observed, s.At)
	}
}

func TestEveryAnomalyRaisesTheTailLatency(t *testing.T) {
	app := web()
	app.Services[0].Sensitive = sim.Pressure{0.5, 1, 1, 1, 1}
	p99 := func(a ...sim.Anomaly) time.Duration {
		w := start(t, sim.Config{
			App:       app,
			Cluster:   sim.Uniform(1, mdp.Size{CPU: 2000, Memory: 8 << 30}),
			Load:      sim.Steady(80),
			Seed:      1,
			Anomalies: a,
		})
		w.Advance(time.Minute)
		l, _ := w.Latency(99)
		return l
	}
	unstressed := p99()
	for _, k := range sim.Kinds {
		target := "node-0"
		switch k {
		case sim.WorkloadVariation:
			target = ""
		case sim.NetworkDelay:
			target = "app"
		}
		if hurt := p99(sim.Anomaly{Kind: k, Target: target, Intensity: 1, To: time.Hour}); hurt < unstressed*11/10 {
			t.Errorf("%s: p99 %v, without it %v", k, hurt, unstressed)
		}
	}
}

func TestErrorNamesTheWrongValue(t *testing.T) {
	change := func(f func(*sim.App)) sim.App {
		a := web()
		a.Services = append([]sim.Service(nil), a.Services...)
		a.Operations = append([]sim.Operation(nil), a.Operations...)
		f(&a)
		return a
	}
	for _, c := range []struct {
		name string
		app  sim.App
		want string
	}{
		{"a cycle of calls", change(func(a *sim.App) {
			a.Operations[0].Stages = [][]sim.Call{{{Operation: "again", Share: 1}}}
			a.Operations = append(a.Operations, sim.Operation{
				Name:    "again",
				Service: "app",
				Work:    1,
				Stages:  [][]sim.Call{{{Operation: "serve", Share: 1}}},
			})
		}), `application "one": its calls go in a circle: [serve again serve]`},
		{"no threads", change(func(a *sim.App) {
			a.Services[0].Threads = 0
		}), `application "one": service "app": threads 0: it must be at least 1`},
		{"a size below its bounds", change(func(a *sim.App) {
			a.Services[0].Size.CPU = 5
		}), `within its bounds (cpu 10m to`},
		{"an unknown callee", change(func(a *sim.App) {
			a.Operations[0].Stages = [][]sim.Call{{{Operation: "nobody", Share: 1}}}
		}), `operation "serve" calls "nobody": there is no such operation`},
		{"a share above one", change(func(a *sim.App) {
			a.Operations[0].Background = []sim.Call{{Operation: "serve", Share: 2}}
		}), `share 2: it must be in (0, 1]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.app.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestActionOutOfBoundsIsAnErrorWithTheKnobAndRange(t *testing.T) {
	w := start(t, sim.Config{App: web(), Load: sim.Steady(20), Seed: 1})
	_, effect, err := w.Services()[0].Actuator(sim.L2).Act(context.Background(), w.Now(), mdp.Action{}.WithCPU(5))
	want := "acting on app: cpu-limit 5m is outside of its action space, 10m to 4000m"
	if effect != mdp.Failed || err == nil || err.Error() != want {
		t.Errorf("%v, %v; want %q", effect, err, want)
	}
}
