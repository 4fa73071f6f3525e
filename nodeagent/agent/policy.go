package agent

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/policy/heuristic/workingset"
)

// illegalError says that a policy gave what is no Action: the container is put back.
type illegalError struct{ err error }

func (e *illegalError) Error() string { return "the policy gave what is no action: " + e.err.Error() }
func (e *illegalError) Unwrap() error { return e.err }

// rule is the policy that a container has when nobody gives it another.
func rule(c Config) (mdp.Policy, interface{ Retarget(mdp.Ratio) }) {
	cpu := captain.New(c.Captain)
	return mdp.Join(cpu, workingset.New(c.Memory)), cpu
}

// guarded puts the guards around a policy. From the inside out: an illegal action is found before a guard could
// make it look right; a limit in force that lies outside of the envelope is moved into it even when the policy is
// content; steps, memory in use, and the envelope have the last word.
func guarded(p mdp.Policy, c Config, bounds func() mdp.Bounds, knobs func() mdp.Set) mdp.Policy {
	p = inside(legal(p), bounds)
	p = guard.Pace(only(p, knobs), c.Steps)
	return guard.Bound(guard.HeadroomOverUsage(p, c.Headroom), bounds)
}

func legal(p mdp.Policy) mdp.Policy {
	return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		a, err := p.Decide(s)
		if err == nil {
			if bad := a.Check(); bad != nil {
				return mdp.Action{}, &illegalError{bad}
			}
			if a.Sets.Has(mdp.Replicas) {
				return mdp.Action{}, &illegalError{fmt.Errorf("%v: replicas are not a container's", a)}
			}
		}
		return a, err
	})
}

// inside sets a limit that the policy leaves alone when it is outside of the bounds. Without knowing the limit in
// force it does nothing.
func inside(p mdp.Policy, bounds func() mdp.Bounds) mdp.Policy {
	return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		a, err := p.Decide(s)
		if err != nil {
			return a, err
		}
		b := bounds()
		if s.Knows(mdp.CPULimit) && !a.Sets.Has(mdp.CPULimit) && !b.CPU.Has(s.Limit.CPU) && b.CPU.Min > 0 {
			a = a.WithCPU(s.Limit.CPU)
		}
		if s.Knows(mdp.MemoryLimit) && !a.Sets.Has(mdp.MemoryLimit) && !b.Memory.Has(s.Limit.Memory) && b.Memory.Min > 0 {
			a = a.WithMemory(s.Limit.Memory)
		}
		return a, nil
	})
}

// only takes out what may not be moved.
func only(p mdp.Policy, knobs func() mdp.Set) mdp.Policy {
	return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		a, err := p.Decide(s)
		a.Sets &= knobs()
		return a, err
	})
}
