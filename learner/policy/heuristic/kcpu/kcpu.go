// Package kcpu is the baseline "K8s-CPU" of Autothrottle's evaluation (Wang et
// al., NSDI 2024, §5). It applies the rule of the Kubernetes Horizontal Pod
// Autoscaler to the CPU limit of a container instead of the number of replicas.
//
// At a fixed interval the policy computes a desired limit: usage / target. It
// sets the highest desired limit within a window (HPA's scale-down
// stabilisation). The limit therefore grows at once and shrinks late. A
// throttled container uses its whole limit, so its limit grows by the factor
// 1/target at each decision until the throttling ends.
//
// Departures from the paper, and from HPA:
//  1. HPA's tolerance of 0.1 is not used, as in the paper. Only changes of less
//     than a millicore are ignored.
//  2. The usage is the mean of all States since the last decision. Each State
//     is a mean over a step of the sensor. With one State per second and a
//     decision every 15 s, the usage is the mean over 15 s.
package kcpu

import (
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Config is the settings of the policy. Start with [Default] or [Fast].
type Config struct {
	// Target is the desired usage as a share of the limit, in (0, 1]. A
	// smaller value is safer and needs more CPU. The
	// paper tunes it for each application and trace; the results are between
	// 0.4 and 0.8.
	Target mdp.Ratio
	// Every is the time between two decisions.
	Every time.Duration
	// Window is the time for which the limit stays at or above each desired
	// limit.
	Window time.Duration
	// Floor is the lowest limit that the policy sets.
	Floor mdp.MilliCPU
}

// Default and Fast are the two variants of the paper: the intervals of
// Kubernetes, and shorter ones. The targets are in the middle of the paper's
// tuned values.
var (
	Default = Config{Target: 0.5, Every: 15 * time.Second, Window: 300 * time.Second, Floor: 10}
	Fast    = Config{Target: 0.6, Every: time.Second, Window: 20 * time.Second, Floor: 10}
)

// Check returns nil for valid settings. Otherwise the error names the field,
// its value and the rule.
func (c Config) Check() error {
	switch {
	case !(c.Target > 0 && c.Target <= 1):
		return fmt.Errorf("kcpu target %v: it must be in (0, 1]", float64(c.Target))
	case c.Every <= 0:
		return fmt.Errorf("kcpu every %v: it must be above zero", c.Every)
	case c.Window < c.Every:
		return fmt.Errorf("kcpu window %v: it must not be below every, %v", c.Window, c.Every)
	case c.Floor <= 0:
		return fmt.Errorf("kcpu floor %v: it must be above zero", c.Floor)
	}
	return nil
}

// Policy controls the CPU limit of one container. It needs [mdp.CPULimit] and
// [mdp.CPUUsage].
type Policy struct {
	config  Config
	decided time.Time    // time of the last decision; zero before the first
	sum     mdp.MilliCPU // of the usage since the last decision
	states  int          // number of States in sum
	desired []desire     // within the window, oldest first
}

// desire is a desired limit.
type desire struct {
	at    time.Time
	limit mdp.MilliCPU
}

// New creates a policy. The config must pass Check.
func New(c Config) *Policy { return &Policy{config: c} }

// Decide sets the CPU limit. It sets nothing when no decision is due, or when
// the limit is already right.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	if err := s.Require("kcpu", mdp.CPULimit, mdp.CPUUsage); err != nil {
		return mdp.Action{}, err
	}
	if s.Limit.CPU <= 0 || s.Limit.CPU > maxLimit || s.Usage.CPU < 0 || s.Usage.CPU > maxLimit {
		return mdp.Action{}, fmt.Errorf("kcpu: limit %v, usage %v: not figures of a container", s.Limit.CPU, s.Usage.CPU)
	}
	p.sum += s.Usage.CPU
	p.states++
	if !p.due(s.At) {
		return mdp.Action{}, nil
	}
	usage := float64(p.sum) / float64(p.states)
	p.decided = s.At
	p.sum = 0
	p.states = 0

	want := mdp.MilliCPU(min(float64(maxLimit), math.Ceil(usage/float64(p.config.Target))))
	want = p.stabilised(s.At, max(want, p.config.Floor))
	if want == s.Limit.CPU {
		return mdp.Action{}, nil
	}
	return mdp.Action{}.WithCPU(want), nil
}

// due reports whether it is time for a decision. Up to 10 % early is accepted:
// a loop with a tick every second sometimes ticks after 0.999 s, and it must
// not wait for another tick. A clock that jumps back does not stop the
// decisions.
func (p *Policy) due(now time.Time) bool {
	since := now.Sub(p.decided)
	return p.decided.IsZero() || since < 0 || since >= p.config.Every-p.config.Every/10
}

// stabilised adds a desired limit to the window and returns the highest in the
// window.
func (p *Policy) stabilised(now time.Time, limit mdp.MilliCPU) mdp.MilliCPU {
	kept := p.desired[:0]
	highest := limit
	for _, w := range p.desired {
		if now.Sub(w.at) < p.config.Window {
			kept = append(kept, w)
			highest = max(highest, w.limit)
		}
	}
	p.desired = append(kept, desire{now, limit})
	return highest
}

// maxLimit is a million cores. Values above it are errors, and sums could
// overflow.
const maxLimit mdp.MilliCPU = 1_000_000_000
