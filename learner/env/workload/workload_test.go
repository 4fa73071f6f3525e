package workload_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
	traces "awarescale.dev/aware/learner/sim/workload"
)

// shop is an application of one service under a steady load.
func shop() sim.App {
	return sim.App{
		Name: "shop",
		SLO:  mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond},
		Services: []sim.Service{{
			Name: "web", Replicas: 2, Size: mdp.Size{CPU: 1000, Memory: 256 * mdp.MiB},
			Bounds: mdp.Bounds{
				Replicas: mdp.Range[int]{Min: 1, Max: 6},
				CPU:      mdp.Range[mdp.MilliCPU]{Min: 50, Max: 4000},
				Memory:   mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 1024 * mdp.MiB},
			},
			Procs: 4, Threads: 64, Parallel: 1, Variation: 1, Memory: sim.Memory{Base: 60 * mdp.MiB},
		}},
		Operations: []sim.Operation{{Name: "get", Service: "web", Work: 5 * time.Millisecond}},
		Endpoints:  []sim.Endpoint{{Operation: "get", Share: 1}},
		Timeout:    5 * time.Second,
	}
}

// steady is worlds of the shop, with room on two nodes, under a load that does not change.
func steady(rate mdp.Rate) func(seed uint64) (sim.Config, error) {
	return func(seed uint64) (sim.Config, error) {
		return sim.Config{
			App: shop(), Cluster: sim.Uniform(2, mdp.Size{CPU: 16_000, Memory: 64 << 30}), Load: sim.Steady(rate), Seed: seed,
		}, nil
	}
}

