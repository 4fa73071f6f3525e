package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
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
// one of less than two: a peak is of the period that its limit has.
func TestAPeakIsOfThePeriodThatItsLimitHas(t *testing.T) {
	pairs := func(sample int) time.Duration { // of CPU, in a tenth of a second
		if sample%4 < 2 {
			return 90 * time.Millisecond
		}
		return 50 * time.Millisecond
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
			2800: 700, // 280 ms of CPU are used in four samples
			2550: 729, // 255 in three and a half
			2300: 767, // 230 in three
			1800: 900, // 180 in two
			1350: 900, // 135 in one and a half
			800:  900, // 80 in less than one: there is no limit that is high enough
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

// The deviation is of windows as long as the peak's, and what the last second used says nothing of what
// was before.
func TestTheDeviationIsOfThePeaksWindowAndTheSecondIsTheLast(t *testing.T) {
	for name, c := range map[string]struct {
		use               func(i int) mdp.MilliCPU // of sample i, from the oldest on
		deviation, second mdp.Range[mdp.MilliCPU]
	}{
		"a tenth in four is the ceiling": {func(i int) mdp.MilliCPU {
			if i%4 == 0 {
				return 1100
			}
			return 100
		}, mdp.Range[mdp.MilliCPU]{Min: 400, Max: 450}, mdp.Range[mdp.MilliCPU]{Min: 1000, Max: 1100}},
		"a burst, and a second without": {func(i int) mdp.MilliCPU {
			if i < samples-20 {
				return 800
			}
			return 50
		}, mdp.Range[mdp.MilliCPU]{Min: 1, Max: 800}, mdp.Range[mdp.MilliCPU]{Min: 45, Max: 55}},
	} {
		track := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1).tracks[0]
		var used time.Duration
		for i := range samples {
			used += time.Duration(c.use(i)) * tenth / 1000
			track.ring[i] = sample{at: noon.Add(time.Duration(i) * tenth), CPU: cgroup.CPU{Observed: cgroup.CPUUsage, Usage: used}}
		}
		track.count, track.next, track.lane.top = samples, 0, limitsOf(mdp.Size{CPU: 1000})
		var s mdp.State
		track.lastSamples(noon.Add((samples-1)*tenth), &s)
		if s.CPUDeviation < c.deviation.Min || s.CPUDeviation > c.deviation.Max {
			t.Errorf("%s: the deviation is %v, want %v", name, s.CPUDeviation, c.deviation)
		}
		if track.second < c.second.Min || track.second > c.second.Max {
			t.Errorf("%s: the peak of the last second is %v, want %v", name, track.second, c.second)
		}
	}
}

// A limit at the peak throttles nothing of what was used, and one that is a little lower does: in one
// of the periods, wherever it begins, more than its quota is used.
func TestALimitAtThePeakThrottlesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	track := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1).tracks[0]
	for range 2000 {
		ceiling, scale := mdp.MilliCPU(200+rng.IntN(2000)), rng.Float64()*float64(tenth)
		var sums [samples]time.Duration
		var used time.Duration
		for i := range samples {
			used += time.Duration(scale * rng.Float64() * rng.Float64())
			sums[i] = used
			track.ring[i] = sample{at: noon.Add(time.Duration(i) * tenth), CPU: cgroup.CPU{Observed: cgroup.CPUUsage, Usage: used}}
		}
		track.count, track.next, track.lane.top = samples, 0, limitsOf(mdp.Size{CPU: ceiling})
		var s mdp.State
		track.lastSamples(noon.Add((samples-1)*tenth), &s)
		// The highest use in a period, where the use within a sample is even.
		most := func(period float64) (most float64) {
			whole := int(period)
			for i := whole; i < samples; i++ {
				older, newer := time.Duration(0), time.Duration(0)
				if i > whole {
					older = sums[i-whole] - sums[i-whole-1]
				}
				if i+1 < samples {
					newer = sums[i+1] - sums[i]
				}
				part := (period - float64(whole)) * float64(max(older, newer))
				most = max(most, float64(sums[i]-sums[i-whole])+part)
			}
			return most
		}
		for _, c := range []struct {
			limit     float64
			throttles bool
		}{{float64(s.CPUPeak) + 1, false}, {0.99*float64(s.CPUPeak) - 1, true}} {
			if s.CPUPeak < 20 || s.CPUPeak >= ceiling {
				continue
			}
			period := min(4, float64(ceiling)/c.limit)
			quota := period * c.limit * float64(tenth) / 1000
			if got := most(period) > 1.001*quota; got != c.throttles {
				t.Fatalf("below %v the peak is %v: a limit of %.0fm throttles: %v; %.1f ms are used in %.2f samples, of %.1f ms",
					ceiling, s.CPUPeak, c.limit, got, most(period)/1e6, period, quota/1e6)
			}
		}
	}
}

