package mdptest

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Policy checks the laws of a Policy; fresh makes a new one, always the same.
func Policy(t *testing.T, fresh func() mdp.Policy) {
	t.Run("the same states give the same actions", func(t *testing.T) {
		one, two := fresh(), fresh()
		for i, s := range walk(200) {
			a, err := one.Decide(s)
			b, err2 := two.Decide(s)
			if a != b || (err == nil) != (err2 == nil) {
				t.Fatalf("step %d: %v (%v) and %v (%v)", i, a, err, b, err2)
			}
		}
	})
	t.Run("every action is legal", func(t *testing.T) {
		p := fresh()
		for i, s := range walk(500) {
			if a, err := p.Decide(s); err == nil {
				if err := a.Check(); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
		}
	})
	t.Run("with nothing observed it decides nothing", func(t *testing.T) {
		p := fresh()
		a, err := p.Decide(mdp.State{At: begin})
		var unknown *mdp.UnknownError
		if err != nil && !errors.As(err, &unknown) {
			t.Errorf("err = %v, want an UnknownError", err)
		}
		if err == nil && a.Sets != 0 {
			t.Errorf("decided %v from nothing", a)
		}
	})
	t.Run("a missing signal is not read as zero", func(t *testing.T) {
		// What the policy does with a figure missing must not depend on what garbage stands in its place.
		states := walk(100)
		for one := mdp.Replicas; one <= mdp.OOMKills; one++ {
			zero, garbage := fresh(), fresh()
			for i, s := range states {
				s.Observed = s.Observed.Without(mdp.SetOf(one))
				a, err := zero.Decide(Masked(s, s.Observed))
				b, err2 := garbage.Decide(s)
				if a != b || (err == nil) != (err2 == nil) {
					t.Fatalf("without %v, step %d: %v (%v) where the figure is zero, %v (%v) where it is not", one, i, a, err, b, err2)
				}
			}
		}
	})
	t.Run("extreme states make no panic and no illegal action", func(t *testing.T) {
		p := fresh()
		for i, s := range extremes() {
			if a, err := p.Decide(s); err == nil {
				if err := a.Check(); err != nil {
					t.Errorf("extreme %d: %v", i, err)
				}
			}
		}
	})
}

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// everything is the set of all signals.
func everything() mdp.Set {
	var all mdp.Set
	for s := mdp.Replicas; s <= mdp.OOMKills; s++ {
		all |= mdp.SetOf(s)
	}
	return all
}

// walk is a plausible history of a workload, one state a second.
func walk(n int) []mdp.State {
	rng := rand.New(rand.NewPCG(1, 2))
	states := make([]mdp.State, n)
	for i := range states {
		limit := mdp.Size{CPU: 100 + mdp.MilliCPU(rng.IntN(900)), Memory: mdp.Bytes(64+rng.IntN(400)) * mdp.MiB}
		use := mdp.MilliCPU(float64(limit.CPU) * rng.Float64())
		states[i] = mdp.State{
			At: begin.Add(time.Duration(i) * time.Second), Observed: everything(),
			Replicas: 1 + rng.IntN(5), Limit: limit,
			Usage:   mdp.Size{CPU: use, Memory: mdp.Bytes(float64(limit.Memory) * rng.Float64())},
			CPUPeak: min(limit.CPU, use*2), CPUDeviation: use / 4,
			Throttled: mdp.Ratio(rng.Float64() * 0.5), CPUPressure: mdp.Ratio(rng.Float64()),
			MemoryPressure: mdp.Ratio(rng.Float64() * 0.1), IOPressure: mdp.Ratio(rng.Float64() * 0.1),
			IORate: mdp.Rate(rng.Float64() * 1e6), Latency: time.Duration(1+rng.IntN(500)) * time.Millisecond,
			Throughput: mdp.Rate(rng.Float64() * 200), LoadChange: mdp.Ratio(0.5 + rng.Float64()), OOMKills: rng.IntN(20) / 19,
		}
	}
	return states
}

func extremes() []mdp.State {
	nan, inf := mdp.Ratio(math.NaN()), mdp.Ratio(math.Inf(1))
	full := func(change func(*mdp.State)) mdp.State {
		s := walk(1)[0]
		change(&s)
		return s
	}
	return []mdp.State{
		full(func(s *mdp.State) { s.Throttled = nan }),
		full(func(s *mdp.State) { s.Throttled, s.LoadChange = inf, inf }),
		full(func(s *mdp.State) { s.Throughput = mdp.Rate(math.NaN()) }),
		full(func(s *mdp.State) { s.Limit = mdp.Size{} }),
		full(func(s *mdp.State) { s.Limit = mdp.Size{CPU: math.MaxInt64 / 4, Memory: math.MaxInt64 / 4} }),
		full(func(s *mdp.State) { s.Usage = mdp.Size{CPU: math.MaxInt64 / 4, Memory: math.MaxInt64 / 4} }),
		full(func(s *mdp.State) { s.Usage, s.CPUPeak, s.CPUDeviation = mdp.Size{CPU: -1, Memory: -1}, -1, -1 }),
		full(func(s *mdp.State) { s.Replicas = 0 }),
		full(func(s *mdp.State) { s.Latency = math.MaxInt64 }),
		full(func(s *mdp.State) { s.At = begin.Add(-time.Hour) }),
		{Observed: everything()},
	}
}
