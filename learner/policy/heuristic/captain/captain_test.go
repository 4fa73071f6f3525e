package captain_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
)

func TestCaptainIsAPolicy(t *testing.T) {
	mdptest.Policy(t, func() mdp.Policy { return captain.New(captain.Default) })
}

// period is how often Autothrottle samples: a CFS period.
const period = 100 * time.Millisecond

// container has a captain that is asked at each step, and does what it says.
// Peak and deviation are what the test sets.
type container struct {
	t         *testing.T
	captain   *captain.Captain
	now       time.Time
	limit     mdp.MilliCPU
	peak      mdp.MilliCPU
	deviation mdp.MilliCPU
}

func newContainer(t *testing.T, target mdp.Ratio, limit, peak mdp.MilliCPU) *container {
	config := captain.Default
	config.Target = target
	return newContainerWith(t, config, limit, peak)
}

func newContainerWith(t *testing.T, config captain.Config, limit, peak mdp.MilliCPU) *container {
	c := &container{t: t, captain: captain.New(config), now: time.Unix(0, 0), limit: limit, peak: peak}
	c.step(0, 0)
	return c
}

func (c *container) state(throttled mdp.Ratio) mdp.State {
	return mdp.State{
		At:           c.now,
		Observed:     mdp.SetOf(mdp.CPULimit, mdp.Throttled, mdp.CPUPeak, mdp.CPUDeviation),
		Limit:        mdp.Size{CPU: c.limit},
		Throttled:    throttled,
		CPUPeak:      c.peak,
		CPUDeviation: c.deviation,
	}
}

// step asks the captain after a time with a share of throttled periods.
func (c *container) step(after time.Duration, throttled mdp.Ratio) {
	c.t.Helper()
	c.now = c.now.Add(after)
	a, err := c.captain.Decide(c.state(throttled))
	if err != nil {
		c.t.Fatal(err)
	}
	if a.Sets.Has(mdp.CPULimit) {
		c.limit = a.Limit.CPU
	}
}

// periods is a step for each letter: x is a throttled period.
func (c *container) periods(of string) {
	c.t.Helper()
	for _, one := range of {
		throttled := mdp.Ratio(0)
		if one == 'x' {
			throttled = 1
		}
		c.step(period, throttled)
	}
}

func (c *container) want(limit mdp.MilliCPU, why string) {
	c.t.Helper()
	if c.limit != limit {
		c.t.Fatalf("after %v the limit is %v, want %v: %s", c.now.Sub(time.Unix(0, 0)), c.limit, limit, why)
	}
}

// lowered is a container whose limit was lowered from 1000m to 600m, one second
// after its start.
func lowered(t *testing.T, target mdp.Ratio) *container {
	c := newContainer(t, target, 1000, 600)
	c.periods(".........")
	c.want(1000, "a decision comes after ten periods")
	c.periods(".")
	c.want(600, "the peak, and no deviation")
	return c
}

func TestRaiseIsByTheThrottlingBeyondThreeTimesTheTarget(t *testing.T) {
	c := newContainer(t, 0.1, 1000, 1000)
	c.periods("xxx.......")
	c.want(1000, "three of ten periods are three times the target")
	c.periods("xxxxxxx..")
	c.want(1000, "the second is not over")
	c.periods(".")
	c.want(1400, "x (1 + 0.7 - 0.3)")
}

func TestHistoryStartsEmptyAfterEachDecision(t *testing.T) {
	c := newContainer(t, 0.1, 1000, 1000)
	c.periods("xxx.......")
	c.periods("xxx.......")
	c.want(1000, "each second has three throttled periods, which is three times the target")
}

func TestDecreaseThatThrottlesIsTakenBackTwiceInThePeriodThatShowsIt(t *testing.T) {
	c := lowered(t, 0.1)
	c.periods("xxx")
	c.want(600, "three periods are not more than three times the target of ten")
	c.periods("x")
	c.want(1400, "2 x 1000m - 600m")
}