// The course is in halves of a second of the clock, whenever the samples come: nothing that was used is lost, and it begins anew
// after a time that the samples do not have.
func TestTheCourseIsInHalvesOfTheClock(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var track Track
	now, used := noon.Add(130*time.Millisecond), time.Duration(0)
	record := map[int64]time.Duration{} // used, at the end of each half
	sampled := func(took time.Duration, rate float64) {
		for half := halves(now) + 1; half <= halves(now.Add(took)); half++ {
			record[half] = used + time.Duration(rate*float64(time.Unix(0, half*int64(api.Half)).Sub(now)))
		}
		now, used = now.Add(took), used+time.Duration(rate*float64(took))
		track.ring[track.next] = sample{at: now, CPU: cgroup.CPU{Observed: cgroup.CPUUsage, Usage: used}}
		track.next, track.count = (track.next+1)%samples, min(samples, track.count+1)
	}
	check := func(want int) {
		t.Helper()
		track.follow()
		c := track.course
		if c.Until != halves(now) || len(c.Use) != want {
			t.Fatalf("%d halves until %d, want %d until %d", len(c.Use), c.Until, want, halves(now))
		}
		for i, got := range c.Use {
			half := c.Until - int64(len(c.Use)-1-i)
			if exact := per(record[half]-record[half-1], api.Half); max(got-exact, exact-got) > 1 {
				t.Errorf("half %d: %v, want %v", half, got, exact)
			}
		}
	}
	track.follow()
	if track.course.Until != 0 {
		t.Error("without samples there is a course")
	}
	for second := range 30 {
		for range 10 {
			sampled(time.Duration(80+rng.IntN(40))*time.Millisecond, 2*rng.Float64())
		}
		if track.follow(); second < 11 {
			continue
		}
		check(api.MaxHalves)
	}
	looksAgain := func() {
		t.Helper()
		track.follow()
		if n := len(track.course.Use); n < 8 || n > 10 {
			t.Errorf("after seven seconds in which nobody looked the course has %d halves", n)
		}
		check(len(track.course.Use))
	}
	for range 70 { // nobody looks for longer than the samples reach back
		sampled(100*time.Millisecond, 1)
	}
	looksAgain()
	for range 60 { // the same, and the oldest sample is of the very end of a half
		sampled(100*time.Millisecond, 1)
	}
	sampled(time.Unix(0, (halves(now)+1)*int64(api.Half)).Sub(now), 1)
	for i := 0; i < samples || track.back(samples-1).at.UnixNano()%int64(api.Half) != 0; i++ {
		sampled(100*time.Millisecond, 1)
	}
	looksAgain()
	track.ring[(track.next-1+samples)%samples].Observed = 0
	sampled(600*time.Millisecond, 1)
	check(0)
}

// Who may know a container's use is told its course, too, and nobody else.
func TestAReportHasTheCourse(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.demand[0] = 200
	g.grant(api.Observe)
	g.run(12 * time.Second)
	c := g.summary(0).Course
	if c.Until != halves(g.now) || len(c.Use) != api.MaxHalves || c.Use[api.MaxHalves-1] != 200 {
		t.Errorf("the course is %+v, want %d halves of 200m until %d", c, api.MaxHalves, halves(g.now))
	}
	g.grant(api.Off)
	g.run(2 * time.Second)
	if c := g.summary(0).Course; c.Until != 0 || len(c.Use) > 0 {
		t.Errorf("of a container that is off a course is reported: %+v", c)
	}
}
