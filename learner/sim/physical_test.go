package sim_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

var levels = []sim.Fidelity{sim.Fluid, sim.Requests}

// act sets something on the first service of a world, and fails the test on an
// error.
func act(t *testing.T, w *sim.World, path sim.ActuationPath, a mdp.Action) (mdp.Action, mdp.Effect) {
	t.Helper()
	executed, effect, err := w.Services()[0].Actuator(path).Act(t.Context(), w.Now(), a)
	if err != nil {
		t.Fatal(err)
	}
	return executed, effect
}

// limit is the limit in force of the first service.
func limit(t *testing.T, w *sim.World) mdp.Size {
	t.Helper()
	s, err := w.Services()[0].Sensor().Sense(t.Context(), w.Now())
	if err != nil {
		t.Fatal(err)
	}
	return s.Limit
}

func TestAnAgentsLimitStaysBelowTheAPIs(t *testing.T) {
	for _, path := range []sim.ActuationPath{sim.L0, sim.L1} {
		app := web()
		app.Services[0].Ceiling = mdp.Size{CPU: 1500, Memory: 600 * mdp.MiB}
		w := start(t, sim.Config{App: app, Load: sim.Steady(20), Seed: 1})
		executed, _ := act(t, w, path, mdp.Action{}.WithCPU(3000).WithMemory(1<<30))
		if executed.Limit != app.Services[0].Ceiling {
			t.Errorf("path %d executed %v, the API's limit is %v", path, executed.Limit, app.Services[0].Ceiling)
		}
		w.Advance(time.Second)
		if got := limit(t, w); got != app.Services[0].Ceiling {
			t.Errorf("path %d: %v in force, the API's limit is %v", path, got, app.Services[0].Ceiling)
		}
	}
}

// What central asks for is the API's limit too, also when it is the size that the
// replicas request already.
func TestAskingForThePresentSizeLowersTheAPIsLimit(t *testing.T) {
	app := web()
	size := app.Services[0].Size
	app.Services[0].Ceiling = mdp.Size{CPU: size.CPU + 500, Memory: size.Memory + 256*mdp.MiB}
	w := start(t, sim.Config{App: app, Load: sim.Steady(20), Seed: 1})
	if _, effect := act(t, w, sim.L2, mdp.Action{}.WithCPU(size.CPU).WithMemory(size.Memory)); effect != mdp.Pending {
		t.Errorf("effect %v, want pending", effect)
	}
	w.Advance(time.Second)
	act(t, w, sim.L0, mdp.Action{}.WithCPU(size.CPU+500))
	w.Advance(time.Second)
	if got := limit(t, w); got != size {
		t.Errorf("%v in force, want %v: what the API allows now", got, size)
	}
}

// A change keeps its own time: one that comes before it has taken effect does not
// postpone it.
func TestAChangeIsNotPostponedByTheNext(t *testing.T) {
	c := sim.Config{App: web(), Cluster: roomy, Load: sim.Steady(20), Seed: 1}
	c.Cluster.Delays.Resize = 500 * time.Millisecond
	w := start(t, c)
	for i := range 20 {
		act(t, w, sim.L2, mdp.Action{}.WithCPU(mdp.MilliCPU(1010+10*i)))
		w.Advance(sim.Slice)
	}
	if got := limit(t, w).CPU; got < 1100 || got > 1200 {
		t.Errorf("2 s of changes that take half a second each: %v in force, want that of half a second ago", got)
	}
}

func TestTheKubeletsUpdateOverwritesTheAgents(t *testing.T) {
	w := start(t, sim.Config{App: web(), Load: sim.Steady(20), Seed: 1})
	act(t, w, sim.L0, mdp.Action{}.WithCPU(700))
	act(t, w, sim.L2, mdp.Action{}.WithMemory(768*mdp.MiB))
	w.Advance(time.Second)
	if got := limit(t, w); got.CPU != 4000 || got.Memory != 768*mdp.MiB {
		t.Errorf("%v in force after a resize of memory, want the API's CPU limit of 4000m too", got)
	}
}

