package main

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
)

// memoryMargin is how far above the memory in use a limit stays, whoever decides.
const memoryMargin = 1.25

// policies makes the policy of a workload's container: HPA's and VPA's arithmetic behind the guards.
func policies(b recommender.PolicyRequest) (mdp.Policy, string, error) {
	c := hpavpa.Default
	c.SLO = b.SLO
	c.Largest = mdp.Size{CPU: b.Bounds.CPU.Max, Memory: b.Bounds.Memory.Max}
	if err := c.Check(); err != nil {
		return nil, "", fmt.Errorf("the rule hpavpa: %w", err)
	}
	p := guard.Bound(
		guard.HeadroomOverUsage(
			guard.Pace(guard.HoldSLO(hpavpa.New(c), b.SLO), guard.DefaultSteps), memoryMargin),
		func() mdp.Bounds { return b.Bounds })
	return p, "hpavpa/1", nil
}
