package calibrate

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// key identifies an allocation.
func key(alloc []float64) string {
	b := make([]byte, 0, 8*len(alloc))
	for _, a := range alloc {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(a))
	}
	return string(b)
}

// cilantro is the client of Cilantro's measurements; see docs/validation.md for
// the sources. Its offered rate is fitted.
var cilantro = client{connections: 32, seconds: 30, settle: 10}

// application returns the application with the measured services, and whether
// it is compiled in. Services that no application has are called one after the
// other by each request.
func application(services []string) (app sim.App, known bool) {
	for _, name := range workload.Apps() {
		app, err := workload.NamedApp(name)
		if err != nil {
			panic(err) // it is compiled in
		}
		has := map[string]bool{}
		for _, s := range app.Services {
			has[s.Name] = true
		}
		if !slices.ContainsFunc(services, func(s string) bool { return !has[s] }) {
			return app, true
		}
	}
	return sequence(services), false
}

// sequence is an application whose requests visit all services in order.
func sequence(services []string) sim.App {
	const client = "client"
	app := sim.App{Name: "sequence", SLO: mdp.SLO{Percentile: 99, Latency: time.Second}}
	entry := sim.Operation{Name: client, Service: client, Work: time.Microsecond, Wait: 300 * time.Microsecond}
	for _, s := range append([]string{client}, services...) {
		app.Services = append(app.Services, sim.Service{
			Name:      s,
			Threads:   1024,
			Procs:     16,
			Variation: 0.5,
			Parallel:  1,
			Replicas:  1,
			Size:      mdp.Size{CPU: 1000, Memory: 1 << 30},
			Memory:    sim.Memory{Base: 64 << 20},
			Bounds: mdp.Bounds{
				CPU:      mdp.Range[mdp.MilliCPU]{Min: 1, Max: 64000},
				Memory:   mdp.Range[mdp.Bytes]{Min: 1 << 20, Max: 64 << 30},
				Replicas: mdp.Range[int]{Min: 1, Max: 1},
			},
		})
	}
	for i, s := range services {
		name := fmt.Sprintf("visit %d", i)
		app.Operations = append(app.Operations, sim.Operation{
			Name:    name,
			Service: s,
			Work:    500 * time.Microsecond,
			Wait:    300 * time.Microsecond,
		})
		entry.Stages = append(entry.Stages, []sim.Call{{Operation: name, Share: 1}})
	}
	app.Operations = append(app.Operations, entry)
	app.Endpoints = []sim.Endpoint{{Operation: client, Share: 1}}
	return app
}

// scaled is the application with other constants. No operation works longer
// than mostWork.
func scaled(app sim.App, services []string, f factors) sim.App {
	app.Operations = slices.Clone(app.Operations)
	for i := range app.Operations {
		o := &app.Operations[i]
		o.Wait = time.Duration(float64(o.Wait) * f.wait)
		if s := slices.Index(services, o.Service); s >= 0 {
			o.Work = max(time.Nanosecond, time.Duration(float64(o.Work)*f.work[s]))
		}
	}
	return app
}

// allocated is the application under an allocation: a replica for each core,
// as Cilantro allocates. A part of a core, the mean of a window in which the
// allocation changed, makes all replicas smaller.
func allocated(app sim.App, services []string, alloc []float64) sim.App {
	app.Services = slices.Clone(app.Services)
	for i := range app.Services {
		s := &app.Services[i]
		at := slices.Index(services, s.Name)
		if at < 0 {
			continue
		}
		cores := max(alloc[at], leastCPU)
		s.Replicas = int(math.Ceil(cores - 1e-9))
		s.Size.CPU = mdp.MilliCPU(math.Round(1000 * cores / float64(s.Replicas)))
		s.Bounds.Replicas = mdp.Range[int]{Min: 1, Max: s.Replicas}
		s.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: 1, Max: 64000}
	}
	return app
}

// burst is a load that starts after a time.
type burst struct {
	from time.Duration
	rate float64
}

// Rate implements [sim.Load].
func (b burst) Rate(at time.Duration) mdp.Rate {
	if at < b.from {
		return 0
	}
	return mdp.Rate(b.rate)
}

// replay simulates one window of a measurement: the completed rate per second
// and the p99 in ms, as the client reports them.
func replay(app sim.App, c client, seed uint64) (rate, p99 float64, err error) {
	// A latency window ends at a multiple of its length. With idle seconds in
	// front, the second one is what the client reports.
	idle := c.seconds - 2*c.settle
	window := time.Duration((c.seconds - c.settle) * float64(time.Second))
	app.Timeout = 2 * time.Minute // wrk2 waits for every answer
	nodes, cores := 1, 0.0
	for _, s := range app.Services {
		cores += s.Size.CPU.Cores() * float64(s.Replicas)
	}
	nodes += int(math.Ceil(cores / 8))
	w, err := sim.New(sim.Config{
		App:         app,
		Cluster:     sim.Uniform(nodes, mdp.Size{CPU: 8000, Memory: 1 << 40}), // m5.2xlarge has 8 CPUs
		Load:        burst{time.Duration(idle * float64(time.Second)), c.offered},
		Seed:        seed,
		Fidelity:    sim.Requests,
		Window:      window,
		Connections: int(c.connections),
	})
	if err != nil {
		return 0, 0, err
	}
	w.Advance(2 * window)
	l, _ := w.Latency(99)
	return w.Totals().Ended / c.seconds, 1000 * l.Seconds(), nil
}
