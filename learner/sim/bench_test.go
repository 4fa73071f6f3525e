package sim_test

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/simtest"
	"awarescale.dev/aware/learner/sim/workload"
)

// One operation simulates 10 s of one service and reads its state.
func BenchmarkStep(b *testing.B) {
	benchmarkStep(b, simtest.One(sim.Service{
		Threads:   64,
		Procs:     8,
		Variation: 0.8,
		Replicas:  1,
		Size:      mdp.Size{CPU: 2000},
	}, 5*time.Millisecond, time.Millisecond), sim.Steady(200))
}

// One operation simulates 10 s of an application with calls and reads the state of one
// service.
func BenchmarkApplication(b *testing.B) {
	app, err := workload.NamedApp("social-network")
	if err != nil {
		b.Fatal(err)
	}
	trace, err := workload.Named("diurnal")
	if err != nil {
		b.Fatal(err)
	}
	if trace, err = trace.Times(1.5); err != nil {
		b.Fatal(err)
	}
	benchmarkStep(b, app, trace)
}

// One operation makes a world of an application that others have been made of, as each episode does.
func BenchmarkNew(b *testing.B) {
	app, err := workload.NamedApp("social-network")
	if err != nil {
		b.Fatal(err)
	}
	c := sim.Config{App: app, Cluster: sim.Uniform(5, mdp.Size{CPU: 32_000, Memory: 1 << 40}), Load: sim.Steady(10), Seed: 1}
	for b.Loop() {
		if _, err := sim.New(c); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkStep(b *testing.B, app sim.App, load sim.Load) {
	w, err := sim.New(sim.Config{
		App:     app,
		Cluster: sim.Uniform(5, mdp.Size{CPU: 32_000, Memory: 1 << 40}),
		Load:    load,
		Seed:    1,
	})
	if err != nil {
		b.Fatal(err)
	}
	sensor := w.Services()[0].Sensor()
	b.ReportAllocs()
	for b.Loop() {
		w.Advance(10 * time.Second)
		if _, err := sensor.Sense(b.Context(), w.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
