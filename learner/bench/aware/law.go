package aware

import (
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
)

// law is the demand policy of a workload with the level of its error budget: what a node and central do together, in one. Its
// margin is the hand-set one, since nothing was learned of these applications.
type law struct {
	policy   *demand.Policy
	budget   *demand.Budget
	requests float64 // since the budget's last window
}

// newLaw makes one for an episode. The error budget's hour begins at a random time before it.
func newLaw(_ string, seed uint64) (mdp.Policy, error) {
	budget := demand.NewBudget(demand.DefaultBudget.BeginAnywhere(seed))
	return &law{policy: demand.New(demand.Default), budget: budget}, nil
}

// Decide implements [mdp.Policy]. States are of a second each; the one at the end of a window says which share of its requests
// was late.
func (l *law) Decide(s mdp.State) (mdp.Action, error) {
	if s.Knows(mdp.Arrivals) {
		l.requests += float64(s.Arrivals)
	}
	if s.Knows(mdp.Missed) {
		l.budget.Observe(s.At, s.Missed, l.requests)
		l.requests = 0
		l.policy.SetLevel(l.budget.Level())
		l.policy.SetLateWindows(l.budget.LateWindows())
	}
	return l.policy.Decide(s)
}
