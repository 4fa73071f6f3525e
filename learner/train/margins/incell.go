package margins

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// late is the latencies, in times of the SLO, that make the tail.
var late = []float64{0.65, 0.8, 1, 1.25}

// fewest is the share of late requests that stands for none.
const fewest = 1e-5

// InCell judges margins in random worlds of a cell's application and warm-up trace, with the
// demand policy of that name.
func InCell(cell bench.Cell, policy string, length time.Duration) (Judge, error) {
	choice, err := bench.Named(policy)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, world uint64, margins []float64) (Outcome, error) {
		c := choice.With([]string{"share"}, []float64{0}).With(names(cell), Part{Of: 1}.Margins(margins))
		var o Outcome
		s, err := bench.Run(ctx, Random(cell, world, length), c, bench.Options{
			Seed: world, Fidelity: sim.Fluid, Length: length, Lead: length / 4, Tail: func(above bench.Above) {
				o.Late = above(cell.App.SLO.Latency)
				for _, k := range late {
					share := above(time.Duration(k * float64(cell.App.SLO.Latency)))
					o.Tail += math.Log(max(fewest, share)) / float64(len(late))
				}
			},
		})
		o.Cores = s.Cores
		return o, err
	}, nil
}

// Random is a world that is like a cell's, and not that cell: a piece of its warm-up trace from a random place, at a random
// mean rate and speed, with noise of its own; and each service's work is another one by up to 15 %.
func Random(cell bench.Cell, seed uint64, length time.Duration) bench.Cell {
	rng := rand.New(rand.NewPCG(seed, 0x6d617267696e73))
	between := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	// The rate: e-folds are even, so that a half is as likely as the double.
	scale := math.Exp(between(math.Log(0.6), math.Log(1.5)))
	speed := math.Exp(between(math.Log(0.5), math.Log(3)))
	offset := between(0, cell.Warm.Length().Seconds())
	noise, keep := between(0, 0.1), math.Exp(-1/math.Exp(between(math.Log(2), math.Log(60))))
	drift := rng.NormFloat64()
	t := workload.Trace{Name: "random", Step: time.Second}
	for i := range int((length + length/4) / time.Second) {
		drift = keep*drift + math.Sqrt(1-keep*keep)*rng.NormFloat64()
		at := math.Mod(offset+speed*float64(i), cell.Warm.Length().Seconds())
		rate := float64(cell.Warm.Rate(time.Duration(at * float64(time.Second))))
		t.Rates = append(t.Rates, max(0, rate*scale*(1+noise*drift)))
	}
	app := cell.App
	work := make(map[string]float64, len(app.Services))
	for _, s := range app.Services {
		work[s.Name] = between(0.85, 1.15)
	}
	app.Operations = slices.Clone(app.Operations)
	for i := range app.Operations {
		o := &app.Operations[i]
		o.Work = time.Duration(float64(o.Work) * work[o.Service])
	}
	cell.App, cell.Warm, cell.Trace = app, t, t
	return cell
}