// Writes to a cgroup are free, their commits are not: at most five a second and
// node, of 7 ms of CPU each.
func TestCommitsAreLimitedAndCost(t *testing.T) {
	w := start(t, sim.Config{App: web(), Load: sim.Steady(20), Seed: 1})
	for i := range 600 {
		act(t, w, sim.L0, mdp.Action{}.WithCPU([]mdp.MilliCPU{500, 700, 1300}[i%3]))
		w.Advance(sim.Slice)
	}
	got := w.Totals()
	if got.Calls < 20 || got.Calls > 60 {
		t.Errorf("%d commits of one replica in a minute, want about one a second", got.Calls)
	}
	if want := 0.007 * float64(got.Calls); math.Abs(got.Acting-want) > 1e-9 {
		t.Errorf("they cost %v core-seconds, want %v", got.Acting, want)
	}
	if got.Resizes < 500 {
		t.Errorf("%d changes took effect, want one in each slice", got.Resizes)
	}
}

// A container whose commit is late is not shrunk further; raises pass.
func TestALateCommitStopsShrinking(t *testing.T) {
	app := web()
	app.Services[0].Replicas, app.Services[0].Bounds.Replicas.Max = 400, 400
	app.Services[0].Size.Memory = 64 * mdp.MiB
	c := sim.Config{App: app, Cluster: sim.Uniform(1, mdp.Size{CPU: 1e6, Memory: 1 << 50}), Load: sim.Steady(20), Seed: 1}
	w := start(t, c)
	act(t, w, sim.L0, mdp.Action{}.WithCPU(500))
	w.Advance(6 * time.Second) // the agent could commit some 50 of 400
	before := w.Totals().Resizes
	act(t, w, sim.L0, mdp.Action{}.WithCPU(400))
	if n := w.Totals().Resizes - before; n == 0 || n > 100 {
		t.Errorf("%d of 400 replicas were shrunk further, want only those that are committed", n)
	}
	before = w.Totals().Resizes
	act(t, w, sim.L0, mdp.Action{}.WithCPU(900))
	if n := w.Totals().Resizes - before; n != 400 {
		t.Errorf("%d of 400 replicas were raised", n)
	}
}

func TestReplicasStartOneAfterTheOther(t *testing.T) {
	for _, level := range levels {
		w := start(t, sim.Config{
			App: web(), Cluster: sim.Uniform(2, mdp.Size{CPU: 64000, Memory: 1 << 40}), Load: sim.Steady(20), Seed: 1, Fidelity: level,
		})
		act(t, w, sim.L2, mdp.Action{}.WithReplicas(8))
		ready := func() int {
			s, err := w.Services()[0].Sensor().Sense(t.Context(), w.Now())
			if err != nil {
				t.Fatal(err)
			}
			return s.Replicas
		}
		w.Advance(1500 * time.Millisecond) // the pods are scheduled, and one node pulls the image
		if n := ready(); n != 1 {
			t.Errorf("%d replicas are ready after 1.5 s, want the first one", n)
		}
		w.Advance(10 * time.Second)
		if n := ready(); n != 8 {
			t.Errorf("%d replicas are ready after 11 s, want all", n)
		}
	}
}

func TestALeavingReplicaFinishesWhatItHolds(t *testing.T) {
	for _, level := range levels {
		app := web()
		app.Services[0].Replicas = 4
		app.Services[0].Threads, app.Services[0].Memory.PerRequest = 5000, 1024
		app.Operations[0].Wait = 3 * time.Second // for something slow, so that many are inside
		w := start(t, sim.Config{App: app, Load: sim.Steady(300), Seed: 1, Fidelity: level})
		w.Advance(20 * time.Second)
		act(t, w, sim.L2, mdp.Action{}.WithReplicas(2))
		w.Advance(time.Minute)
		if got := w.Totals(); got.Lost > 0 {
			t.Errorf("level %d: %.0f requests are lost by scaling in with room to spare", level, got.Lost)
		}
	}
}

