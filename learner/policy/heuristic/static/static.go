// Package static holds a workload at a given number of replicas and a given size. It is what an operator's manifest
// does without any autoscaler, and so the first line of every comparison.
package static

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
)

// Config is what is held. A zero is left as it is found.
type Config struct {
	Replicas int
	Size     mdp.Size // per replica
}

// Check names the field that is wrong, its value and the rule.
func (c Config) Check() error {
	switch {
	case c.Replicas < 0:
		return fmt.Errorf("static replicas %d: it must not be below zero", c.Replicas)
	case c.Size.CPU < 0 || c.Size.Memory < 0:
		return fmt.Errorf("static size %v: neither may be below zero", c.Size)
	case c == Config{}:
		return fmt.Errorf("static config %+v: it must hold something", c)
	}
	return nil
}

// Policy puts back what has moved. It needs the signal of every knob that it holds: [mdp.Replicas], [mdp.CPULimit],
// [mdp.MemoryLimit]. One that is unknown it leaves alone.
type Policy struct{ config Config }

// New makes a policy; the config must be one that passes Check.
func New(c Config) *Policy { return &Policy{config: c} }

// Decide sets what is not as it should be, or nothing when all is.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	want := p.config
	var held mdp.Set
	var a mdp.Action
	if want.Replicas > 0 {
		held |= mdp.SetOf(mdp.Replicas)
		if s.Knows(mdp.Replicas) && s.Replicas != want.Replicas {
			a = a.WithReplicas(want.Replicas)
		}
	}
	if want.Size.CPU > 0 {
		held |= mdp.SetOf(mdp.CPULimit)
		if s.Knows(mdp.CPULimit) && s.Limit.CPU != want.Size.CPU {
			a = a.WithCPU(want.Size.CPU)
		}
	}
	if want.Size.Memory > 0 {
		held |= mdp.SetOf(mdp.MemoryLimit)
		if s.Knows(mdp.MemoryLimit) && s.Limit.Memory != want.Size.Memory {
			a = a.WithMemory(want.Size.Memory)
		}
	}
	if held != 0 && held.Without(s.Observed) == held {
		return mdp.Action{}, &mdp.UnknownError{Who: "static", Missing: held}
	}
	return a, nil
}
