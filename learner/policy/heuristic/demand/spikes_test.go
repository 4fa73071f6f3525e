package demand_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
)

// pulses run a container with a base demand, and a second of several times that in each twenty. The share of the pulses' work
// that is not done within the pulse's second is returned.
func (c *container) pulses(n int, base, pulse float64) (late float64) {
	c.t.Helper()
	for range n {
		c.run(19, constant(base))
		c.run(1, constant(pulse))
		late += c.backlog / pulse / float64(n)
	}
	return late
}

// The story of the rule: pulses come too fast for what reacts. Once a window was late, what they need is there. Five minutes
// after the last one it is forgotten; while the hour lasts the first one that comes again is remembered, and after it not.
func TestASpikeOfALateWindowIsHeldAndForgotten(t *testing.T) {
	for _, fast := range []bool{false, true} {
		config := demand.Default
		config.Fast = fast
		c := box(t, config, 2)
		c.policy.SetLateWindows(7)
		before := c.pulses(5, 0.5, 2)
		c.policy.SetLateWindows(8)
		c.pulses(1, 0.5, 2)
		after := c.pulses(105, 0.5, 2)
		// What does not surge in a pulse never sees how high it is.
		if fast && (before < 0.02 || after > 0.001) || !fast && (before < 0.5 || after > 0.6*before) {
			t.Errorf("fast %v: %.3f of a pulse was late, and %.4f with the spike held", fast, before, after)
		}
		held := map[bool]float64{false: 1.3, true: 1.8}[fast]
		c.run(295, constant(0.5))
		if c.limit < held {
			t.Errorf("fast %v: 295 s after the last pulse the limit is %.3f cores, want %v at least", fast, c.limit, held)
		}
		c.run(10, constant(0.5))
		if c.policy.Holds() || c.limit > held-0.1 { // the margin still knows how the demand scattered
			t.Errorf("fast %v: 305 s after the last pulse the limit is %.3f cores, and 0.5 are used", fast, c.limit)
		}
		c.pulses(1, 0.5, 2) // at 42 minutes
		c.run(1, constant(0.5))
		if !c.policy.Holds() {
			t.Errorf("fast %v: a pulse in the same hour is not held", fast)
		}
		c.run(20*60, constant(0.5))
		c.pulses(1, 0.5, 2) // at 62 minutes
		c.run(1, constant(0.5))
		if c.policy.Holds() {
			t.Errorf("fast %v: a pulse is held more than an hour after the last late window", fast)
		}
	}
}

// Whoever's windows are not late pays nothing: spikes alone hold nothing.
func TestWithoutALateWindowNothingIsHeld(t *testing.T) {
	told, plain := box(t, demand.Default, 2), box(t, demand.Default, 2)
	for i, counts := range [][]uint32{{5}, {5, 5, 5}, {0}, {0}} { // the first count, the same again, one that began anew
		for _, n := range counts {
			told.policy.SetLateWindows(n)
		}
		told.pulses(3, 0.5, 2)
		plain.pulses(3, 0.5, 2)
		if told.limit != plain.limit || told.policy.Holds() {
			t.Errorf("after counts %v (number %d) the limit is %.3f, and %.3f without them", counts, i, told.limit, plain.limit)
		}
	}
	told.policy.SetLateWindows(1)
	if !told.policy.Holds() {
		t.Error("after a count that began anew the first late window holds nothing")
	}
}

// What is late without a spike is late for another reason, and what was long ago was no spike of this window.
func TestOnlyARecentSpikeIsHeld(t *testing.T) {
	for name, one := range map[string]struct {
		since int // seconds since the spike
		spike float64
		want  bool
	}{
		"a spike just now":            {1, 2, true},
		"nearly five minutes ago":     {290, 2, true},
		"more than five minutes ago":  {310, 2, false},
		"hardly more than the demand": {1, 0.62, false},
		"somewhat more":               {1, 0.7, true},
	} {
		c := box(t, demand.Config{Floor: 10, Margin: 3}, 3)
		c.policy.SetLateWindows(0)
		c.run(300, constant(0.5))
		c.run(1, constant(one.spike))
		c.run(one.since, constant(0.5))
		c.policy.SetLateWindows(1)
		if got := c.policy.Holds(); got != one.want {
			t.Errorf("%s: held: %v, want %v", name, got, one.want)
		}
	}
}

