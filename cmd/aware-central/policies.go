package main

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
)

// policies makes the policy of a workload's container, behind central's guards: HPA's and VPA's arithmetic, and an agent that
// learns of it where the owner wants one.
func (m *minds) policies(b recommender.PolicyRequest) (mdp.Policy, string, error) {
	c, guards := central.Rule(b.Objective.SLO, b.Bounds), central.Guards()
	if b.ScaleIn > 0 {
		c.Stabilization, guards.BurstPast = b.ScaleIn, b.ScaleIn
	}
	if err := c.Check(); err != nil {
		return nil, "", fmt.Errorf("the rule hpavpa: %w", err)
	}
	place := guard.Place{
		Bounds: func() mdp.Bounds { return b.Bounds },
		Knobs:  func() mdp.Set { return mdp.ReservedKnobs },
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
	return guard.Standard(policy, guards, place), "hpavpa/1", nil
}

// budgets makes the error budget of a workload whose nodes decide by demand.
func budgets(r recommender.BudgetRequest) (recommender.Budget, error) {
	c := demand.BudgetConfig{Share: r.Share, Windows: r.Windows, Over: r.Over, Level: r.Level, SLO: r.SLO}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return demand.NewBudget(c), nil
}