func TestDecreaseIsTakenBackOnlyUntilTheNextDecision(t *testing.T) {
	c := lowered(t, 0.1)
	c.periods("..........")
	c.want(600, "the peak is still 600m")
	c.periods("xxxxxxxxx")
	c.want(600, "a second after the decrease it stays")
	c.periods("x")
	c.want(1020, "x (1 + 1 - 0.3): a raise, no rollback")
}

func TestLastingDecreaseIsTakenBackUntilTheNextChange(t *testing.T) {
	config := captain.Default
	config.Target, config.Lasting = 0.1, true
	c := newContainerWith(t, config, 1000, 600)
	c.step(time.Second, 0)
	c.want(600, "lowered")
	for range 20 {
		c.step(time.Second, 0)
	}
	c.step(time.Second, 1)
	c.want(1400, "2 x 1000m - 600m")
	c.peak = 1400
	c.step(time.Second, 0.5)
	c.want(1680, "x (1 + 0.5 - 0.3): the decrease was taken back before")
}

func TestHistoryStartsEmptyAfterARollback(t *testing.T) {
	c := lowered(t, 0.1)
	c.peak = 1400
	c.periods("xxxx")
	c.want(1400, "2 x 1000m - 600m")
	c.periods("xxx...")
	c.want(1400, "three throttled periods since the rollback are not more than three times the target")
}

func TestRollbackOfTheLastPeriodIsFollowedByADecision(t *testing.T) {
	c := lowered(t, 0.1)
	c.periods("xxx......x")
	c.want(700, "2 x 1000m - 600m, and the peak of 600m is below half of it")
}

func TestDecreaseThatIsNotInForceIsNotTakenBack(t *testing.T) {
	c := newContainer(t, 0.1, 1000, 600)
	c.periods("..........")
	c.want(600, "lowered")
	c.limit = 1000 // the runtime is late
	c.periods("xxxx")
	c.want(1000, "the old limit throttled")
	c.limit = 600
	c.periods(".")
	c.want(1400, "2 x 1000m - 600m")
}

// The margin is seen in a decrease: the peak plus the margin's deviations.
func TestMarginGrowsOncePerDecisionByWhatIsBeyondTheTarget(t *testing.T) {
	c := newContainer(t, 0.1, 10_000, 9000)
	c.periods("xxx.......") // margin 3 + 0.3 - 0.1
	c.deviation = 1000
	c.peak = 5000
	c.periods("..........") // margin 3.2 - 0.1
	c.want(8100, "the peak and 3.1 deviations")
}

func TestRollbackGrowsTheMarginOnceInTheSameSecond(t *testing.T) {
	for _, c := range []struct {
		name   string
		second func(c *container)
		want   mdp.MilliCPU
	}{
		// Margin 3 - 0.1, + 0.4 - 0.1 by the rollback, - 0.1 by the decision of the same second, - 0.1.
		{"asked every period", func(c *container) { c.periods("xxxx......") }, 4000 + 3000},
		// Margin 3 - 0.1, + 0.4 - 0.1 by the rollback, - 0.1.
		{"asked every second", func(c *container) { c.step(time.Second, 0.4) }, 4000 + 3100},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newContainer(t, 0.1, 10_000, 6000)
			o.periods("..........")
			o.want(6000, "lowered")
			o.peak = 14_000
			c.second(o)
			o.want(14_000, "2 x 10000m - 6000m")
			o.peak, o.deviation = 4000, 1000
			o.periods("..........")
			o.want(c.want, "the peak and the margin")
		})
	}
}

func TestMarginIsNeverBelowZero(t *testing.T) {
	c := newContainer(t, 0.5, 10_000, 10_000)
	for range 20 {
		c.periods("..........")
	}
	c.deviation, c.peak = 100, 8000
	c.periods("..........")
	c.want(8000, "a margin of zero")
}

