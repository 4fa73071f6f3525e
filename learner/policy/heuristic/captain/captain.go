// Package captain is Autothrottle's per-service controller (Wang et al., NSDI
// 2024, §3.3, and worker-daemon.py of its repository). It adjusts the CPU limit
// every second to keep the share of throttled CFS periods near a target.
//
// Tail latency depends on throttling more than on utilisation. The target is
// the throttling that the SLO allows. It is a constant, or Autothrottle's Tower
// sets it (package tower).
//
// The authors ask their controller every 100 ms, one CFS period. Each second it
// decides: it raises the limit when the periods of that second were throttled
// too much, and otherwise may lower it. A decrease that throttles too much is
// taken back at once, in the 100 ms step that shows it, but only until the next
// decision. The policy here takes the time from State.At, so the caller chooses
// how often to ask.
//
// Asked once a second, as the node agent does (a resize through the container
// runtime costs about 7 ms of CPU, and its limiter allows one per second and
// container), check and decision fall together. Two things are lost. A decrease
// that was too deep hurts for a whole second, not for 100 to 300 ms. And a
// decrease that is taken back takes the place of the decision of that second:
// asked every 100 ms, the decision at the end of the second sees the time after
// the rollback. Config.Lasting makes up for it: a burst that comes seconds after a
// decrease takes it back in one step, where raises alone need several.
//
// Departures from the source:
//  1. The limit is the limit in force, in whole millicores and rounded up after
//     a raise, not the number that the controller asked for last. A decrease
//     that is not in force yet is not taken back.
//  2. At the start the source has a usage of zero in the place of the samples it
//     does not have yet. Here the sensor's peak and deviation are of the samples
//     that exist. The deviation is the population's, 1 % below the source's.
//  3. A time about which nothing is known (a signal is missing, or nobody asked
//     for more than MaxStep) ends the history. The next decision is a second
//     after it, and a decrease before it stays.
//  4. The source knows no upper bound. Here a container that is throttled while its
//     limit is as high as it may be (Within) has no throttling: no margin would have
//     helped it. With the source's rule twenty seconds of overload made the margin ten
//     deviations, and at a target of 0.002 it takes more than an hour to come down.
package captain

