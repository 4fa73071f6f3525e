package agent

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/policy/heuristic/workingset"
)

// rule is the default policy of a container.
func rule(c Config) (mdp.Policy, targeted) {
	cpu := captain.New(c.Captain)
	return mdp.Join(cpu, workingset.New(c.Memory)), cpu
}

// guarded puts the node's guards around a container's policy. A container has no replicas:
// a policy that sets them is refused, not clipped.
func (a *Agent) guarded(c *managedContainer) mdp.Policy {
	p, resting := c.policy, a.deps.Policy == nil
	ofContainer := mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		a, err := p.Decide(s)
		if err == nil && a.Sets.Has(mdp.Replicas) {
			return mdp.Action{}, &guard.IllegalError{Err: fmt.Errorf("%v: replicas are not a container's", a)}
		}
		if err == nil && resting {
			a = c.atRest(s, a)
		}
		return a, err
	})
	return guard.Standard(ofContainer, a.config.Guards, guard.Place{Bounds: c.bounds, Knobs: c.knobs, Budget: a.budget.raise})
}
