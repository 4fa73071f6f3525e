package main

import (
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
	"awarescale.dev/aware/test/apps/trace"
)

// Predicted is what the simulated world says of a slice, beside what was measured.
type Predicted struct {
	SLOViolationRatio  float64 `json:"slo_violation_ratio"`
	MeanCoresAllocated float64 `json:"mean_cores_allocated"`
}

// simulated is a run as a choice of the simulator's bench. The HPA and the VPA are not: there the bench's rule sets
// limits, and here the HPA sets replicas and the VPA memory. Nor is what was learned here. AWARE's captain has no relief by
// the fast lane there.
func simulated(run string, milli int) (c bench.Choice, ok bool) {
	c = bench.Choice{Encoding: bench.Encoding}
	switch run {
	case static, atMean, atLearned:
		c.Policy, c.Settings = "static", map[string]float64{"cpu." + appName: float64(milli)}
	case cpuFast:
		c.Policy = "k8s-cpu-fast"
	case aware:
		c.Policy = "captain"
	case demand:
		c.Policy = "demand"
	default:
		return c, false
	}
	return c, true
}

// predict simulates a slice, request by request: the application with the cost of a request that was measured, under
// the same rates. It is nil for what is not simulated: the HPA and the VPA, what was learned, and the neighbour.
func predict(ctx context.Context, s slice, f fit, t trace.Trace, milli int) (*Predicted, error) {
	choice, ok := simulated(s.run, milli)
	if !ok || s.neighbour {
		return nil, nil
	}
	cell, err := bench.Single(appName, world(f, milli), perSecond(t), 1)
	if err != nil {
		return nil, fmt.Errorf("simulating %s: %w", s.name(), err)
	}
	cell.Warm = cell.Trace
	cell.Cluster = sim.Uniform(1, mdp.Size{CPU: 2000, Memory: 8192 * mdp.MiB})
	var late float64
	score, err := bench.Run(ctx, cell, choice, bench.Options{
		Seed: s.seed, Fidelity: sim.Requests, Lead: warmUp, Tail: func(above bench.Above) { late = above(f.SLO) },
	})
	if err != nil {
		return nil, fmt.Errorf("simulating %s: %w", s.name(), err)
	}
	return &Predicted{SLOViolationRatio: late, MeanCoresAllocated: score.Cores - score.Acting}, nil
}

// world is the application of the demo in the simulator: a request costs what was measured, and a
// replica computes on as many processors as Go gives it below a limit of two cores.
func world(f fit, milli int) sim.App {
	return sim.App{
		Name:    appName,
		SLO:     mdp.SLO{Percentile: 99, Latency: f.SLO},
		Timeout: requestTimeout,
		Services: []sim.Service{{
			Name: appName, Threads: 10_000, Procs: 2, Variation: 0.1, Parallel: 1,
			Memory: sim.Memory{Base: 40 * mdp.MiB, PerRequest: 64 << 10}, Start: time.Second,
			Replicas: 2, Size: mdp.Size{CPU: mdp.MilliCPU(milli), Memory: 192 * mdp.MiB},
			Ceiling: mdp.Size{CPU: mostMilli, Memory: 256 * mdp.MiB},
			Bounds: mdp.Bounds{
				Replicas: mdp.Range[int]{Min: 1, Max: 3},
				CPU:      mdp.Range[mdp.MilliCPU]{Min: leastMilli, Max: mostMilli},
				Memory:   mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 256 * mdp.MiB},
			},
		}},
		Operations: []sim.Operation{{Name: appName + ".get", Service: appName, Work: f.Cost}},
		Endpoints:  []sim.Endpoint{{Operation: appName + ".get", Share: 1}},
	}
}

// perSecond is a trace in steps of a second, which are the simulator's shortest.
func perSecond(t trace.Trace) workload.Trace {
	const parts = 20
	out := workload.Trace{Name: "demo", Step: time.Second}
	for at := time.Duration(0); at < t.Duration(); at += time.Second {
		sum := 0.
		for i := range parts {
			sum += t.At(min(at+time.Second*time.Duration(i)/parts, t.Duration()-1))
		}
		out.Rates = append(out.Rates, sum/parts)
	}
	return out
}