// The limit is the highest demand of the last five minutes, which is more than the usage where work was held back. The hour
// begins anew with each late window.
func TestTheHighestDemandIsHeld(t *testing.T) {
	at := noon
	ask := func(p *demand.Policy, n int, usage mdp.MilliCPU, throttled mdp.Ratio) (limit mdp.MilliCPU) {
		t.Helper()
		for range n {
			at = at.Add(time.Second)
			a, err := p.Decide(mdp.State{At: at, Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage, mdp.Throttled),
				Limit: mdp.Size{CPU: 1}, Usage: mdp.Size{CPU: usage}, Throttled: throttled})
			if err != nil {
				t.Fatal(err)
			}
			limit = a.Limit.CPU
		}
		return limit
	}
	p := demand.New(demand.Default)
	p.SetLateWindows(0)
	ask(p, 300, 200, 0)
	ask(p, 1, 1000, 0)
	ask(p, 100, 200, 0)
	p.SetLateWindows(1)
	if got := ask(p, 1, 200, 0); got != 1000 {
		t.Errorf("100 s after a second of 1000m the limit is %v", got)
	}
	ask(p, 1, 800, 0)
	if got := ask(p, 100, 200, 0); got != 1000 {
		t.Errorf("after a smaller spike the limit is %v, want 1000m still", got)
	}
	if got := ask(p, 120, 200, 0); got != 800 {
		t.Errorf("when five minutes have passed the limit is %v, want the smaller spike's 800m", got)
	}
	p.SetLevel(-2)
	if got := ask(p, 1, 200, 0); got != 593 { // 800 exp(-0.3)
		t.Errorf("at level -2 the limit is %v, want 593m: what is left of the error budget is used", got)
	}
	p.SetLevel(1)
	if got := ask(p, 1, 200, 0); got != 800 {
		t.Errorf("at level 1 the limit is %v, want 800m", got)
	}
	p.SetLevel(0)
	ask(p, 3000, 200, 0)
	p.SetLateWindows(2)
	ask(p, 3000, 200, 0)
	ask(p, 1, 1000, 0)
	if got := ask(p, 100, 200, 0); got != 1000 {
		t.Errorf("50 minutes after the second late window a spike is not held: the limit is %v", got)
	}

	p = demand.New(demand.Default)
	ask(p, 100, 500, 0)
	ask(p, 400, 1000, 0)
	ask(p, 1, 1400, 0)
	ask(p, 1, 400, 1) // 1 core's work came, of which 600m were held back, by the filter's account
	p.SetLateWindows(9)
	if p.Holds() {
		t.Error("the first count that is heard of held a spike: nobody knows of when it is")
	}
	p.SetLateWindows(10)
	if !p.Holds() {
		t.Error("the second count holds none")
	}

	p = demand.New(demand.Default)
	p.SetLateWindows(0)
	ask(p, 300, 200, 0)
	ask(p, 1, 1000, 0)
	if _, err := p.Decide(mdp.State{At: at}); err == nil {
		t.Fatal("a State without figures is decided on")
	}
	p.SetLateWindows(1)
	if got := ask(p, 3, 200, 0); got != 1000 {
		t.Errorf("after a second of which nothing was known the spike is not held: the limit is %v", got)
	}

	p = demand.New(demand.Default)
	p.SetLateWindows(0)
	ask(p, 300, 1000, 0)
	ask(p, 1, 1000, 1) // held back: 2 ms
	ask(p, 1, 400, 1)
	ask(p, 1, 1500, 0) // of which 600m are from the second before
	p.SetLateWindows(1)
	if p.Holds() {
		t.Error("work that was held back and done a second later counts as a spike")
	}
}

// The second period in a row that is throttled may be chance. From the third on the limit is two fifths more in each, and
// at most eight times as much. A period without throttling ends it, and so does one of which nothing is known.
func TestARowOfThrottledPeriodsIsASurge(t *testing.T) {
	config := demand.Default
	config.Fast = true
	c := box(t, config, 2)
	c.run(300, requests(rand.New(rand.NewPCG(7, 8)), 0.4, 0.001))
	quiet := c.limit
	c.backlog = 100
	var limits []float64
	for range 9 {
		c.runPeriods(1, constant(0))
		limits = append(limits, c.limit)
	}
	for i, most := range []float64{1.2, 1.3} {
		if limits[i] > most*quiet {
			t.Errorf("after %d throttled periods the limit is %.3f, and it was %.3f", i+1, limits[i], quiet)
		}
	}
	for i := 2; i < 8; i++ {
		if ratio := limits[i] / limits[i-1]; ratio < 1.35 || ratio > 1.6 {
			t.Errorf("from the %dth throttled period to the next the limit grows %.2f times, want about 1.4", i, ratio)
		}
	}
	if ratio := limits[8] / limits[7]; ratio > 1.1 {
		t.Errorf("the ninth throttled period makes it %.2f times what it was: want at most 8 times in all", ratio)
	}
	c.backlog = 0
	c.runPeriods(1, constant(0))
	if c.limit > 4*quiet {
		t.Errorf("after a period without throttling the limit is %.3f, and %.3f before the surge", c.limit, quiet)
	}

	c = box(t, config, 2)
	c.run(300, requests(rand.New(rand.NewPCG(7, 8)), 0.4, 0.001))
	c.backlog = 100
	c.runPeriods(5, constant(0))
	c.period += 60 // six seconds
	c.runPeriods(1, constant(0))
	before := c.limit
	if c.runPeriods(1, constant(0)); c.limit > 1.3*before {
		t.Errorf("six seconds of which nothing is known, and in the next period a surge to %.3f from %.3f", c.limit, before)
	}
}

