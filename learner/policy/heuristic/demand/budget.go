package demand

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Budget moves an application's level so that its SLO's error budget is used up over an hour, and not
// more. It is pure: time is an argument.
//
// Each window of ten seconds has f, the share of its requests that missed the SLO. The goal is the share that the rest of the
// hour may have: what is left of the budget over what is left of the hour, between a fourth of the budget and two and a
// half times. The level falls by a fixed step in a window without misses, and rises in proportion to f beyond the goal.
//
// Its hour begins where [BudgetConfig].Begin says, which need not be where the hour of whoever counts begins.
type Budget struct {
	config  BudgetConfig
	begin   time.Time // of the hour
	first   time.Time // the begin of what was seen of it
	last    time.Time // of the last window
	spent   float64   // requests that missed, in the hour
	seen    float64   // requests, in the hour
	level   float64   // by the share of requests
	windows float64   // by the share of windows
	late    uint32    // late windows
}

// BudgetConfig is the settings of a Budget. Start with [DefaultBudget].
type BudgetConfig struct {
	// Share of the requests that may miss the SLO's latency. A percentile of 99 allows 0.01; a little
	// less keeps a reserve.
	Share mdp.Ratio
	// Windows is the share of windows of ten seconds in which more than Over of the requests may miss it; 1 is no such criterion.
	Windows mdp.Ratio
	// Over is the share of missed requests from which on a window counts as over the SLO.
	Over mdp.Ratio
	// Begin is how long after its first window the first hour ends; 0 is an hour.
	Begin time.Duration
	// Level is the level at the begin, as far as it is within the range of levels.
	Level float64
	// SLO is the latency that late requests miss, where a fast lane relieves a container before most of its requests
	// are late ([Budget.Patience]); 0 is no such lane. With it the budget is hardly ever used up, and the level does
	// not fall below 0: what is nearer costs more in relief than it saves.
	SLO time.Duration
}

// DefaultBudget is for a percentile of 99.
var DefaultBudget = BudgetConfig{Share: 0.0085, Windows: 1, Over: 0.01}

// BeginAnywhere is the same with an hour that begins at a random time: where the hour of whoever counts begins is not to be
// known.
func (c BudgetConfig) BeginAnywhere(seed uint64) BudgetConfig {
	c.Begin = 1 + time.Duration(rand.New(rand.NewPCG(seed, 0x627564676574)).Int64N(int64(Hour)-1))
	return c
}

// Check is nil for valid settings. Otherwise the error names the field, its value and the rule.
func (c BudgetConfig) Check() error {
	switch {
	case !(c.Share > 0 && c.Share < 1):
		return fmt.Errorf("budget share %v: it must be between 0 and 1", float64(c.Share))
	case !(c.Windows > 0 && c.Windows <= 1):
		return fmt.Errorf("budget windows %v: it must be above 0, and 1 for no criterion", float64(c.Windows))
	case !(c.Over > 0 && c.Over < 1):
		return fmt.Errorf("budget over %v: it must be between 0 and 1", float64(c.Over))
	case c.Begin < 0 || c.Begin > Hour:
		return fmt.Errorf("budget begin %v: it must be in [0, %v]", c.Begin, Hour)
	case c.SLO < 0:
		return fmt.Errorf("budget SLO %v: it must not be negative", c.SLO)
	case math.IsNaN(c.Level):
		return fmt.Errorf("budget level %v: it must be a number", c.Level)
	}
	return nil
}

// The times of a budget.
const (
	Window = 10 * time.Second
	Hour   = time.Hour
)

const (
	step          = 0.01 // of the level, for each window
	mostMissed    = 0.2  // more missed requests count as this share
	leastGoal     = 0.25 // of the budget's share
	mostGoal      = 2.5
	leastLevel    = -3
	leastRelieved = 0
	lateShare     = 0.3 // of a late window's requests missed the SLO
	mostLevel     = 2.5
)

// NewBudget makes a budget. The config must pass Check.
func NewBudget(c BudgetConfig) *Budget {
	b := &Budget{config: c}
	b.level = b.clip(c.Level)
	b.windows = b.level
	return b
}

// Observe takes in a window: the share of its requests that missed the SLO, and how many requests it had. Windows
// without requests, and repeated ones, change nothing.
func (b *Budget) Observe(now time.Time, missed mdp.Ratio, requests float64) {
	f := float64(missed)
	if !missed.Finite() || f < 0 || f > 1 || !(requests > 0) || math.IsInf(requests, 1) || !now.After(b.last) {
		return
	}
	b.last = now
	if b.begin.IsZero() {
		b.begin, b.first = now, now
		if b.config.Begin > 0 {
			b.begin = now.Add(b.config.Begin - Hour)
		}
	}
	for now.Sub(b.begin) >= Hour {
		b.begin, b.spent, b.seen = b.begin.Add(Hour), 0, 0
		b.first = b.begin
	}
	if f >= lateShare {
		b.late++
	}
	goal := b.goal(now)
	b.spent += f * requests
	b.seen += requests
	b.level = b.clip(b.level + step*(min(f, mostMissed)/goal-1))
	if b.config.Windows < 1 {
		over := 0.0
		if f > float64(b.config.Over) {
			over = 1
		}
		b.windows = b.clip(b.windows + step*(over/float64(b.config.Windows)-1))
	}
}

// goal is the share of requests that may miss the SLO in the rest of the hour.
func (b *Budget) goal(now time.Time) float64 {
	share := float64(b.config.Share)
	past, left := now.Sub(b.first).Seconds(), (Hour - now.Sub(b.begin)).Seconds()
	if b.seen == 0 || past <= 0 || left <= 0 {
		return share
	}
	rest := b.seen / past * left // requests to come
	return min(mostGoal*share, max(leastGoal*share, (share*(b.seen+rest)-b.spent)/rest))
}

// Patience is how long a container may be throttled without a break before the fast lane relieves it, in whole periods;
// 0: not at all. A request that comes while the container is throttled waits for a part of that time, and for all of it
// when the demand rises to several times the limit. So it is about the SLO's latency, less where the level says that too
// many requests miss it, and never longer than the SLO: in such a wait all that came at its begin is late. Less than three
// periods are no patience: samples see throttling up to two periods late.
func (b *Budget) Patience() time.Duration {
	const (
		period = time.Second / periods
		least  = 3 * period
		ofSLO  = 1.25
	)
	p := time.Duration(min(1, ofSLO*math.Exp(-b.Level()/2)) * float64(b.config.SLO)).Truncate(period)
	if p < least {
		return 0
	}
	return min(p, Window) // what is late later than that is heard of before
}

// LateWindows is how many windows were late so far: at least 30 % of their requests missed the SLO. The level alone
// answers them too late: a spike of a second is over before a filter knows of it.
func (b *Budget) LateWindows() uint32 { return b.late }

func (b *Budget) clip(level float64) float64 {
	if b.config.SLO > 0 {
		return min(mostLevel, max(leastRelieved, level))
	}
	return min(mostLevel, max(leastLevel, level))
}

// Level is the level now: what the stricter one of the criteria asks for.
func (b *Budget) Level() float64 {
	if b.config.Windows < 1 {
		return max(b.level, b.windows)
	}
	return b.level
}