func TestOneDecisionAtMostHalvesTheLimit(t *testing.T) {
	c := newContainer(t, 0.1, 1000, 1)
	c.periods("..........")
	c.want(500, "half")
}

func TestLimitIsLoweredOnlyByATenthOrMore(t *testing.T) {
	c := newContainer(t, 0.1, 1000, 901)
	c.periods("..........")
	c.want(1000, "901m is above nine tenths")
	c.peak = 900
	c.periods("..........")
	c.want(900, "nine tenths")
}

func TestLimitIsNeverLoweredBelowTheFloor(t *testing.T) {
	c := newContainer(t, 0.1, 1000, 0)
	for range 10 {
		c.periods("..........")
	}
	c.want(captain.Default.Floor, "the floor")
}

func TestAskedEverySecondItDecidesEverySecond(t *testing.T) {
	c := newContainer(t, 0.1, 1000, 600)
	c.step(990*time.Millisecond, 0) // a ticker that jitters
	c.want(600, "lowered")
	c.step(1010*time.Millisecond, 0.5)
	c.want(1400, "2 x 1000m - 600m, and no decision")
	c.peak = 1400
	c.step(time.Second, 0.5)
	c.want(1680, "x (1 + 0.5 - 0.3)")
	c.peak = 1000
	c.step(time.Second, 0)
	c.want(1000, "lowered")
	c.step(time.Second, 0.3)
	c.want(1000, "the target allows it")
	c.step(time.Second, 0.5)
	c.want(1200, "x (1 + 0.5 - 0.3): the decrease was a second before")
	c.peak = 1100
	c.step(1300*time.Millisecond, 0) // a busy machine
	c.want(1200, "the peak is above nine tenths of it")
	c.step(700*time.Millisecond, 1)
	c.want(1680, "x (1 + 0.7 - 0.3), without waiting for the next second")
}

func TestTimeThatWasNotObservedIsNoHistory(t *testing.T) {
	unknown := func(c *container) {
		c.now = c.now.Add(period)
		_, err := c.captain.Decide(c.state(1).Mask(mdp.SetOf(mdp.CPULimit)))
		var missing *mdp.UnknownError
		if !errors.As(err, &missing) {
			c.t.Errorf("err = %v, want an UnknownError", err)
		}
	}
	for name, gap := range map[string]func(c *container){
		"a signal is missing": func(c *container) {
			unknown(c)
			c.step(period, 1)
		},
		"an impossible value": func(c *container) {
			if _, err := c.captain.Decide(c.state(mdp.Ratio(math.NaN()))); err == nil {
				c.t.Error("no error")
			}
			c.step(period, 1)
		},
		"nobody asked":       func(c *container) { c.step(captain.MaxStep+1, 1) },
		"time stands":        func(c *container) { c.step(0, 1) },
		"time goes backward": func(c *container) { c.step(-time.Hour, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			c := lowered(t, 0.1)
			c.periods("xxx")
			gap(c)
			c.peak = 1000
			c.periods("xxxx.....")
			c.want(600, "the decrease before the gap stays, and the next decision is a second after it")
			c.periods(".")
			c.want(660, "x (1 + 0.4 - 0.3): the periods after the gap")
		})
	}
}

// demand is a small model of CFS: demand above the limit throttles, and usage
// never exceeds the limit.
func (c *container) demand(of mdp.MilliCPU, every time.Duration) {
	c.t.Helper()
	c.peak, c.deviation = min(c.limit, of), of/50
	throttled := mdp.Ratio(0)
	if of > c.limit {
		throttled = 1 - mdp.Ratio(c.limit)/mdp.Ratio(of)
	}
	c.step(every, throttled)
}