// Where the budget has room, a row of throttled periods is a surge when it is longer than chance makes them. A late window says
// that it was one.
func TestWhereHardlyAnyRequestsAreLateASurgeIsLater(t *testing.T) {
	for name, one := range map[string]struct {
		level         float64
		late          uint32
		first, latest int // throttled periods, after which the limit is two fifths more
	}{
		"requests are late":          {-0.4, 0, 3, 3},
		"hardly any are":             {-0.6, 0, 4, 9},
		"a window was, not long ago": {-3, 1, 3, 3},
	} {
		config := demand.Default
		config.Fast = true
		c := box(t, config, 2)
		c.policy.SetLevel(one.level)
		c.policy.SetLateWindows(0)
		c.run(300, requests(rand.New(rand.NewPCG(7, 8)), 0.4, 0.001))
		c.policy.SetLateWindows(one.late)
		c.runPeriods(1, constant(0))
		c.backlog = 100
		before, after := c.limit, 0
		for range 9 {
			c.runPeriods(1, constant(0))
			if after++; c.limit > 1.35*before {
				break
			}
			before = c.limit
		}
		if after < one.first || after > one.latest {
			t.Errorf("%s: the limit surges after %d throttled periods, want %d to %d", name, after, one.first, one.latest)
		}
	}
}

// Low limits throttle often, and then three periods in a row are nothing: of all rows no more than a few in a hundred surge,
// however low the level is.
func TestChanceIsNoSurge(t *testing.T) {
	for _, level := range []float64{-0.6, -1.5, -2, -3} {
		config := demand.Default
		config.Fast = true
		c := box(t, config, 2)
		c.policy.SetLevel(level)
		arrives := requests(rand.New(rand.NewPCG(7, 8)), 0.4, 0.004)
		c.run(300, arrives)
		rows, surges, inside := 0, 0, false
		for range 20 * 60 * 10 {
			before, was := c.limit, c.backlog > 1e-12
			c.runPeriods(1, arrives)
			throttled := c.backlog > 1e-12
			if throttled && !was {
				rows, inside = rows+1, false
			}
			if throttled && was && !inside && c.limit > 1.3*before {
				surges, inside = surges+1, true
			}
		}
		if share := float64(surges) / float64(rows); rows < 500 || share > 0.06 || share < 0.001 {
			t.Errorf("level %v: %d of %d rows of throttled periods surge", level, surges, rows)
		}
	}
}

// How long a row is by chance is learned of the last thousand throttled periods. A row of a second is a surge in any case.
func TestWhatChanceMakesIsLearnedAndForgotten(t *testing.T) {
	config := demand.Default
	config.Fast = true
	for name, one := range map[string]struct {
		patterns []string // of periods: T is throttled; each 3000 times
		want     int      // throttled periods, until the limit is 16 % more
	}{
		"never throttled":                    {[]string{"."}, 4},
		"alone only":                         {[]string{"T."}, 3},
		"two and three in a row":             {[]string{"TT.TTT."}, 9},
		"as many throttled ones, all in one": {[]string{"TTTTT.."}, 11},
		"nearly always":                      {[]string{"TTTTTTTTTTTTTTTTTTT."}, 11},
		"nearly always, and not any more":    {[]string{"TTTTTTTTTTTTTTTTTTT.", "T."}, 3},
	} {
		p, at := demand.New(config), noon
		p.SetLevel(-3)
		ask := func(period rune) mdp.MilliCPU {
			at = at.Add(100 * time.Millisecond)
			s := mdp.State{At: at, Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage, mdp.Throttled),
				Limit: mdp.Size{CPU: 1}, Usage: mdp.Size{CPU: 400}}
			if period == 'T' {
				s.Throttled = 1
			}
			a, err := p.Decide(s)
			if err != nil {
				t.Fatal(err)
			}
			return a.Limit.CPU
		}
		for _, pattern := range one.patterns {
			for range 3000 {
				for _, period := range pattern {
					ask(period)
				}
			}
		}
		for range 20 {
			ask('.')
		}
		before, after := ask('.'), 0
		for range 20 {
			if after++; float64(ask('T')) > 1.16*float64(before) {
				break
			}
		}
		if after != one.want {
			t.Errorf("%s: the limit surges after %d throttled periods, want %d", name, after, one.want)
		}
	}
}

