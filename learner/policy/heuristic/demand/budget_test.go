package demand_test

import (
	"math"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
)

// hours runs a budget over windows whose share of missed requests follows from the level.
func windows(b *demand.Budget, from time.Time, n int, missed func(level float64) float64) (spent float64, last time.Time) {
	for range n {
		from = from.Add(demand.Window)
		f := missed(b.Level())
		spent += f
		b.Observe(from, mdp.Ratio(f), 1000)
	}
	return spent / float64(n), from
}

// An application in which each level halves what is missed: whatever the factor is, the budget finds
// the level that uses the share up, and not more.
func TestTheBudgetIsUsedUpAndNotMore(t *testing.T) {
	for _, at0 := range []float64{0.003, 0.01, 0.05} {
		b := demand.NewBudget(demand.DefaultBudget)
		_, at := windows(b, noon, 3600, func(level float64) float64 { return at0 * math.Exp(-2*level) })
		got, _ := windows(b, at, 360, func(level float64) float64 { return at0 * math.Exp(-2*level) })
		if share := float64(demand.DefaultBudget.Share); got > 1.05*share || got < 0.85*share {
			t.Errorf("with %v missed at level 0, %.4f are missed in the end, want %.4f; the level is %.2f",
				at0, got, share, b.Level())
		}
	}
}

// A disturbance of some minutes costs a part of the hour's budget. The rest of the hour makes up for it.
func TestWhatWasSpentIsSavedInTheRestOfTheHour(t *testing.T) {
	steady := func(level float64) float64 { return 0.0085 * math.Exp(-2*level) }
	b := demand.NewBudget(demand.DefaultBudget)
	_, at := windows(b, noon, 3*360, steady)
	before := b.Level()
	disturbed, at := windows(b, at, 30, func(float64) float64 { return 0.05 })
	if b.Level() < before+0.5 {
		t.Errorf("the level was %.3f, and is %.3f after five minutes of 5 %%", before, b.Level())
	}
	rest, _ := windows(b, at, 329, steady)
	if all := (30*disturbed + 329*rest) / 359; all > 0.009 || rest > 0.006 {
		t.Errorf("%.4f are missed in the hour, %.4f of them after the disturbance", all, rest)
	}
}

// The criterion of windows: users feel a window in which the percentile is above the SLO, although the hour's is not.
func TestTheStricterCriterionDecides(t *testing.T) {
	config := demand.DefaultBudget
	config.Windows = 0.05
	b := demand.NewBudget(config)
	n := 0
	over := 0
	bursty := func(level float64) float64 { // one window of ten is a burst, which a level of 1 covers
		if n++; n%10 == 0 && level < 1 {
			over++
			return 0.05
		}
		return 0
	}
	windows(b, noon, 3600, bursty)
	over = 0
	windows(b, noon.Add(10*time.Hour), 3600, bursty)
	if share := float64(over) / 3600; share > 0.06 || share < 0.03 {
		t.Errorf("%.3f of the windows are over the SLO, want 0.05", share)
	}
}

func TestWhatSaysNothingChangesNothing(t *testing.T) {
	b := demand.NewBudget(demand.DefaultBudget)
	windows(b, noon, 10, func(float64) float64 { return 0.02 })
	before := *b
	at := noon.Add(100 * time.Second) // the last window again
	b.Observe(at, 0.5, 1000)
	for _, missed := range []mdp.Ratio{mdp.Ratio(math.NaN()), -0.1, 1.1, mdp.Ratio(math.Inf(1))} {
		b.Observe(at.Add(time.Minute), missed, 1000)
	}
	for _, n := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		b.Observe(at.Add(time.Minute), 0.5, n)
	}
	if *b != before {
		t.Errorf("%+v became %+v", before, *b)
	}
}

// The first hour may be a part of one: its budget is that of the part.
func TestAnHourCanBeginAnywhere(t *testing.T) {
	for _, begin := range []time.Duration{0, time.Minute, 59 * time.Minute} {
		config := demand.DefaultBudget
		config.Begin = begin
		b := demand.NewBudget(config)
		missed := func(level float64) float64 { return 0.02 * math.Exp(-2*level) }
		_, at := windows(b, noon, 3600, missed)
		if got, _ := windows(b, at, 360, missed); got > 0.0095 || got < 0.007 {
			t.Errorf("hours that begin after %v: %.4f are missed", begin, got)
		}
	}
}