func environment(t testing.TB, guards guard.Settings) *workload.Simulation {
	t.Helper()
	e, err := workload.OfWorld(steady(60), workload.Options{Alpha: 0.5, Step: 10 * time.Second, Guards: guards})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func encoded(t testing.TB, form encode.Form, length int) workload.Encoded {
	t.Helper()
	e, err := workload.Encode("sim:shop/steady", environment(t, guard.Central), form, length)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What the guards leave of a proposal takes force, and the Outcome says both.
func TestTheGuardsAreBetween(t *testing.T) {
	e := environment(t, guard.Central)
	if _, err := e.Step(t.Context(), mdp.Action{}); !errors.Is(err, env.ErrNotRunning) {
		t.Errorf("a step before Reset: %v", err)
	}
	if _, err := e.Reset(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	out, err := e.Step(t.Context(), mdp.Action{}.WithCPU(4000))
	if err != nil || out.Executed != (mdp.Action{}).WithCPU(2000) || out.Clipped != mdp.ClippedRateUp ||
		out.State.Limit.CPU != 2000 {
		t.Errorf("%+v, %v; want 2000m: twice the limit is the largest step", out, err)
	}
	if !out.RewardKnown || out.Effect != mdp.Pending {
		t.Errorf("%+v", out)
	}
	out, err = e.Step(t.Context(), mdp.Action{}.WithCPU(-1))
	var illegal *guard.IllegalError
	if !errors.As(err, &illegal) || out.Effect != mdp.Failed {
		t.Errorf("an illegal action: %+v, %v", out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Step(ctx, mdp.Action{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
}

// Each choice that the mask allows is taken, and what takes force is that
// choice or what the guards left of it.
func TestLegalChoicesAreCarriedOut(t *testing.T) {
	e := encoded(t, encode.Discrete(mdp.LimitKnobs), 60)
	obs, legal, executed := make([]float64, e.Observation().Dim()), make([]bool, e.Action().N), []float64{0}
	if err := e.Reset(3, obs); err != nil {
		t.Fatal(err)
	}
	taken, clipped, refused := map[int]bool{}, 0, 0
	for i := range 60 {
		e.(env.Masker).Legal(legal)
		choice := (i * 5) % len(legal)
		for !legal[choice] {
			// A choice that is not legal is refused, and is no step: the
			// episode goes on as if it had not been.
			if _, err := e.Step([]float64{float64(choice)}, obs); err == nil {
				t.Fatalf("step %d: choice %d is not legal, and was taken", i, choice)
			}
			refused++
			choice = (choice + 1) % len(legal)
		}
		out, err := e.Step([]float64{float64(choice)}, obs)
		if err != nil {
			t.Fatal(err)
		}
		e.Executed(executed)
		taken[choice] = true
		if int(executed[0]) != choice {
			clipped++
		}
		if out.Terminated || out.Truncated != (i == 59) || !out.RewardKnown || !(out.Reward >= 0 && out.Reward <= 2) {
			t.Fatalf("step %d: %+v", i, out)
		}
		if slices.ContainsFunc(obs, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
			t.Fatalf("step %d: %v", i, obs)
		}
	}
	if len(taken) < len(legal)/2 || clipped == 0 || refused == 0 {
		t.Errorf("%d of %d choices were taken, %d of them clipped, %d refused", len(taken), len(legal), clipped, refused)
	}
	if _, err := e.Step([]float64{0}, obs); !errors.Is(err, env.ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

// A box of all knobs at once is what the papers have; central's guards leave of
// it what is a small step.
func TestABoxIsCarriedOutAndReported(t *testing.T) {
	e := encoded(t, encode.Box(mdp.LimitKnobs), 5)
	obs, executed := make([]float64, e.Observation().Dim()), make([]float64, 3)
	if err := e.Reset(3, obs); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Step([]float64{1, 1, 1}, obs); err != nil {
		t.Fatal(err)
	}
	if e.Executed(executed); executed[1] >= 1 || executed[1] <= 0 {
		t.Errorf("executed %v: of the largest CPU limit only twice the present one takes force", executed)
	}
	if _, err := e.Step([]float64{math.NaN(), 0, 0}, obs); err == nil {
		t.Error("NaN was taken")
	}
}

// What takes force as it was proposed is reported with the same numbers, or an
// on-policy learner would take it for another action: a limit is rounded, and
// at a bound two choices come to one value.
func TestWhatIsCarriedOutAsProposedIsReportedAsProposed(t *testing.T) {
	box, err := workload.Encode("sim:shop/steady", environment(t, guard.Published), encode.Box(mdp.LimitKnobs), 50)
	if err != nil {
		t.Fatal(err)
	}
	obs, executed := make([]float64, box.Observation().Dim()), make([]float64, 3)
	if err := box.Reset(1, obs); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		x := []float64{math.Sin(float64(i)), math.Cos(float64(3 * i)), math.Sin(float64(7 * i))}
		if _, err := box.Step(x, obs); err != nil {
			t.Fatal(err)
		}
		if box.Executed(executed); !slices.Equal(executed, x) {
			t.Fatalf("step %d: proposed %v, executed %v", i, x, executed)
		}
	}
	choices, err := workload.Encode("sim:shop/steady", environment(t, guard.Published), encode.Discrete(mdp.LimitKnobs), 50)
	if err != nil {
		t.Fatal(err)
	}
	if err := choices.Reset(1, obs); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cpu-limit x1.5", "cpu-limit x2", "cpu-limit x2"} {
		choice := float64(slices.Index(choices.Form().Names(), name))
		if _, err := choices.Step([]float64{choice}, obs); err != nil {
			t.Fatal(err)
		}
		if choices.Executed(executed[:1]); executed[0] != choice {
			t.Errorf("%s was executed as %s", name, choices.Form().Names()[int(executed[0])])
		}
	}
}

// An episode that is saved and restored in the middle goes on bit by bit.
func TestARestoredEpisodeGoesOnBitByBit(t *testing.T) {
	for name, form := range map[string]encode.Form{"choices": encode.Discrete(mdp.LimitKnobs), "box": encode.Box(mdp.LimitKnobs)} {
		t.Run(name, func(t *testing.T) {
			one, two := encoded(t, form, 20), encoded(t, form, 20)
			n := one.Observation().Dim()
			a, b := make([]float64, n), make([]float64, n)
			action := func(i int) []float64 {
				if form.NumActions() > 0 {
					legal := make([]bool, form.NumActions())
					one.(env.Masker).Legal(legal)
					for k := i % len(legal); ; k = (k + 1) % len(legal) {
						if legal[k] {
							return []float64{float64(k)}
						}
					}
				}
				return []float64{math.Sin(float64(i)), math.Cos(float64(i)), math.Sin(float64(2 * i))}
			}
			if err := one.Reset(7, a); err != nil {
				t.Fatal(err)
			}
			for i := range 8 {
				if _, err := one.Step(action(i), a); err != nil {
					t.Fatal(err)
				}
			}
			saved, err := one.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if err := two.UnmarshalBinary(saved); err != nil {
				t.Fatal(err)
			}
			if err := two.Observe(b); err != nil || !slices.Equal(a, b) {
				t.Fatalf("the restored observation differs: %v", err)
			}
			for i := 8; i < 20; i++ {
				x := action(i)
				first, err1 := one.Step(x, a)
				second, err2 := two.Step(x, b)
				if err1 != nil || err2 != nil || first != second || !slices.Equal(a, b) {
					t.Fatalf("step %d: %+v and %+v, %v, %v", i, first, second, err1, err2)
				}
			}
			before, err := two.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			for cut := 0; cut < len(saved); cut += 1 + len(saved)/100 {
				if err := two.UnmarshalBinary(saved[:cut]); err == nil {
					t.Fatalf("%d bytes of %d were restored", cut, len(saved))
				}
			}
			if after, err := two.MarshalBinary(); err != nil || !bytes.Equal(before, after) {
				t.Errorf("what could not be restored changed the environment: %v", err)
			}
		})
	}
}

// An agent must not be able to learn a trace by heart: an episode begins
// anywhere in it, and nothing that is observed says where.
func TestAnEpisodeBeginsAnywhereInTheTraceAndNoTimeNamesThePlace(t *testing.T) {
	const steps = 3
	ramp := traces.Trace{Name: "ramp", Step: time.Minute} // each minute has a rate of its own
	for i := range 60 {
		ramp.Rates = append(ramp.Rates, float64(20+i))
	}
	rates := map[float64]bool{}
	e, err := workload.OfWorld(func(seed uint64) (sim.Config, error) {
		load := workload.Anywhere(ramp, seed)
		if again := workload.Anywhere(ramp, seed); load.Rate(0) != again.Rate(0) {
			t.Errorf("seed %d begins at two places", seed)
		}
		for _, ago := range []time.Duration{time.Minute, 30 * time.Minute, 59 * time.Minute} { // what is before its begin is its end
			if before, after := load.Rate(-ago), load.Rate(time.Hour-ago); before != after {
				t.Errorf("seed %d: %v %v ago, and %v an hour after that", seed, before, ago, after)
			}
		}
		rates[float64(load.Rate(0))] = true
		return sim.Config{App: shop(), Cluster: sim.Uniform(2, mdp.Size{CPU: 16_000, Memory: 64 << 30}), Load: load, Seed: seed}, nil
	}, workload.Options{Alpha: 0.5, Step: 10 * time.Second, Guards: guard.Central})
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(40) {
		state, err := e.Reset(t.Context(), seed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			if want := sim.Epoch.Add(time.Duration(i+1) * 10 * time.Second); state.At != want {
				t.Fatalf("seed %d, step %d: at %v, want %v in every episode", seed, i, state.At, want)
			}
			out, err := e.Step(t.Context(), mdp.Action{})
			if err != nil {
				t.Fatal(err)
			}
			state = out.State
		}
	}
	if len(rates) < 20 {
		t.Errorf("40 episodes began in %d of 60 minutes", len(rates))
	}
}

// A burst of an hour ago is known when an episode begins, as it would be to whoever has metrics of the workload; one of three
// hours ago is not, and neither is the next one. A service that two in ten requests reach has two tenths of it.
func TestThePeakOfTheLastHoursIsKnownWhenAnEpisodeBegins(t *testing.T) {
	day := traces.Trace{Name: "day", Step: time.Minute, Rates: make([]float64, 24*60)}
	for i := range day.Rates {
		day.Rates[i] = 20
	}
	const burst = 12 * 60 // the minute of the burst
	day.Rates[burst] = 300
	app := chain()
	app.Operations[0].Stages[0][0].Share = 0.1 // and the background work, which is as much
	seen := map[bool]int{}
	for seed := range uint64(100) {
		load := workload.Anywhere(day, seed)
		var minute int // since the burst
		for minute = 0; load.Rate(-time.Duration(minute)*time.Minute) != 300; minute++ {
		}
		if minute < 2 || minute >= 24*60-2 {
			continue // the burst is now
		}
		e, err := workload.OfApplication(func(seed uint64) (sim.Config, error) {
			return sim.Config{
				App: app, Cluster: sim.Uniform(2, mdp.Size{CPU: 16_000, Memory: 64 << 30}), Load: load, Seed: seed,
			}, nil
		}, workload.Options{Alpha: 0.5, Step: 10 * time.Second, Guards: guard.Central})
		if err != nil {
			t.Fatal(err)
		}
		states, err := e.Reset(t.Context(), seed)
		if err != nil {
			t.Fatal(err)
		}
		recent := minute < 115
		if minute >= 115 && minute < 135 {
			continue
		}
		seen[recent]++
		for i, share := range []float64{1, 0.2} {
			s := states[i]
			got := float64(s.LoadPeak)
			if want := 300 * share; !s.Knows(mdp.LoadPeak) || recent && math.Abs(got-want) > 1e-9 || !recent && got > want/5 {
				t.Errorf("%d minutes after a burst of %v, service %d: %v", minute, want, i, got)
			}
		}
	}
	if seen[true] < 3 || seen[false] < 20 {
		t.Errorf("%d episodes were within two hours of the burst, %d were not", seen[true], seen[false])
	}
}

// chain is an application of two services and background work, so that it shows
// everything that a simulated world can show.
func chain() sim.App {
	app := shop()
	app.Name = "chain"
	store := app.Services[0]
	store.Name = "store"
	app.Services = append(app.Services, store)
	app.Operations = []sim.Operation{
		{
			Name: "get", Service: "web", Work: 5 * time.Millisecond,
			Stages:     [][]sim.Call{{{Operation: "row", Share: 1}}},
			Background: []sim.Call{{Operation: "row", Share: 0.1}},
		},
		{Name: "row", Service: "store", Work: 2 * time.Millisecond},
	}
	return app
}

// application is the whole of chain as an environment.
func application(t *testing.T) *workload.Application {
	t.Helper()
	e, err := workload.OfApplication(func(seed uint64) (sim.Config, error) {
		return sim.Config{
			App: chain(), Cluster: sim.Uniform(2, mdp.Size{CPU: 16_000, Memory: 64 << 30}), Load: sim.Steady(60), Seed: seed,
		}, nil
	}, workload.Options{Alpha: 0.5, Step: 10 * time.Second, Guards: guard.Central})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A client that trusts Spaces must find every signal that ever comes, and wait
// for none in vain.
func TestSeenIsWhatASimulatedWorldShows(t *testing.T) {
	e := application(t)
	states, err := e.Reset(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var shown mdp.Set
	for range 10 {
		for i, s := range states {
			shown |= s.Observed
			if !e.Spaces()[i].Signals.Contains(s.Observed) {
				t.Errorf("%s shows %v, and its spaces have %v", e.Spaces()[i].Service, s.Observed, e.Spaces()[i].Signals)
			}
		}
		out, err := e.Step(t.Context(), make([]mdp.Action, 2))
		if err != nil {
			t.Fatal(err)
		}
		states = []mdp.State{out[0].State, out[1].State}
	}
	if shown != workload.Seen {
		t.Errorf("shown is %v, and Seen is %v", shown, workload.Seen)
	}
}

// One illegal action of several must not leave the others half done.
func TestAnIllegalActionOnOneServiceStopsAllOfThem(t *testing.T) {
	e := application(t)
	if _, err := e.Step(t.Context(), make([]mdp.Action, 2)); !errors.Is(err, env.ErrNotRunning) {
		t.Errorf("a step before Reset: %v", err)
	}
	before, err := e.Reset(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var illegal *guard.IllegalError
	out, err := e.Step(t.Context(), []mdp.Action{mdp.Action{}.WithCPU(1500), mdp.Action{}.WithCPU(-1)})
	if !errors.As(err, &illegal) || !strings.Contains(err.Error(), "service store") || out[0].Effect != mdp.Failed {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := e.Step(t.Context(), make([]mdp.Action, 1)); err == nil || !strings.Contains(err.Error(), "1 actions") {
		t.Errorf("too few actions: %v", err)
	}
	out, err = e.Step(t.Context(), make([]mdp.Action, 2))
	if err != nil || out[0].State.At.Sub(before[0].At) != 10*time.Second || out[0].State.Limit.CPU != 1000 {
		t.Errorf("after what was refused the first step leads to %+v, %v", out[0].State, err)
	}
	if _, err := workload.OfApplication(nil, workload.Options{Service: "web"}); err == nil ||
		!strings.Contains(err.Error(), `service "web"`) {
		t.Errorf("all services, and one of them: %v", err)
	}
}

func TestEnvironmentsAreFoundByName(t *testing.T) {
	e, err := workload.Make("sim:social-network/bursty", false)
	if err != nil {
		t.Fatal(err)
	}
	obs := make([]float64, e.Observation().Dim())
	if err := e.Reset(1, obs); err != nil {
		t.Fatal(err)
	}
	first := slices.Clone(obs)
	if err := e.Reset(2, obs); err != nil || slices.Equal(first, obs) {
		t.Errorf("another seed begins at the same place of the trace: %v", err)
	}
	if err := e.Reset(1, obs); err != nil || !slices.Equal(first, obs) {
		t.Errorf("the same seed begins elsewhere: %v", err)
	}
	for name, want := range map[string]string{
		"CartPole-v1":                    "sim:APPLICATION/TRACE",
		"sim:social-network":             "sim:APPLICATION/TRACE",
		"sim:shop/bursty":                "shop",
		"sim:social-network/lunar":       "lunar",
		"sim:social-network/bursty/none": "none",
	} {
		if _, err := workload.Make(name, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