import (
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

const (
	// Interval is the time between two decisions.
	Interval = time.Second
	// MaxStep is the longest time between two States that follow each other.
	MaxStep = 5 * time.Second
)

// Config is the settings of a captain. The zero value is not valid; start with
// [Default].
type Config struct {
	// Target is the desired share of throttled CFS periods, in [0, 1).
	// Autothrottle's Tower selects values from 0 to 0.3. A smaller value is
	// safer and needs more CPU. From a third on no throttling is more than three
	// times the target: such a captain never raises, and its service collapses.
	Target mdp.Ratio
	// Margin is the initial distance between the peak and the limit after a
	// decrease, in standard deviations. Observed throttling changes it.
	Margin float64
	// Floor is the lowest limit that a decrease sets.
	Floor mdp.MilliCPU
	// Lasting decreases can be taken back until the next decrease or raise. The
	// source's can be taken back until the next decision only.
	Lasting bool
}

// Default has the paper's margin of 3 and floor of 0.01 core, and a target for
// a strict SLO.
var Default = Config{Target: 0.02, Margin: 3, Floor: 10}

// Check returns nil for valid settings. Otherwise the error names the field,
// its value and the rule.
func (c Config) Check() error {
	switch {
	case !(c.Target >= 0 && c.Target < 1):
		return fmt.Errorf("captain target %v: it must be in [0, 1)", float64(c.Target))
	case !(c.Margin >= 0 && c.Margin <= 100):
		return fmt.Errorf("captain margin %v: it must be in [0, 100]", c.Margin)
	case c.Floor <= 0:
		return fmt.Errorf("captain floor %v: it must be above zero", c.Floor)
	}
	return nil
}

// Captain controls the CPU limit of one container. It needs [mdp.CPULimit],
// [mdp.Throttled] over the time since the last State (or the last second, if
// that is shorter), and [mdp.CPUPeak] and [mdp.CPUDeviation] of 100 ms samples
// over the last five seconds. It decides nothing in its first second.
type Captain struct {
	config Config
	margin float64      // current margin, in standard deviations
	most   mdp.MilliCPU // how high the limit can be; 0 is not known
	atMost bool         // the limit was as high as it can be at the last State

	last      time.Time    // of the last State; zero when the next one does not follow from it
	decided   time.Time    // last decision
	throttled float64      // nanoseconds throttled since the last decision or rollback
	before    mdp.MilliCPU // limit before the last decision, which lowered it; 0 when there is nothing to roll back
}

// New creates a captain. The config must pass Check.
func New(c Config) *Captain { return &Captain{config: c, margin: c.Margin} }

// Retarget changes the target. The margin and the history stay.
func (c *Captain) Retarget(target mdp.Ratio) { c.config.Target = target }

// Within says how high the limit can be at most; 0 is not known. What is throttled there from one State to the next
// says nothing of the margin.
func (c *Captain) Within(most mdp.MilliCPU) { c.most = most }

// Decide sets the CPU limit, or nothing when no change is needed.
func (c *Captain) Decide(s mdp.State) (mdp.Action, error) {
	if err := check(s); err != nil {
		c.last = time.Time{}
		return mdp.Action{}, err
	}
	step := s.At.Sub(c.last)
	follows := !c.last.IsZero() && step > 0 && step <= MaxStep
	c.last = s.At
	stayed := c.atMost
	c.atMost = c.most > 0 && s.Limit.CPU >= c.most
	if !follows {
		c.begin(s.At)
		c.before = 0
		return mdp.Action{}, nil
	}
	if !stayed || !c.atMost {
		c.throttled += float64(s.Throttled) * float64(step)
	}
	limit := s.Limit.CPU
	due := s.At.Sub(c.decided) >= Interval-step/2 // the step that is nearest: tickers jitter
	if raised, ok := c.rollback(s.At, limit); ok {
		limit = raised
		if due && step >= Interval/2 {
			// Asked once a second. The peak is that of the throttled second, and
			// there is no time after the rollback that a decision could be about.
			c.begin(s.At)
			due = false
		}
	}
	if due {
		limit = c.decide(s, limit)
	}
	if limit == s.Limit.CPU {
		return mdp.Action{}, nil
	}
	return mdp.Action{}.WithCPU(limit), nil
}

// begin starts the history of the next decision.
func (c *Captain) begin(now time.Time) {
	c.decided = now
	c.throttled = 0
}

// ratio is the share of throttled time in the history. As in the source it is a
// share of the whole second between two decisions, also when less of it has
// passed or when a rollback has emptied the history.
func (c *Captain) ratio(now time.Time) float64 {
	return c.throttled / float64(max(Interval, now.Sub(c.decided)))
}

// rollback takes back the decrease of the last decision, and adds the same
// amount, if there was too much throttling since then.
func (c *Captain) rollback(now time.Time, limit mdp.MilliCPU) (raised mdp.MilliCPU, ok bool) {
	ratio, target := c.ratio(now), float64(c.config.Target)
	if c.before <= limit || !(ratio > 3*target) {
		return 0, false
	}
	raised = 2*c.before - limit
	c.margin += ratio - target
	c.before = 0
	c.throttled = 0
	return raised, true
}

// decide is the decision of each second. It returns the new limit.
func (c *Captain) decide(s mdp.State, limit mdp.MilliCPU) mdp.MilliCPU {
	ratio, target := c.ratio(s.At), float64(c.config.Target)
	c.begin(s.At)
	if !c.config.Lasting {
		c.before = 0
	}
	c.margin = max(0, c.margin+ratio-target)
	if ratio > 3*target {
		c.before = 0
		// The result is rounded up, so that a limit of a few millicores
		// can grow.
		return max(limit+1, mdp.MilliCPU(math.Ceil(float64(limit)*(1+ratio-3*target))))
	}
	proposal := s.CPUPeak + mdp.MilliCPU(math.Round(c.margin*float64(max(0, s.CPUDeviation))))
	if proposal > limit*9/10 {
		return limit
	}
	proposal = max(proposal, limit/2, c.config.Floor)
	if proposal >= limit {
		return limit
	}
	c.before = limit
	return proposal
}

// check returns an error for a State that lacks a signal, and for impossible
// values.
func check(s mdp.State) error {
	if err := s.Require("captain", mdp.CPULimit, mdp.Throttled, mdp.CPUPeak, mdp.CPUDeviation); err != nil {
		return err
	}
	if !s.Throttled.Finite() || s.Throttled < 0 || s.Throttled > 1 ||
		s.Limit.CPU <= 0 || s.Limit.CPU > maxLimit || s.CPUPeak < 0 || s.CPUPeak > maxLimit {
		return fmt.Errorf("captain: throttled %v, limit %v, peak %v: not figures of a container",
			float64(s.Throttled), s.Limit.CPU, s.CPUPeak)
	}
	return nil
}

// maxLimit is a million cores. Values above it are errors, and sums could
// overflow.
const maxLimit mdp.MilliCPU = 1_000_000_000
