// Package envtest has what tests of learners need of environments: rows without
// an environment, and small worlds whose values are known.
package envtest

import (
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
)

// Rows are rows whose rewards are known and whose actions were applied as they
// were proposed. Nil ends are none.
func Rows(executed, rewards, final []float64, terminated, truncated []bool) env.Rows {
	n := len(rewards)
	r := env.Rows{
		Executed:    executed,
		Rewards:     rewards,
		RewardKnown: make([]bool, n),
		Effects:     make([]mdp.Effect, n),
		Final:       final,
		Terminated:  terminated,
		Truncated:   truncated,
	}
	for i := range n {
		r.RewardKnown[i], r.Effects[i] = true, mdp.Applied
	}
	if terminated == nil {
		r.Terminated = make([]bool, n)
	}
	if truncated == nil {
		r.Truncated = make([]bool, n)
	}
	return r
}
