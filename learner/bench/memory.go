package bench

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/workingset"
)

// withMemory is a policy of CPU with a node's rule for memory, as far as it raises: once a second the limit rises to what the
// working set asks for. It does not sink: what a queue needs at the begin of a crowd was not in use before. A node does not take
// memory below its request either, unless the owner asks for that.
func withMemory(cpu mdp.Policy) mdp.Policy {
	config := workingset.Default
	config.Margin = guard.Blind.MemoryMargin // nearer than that a node's guard lets no limit be
	memory := workingset.New(config)
	return mdp.Join(cpu, mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		if !s.At.Equal(s.At.Truncate(time.Second)) {
			return mdp.Action{}, nil
		}
		a, err := memory.Decide(s)
		if err != nil || a.Limit.Memory < s.Limit.Memory {
			return mdp.Action{}, err
		}
		return a, nil
	}))
}
