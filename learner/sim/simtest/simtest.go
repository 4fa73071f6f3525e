// Package simtest creates random applications and compares the two levels of
// the simulator on them. The tests of sim set a limit for the difference; make
// bench-sim prints it.
package simtest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

// One is an application with one service. Zero values of the service get
// defaults. work and wait are the CPU time and the I/O time of a request.
func One(s sim.Service, work, wait time.Duration) sim.App {
	s.Name = "app"
	s.Bounds = mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 64},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 10, Max: 64000},
		Memory:   mdp.Range[mdp.Bytes]{Min: mdp.MiB, Max: 64 << 30},
	}
	if s.Size.Memory == 0 {
		s.Size.Memory = 8 << 30
	}
	if s.Replicas == 0 {
		s.Replicas = 1
	}
	if s.Parallel == 0 {
		s.Parallel = 1
	}
	return sim.App{
		Name:       "one",
		SLO:        mdp.SLO{Percentile: 99, Latency: time.Second, Lost: 0.005, Background: 0.99},
		Services:   []sim.Service{s},
		Operations: []sim.Operation{{Name: "serve", Service: "app", Work: work, Wait: wait}},
		Endpoints:  []sim.Endpoint{{Operation: "serve", Share: 1}},
	}
}

// Figures are the results of a run.
type Figures struct {
	P99         float64 // latency in seconds
	Utilisation float64 // CPU use divided by CPU limits
}

// Run simulates an application for the time d, after 30 s of warm-up.
func Run(app sim.App, load sim.Load, level sim.Fidelity, seed uint64, d time.Duration) (Figures, error) {
	w, err := sim.New(sim.Config{
		App:      app,
		Cluster:  sim.Uniform(20, mdp.Size{CPU: 64000, Memory: 1 << 40}),
		Load:     load,
		Seed:     seed,
		Fidelity: level,
	})
	if err != nil {
		return Figures{}, err
	}
	w.Advance(30 * time.Second)
	m := w.Snapshot()
	w.Advance(d)
	l, _ := w.Overall(m, 99)
	a := w.Totals()
	return Figures{l.Seconds(), (a.Used - m.Totals.Used) / (a.Allocated - m.Totals.Allocated)}, nil
}

// Single is a random application with one service: 0.5 ms to 100 ms of work per
// request, 0.1 to 8 cores, and 10 % to 90 % utilisation. The text describes it.
func Single(r *rand.Rand) (sim.App, sim.Steady, string) {
	between := func(a, b float64) float64 { return a * math.Pow(b/a, r.Float64()) }
	work := between(0.0005, 0.1)
	limit := between(0.1, 8)
	procs := 1 + r.IntN(16)
	threads := procs + r.IntN(64)
	variation := 0.3 + r.Float64()
	wait := between(0.0002, 0.02)
	replicas := 1 + r.IntN(3)
	capacity := min(limit, float64(procs)) / work
	capacity = min(capacity, 0.9*float64(threads)/(work+wait))
	load := (0.1 + 0.8*r.Float64()) * capacity * float64(replicas)
	app := One(sim.Service{
		Threads:   threads,
		Procs:     procs,
		Variation: variation,
		Replicas:  replicas,
		Size:      mdp.Size{CPU: mdp.MilliCPU(limit * 1000)},
	}, time.Duration(work*1e9), time.Duration(wait*1e9))
	what := fmt.Sprintf("work %.1fms limit %.2f procs %d threads %d cv %.2f wait %.1fms replicas %d load %.0f/s = %.2f of capacity",
		work*1e3, limit, procs, threads, variation, wait*1e3, replicas, load, load/capacity/float64(replicas))
	return app, sim.Steady(load), what
}

