package agent

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
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
