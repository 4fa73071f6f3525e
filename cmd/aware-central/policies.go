package main

import (
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
)

// policies makes the policy of a workload's container, behind central's guards: HPA's and VPA's arithmetic, and an agent that
// learns of it where the owner wants one.
func (m *minds) policies(b recommender.PolicyRequest) (mdp.Policy, string, error) {
	c := hpavpa.Default
	c.SLO = b.Objective.SLO
	c.Largest = mdp.Size{CPU: b.Bounds.CPU.Max, Memory: b.Bounds.Memory.Max}
	// A replica that is settled beneath its ceiling costs its reservation only, and the
	// next burst needs it at once: HPA's own default. VPA's own percentile is for the
	// typical use, too.
	c.Stabilization = 5 * time.Minute
	c.BurstUtilization = 90
	c.Percentile = 0.9
	// A resize took a busy node of two cores a fifth of its CPU for a second: the API server, the kubelet and the
	// runtime. What a burst needs it gets from its ceiling at once.
	c.RaiseWindow = time.Minute
	c.Finest = 1 // or idle pods move between two of VPA's buckets
	if err := c.Check(); err != nil {
		return nil, "", fmt.Errorf("the rule hpavpa: %w", err)
	}
	// Three tenths of a reservation may be freed each minute, and of memory each 20 s. VPA goes to its target at once; what
	// protects is the margin above what is in use, and not the pace. But each step is a resize: by fifths, each 10 and 20 s, a
	// new pod was resized seven times on its way down. And what a minute has shown of CPU is not all that bursts ask for.
	settings := guard.Central
	settings.Down = 0.7
	settings.MemoryDwell = 20 * time.Second
	place := guard.Place{
		Bounds: func() mdp.Bounds { return b.Bounds },
		Knobs:  func() mdp.Set { return mdp.SetOf(mdp.Replicas, mdp.CPUReservation, mdp.MemoryLimit) },
		SLO:    b.Objective.SLO,
	}
	var policy mdp.Policy = hpavpa.New(c)
	switch {
	case b.Learner == nil || b.Learner.Algorithm == "" || b.Learner.Algorithm == v1alpha1.AlgorithmNone:
		if b.First {
			m.forget(b.Workload)
		}
	case b.Learner.Algorithm == v1alpha1.AlgorithmBCQ && b.First:
		var err error
		if policy, err = m.policy(b, policy); err != nil {
			return nil, "", err
		}
	case b.First:
		return nil, "", fmt.Errorf("spec.learner.algorithm %q: it must be none or bcq", b.Learner.Algorithm)
	}
	return guard.Standard(policy, settings, place), "hpavpa/1", nil
}

// budgets makes the error budget of a workload whose nodes decide by demand.
func budgets(r recommender.BudgetRequest) (recommender.Budget, error) {
	c := demand.BudgetConfig{Share: r.Share, Windows: r.Windows, Over: r.Over, Level: r.Level, SLO: r.SLO}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return demand.NewBudget(c), nil
}