// Tree is a random application with up to twelve services. Each has one
// operation. Calls run in sequence or in parallel, and some are made by a share
// of the requests only.
func Tree(r *rand.Rand) (sim.App, sim.Steady, string) {
	between := func(a, b float64) float64 { return a * math.Pow(b/a, r.Float64()) }
	n := 3 + r.IntN(10)
	rate := between(20, 300)
	app := sim.App{
		Name:      "tree",
		SLO:       mdp.SLO{Percentile: 99, Latency: time.Second, Lost: 0.005, Background: 0.99},
		Endpoints: []sim.Endpoint{{Operation: "op0", Share: 1}},
	}
	visits := make([]float64, n)
	visits[0] = 1
	for i := range n {
		app.Operations = append(app.Operations, sim.Operation{
			Name: fmt.Sprint("op", i), Service: fmt.Sprint("s", i),
			Work: time.Duration(between(0.0005, 0.01) * 1e9), Wait: time.Duration(between(0.0002, 0.005) * 1e9),
		})
		if i == 0 {
			continue
		}
		parent, share := r.IntN(i), 1.0
		if r.IntN(3) == 0 {
			share = 0.2 + 0.6*r.Float64()
		}
		visits[i] = visits[parent] * share
		p := &app.Operations[parent]
		call := sim.Call{Operation: fmt.Sprint("op", i), Share: mdp.Ratio(share)}
		switch {
		case r.IntN(8) == 0:
			p.Background = append(p.Background, call)
		case len(p.Stages) > 0 && r.IntN(2) == 0:
			last := len(p.Stages) - 1
			p.Stages[last] = append(p.Stages[last], call)
		default:
			p.Stages = append(p.Stages, []sim.Call{call})
		}
	}
	for i := range n {
		need := rate * visits[i] * app.Operations[i].Work.Seconds()
		s := One(sim.Service{
			Threads:   512,
			Procs:     4 + r.IntN(16),
			Variation: 0.4 + 0.8*r.Float64(),
			Replicas:  1 + r.IntN(2),
		}, time.Millisecond, 0).Services[0]
		s.Name = fmt.Sprint("s", i)
		s.Size.CPU = mdp.MilliCPU(max(50, 1000*need/float64(s.Replicas)/(0.2+0.5*r.Float64())))
		app.Services = append(app.Services, s)
	}
	return app, sim.Steady(rate), fmt.Sprintf("%d services, %.0f/s", n, rate)
}

// Agreement compares the two levels on one application.
type Agreement struct {
	Error       float64 // relative error of the fluid level's p99
	Utilisation float64 // absolute difference of the utilisations
	Fluid       Figures
	Requests    Figures
	What        string // describes the application
}

// Draw creates a random application, its load, and a description.
type Draw func(*rand.Rand) (sim.App, sim.Steady, string)

// Agree compares the levels on random applications. The result is sorted by the
// error.
func Agree(cases int, seed uint64, draw Draw) ([]Agreement, error) {
	r := rand.New(rand.NewPCG(seed, 2))
	var all []Agreement
	for range cases {
		app, load, what := draw(r)
		// Enough requests for a p99, and a time much longer than a
		// queue's memory.
		d := time.Duration(max(120, min(60_000/float64(load), 7200))) * time.Second
		slow, err := Run(app, load, sim.Requests, 7, d)
		if err != nil {
			return nil, err
		}
		fast, err := Run(app, load, sim.Fluid, 8, 2*d)
		if err != nil {
			return nil, err
		}
		all = append(all, Agreement{
			Error:       math.Abs(fast.P99-slow.P99) / slow.P99,
			Utilisation: math.Abs(fast.Utilisation - slow.Utilisation),
			Fluid:       fast,
			Requests:    slow,
			What:        what,
		})
	}
	slices.SortFunc(all, func(a, b Agreement) int { return cmp.Compare(a.Error, b.Error) })
	return all, nil
}

// Summary is the median and the 95th percentile of the errors.
func Summary(all []Agreement) (median, p95 float64) {
	return all[len(all)/2].Error, all[(len(all)*95+99)/100-1].Error
}
