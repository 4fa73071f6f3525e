// Package workingset keeps a memory limit at the memory in use and a margin: up at once, down slowly. An OOM kill
// is dearer than any saving, so after one the limit is not lowered for a long time.
package workingset

import (
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Config is a policy's settings. Begin with [Default].
type Config struct {
	Margin            mdp.Ratio     // limit over use, above 1; 1.5 keeps half as much again
	Slack             mdp.Ratio     // the limit is lowered only when it is above Margin * (1 + Slack) of the use
	AfterOOM          time.Duration // how long after an OOM kill, or memory pressure, nothing is lowered
	PressureThreshold mdp.Ratio     // memory pressure (PSI full) that counts like an OOM kill
}

// Default keeps half as much again as is in use.
var Default = Config{Margin: 1.5, Slack: 0.2, AfterOOM: 10 * time.Minute, PressureThreshold: 0.05}

// Policy decides one container's memory limit. It needs [mdp.MemoryLimit] and [mdp.MemoryUsage]; with
// [mdp.OOMKills] and [mdp.MemoryPressure] observed it is more careful.
type Policy struct {
	config Config
	trust  time.Time // until then nothing is lowered
}

// New makes a policy.
func New(c Config) *Policy { return &Policy{config: c} }

// Decide sets the memory limit, or nothing when it is well as it is.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	if err := s.Require("workingset", mdp.MemoryLimit, mdp.MemoryUsage); err != nil {
		return mdp.Action{}, err
	}
	if s.Usage.Memory <= 0 || s.Usage.Memory > maxMemory || s.Limit.Memory <= 0 {
		return mdp.Action{}, fmt.Errorf("workingset: use %v, limit %v: not figures of a container", s.Usage.Memory, s.Limit.Memory)
	}
	want := mdp.Bytes(float64(s.Usage.Memory) * float64(p.config.Margin))
	killed := s.Knows(mdp.OOMKills) && s.OOMKills > 0
	stalled := s.Knows(mdp.MemoryPressure) && s.MemoryPressure > p.config.PressureThreshold
	if killed || stalled {
		p.trust = s.At.Add(p.config.AfterOOM)
		want = max(want, s.Limit.Memory*6/5) // VPA's bump after an OOM kill
	}
	switch {
	case want > s.Limit.Memory:
		return mdp.Action{}.WithMemory(want), nil
	case float64(want)*float64(1+p.config.Slack) < float64(s.Limit.Memory) && !s.At.Before(p.trust):
		return mdp.Action{}.WithMemory(want), nil
	}
	return mdp.Action{}, nil
}

// maxMemory is an exbibyte: beyond it a figure is an accident.
const maxMemory mdp.Bytes = 1 << 60
