// Package static keeps a workload at a constant number of replicas and a
// constant size. This is the behaviour without an autoscaler, and the first
// line of every comparison.
package static

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
)

// Config is the values to keep. A zero means that the policy does not control
// this knob.
type Config struct {
	Replicas int
	Size     mdp.Size // per replica
}

// Check returns nil for valid settings. Otherwise the error names the field,
// its value and the rule.
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

// Policy resets knobs that have changed. It needs the signal of every knob that
// it controls: [mdp.Replicas], [mdp.CPULimit], [mdp.MemoryLimit]. It does not
// set a knob with an unknown value.
type Policy struct{ config Config }

// New creates a policy. The config must pass Check.
func New(c Config) *Policy { return &Policy{config: c} }

// Decide sets the knobs that differ from the config.
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
