package recommender

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/plugins/autoscaling/slo"
)

// Budget moves the margin of a workload's containers between demand and limit so that the SLO's error
// budget is used up, and not more.
type Budget interface {
	// Observe takes in the share of requests that missed the SLO since the call before, and how many requests there were.
	Observe(now time.Time, missed mdp.Ratio, requests float64)
	// Level is the margin's logarithm.
	Level() float64
	// Patience is how long a container may be throttled without a break before it is relieved.
	Patience() time.Duration
	// LateWindows is how many windows so far had so many late requests that the containers hold their spikes.
	LateWindows() uint32
}

// BudgetRequest is what a Budget is made for.
type BudgetRequest struct {
	Share   mdp.Ratio     // of the requests that may miss the SLO
	Windows mdp.Ratio     // of the windows of ten seconds that may be over it
	Over    mdp.Ratio     // the share of missed requests from which on a window is over it
	Level   float64       // to begin with
	SLO     time.Duration // the latency that late requests miss
}

// Budgets makes a Budget.
type Budgets func(BudgetRequest) (Budget, error)

// The budget where its owner says nothing: a part of what the SLO's percentile allows, and few windows over the SLO. The
// share of an hour's requests alone invites riding at its edge: in the simulated world a third of the windows was over the
// SLO then.
const (
	ofPercentile = 0.85
	ofWindows    = 0.05
)

// firstLevel is where a workload begins of which nothing is known: the limit is about a deviation above the demand. The fast
// lane relieves what is not covered, and requests that are late take the level up within a window.
const firstLevel = 0

// stale is how long the nodes decide by demand without a measure of what is missed. Then the captain decides, which needs none.
const stale = 5 * time.Minute

// margin is the rule by which a workload's nodes decide, and its margin.
type margin struct {
	budget Budget    // nil: the captain decides
	from   budgeted  // what it was made for
	seen   time.Time // the last reading in which it was known what is missed

	// The window that is not full yet: a workload that is pressed is measured more often.
	begin            time.Time
	missed, requests float64
}

// budgeted is what of a spec a budget is made for.
type budgeted struct {
	budget, windows string
	percentile      float64
	latency         time.Duration
}

// follow makes the budget when the spec wants another one. last is the level that an earlier instance of central
// has written into the status; empty is none.
func (m *margin) follow(now time.Time, budgets Budgets, spec v1alpha1.MultidimPodAutoscalerSpec, o mdp.SLO, last string) error {
	if spec.Learner == nil || api.Rule(spec.Learner.Rule) != api.Demand {
		*m = margin{}
		return nil
	}
	want := budgeted{spec.Learner.Budget, spec.Learner.Windows, o.Percentile, o.Latency}
	if m.budget != nil && m.from == want {
		return nil
	}
	if o.Latency <= 0 {
		return fmt.Errorf("spec.learner.rule: demand: its margin follows from an SLO of latency, and there is none")
	}
	if budgets == nil {
		return fmt.Errorf("spec.learner.rule: demand: this central has no error budgets")
	}
	allowed := mdp.Ratio(1 - o.Percentile/100)
	r := BudgetRequest{Share: ofPercentile * allowed, Windows: ofWindows, Over: allowed, Level: firstLevel, SLO: o.Latency}
	for _, one := range []struct {
		field, text string
		into        *mdp.Ratio
	}{{"budget", want.budget, &r.Share}, {"windows", want.windows, &r.Windows}} {
		if one.text == "" {
			continue
		}
		share, err := optin.Share(one.text)
		if err != nil {
			return fmt.Errorf("spec.learner.%s: %q: %w", one.field, one.text, err)
		}
		*one.into = share
	}
	if m.budget != nil {
		r.Level = m.budget.Level()
	} else if level, err := strconv.ParseFloat(last, 64); err == nil && math.Abs(level) <= api.MaxMargin {
		r.Level = level
	}
	budget, err := budgets(r)
	if err != nil {
		return fmt.Errorf("spec.learner: %w", err)
	}
	*m = margin{budget: budget, from: want, seen: now}
	return nil
}

// observe takes in a reading.
func (m *margin) observe(now time.Time, r slo.Reading) {
	if m.budget == nil || !(r.Requests > 0) {
		return
	}
	m.seen = now
	m.missed += float64(r.Missed) * r.Requests
	m.requests += r.Requests
	if now.Sub(m.begin) < window {
		return
	}
	m.budget.Observe(now, mdp.Ratio(m.missed/m.requests), m.requests)
	m.begin, m.missed, m.requests = now, 0, 0
}

// window is how long a budget's windows are, at least: ten seconds, as far as steps come on time.
const window = 9 * time.Second

// steps is how many steps of the margin there are in one, in which nodes hear of it, upwards: each other value is a message
// to each of them.
const steps = 20

// rule is what the nodes are told, and why it is the captain although the owner wants another one.
func (m *margin) rule(now time.Time) (rule api.Rule, level float64, why string) {
	switch {
	case m.budget == nil:
		return api.Captain, 0, ""
	case now.Sub(m.seen) > stale:
		return api.Captain, 0, fmt.Sprintf("what share of the requests misses the SLO is not known for %v: "+
			"the nodes decide by throttling", now.Sub(m.seen).Round(time.Second))
	}
	return api.Demand, math.Ceil(m.budget.Level()*steps) / steps, ""
}

// patience is how long a container may be throttled before it is relieved; none where the captain decides.
func (m *margin) patience(now time.Time) time.Duration {
	if rule, _, _ := m.rule(now); rule != api.Demand {
		return 0
	}
	return min(m.budget.Patience(), api.MaxPatience)
}

// lateWindows is how many late windows the nodes hear of.
func (m *margin) lateWindows() uint32 {
	if m.budget == nil {
		return 0
	}
	return m.budget.LateWindows()
}

// text is the level for the status.
func (m *margin) text() string {
	if m.budget == nil {
		return ""
	}
	return strconv.FormatFloat(m.budget.Level(), 'f', 3, 64)
}
