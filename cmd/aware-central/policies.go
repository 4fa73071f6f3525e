package main

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
)

// policies makes the policy of a workload's container: HPA's and VPA's
// arithmetic behind central's guards.
func policies(b recommender.PolicyRequest) (mdp.Policy, string, error) {
	c := hpavpa.Default
	c.SLO = b.SLO
	c.Largest = mdp.Size{CPU: b.Bounds.CPU.Max, Memory: b.Bounds.Memory.Max}
	if err := c.Check(); err != nil {
		return nil, "", fmt.Errorf("the rule hpavpa: %w", err)
	}
	place := guard.Place{Bounds: func() mdp.Bounds { return b.Bounds }, SLO: b.SLO}
	return guard.Standard(hpavpa.New(c), guard.Central, place), "hpavpa/1", nil
}