func TestLevelsStayWithinTheirRange(t *testing.T) {
	b := demand.NewBudget(demand.DefaultBudget)
	_, at := windows(b, noon, 20000, func(float64) float64 { return 1 })
	if b.Level() != 2.5 {
		t.Errorf("where everything is missed the level is %v", b.Level())
	}
	if windows(b, at, 20000, func(float64) float64 { return 0 }); b.Level() != -3 {
		t.Errorf("where nothing is missed the level is %v", b.Level())
	}
}

// A budget goes on from the level of the one before it, by either criterion.
func TestABudgetBeginsAtItsLevel(t *testing.T) {
	for level, want := range map[float64]float64{1.25: 1.25, -2: -2, 9: 2.5, -9: -3} {
		config := demand.DefaultBudget
		config.Windows, config.Level = 0.05, level
		b := demand.NewBudget(config)
		if b.Level() != want {
			t.Errorf("from %v it begins at %v, want %v", level, b.Level(), want)
		}
		if windows(b, noon, 1, func(float64) float64 { return 0 }); b.Level() > want || b.Level() < want-0.011 {
			t.Errorf("after a window without misses the level went from %v to %v", want, b.Level())
		}
	}
}

// Where a fast lane relieves what would be late, the budget is not used up however near the limit is. So the level stays
// at zero or above.
func TestWithAFastLaneTheLevelIsNotBelowZero(t *testing.T) {
	config := demand.DefaultBudget
	config.Windows, config.Level, config.SLO = 0.05, 1, 340*time.Millisecond
	b := demand.NewBudget(config)
	_, at := windows(b, noon, 400, func(float64) float64 { return 0 })
	if b.Level() != 0 {
		t.Errorf("after an hour without a late request the level is %.2f", b.Level())
	}
	if windows(b, at, 200, func(float64) float64 { return 0.2 }); b.Level() != 2.5 {
		t.Errorf("with a fifth late it is %.2f", b.Level())
	}
	config.Level = -1
	if b := demand.NewBudget(config); b.Level() != 0 {
		t.Errorf("a level of -1 from before is %.2f", b.Level())
	}
}

// Patience is about the SLO's latency. It is less where requests are late, and none where so little is left that a sample's
// delay is most of it, or nobody relieves.
func TestPatienceFollowsFromTheSLOAndTheLevel(t *testing.T) {
	for _, c := range []struct {
		slo   time.Duration
		level float64
		want  time.Duration
	}{
		{0, 0, 0},
		{100 * time.Millisecond, 0, 0},
		{200 * time.Millisecond, 0, 0},
		{290 * time.Millisecond, 0, 0}, // three periods are longer than the SLO
		{300 * time.Millisecond, 0, 300 * time.Millisecond},
		{340 * time.Millisecond, 0, 300 * time.Millisecond},
		{340 * time.Millisecond, 0.6, 300 * time.Millisecond},
		{340 * time.Millisecond, 1, 0},
		{time.Second, 0, time.Second},
		{time.Second, 2.5, 300 * time.Millisecond},
		{time.Minute, 0, demand.Window},
	} {
		config := demand.DefaultBudget
		config.SLO, config.Level = c.slo, c.level
		if got := demand.NewBudget(config).Patience(); got != c.want {
			t.Errorf("SLO %v at level %v: patience %v, want %v", c.slo, c.level, got, c.want)
		}
	}
}

// A budget's hour begins anywhere: in the same place for the same seed.
func TestABudgetBeginsAnywhere(t *testing.T) {
	seen := map[time.Duration]bool{}
	for seed := range uint64(50) {
		c := demand.DefaultBudget.BeginAnywhere(seed)
		if err := c.Check(); err != nil || c.Begin <= 0 || c.Begin != demand.DefaultBudget.BeginAnywhere(seed).Begin {
			t.Errorf("seed %d: %v, %v", seed, c.Begin, err)
		}
		seen[c.Begin.Truncate(10*time.Minute)] = true
	}
	if len(seen) != 6 {
		t.Errorf("fifty hours begin in %d of six parts", len(seen))
	}
}
