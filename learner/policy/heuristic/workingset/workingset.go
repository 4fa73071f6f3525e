// Package workingset sets a memory limit to the memory in use times a margin.
// It raises the limit at once and lowers it slowly. An OOM kill costs more than
// the memory that a lower limit saves, so the limit is not lowered for a long
// time after one.
package workingset

import (
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Config is the settings of a policy. Start with [Default].
type Config struct {
	Margin            mdp.Ratio     // limit / use, above 1; 1.5 is 50 % above the use
	Slack             mdp.Ratio     // the limit is lowered only when it is above Margin * (1 + Slack) of the use
	AfterOOM          time.Duration // time after an OOM kill or memory pressure without a decrease
	PressureThreshold mdp.Ratio     // memory pressure (PSI full) above which it counts as an OOM kill
}

// Default keeps the limit at 1.5 times the memory in use.
var Default = Config{Margin: 1.5, Slack: 0.2, AfterOOM: 10 * time.Minute, PressureThreshold: 0.05}

// Policy controls the memory limit of one container. It needs [mdp.MemoryLimit]
// and [mdp.MemoryUsage]. It also reacts to [mdp.OOMKills] and
// [mdp.MemoryPressure] when they are observed.
type Policy struct {
	config Config
	hold   time.Time // no decrease before this time
}

// New creates a policy.
func New(c Config) *Policy { return &Policy{config: c} }

// Decide sets the memory limit, or nothing when no change is needed.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	if err := s.Require("workingset", mdp.MemoryLimit, mdp.MemoryUsage); err != nil {
		return mdp.Action{}, err
	}
	if s.Usage.Memory <= 0 || s.Usage.Memory > maxMemory || s.Limit.Memory <= 0 {
		return mdp.Action{}, fmt.Errorf("workingset: use %v, limit %v: not figures of a container",
			s.Usage.Memory, s.Limit.Memory)
	}
	want := mdp.Bytes(float64(s.Usage.Memory) * float64(p.config.Margin))
	killed := s.Knows(mdp.OOMKills) && s.OOMKills > 0
	stalled := s.Knows(mdp.MemoryPressure) && s.MemoryPressure > p.config.PressureThreshold
	if killed || stalled {
		p.hold = s.At.Add(p.config.AfterOOM)
		want = max(want, s.Limit.Memory*6/5) // VPA's increase after an OOM kill
	}
	switch {
	case want > s.Limit.Memory:
		return mdp.Action{}.WithMemory(want), nil
	case float64(want)*float64(1+p.config.Slack) < float64(s.Limit.Memory) && !s.At.Before(p.hold):
		return mdp.Action{}.WithMemory(want), nil
	}
	return mdp.Action{}, nil
}

// maxMemory is an exbibyte. Values above it are errors.
const maxMemory mdp.Bytes = 1 << 60
