// Command sim measures the simulated world: environment steps of 10 s per second on one
// core, memory over many steps, and the difference of the fluid fidelity from the
// requests fidelity: on random services and graphs, and under the rules of the bench,
// whose limits change all the time. The last line is JSON.
//
// An environment step is a learner's: Advance by 100 slices, Sense and Act on one
// service.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/simtest"
	"awarescale.dev/aware/learner/sim/workload"
)

func main() {
	long := flag.Int("long", 10_000_000,
		"steps of the one-service world over which memory is watched; 0 leaves it out")
	rules := flag.Duration("rules", 10*time.Minute,
		"scored time of a run under a rule, at both fidelities; 0 leaves the rules out, 1h is what the bench runs")
	seeds := flag.Int("seeds", 1, "runs of each rule in each cell")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	if err := measure(*long, *rules, *seeds); err != nil {
		fmt.Fprintln(os.Stderr, "bench-sim:", err)
		os.Exit(1)
	}
}

func measure(long int, rules time.Duration, seeds int) error {
	one := simtest.One(sim.Service{
		Threads:   64,
		Procs:     8,
		Variation: 0.8,
		Size:      mdp.Size{CPU: 2000},
	}, 5*time.Millisecond, time.Millisecond)
	single, err := newEnvironment(one, sim.Steady(200))
	if err != nil {
		return err
	}
	app, err := workload.NamedApp("social-network")
	if err != nil {
		return err
	}
	trace, err := workload.Named("diurnal")
	if err != nil {
		return err
	}
	if trace, err = trace.Times(1.5); err != nil {
		return err
	}
	social, err := newEnvironment(app, trace)
	if err != nil {
		return err
	}
	var result struct {
		Steps  map[string]float64 `json:"steps_per_s"`
		Agree  map[string]float64 `json:"fast_vs_oracle"`
		Graphs map[string]float64 `json:"fast_vs_oracle_graphs"`
		Memory map[string]float64 `json:"memory,omitempty"`
		Rules  *bench.Agreement   `json:"fast_vs_oracle_rules,omitempty"`
	}
	result.Steps = map[string]float64{}
	for _, e := range []struct {
		name string
		env  *environment
	}{{"one-service", single}, {"social-network", social}} {
		rate, err := e.env.rate(5 * time.Second)
		if err != nil {
			return err
		}
		result.Steps[e.name] = float64(int(rate))
		fmt.Printf("%s: %.0f steps/s\n", e.name, rate)
	}
	if long > 0 {
		if result.Memory, err = single.memory(long); err != nil {
			return err
		}
	}
	if result.Agree, err = agreement("single services", 200, simtest.Single); err != nil {
		return err
	}
	if result.Graphs, err = agreement("graphs", 20, simtest.Tree); err != nil {
		return err
	}
	if rules > 0 {
		runtime.GOMAXPROCS(runtime.NumCPU())
		if result.Rules, err = underRules(rules, seeds); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// underRules compares the fidelities under every tuned rule of the bench but
// autothrottle, which has captain's captains and needs hours of warm-up.
func underRules(length time.Duration, seeds int) (*bench.Agreement, error) {
	cells, err := bench.Cells()
	if err != nil {
		return nil, err
	}
	tuned, err := bench.Shipped()
	if err != nil {
		return nil, err
	}
	var who []bench.Contestant
	for _, name := range []string{"static", "k8s-cpu", "k8s-cpu-fast", "hpa-vpa", "aimd", "captain"} {
		who = append(who, bench.Contestant{Name: name})
	}
	n := 0
	pairs, err := bench.Agree(context.Background(), cells, who, tuned, seeds, length, func(p bench.Pair) {
		n++
		fmt.Printf("%d/%d %s, %s, %s: p99 %.0f ms, by requests %.0f (%+.0f %%); cores %.2f, %.2f (%+.1f %%)\n",
			n, len(cells)*len(who)*seeds, p.App, p.Trace, p.Policy, p.Fluid.P99MS, p.Requests.P99MS, 100*p.P99Error(),
			p.Fluid.Cores, p.Requests.Cores, 100*p.CoresError())
	})
	if err != nil {
		return nil, err
	}
	a := bench.Summarise(cells, pairs)
	fmt.Printf("fluid against requests under rules, %d runs: p99 off by %.3f (median), %.3f (95th percentile); "+
		"cores by %.3f (95th percentile), at most %.3f; %d verdicts differ\n",
		a.Runs, a.Median, a.P95, a.CoresP95, a.Cores, len(a.Flips))
	if seeds > 1 {
		fmt.Printf("requests with one seed against another: p99 off by %.3f (median), %.3f (95th percentile); "+
			"cores by at most %.3f\nthe %d runs of rules whose p99s by requests are within 20 %% of each other: "+
			"p99 off by %.3f (95th percentile)\n", a.NoiseMedian, a.NoiseP95, a.NoiseCores, a.Steady, a.SteadyP95)
	}
	return &a, nil
}

func agreement(name string, cases int, draw simtest.Draw) (map[string]float64, error) {
	all, err := simtest.Agree(cases, 1, draw)
	if err != nil {
		return nil, err
	}
	median, p95 := simtest.Summary(all)
	fmt.Printf("fluid against requests, %d %s: p99 off by %.3f (median), %.3f (95th percentile)\n",
		cases, name, median, p95)
	return map[string]float64{"median_ape": median, "p95_ape": p95}, nil
}

// environment is a world with a learner's step.
type environment struct {
	world    *sim.World
	sensor   mdp.Sensor
	actuator mdp.Actuator
	base     mdp.MilliCPU
	steps    int
}

func newEnvironment(app sim.App, load sim.Load) (*environment, error) {
	w, err := sim.New(sim.Config{
		App:     app,
		Cluster: sim.Uniform(5, mdp.Size{CPU: 32_000, Memory: 1 << 40}),
		Load:    load,
		Seed:    1,
	})
	if err != nil {
		return nil, err
	}
	h := w.Services()[0]
	return &environment{
		world:    w,
		sensor:   h.Sensor(),
		actuator: h.Actuator(sim.L2),
		base:     app.Services[0].Size.CPU,
	}, nil
}

func (e *environment) step(ctx context.Context) error {
	e.world.Advance(10 * time.Second)
	if _, err := e.sensor.Sense(ctx, e.world.Now()); err != nil {
		return err
	}
	e.steps++
	// The limit goes up and down a little, as a learner's would.
	_, _, err := e.actuator.Act(ctx, e.world.Now(),
		mdp.Action{}.WithCPU(e.base+mdp.MilliCPU(e.steps%7)*e.base/20))
	return err
}

// rate is the steps per second. It is the best of three measurements, because the
// machine is shared.
func (e *environment) rate(each time.Duration) (float64, error) {
	best := 0.0
	for range 3 {
		begin, n := time.Now(), 0
		for time.Since(begin) < each {
			for range 50 {
				if err := e.step(context.Background()); err != nil {
					return 0, err
				}
			}
			n += 50
		}
		best = max(best, float64(n)/time.Since(begin).Seconds())
	}
	return best, nil
}

// memory is the live heap after a tenth of the steps and at their end, in KiB.
func (e *environment) memory(steps int) (map[string]float64, error) {
	live := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1024
	}
	var early float64
	begin := time.Now()
	for i := range steps {
		if i == steps/10 {
			early = live()
		}
		if err := e.step(context.Background()); err != nil {
			return nil, err
		}
	}
	late := live()
	fmt.Printf("%d steps in %v: live heap %.0f KiB after a tenth, %.0f KiB at the end\n",
		steps, time.Since(begin).Round(time.Second), early, late)
	return map[string]float64{"steps": float64(steps), "early_kib": early, "late_kib": late}, nil
}
