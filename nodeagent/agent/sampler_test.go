package agent

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

// The burst is the busiest second, wherever it is among the samples, and not the busiest
// sample.
func TestTheBurstIsTheBusiestSecond(t *testing.T) {
	for name, c := range map[string]struct {
		use  func(sample int) time.Duration // of CPU, in each 100 ms
		n    int                            // samples
		want mdp.MilliCPU
		ok   bool
	}{
		"a steady use":          {func(int) time.Duration { return 20 * time.Millisecond }, 50, 200, true},
		"one busy sample":       {busy(20, 21), 50, 100, true},
		"a busy second":         {busy(10, 20), 50, 1000, true},
		"a busy second, at end": {busy(40, 50), 50, 1000, true},
		"half of it":            {busy(40, 45), 50, 500, true},
		"less than a second":    {busy(0, 50), 10, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var track Track
			var used time.Duration
			for i := range c.n {
				used += c.use(i)
				track.ring[i].at = noon.Add(time.Duration(i) * 100 * time.Millisecond)
				track.ring[i].Observed = cgroup.CPUUsage
				track.ring[i].Usage = used
			}
			track.count, track.next = c.n, c.n%samples
			if got, ok := track.burst(); got != c.want || ok != c.ok {
				t.Errorf("%v, %v; want %v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// busy is one core from a sample to another one.
func busy(from, to int) func(int) time.Duration {
	return func(i int) time.Duration {
		if i >= from && i < to {
			return 100 * time.Millisecond
		}
		return 0
	}
}

// A limit of a quarter of the ceiling has a period of four samples, and one of more than half of it
// one of a single sample: a peak is of the period that its limit has.
func TestAPeakIsOfThePeriodThatItsLimitHas(t *testing.T) {
	const up, down = 90 * time.Millisecond, 50 * time.Millisecond // of CPU, in a tenth of a second
	pairs := func(sample int) time.Duration {
		if sample%4 < 2 {
			return up
		}
		return down
	}
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		track := newNode(t, host, 1).tracks[0]
		var used time.Duration
		for i := range samples {
			used += pairs(i)
			track.ring[i] = sample{at: noon.Add(time.Duration(i) * tenth), CPU: cgroup.CPU{Observed: cgroup.CPUUsage, Usage: used}}
		}
		track.count, track.next = samples, 0
		for top, want := range map[mdp.MilliCPU]mdp.MilliCPU{
			0:    700, // no ceiling is known: as long as can be
			4000: 700, // of four samples
			2600: 767, // of three
			2000: 900, // of two
			1000: 900, // of one
		} {
			track.lane.top = limitsOf(mdp.Size{CPU: top})
			var s mdp.State
			track.lastSamples(noon.Add((samples-1)*tenth), &s)
			if s.CPUPeak != want || track.second != want {
				t.Errorf("below %v: peak %v, of the last second %v; want %v", top, s.CPUPeak, track.second, want)
			}
		}
	})
}