// What a leaving replica still holds when its grace period ends fails.
func TestWhatAKilledReplicaHoldsIsLost(t *testing.T) {
	for _, level := range levels {
		app := web()
		app.Services[0].Replicas = 2
		app.Services[0].Size.CPU = 100 // 20 requests a second, and 100 come
		app.Services[0].Memory.PerRequest = 1024
		app.Services[0].Threads = 10_000
		app.Timeout = time.Hour
		c := sim.Config{App: app, Cluster: roomy, Load: sim.Steady(100), Seed: 1, Fidelity: level}
		c.Cluster.Delays.Grace = 2 * time.Second
		w := start(t, c)
		w.Advance(20 * time.Second)
		was := w.Flows()[0]
		act(t, w, sim.L2, mdp.Action{}.WithReplicas(1))
		w.Advance(5 * time.Second)
		now := w.Flows()[0]
		if lost := now.Failed - was.Failed; lost < was.Inside/3 || lost > was.Inside {
			t.Errorf("level %d: %.0f of %.0f waiting requests failed with one of two replicas", level, lost, was.Inside)
		}
	}
}

// shop is a front end that calls a back end, and leaves work behind.
func shop() sim.App {
	app := web()
	front, back, log := app.Services[0], app.Services[0], app.Services[0]
	front.Name, back.Name, log.Name = "front", "back", "log"
	app.Services = []sim.Service{front, back, log}
	app.Operations = []sim.Operation{
		{
			Name: "page", Service: "front", Work: time.Millisecond,
			Stages: [][]sim.Call{{{Operation: "get", Share: 1}}}, Background: []sim.Call{{Operation: "note", Share: 1}},
		},
		{Name: "get", Service: "back", Work: time.Millisecond},
		{Name: "note", Service: "log", Work: 5 * time.Millisecond},
	}
	app.Endpoints = []sim.Endpoint{{Operation: "page", Share: 1}}
	return app
}

// states are the States of a time, by service.
func states(t *testing.T, w *sim.World, d time.Duration) map[string]mdp.State {
	t.Helper()
	sensors := map[string]mdp.Sensor{}
	for _, h := range w.Services() {
		sensors[h.Name()] = h.Sensor()
	}
	w.Advance(d)
	all := map[string]mdp.State{}
	for name, s := range sensors {
		state, err := s.Sense(t.Context(), w.Now())
		if err != nil {
			t.Fatal(err)
		}
		all[name] = state
	}
	return all
}

// A back end that is killed again and again fails its callers: their clients are
// lost, and nobody's SLO is kept.
func TestAFailureReachesTheClient(t *testing.T) {
	for _, level := range levels {
		app := shop()
		w := start(t, sim.Config{App: app, Load: sim.Steady(50), Seed: 1, Fidelity: level})
		h, err := w.Service("back")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := h.Actuator(sim.L2).Act(t.Context(), w.Now(), mdp.Action{}.WithMemory(32*mdp.MiB)); err != nil {
			t.Fatal(err)
		}
		w.Advance(30 * time.Second)
		all := states(t, w, 20*time.Second)
		if s := all["front"]; s.Lost < 0.9 || s.Throughput > 5 || s.Arrivals < 40 {
			t.Errorf("level %d: lost %.2f, %.0f of %.0f requests a second are answered; its back end is down",
				level, float64(s.Lost), float64(s.Throughput), float64(s.Arrivals))
		}
		for name, s := range all {
			if r, ok := (mdp.Objective{SLO: app.SLO, Alpha: 0.5}).Judge(s); !ok || r > 0 {
				t.Errorf("level %d: %s earns %v, %v while every request is lost", level, name, r, ok)
			}
		}
		if n := w.Totals().OOMKills; n > 6 {
			t.Errorf("level %d: %d kills in 50 s: the kubelet backs off", level, n)
		}
	}
}

func TestWorkLeftBehindIsLate(t *testing.T) {
	for _, level := range levels {
		app := shop()
		w := start(t, sim.Config{App: app, Load: sim.Steady(50), Seed: 1, Fidelity: level})
		h, err := w.Service("log")
		if err != nil {
			t.Fatal(err)
		}
		w.Advance(time.Minute)
		if got := w.Totals(); got.TasksLate > 0 || got.Tasks < 2500 {
			t.Errorf("level %d: %.0f of %.0f pieces of background work are late", level, got.TasksLate, got.Tasks)
		}
		if _, _, err := h.Actuator(sim.L2).Act(t.Context(), w.Now(), mdp.Action{}.WithCPU(50)); err != nil {
			t.Fatal(err)
		}
		w.Advance(5 * time.Minute)
		s := states(t, w, 30*time.Second)["front"]
		if s.Missed > 0.01 || s.BackgroundLate < 0.5 {
			t.Errorf("level %d: missed %.3f, late %.3f; a fifth of the background work can be done in time",
				level, float64(s.Missed), float64(s.BackgroundLate))
		}
	}
}