func TestLimitFollowsABurstWithinSecondsAndDropsAfterIt(t *testing.T) {
	for _, every := range []time.Duration{period, time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			c := newContainer(t, captain.Default.Target, 500, 100)
			run := func(seconds int, demand mdp.MilliCPU) {
				for end := c.now.Add(time.Duration(seconds) * time.Second); c.now.Before(end); {
					c.demand(demand, every)
				}
			}
			run(30, 100)
			if c.limit < 100 || c.limit > 150 {
				t.Fatalf("at a demand of 100m the limit is %v, want a little above", c.limit)
			}
			run(10, 400)
			if left := 1 - float64(c.limit)/400; left > 3*float64(captain.Default.Target)+1e-9 {
				t.Errorf("ten seconds into a burst of 400m the limit is %v, and %.2f of the periods are throttled",
					c.limit, left)
			}
			run(40, 100)
			if c.limit > 200 {
				t.Errorf("forty seconds after the burst the limit is still %v", c.limit)
			}
		})
	}
}

func TestErrorNamesTheWrongSetting(t *testing.T) {
	c := captain.Default
	c.Target = 1.5
	if err := c.Check(); err == nil || err.Error() != "captain target 1.5: it must be in [0, 1)" {
		t.Errorf("err = %v", err)
	}
}

// A captain is asked ten times a second for each service.
func BenchmarkDecide(b *testing.B) {
	p := captain.New(captain.Default)
	s := (&container{limit: 1000, peak: 950}).state(0)
	b.ReportAllocs()
	for b.Loop() {
		s.At = s.At.Add(period)
		if _, err := p.Decide(s); err != nil {
			b.Fatal(err)
		}
	}
}

// A container that is throttled at the highest limit that it may have is short of CPU, and not of margin: after the overload the
// limit is what it was before.
func TestOverloadAtTheHighestLimitDoesNotWidenTheMargin(t *testing.T) {
	after := func(most, overload mdp.MilliCPU) mdp.MilliCPU {
		config := captain.Default
		config.Target = 0.002
		c := newContainerWith(t, config, 500, 100)
		c.deviation = 20
		c.captain.Within(most)
		c.step(time.Second, 0)
		c.want(250, "half of what it was")
		c.step(time.Second, 0)
		c.want(160, "the peak and three deviations")
		c.limit, c.peak = overload, 500 // somebody has relieved it
		c.step(time.Second, 0)
		for range 20 {
			c.step(time.Second, 0.5)
			c.limit = overload // what is more is not carried out
		}
		c.peak = 100
		for range 5 {
			c.step(time.Second, 0)
		}
		return c.limit
	}
	if l := after(500, 500); l < 155 || l > 160 {
		t.Errorf("after an overload at the highest limit it is %v: want 160m, or what the target takes of it in half a minute", l)
	}
	for name, l := range map[string]mdp.MilliCPU{
		"a step below the highest limit":   after(510, 500),
		"where the highest is not known":   after(0, 500),
		"far below the highest of a burst": after(1000, 500),
	} {
		if l < 300 {
			t.Errorf("%s: %v after a throttling of ten deviations", name, l)
		}
	}
}

// In the second of its relief a container was throttled at the limit before, and in the second in which that is taken back at the
// one after: both count.
func TestThrottlingBelowTheHighestLimitCounts(t *testing.T) {
	for name, at := range map[string][2]mdp.MilliCPU{"relieved": {160, 500}, "taken back": {500, 160}} {
		config := captain.Default
		config.Target = 0.002
		c := newContainerWith(t, config, 160, 100)
		c.deviation = 20
		c.captain.Within(500)
		for range 10 {
			c.limit = at[0]
			c.step(time.Second, 0)
			c.limit = at[1]
			c.step(time.Second, 0.1)
		}
		c.limit = 500
		for range 3 {
			c.step(time.Second, 0)
		}
		if c.limit < 175 {
			t.Errorf("%s: after ten such seconds the limit is %v: want a margin of a deviation more than 160m", name, c.limit)
		}
	}
}