// The story of a crowd that gathers: each second has more than the one before. A filter is behind all the time; who sees it rise
// for two seconds is there. Scatter is no crowd: a limit that takes it for one costs more.
func TestACrowdThatGathersIsFollowed(t *testing.T) {
	c := box(t, demand.Default, 2)
	c.run(300, requests(rand.New(rand.NewPCG(7, 8)), 0.4, 0.001))
	const step = 0.2
	for i := range 6 {
		cores := 0.4 + step*float64(i+1)
		c.run(1, requests(rand.New(rand.NewPCG(7, uint64(i))), cores, 0.001))
		if next := cores + step; i >= 3 && c.limit < next {
			t.Errorf("%d s after the crowd began the limit is %.2f cores, and the next second needs %.2f", i+1, c.limit, next)
		}
	}
	c.run(20, constant(1.6))
	if c.limit > 2.2 {
		t.Errorf("20 s after the crowd is there the limit is %.2f cores, and it needs 1.6", c.limit)
	}
}

// What rose before a time of which nothing is known does not rise still.
func TestACrowdBeforeAGapIsForgotten(t *testing.T) {
	for _, gap := range []time.Duration{0, 6 * time.Second} {
		p, at, limit := demand.New(demand.Config{Floor: 10, Margin: -5}), noon, mdp.MilliCPU(0)
		second := func(usage mdp.MilliCPU) {
			at = at.Add(time.Second)
			a, err := p.Decide(mdp.State{At: at, Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage, mdp.Throttled),
				Limit: mdp.Size{CPU: 1}, Usage: mdp.Size{CPU: usage}})
			if err != nil {
				t.Fatal(err)
			}
			limit = a.Limit.CPU
		}
		for range 300 {
			second(400)
		}
		second(600)
		if at = at.Add(gap); gap > 0 {
			second(600) // nobody saw it begin
			second(600)
		}
		second(800)
		if rises := limit > 950; rises != (gap == 0) {
			t.Errorf("after a gap of %v and a second step the limit is %v", gap, limit)
		}
	}
}

// Where the demand rose in the last second, the second throttled period in a row is no chance.
func TestWhereTheDemandRisesASurgeIsSooner(t *testing.T) {
	config := demand.Default
	config.Fast = true
	for _, rises := range []bool{false, true} {
		c := box(t, config, 2)
		c.policy.SetLevel(-1)
		c.run(300, requests(rand.New(rand.NewPCG(7, 8)), 0.4, 0.001))
		last := 0.4
		if rises {
			last = 0.6
		}
		c.run(1, constant(last))
		c.runPeriods(1, constant(0))
		c.backlog = 100
		c.runPeriods(1, constant(0))
		before := c.limit
		if c.runPeriods(1, constant(0)); (c.limit > 1.35*before) != rises {
			t.Errorf("rises: %v: in the second throttled period the limit goes from %.3f to %.3f", rises, before, c.limit)
		}
	}
}

func TestABudgetCountsLateWindows(t *testing.T) {
	b := demand.NewBudget(demand.DefaultBudget)
	at := noon
	for _, one := range []struct {
		missed, requests float64
		want             uint32
	}{
		{0.29, 100, 0}, {0.3, 100, 1}, {1, 1, 2}, {1, 0, 2}, {1.5, 100, 2}, {-1, 100, 2}, {0, 100, 2}, {0.9, 5, 3},
	} {
		at = at.Add(demand.Window)
		b.Observe(at, mdp.Ratio(one.missed), one.requests)
		if got := b.LateWindows(); got != one.want {
			t.Errorf("after a window in which %v of %v requests were late: %d late windows, want %d",
				one.missed, one.requests, got, one.want)
		}
	}
	if b.Observe(at, 1, 100); b.LateWindows() != 3 {
		t.Error("a window counts twice")
	}
}
