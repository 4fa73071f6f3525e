package sim_test

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/simtest"
)

// One operation simulates 10 s of one service and reads its state.
func BenchmarkStep(b *testing.B) {
	app := simtest.One(sim.Service{
		Threads:   64,
		Procs:     8,
		Variation: 0.8,
		Replicas:  1,
		Size:      mdp.Size{CPU: 2000},
	}, 5*time.Millisecond, time.Millisecond)
	w, err := sim.New(sim.Config{
		App:     app,
		Cluster: sim.Uniform(1, mdp.Size{CPU: 64000, Memory: 1 << 40}),
		Load:    sim.Steady(200),
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
