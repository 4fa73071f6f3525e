package bench

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/workingset"
)

// memoryGuards are the guards of a node that does not see how the SLO fares. Where memory sinks it stays above what was in use in
// the last ten minutes, as in central.
func memoryGuards() guard.Settings {
	s := guard.Blind
	s.MemoryPast = 10 * time.Minute
	return s
}

// withMemory is a policy of CPU with a node's rule for memory: once a second the limit rises to what the working set asks for,
// and what it does not ask for any more goes back, but not below least. By default that is what the owner has set: what a queue
// needs at the begin of a crowd was not in use before.
func withMemory(cpu mdp.Policy, least mdp.Bytes) mdp.Policy {
	config := workingset.Default
	config.Margin = guard.Blind.MemoryMargin // nearer than that a node's guard lets no limit be
	memory := workingset.New(config)
	return mdp.Join(cpu, mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		if !s.At.Equal(s.At.Truncate(time.Second)) {
			return mdp.Action{}, nil
		}
		a, err := memory.Decide(s)
		if err != nil || !a.Sets.Has(mdp.MemoryLimit) {
			return mdp.Action{}, err
		}
		want := max(a.Limit.Memory, min(least, s.Limit.Memory))
		if want == s.Limit.Memory {
			return mdp.Action{}, nil
		}
		return a.WithMemory(want), nil
	}))
}
