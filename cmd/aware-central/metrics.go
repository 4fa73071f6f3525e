package main

import (
	"math"
	"time"

	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/autoscaling/admission"
	"awarescale.dev/aware/plugins/fleet"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// heard is how old the report of an agent may be that counts as running.
const heard = 10 * time.Second

// measure registers the autoscaler's own metrics, and returns the function that counts
// decisions. It is called once in a process.
func measure(f *fleet.Fleet) func(took time.Duration, effect mdp.Effect) {
	took := metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace:      "aware",
		Subsystem:      "autoscaler",
		Name:           "decision_duration_seconds",
		Help:           "Time of one decision with its calls to the API server.",
		Buckets:        metrics.ExponentialBuckets(0.0001, 2, 16),
		StabilityLevel: metrics.ALPHA,
	})
	effects := metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "aware",
		Subsystem:      "autoscaler",
		Name:           "decisions_total",
		Help:           "Decisions, by their effect.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"effect"})
	agents := metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Namespace:      "aware",
		Subsystem:      "autoscaler",
		Name:           "agents",
		Help:           "Nodes whose agent reported to this instance in the last 10 s.",
		StabilityLevel: metrics.ALPHA,
	},
		func() float64 { return float64(f.Nodes(time.Now(), heard)) })
	permits := metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Namespace:      "aware",
		Subsystem:      "autoscaler",
		Name:           "permitted_nodes",
		Help:           "Nodes that hold a permit of this instance. The scheduler scores others by their ceilings.",
		StabilityLevel: metrics.ALPHA,
	},
		func() float64 { return float64(f.Permitted(time.Now(), heard)) })
	legacyregistry.MustRegister(took, effects)
	legacyregistry.RawMustRegister(agents)
	legacyregistry.RawMustRegister(permits)
	return func(d time.Duration, effect mdp.Effect) {
		took.Observe(d.Seconds())
		effects.WithLabelValues(effect.String()).Inc()
	}
}

// measureAdmission registers the counter of the admission webhook's requests, and returns
// the function that counts one. It is called once in a process.
func measureAdmission() func(admission.Result) {
	requests := metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "aware",
		Subsystem:      "admission",
		Name:           "requests_total",
		Help:           "Requests of the admission webhook, by what came of them. Only \"sized\" changes a pod; none denies one.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	legacyregistry.MustRegister(requests)
	for _, r := range admission.Results {
		requests.WithLabelValues(string(r))
	}
	return func(r admission.Result) { requests.WithLabelValues(string(r)).Inc() }
}

// measureMirror registers the age of the copy of the autoscaler's reports. It is called
// once in a process.
func measureMirror(m *fleet.Mirror) {
	legacyregistry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Namespace: "aware",
		Subsystem: "scheduler",
		Name:      "snapshot_age_seconds",
		Help: "Time since the scheduler last got from the autoscaler what pods can use; +Inf before the first time. " +
			"Above 30 s nodes are scored by the limits in the API.",
		StabilityLevel: metrics.ALPHA,
	}, func() float64 {
		age, ok := m.Age(time.Now())
		if !ok {
			return math.Inf(1)
		}
		return age.Seconds()
	}))
}

// measureStore registers the figures of the trajectory store. It is called once
// in a process.
func measureStore(store trajectory.Store) {
	for name, one := range map[string]struct {
		help  string
		value func(trajectory.Figures) float64
	}{
		"store_waiting_transitions": {"Transitions that are not written yet.",
			func(f trajectory.Figures) float64 { return float64(f.Waiting) }},
		"store_written_transitions": {"Transitions that were written since the start.",
			func(f trajectory.Figures) float64 { return float64(f.Written) }},
		"store_dropped_transitions": {"Transitions that were not stored because the buffer was full.",
			func(f trajectory.Figures) float64 { return float64(f.Dropped) }},
	} {
		legacyregistry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Namespace: "aware", Subsystem: "learner", Name: name, Help: one.help, StabilityLevel: metrics.ALPHA,
		}, func() float64 { return one.value(store.Figures()) }))
	}
}

// Who a learned workload's decision comes from, as the metric names it.
const (
	byRule    = "rule"     // the rule drives
	asRule    = "as-rule"  // the learned policy drives, and did what the rule wanted
	byLearned = "departed" // the learned policy drives, and did something else
	byChance  = "tried"    // another action was tried, whoever drives
)

// by is whose decision it was.
func by(c lifecycle.Choice) string {
	switch {
	case c.Tried:
		return byChance
	case c.Driver == lifecycle.Fallback:
		return byRule
	case c.Departs || !c.Known:
		return byLearned
	}
	return asRule
}

// measureMinds registers how many lessons wait for a learner, and whose the decisions on learned workloads are. It is called once
// in a process.
func measureMinds(m *minds) {
	decisions := metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "aware", Subsystem: "learner", Name: "decisions_total",
		Help: "Decisions on workloads that are learned, by whose they are: the rule's (rule), the learned policy's that did what " +
			"the rule wanted (as-rule) or something else (departed), or another action that was tried (tried).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"by"})
	legacyregistry.MustRegister(decisions)
	for _, whose := range []string{byRule, asRule, byLearned, byChance} {
		decisions.WithLabelValues(whose)
	}
	m.counted = func(c lifecycle.Choice) { decisions.WithLabelValues(by(c)).Inc() }
	legacyregistry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Namespace: "aware", Subsystem: "learner", Name: "due_lessons",
		Help:           "Workloads whose lesson is due, and that no learner has. If it stays high, more learners are needed.",
		StabilityLevel: metrics.ALPHA,
	}, func() float64 {
		_, n := m.waiting()
		return float64(n)
	}))
}

// measureLessons registers the counter of the lessons of a learner without the autoscaler, and returns the function that counts
// one. It is called once in a process.
func measureLessons() func(result string) {
	lessons := metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "aware", Subsystem: "learner", Name: "lessons_total",
		Help:           "Lessons of this learner, by what came of them. \"late\": central had given it to another learner.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	legacyregistry.MustRegister(lessons)
	for _, r := range lessonResults {
		lessons.WithLabelValues(r)
	}
	return func(result string) { lessons.WithLabelValues(result).Inc() }
}
