package perfmodel_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"awarescale.dev/aware/learner/sim/perfmodel"
)

func TestMoreCPUIsNeverSlower(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		w := perfmodel.Work{
			Floor:    r.Float64(),
			CPU:      10 * r.Float64(),
			Parallel: 8 * r.Float64(),
			Serial:   r.Float64(),
			Throttle: 2 * r.Float64(),
		}
		last := math.Inf(1)
		for cpu := 0.0; cpu < 12; cpu += 0.25 {
			d, err := w.Duration(cpu, 0)
			if err != nil || d > last*(1+1e-12) || d < w.Floor {
				t.Fatalf("%+v on %v cores: %v s after %v s, %v", w, cpu, d, last, err)
			}
			last = d
		}
	}
}

func TestRunFailsWithLessMemoryThanItNeeds(t *testing.T) {
	w := perfmodel.Work{CPU: 1, Parallel: 1, Throttle: 1, Memory: 100}
	if _, err := w.Duration(1, 99); !errors.Is(err, perfmodel.ErrMemory) {
		t.Errorf("99 of 100 bytes: %v, want ErrMemory", err)
	}
	if d, err := w.Duration(1, 100); err != nil || d != 1 {
		t.Errorf("100 of 100 bytes: %v s, %v", d, err)
	}
}

func TestAmdahlSpeedupAndDurationAgree(t *testing.T) {
	if s := perfmodel.Amdahl(0, 8); s != 8 {
		t.Errorf("nothing serial: 8 threads are %v times as fast", s)
	}
	if s := perfmodel.Amdahl(1, 8); s != 1 {
		t.Errorf("all serial: 8 threads are %v times as fast", s)
	}
	w := perfmodel.Work{CPU: 1, Parallel: 8, Serial: 0.2, Throttle: 1}
	if d, _ := w.Duration(8, 0); math.Abs(1/d-perfmodel.Amdahl(0.2, 8)) > 1e-12 {
		t.Errorf("Duration says %v, Amdahl %v", 1/d, perfmodel.Amdahl(0.2, 8))
	}
}

func TestMorePressureIsNeverFaster(t *testing.T) {
	s := perfmodel.Sensitivity{perfmodel.Core: 0.8, perfmodel.LastLevel: 1.2, perfmodel.L2: -0.1, "disk": 0.5}
	resources := []perfmodel.Shared{perfmodel.Core, perfmodel.LastLevel, perfmodel.L2, perfmodel.Bandwidth, "disk"}
	for _, r := range resources {
		p := perfmodel.Pressure{perfmodel.Core: 0.3}
		last := perfmodel.Slowdown(s, p)
		for p[r] = 0.3; p[r] < 1.5; p[r] += 0.1 {
			f := perfmodel.Slowdown(s, p)
			if f < last || f < 1 {
				t.Errorf("%s at %.1f: slowdown %v after %v", r, p[r], f, last)
			}
			last = f
		}
	}
	if f := perfmodel.Slowdown(s, nil); f != 1 {
		t.Errorf("no pressure: slowdown %v", f)
	}
}

func TestLittlesLawHoldsBelowAndAboveSaturation(t *testing.T) {
	l := perfmodel.Loop{
		Clients: 1000,
		Think:   1,
		Alone:   0.05,
		Quiet:   0.1,
		Spread:  perfmodel.Exponential,
		Ceiling: 8,
	}
	lastMean, lastP99 := 0.0, 0.0
	for capacity := 2000.0; capacity > 10; capacity *= 0.97 {
		rate, mean, p99 := l.Answer(capacity)
		if n := rate * (mean + l.Think); math.Abs(n-l.Clients) > 1e-6 {
			t.Fatalf("capacity %v: rate %v * (mean %v + think %v) is %v clients, want %v",
				capacity, rate, mean, l.Think, n, l.Clients)
		}
		if rate > capacity || rate > l.Offered() || mean < lastMean || p99 < lastP99 {
			t.Fatalf("capacity %v: rate %v, mean %v after %v, p99 %v after %v",
				capacity, rate, mean, lastMean, p99, lastP99)
		}
		if p99 > l.Quiet+l.Ceiling {
			t.Fatalf("capacity %v: p99 %v is above its ceiling", capacity, p99)
		}
		lastMean = mean
		lastP99 = p99
	}
}

func TestBottleneckDeterminesCapacity(t *testing.T) {
	c := perfmodel.Capacity([]perfmodel.Station{{CPU: 8, Demand: 0.001}, {CPU: 3, Demand: 0.002}, {CPU: 1}})
	if c != 1500 {
		t.Errorf("capacity %v, want 1500", c)
	}
	if c := perfmodel.Capacity(nil); !math.IsInf(c, 1) {
		t.Errorf("no stations: capacity %v", c)
	}
}