func TestCallsOfTheAPICanFail(t *testing.T) {
	c := sim.Config{App: web(), Cluster: roomy, Load: sim.Steady(20), Seed: 1}
	c.Cluster.Delays.Faults = 0.5
	w := start(t, c)
	failed := 0
	for i := range 100 {
		_, effect, err := w.Services()[0].Actuator(sim.L2).Act(t.Context(), w.Now(), mdp.Action{}.WithCPU(mdp.MilliCPU(1000+i)))
		if err != nil {
			failed++
			if !errors.Is(err, sim.ErrCall) || effect != mdp.Failed {
				t.Fatalf("%v, %v", effect, err)
			}
		}
		w.Advance(time.Second)
	}
	if failed < 30 || failed > 70 {
		t.Errorf("%d of 100 calls failed, want about half", failed)
	}
}

// Services of train-ticket call each other in cycles. What arrives at each is what
// its callers sent, at both levels.
func TestRequestsDoNotAppearFromNothing(t *testing.T) {
	app, err := workload.NamedApp("train-ticket")
	if err != nil {
		t.Fatal(err)
	}
	arrived := map[string][2]float64{}
	for _, level := range levels {
		w := start(t, sim.Config{
			App: app, Cluster: sim.Uniform(5, mdp.Size{CPU: 32000, Memory: 1 << 40}), Load: sim.Steady(60), Seed: 1, Fidelity: level,
		})
		w.Advance(10 * time.Minute)
		for _, f := range w.Flows() {
			both := arrived[f.Service]
			both[level] = f.Arrived
			arrived[f.Service] = both
		}
	}
	for name, n := range arrived {
		if off := math.Abs(n[0] - n[1]); off > 0.03*n[1]+5*math.Sqrt(n[1]+1) {
			t.Errorf("%s: %.0f requests at the fluid level, %.0f at the request level", name, n[0], n[1])
		}
	}
}

// A limit that is far too small for a second, each half minute, delays the
// requests of that second and not those of an hour.
func TestABriefShrinkDelaysWhatItDelays(t *testing.T) {
	var p99 [2]float64
	for _, level := range levels {
		w := start(t, sim.Config{App: web(), Load: sim.Steady(60), Seed: 1, Fidelity: level})
		w.Advance(20 * time.Second)
		from := w.Snapshot()
		for range 60 {
			act(t, w, sim.L0, mdp.Action{}.WithCPU(30))
			w.Advance(time.Second)
			act(t, w, sim.L0, mdp.Action{}.WithCPU(1000))
			w.Advance(29 * time.Second)
		}
		l, _ := w.Overall(from, 99)
		p99[level] = l.Seconds()
	}
	if off := p99[0]/p99[1] - 1; math.Abs(off) > 0.15 {
		t.Errorf("p99 %.3f s at the fluid level, %.3f s at the request level: %+.0f %%", p99[0], p99[1], 100*off)
	}
}

// The share of requests above a percentile's latency is what is left of the percentile, since whatever moment.
func TestWhatIsAboveAPercentileIsTheRest(t *testing.T) {
	for _, fidelity := range levels {
		w := start(t, sim.Config{App: web(), Load: sim.Steady(20), Seed: 3, Fidelity: fidelity})
		w.Advance(time.Minute)
		from := w.Snapshot()
		w.Advance(10 * time.Minute)
		for _, p := range []float64{50, 90, 99} {
			l, ok := w.Overall(from, p)
			if got := w.Above(from, l); !ok || math.Abs(got-(1-p/100)) > 0.002 {
				t.Errorf("%v: %.4f of the requests are above the %v %% percentile, %v", fidelity, got, p, l)
			}
		}
		if w.Above(from, 0) != 1 || w.Above(from, time.Hour) != 0 || w.Above(w.Snapshot(), 0) > 1 {
			t.Errorf("%v: all are above zero, and none above an hour", fidelity)
		}
	}
}
