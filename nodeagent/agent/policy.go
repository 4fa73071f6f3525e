package agent

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
	"awarescale.dev/aware/learner/policy/heuristic/workingset"
	"awarescale.dev/aware/nodeagent/api"
)

// What a policy is told besides the State: by central with each grant, and how high its limit can be.
type (
	targeted interface {
		Retarget(mdp.Ratio)
		Within(mdp.MilliCPU)
	}
	levelled interface {
		SetLevel(float64)
		SetLateWindows(uint32)
		Holds() bool
	}
)

// local is the policy of a container.
type local struct {
	mdp.Policy
	captain targeted // nil when the policy has no target
	demand  levelled // nil when it has no margin
}

// byRule is the policy of a rule.
func byRule(c Config, r api.Rule) local {
	memory := workingset.New(c.Memory)
	if r == api.Demand {
		cpu := demand.New(demand.Default)
		return local{Policy: mdp.Join(cpu, memory), demand: cpu}
	}
	cpu := captain.New(c.Captain)
	return local{Policy: mdp.Join(cpu, memory), captain: cpu}
}

// follow gives the container the policy that its grant names, and what central sets of it.
func (a *Agent) follow(c *managedContainer, o order) {
	if !o.listed {
		return
	}
	g := o.grant
	rule := g.Rule
	if !rule.Known() {
		c.problem = also(c.problem, fmt.Sprintf("rule %.20q: this agent does not know it, and decides by throttling", string(rule)))
		rule = api.Captain
	}
	if a.deps.Policy == nil && rule != c.rule {
		c.rule = rule
		c.policy = byRule(a.config, rule)
		c.loop.Policy = a.guarded(c)
	}
	c.target = g.Throttle
	if c.policy.captain != nil && g.Throttle >= 0 && g.Throttle < 1 {
		c.policy.captain.Retarget(g.Throttle)
	}
	c.patience = g.Patience
	if c.policy.demand != nil && g.Margin >= -api.MaxMargin && g.Margin <= api.MaxMargin {
		c.policy.demand.SetLevel(g.Margin)
	}
	if c.policy.demand != nil {
		c.policy.demand.SetLateWindows(g.LateWindows)
	}
}

// guarded puts the node's guards around a container's policy. A container has no replicas:
// a policy that sets them is refused, not clipped.
func (a *Agent) guarded(c *managedContainer) mdp.Policy {
	p, resting := c.policy, a.deps.Policy == nil
	ofContainer := mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		if p.captain != nil {
			p.captain.Within(c.top().CPU())
		}
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
