package demand

import (
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Interval is the time between two estimates. Between them the limit changes only in the fast lane.
const Interval = time.Second

// maxStep is the longest time between two States that follow each other.
const maxStep = 5 * time.Second

// Config is the settings of a policy. The zero value is not valid; start with [Default].
type Config struct {
	// Margin is the logarithm of the number of deviations by which the limit is above the demand, when the
	// application's level is zero. 0.7 more or less doubles or halves the margin.
	Margin float64
	// Floor is the lowest limit that is set.
	Floor mdp.MilliCPU
	// Fast reacts to each throttled period, when the policy is asked in each: the limit
	// grows by half a deviation for each throttled period in a row, at most four. Where the row is longer than chance makes it, or
	// requests are late, it surges: by two fifths in each further period, to eight times as much at most. After a period
	// without throttling it is what it was. A world whose own fast lane relieves does not need it.
	Fast bool
}

// Default has no margin of its own.
var Default = Config{Floor: 10}

// Check is nil for valid settings. Otherwise the error names the field, its value and the rule.
func (c Config) Check() error {
	switch {
	case !(c.Margin >= -maxMargin && c.Margin <= maxMargin):
		return fmt.Errorf("demand margin %v: it must be in [%d, %d]", c.Margin, -maxMargin, maxMargin)
	case c.Floor <= 0:
		return fmt.Errorf("demand floor %v: it must be above zero", c.Floor)
	}
	return nil
}

// maxMargin is a factor of 20,000 of the deviations.
const maxMargin = 10

// Constants of the rule.
const (
	longMemory   = 600 // seconds, of the mean demand and of the work of a request
	shortMemory  = 120 // seconds, of how fast the level moves
	leastGain    = 0.2 // of the filter
	overDemand   = 1.002
	ofDemand     = 0.02 // of the demand, that counts as scatter in any case
	backlogShare = 0.3  // of the work that was held back, that a second more shall do
	halfMargin   = 0.03 // the z at which throttling counts half
	surge        = 0.25 // of the demand, that a second adds in which every period was throttled
	growth       = 0.1  // of the demand in a second, twice in a row: it rises
	notScatter   = 3    // deviations of such a difference, that it has to be, too
	periods      = 10   // CFS periods in a second
	fastShare    = 0.5  // of a deviation, for each throttled period in a row
	fastMost     = 4    // such periods
	surgeRising  = 1    // such periods, where the demand rose in the last second
	surgeAfter   = 2    // such periods at least elsewhere; where requests are late, no more
	lateLevel    = -0.5 // above which requests count as late
	chance       = 0.03 // the probability of a row, below which it is not taken for chance
	againMemory  = 1000 // throttled periods, of which it is known how often another one followed
	againFirst   = 10   // of these before the first one: none followed
	mostAgain    = 0.7  // a larger share counts as this one, so that a second is always enough
	surgeBy      = 1.4  // times the limit, for each one more
	surgeMost    = 8    // times the limit
)

// Policy sets the CPU limit of one container. It needs [mdp.CPULimit], [mdp.CPUUsage] and [mdp.Throttled] over the time since the
// last State. The caller chooses how often to ask: once a second, or in each CFS period for [Config.Fast].
type Policy struct {
	config Config
	level  float64
	late   lateWindows

	last      time.Time // of the last State; zero when the next one does not follow from it
	since     time.Time // the second's begin
	used      float64   // core-seconds in it
	throttled float64   // seconds in it

	estimate estimate
	run      int  // throttled periods in a row
	again    mean // of the periods after throttled ones: 1 for one that is throttled, too, and 0 for one that is not
	spikes   spikes
}

// New makes a policy. The config must pass Check.
func New(c Config) *Policy { return &Policy{config: c, again: mean{weight: againFirst}} }

// SetLevel sets the application's level, which [Budget] gives.
func (p *Policy) SetLevel(level float64) { p.level = level }

// SetLateWindows says how many late windows the application had so far, which [Budget] counts. When there are more than at the
// call before, the highest demand of the last five minutes is held for an hour. The first call, and a count that began anew,
// hold nothing.
func (p *Policy) SetLateWindows(n uint32) {
	if p.late.more(n) {
		p.spikes.late(p.since, p.estimate.mean.value())
	}
}

// Holds reports whether the highest demand of the last minutes is held, since a window was late.
func (p *Policy) Holds() bool { return p.spikes.held > 0 }

// Decide sets the CPU limit, or nothing as long as too little is known, and when the limit is right.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	if err := check(s); err != nil {
		p.last = time.Time{}
		return mdp.Action{}, err
	}
	step := s.At.Sub(p.last)
	follows := !p.last.IsZero() && step > 0 && step <= maxStep
	p.last = s.At
	if !follows {
		p.begin(s.At)
		p.run = 0
		p.estimate.gap()
		return mdp.Action{}, nil
	}
	seconds := step.Seconds()
	p.used += float64(s.Usage.CPU) / 1000 * seconds
	p.throttled += float64(s.Throttled) * seconds
	p.period(s.Throttled > 0)
	due := s.At.Sub(p.since) >= Interval-step/2 // the step that is nearest: tickers jitter
	if due {
		took := s.At.Sub(p.since).Seconds()
		p.estimate.add(p.used/took, min(1, p.throttled/took))
		p.spikes.add(s.At, p.estimate.demand, p.estimate.mean.value())
		p.begin(s.At)
	}
	if !p.estimate.known() || !due && !p.config.Fast {
		return mdp.Action{}, nil
	}
	want := max(p.config.Floor, mdp.MilliCPU(math.Ceil(min(1000*p.limit(), float64(maxLimit)))))
	if want == s.Limit.CPU {
		return mdp.Action{}, nil
	}
	return mdp.Action{}.WithCPU(want), nil
}

