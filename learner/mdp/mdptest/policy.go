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
		// What the policy does with a figure missing must not depend on what
		// garbage stands in its place.
		states := walk(100)
		for one := range mdp.Signals() {
			zero, garbage := fresh(), fresh()
			for i, s := range states {
				s.Observed = s.Observed.Without(mdp.SetOf(one))
				a, err := zero.Decide(s.Mask(s.Observed))
				b, err2 := garbage.Decide(s)
				if a != b || (err == nil) != (err2 == nil) {
					t.Fatalf("without %v, step %d: %v (%v) where the figure is zero, %v (%v) where it is not",
						one, i, a, err, b, err2)
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

// walk is a plausible history of a workload, one state a second. Every signal
// of the table has a value, by its unit.
func walk(n int) []mdp.State {
	rng := rand.New(rand.NewPCG(1, 2))
	states := make([]mdp.State, n)
	for i := range states {
		s := &states[i]
		s.At = begin.Add(time.Duration(i) * time.Second)
		for one := range mdp.Signals() {
			one.Set(s, plausible(one.Unit(), rng))
		}
		// What is used is below its limit.
		s.Usage.CPU = mdp.MilliCPU(float64(s.Limit.CPU) * rng.Float64())
		s.Usage.Memory = mdp.Bytes(float64(s.Limit.Memory) * rng.Float64())
		s.CPUPeak = min(s.Limit.CPU, 2*s.Usage.CPU)
		s.CPUDeviation = s.Usage.CPU / 4
		s.LoadChange += 0.5
	}
	return states
}

func plausible(u mdp.Unit, rng *rand.Rand) float64 {
	switch u {
	case mdp.ReplicaCount:
		return float64(1 + rng.IntN(5))
	case mdp.Millicores:
		return float64(100 + rng.IntN(900))
	case mdp.ByteCount:
		return float64(mdp.Bytes(64+rng.IntN(400)) * mdp.MiB)
	case mdp.BytesPerSecond:
		return rng.Float64() * 1e6
	case mdp.Seconds:
		return 0.001 + rng.Float64()/2
	case mdp.RequestsPerSec:
		return rng.Float64() * 200
	case mdp.Kills:
		return float64(rng.IntN(20) / 19)
	}
	return rng.Float64() / 2
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
		{Observed: mdp.All},
	}
}