func (p *Policy) begin(now time.Time) { p.since, p.used, p.throttled = now, 0, 0 }

// period counts throttled periods in a row, and how often one follows another.
func (p *Policy) period(throttled bool) {
	follows, run := 0.0, 0
	if throttled {
		follows, run = 1, p.run+1
	}
	if p.run > 0 {
		p.again.add(follows, againMemory)
	}
	p.run = run
}

// patience is how many throttled periods in a row do not let the limit surge. The chance of k in a row is again^(k-1): low
// limits throttle more often, and then a longer row says no more than a short one elsewhere. Where the demand rises, no chance
// is needed to explain it.
func (p *Policy) patience() float64 {
	switch {
	case p.estimate.rising > 0:
		return surgeRising
	case p.level > lateLevel || p.last.Before(p.spikes.until):
		return surgeAfter
	}
	return max(surgeAfter, 1+math.Log(chance)/math.Log(min(mostAgain, p.again.value())))
}

// limit is the rule, in cores.
func (p *Policy) limit() float64 {
	e, z := &p.estimate, math.Exp(p.config.Margin+p.level)
	scatter := e.scatter()
	limit := overDemand*e.expected() + z*(math.Hypot(scatter, math.Sqrt(e.variance))+ofDemand*e.level) +
		backlogShare*e.backlog + z/(z+halfMargin)*e.throttled*max(scatter, surge*e.throttled*e.level)
	limit = max(limit, p.spikes.held*min(1, math.Exp(ofLevel*p.level)))
	if p.config.Fast {
		limit += fastShare * float64(min(fastMost, p.run)) * scatter
		limit *= min(surgeMost, math.Pow(surgeBy, max(0, float64(p.run)-p.patience())))
	}
	return limit
}

// estimate is what is known of a container's demand, in cores.
type estimate struct {
	seconds   int     // that were added
	level     float64 // d, the expected demand
	variance  float64 // p, of the level
	backlog   float64 // B, core-seconds that were held back
	throttled float64 // t, of the last second

	demand     float64 // y of the last second
	difference float64 // D of the last second
	differed   float64 // D of the one before
	following  int     // seconds since the last gap
	rising     int     // such seconds in a row in which y grew by more than its scatter
	mean       mean    // of y
	products   mean    // of -D D before
	squares    mean    // of D^2
}

// gap says that the next second does not follow the last one. What was learned stays.
func (e *estimate) gap() { e.following, e.rising, e.backlog = 0, 0, 0 }

// known reports whether a limit can be computed.
func (e *estimate) known() bool { return e.seconds > 0 }

// add takes in a second.
func (e *estimate) add(used, throttled float64) {
	before := e.backlog
	e.throttled = throttled
	e.backlog = throttled * max(0, before+e.level-used)
	y := max(0, used+e.backlog-before)
	if e.seconds == 0 {
		e.level = y
	}
	e.seconds++
	e.mean.add(y, longMemory)
	if e.following > 0 {
		d := y - e.demand
		e.squares.add(d*d, shortMemory)
		if e.following > 1 {
			e.products.add(-d*e.difference, longMemory)
		}
		e.difference, e.differed = d, e.difference
		if e.rising++; d <= max(growth*e.level, notScatter*math.Sqrt(2*e.work()*e.level)) {
			e.rising = 0
		}
	}
	e.following++
	e.demand = y

	r := e.work() * e.level
	q := max(0, e.squares.value()-2*r)
	e.variance = (q + math.Sqrt(q*q+4*q*r)) / 2
	gain := leastGain
	if e.variance > 0 {
		gain = max(leastGain, e.variance/(e.variance+r))
	}
	e.level = max(0, e.level+gain*(y-e.level))
}

// expected is the demand of the next second. Where it has risen for two seconds it rises once more, by the smaller of both
// steps: a filter is behind a crowd that gathers, and work that was held back looks like steps that grow.
func (e *estimate) expected() float64 {
	if e.rising >= 2 {
		return e.demand + min(e.difference, e.differed)
	}
	return e.level
}

// work is the CPU time of one request, in seconds, as far as the scatter of the demand shows it.
func (e *estimate) work() float64 {
	if m := e.mean.value(); m > 0 {
		return max(0, e.products.value()) / m
	}
	return 0
}

// scatter is the deviation of the demand in one CFS period.
func (e *estimate) scatter() float64 { return math.Sqrt(periods * e.work() * e.level) }

// mean is an exponential mean that is right from the first value on.
type mean struct{ sum, weight float64 }

func (m *mean) add(v, memory float64) {
	keep := 1 - 1/memory
	m.sum = m.sum*keep + v
	m.weight = m.weight*keep + 1
}

func (m *mean) value() float64 {
	if m.weight == 0 {
		return 0
	}
	return m.sum / m.weight
}

// check is an error for a State that lacks a signal, and for impossible values.
func check(s mdp.State) error {
	if err := s.Require("demand", mdp.CPULimit, mdp.CPUUsage, mdp.Throttled); err != nil {
		return err
	}
	if !s.Throttled.Finite() || s.Throttled < 0 || s.Throttled > 1 || s.Limit.CPU <= 0 || s.Limit.CPU > maxLimit ||
		s.Usage.CPU < 0 || s.Usage.CPU > maxLimit {
		return fmt.Errorf("demand: throttled %v, limit %v, usage %v: not figures of a container",
			float64(s.Throttled), s.Limit.CPU, s.Usage.CPU)
	}
	return nil
}

// maxLimit is a million cores.
const maxLimit mdp.MilliCPU = 1_000_000_000
