// Package kcpu is the baseline "K8s-CPU" of Autothrottle's evaluation (Wang et al., NSDI 2024, §5): the rule of the
// Kubernetes Horizontal Pod Autoscaler, applied to a container's CPU limit instead of a number of replicas.
//
// Every so often the limit that is wanted is usage / target; the limit that is set is the highest that was wanted
// within a window (HPA's scale-down stabilisation). So it grows at once and shrinks late. A container that is
// throttled uses its whole limit, so its limit grows by 1/target at each step until it is throttled no more.
//
// Departures from the paper, and from HPA:
//  1. HPA's tolerance of 0.1 is not kept, as in the paper; only a change of less than a millicore is no change.
//  2. The usage is the mean of the States since the last decision, each of which is a mean over its sensor's step:
//     at a State a second and a decision in 15 s it is the mean over those 15 s, not a spot check of the last one.
package kcpu

import (
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Config is the rule's settings. Begin with [Default] or [Fast].
type Config struct {
	// Target is the share of the limit, in (0, 1], that should be used. Smaller is safer and costs more CPU. The
	// paper tunes it for each application and trace, and ends between 0.4 and 0.8.
	Target mdp.Ratio
	// Every is the time between two decisions; a State in between decides nothing.
	Every time.Duration
	// Window is how long a limit that was once wanted is not undercut.
	Window time.Duration
	// Floor is the smallest limit it proposes.
	Floor mdp.MilliCPU
}

// The paper's two: the times of Kubernetes itself, and faster ones, with targets from the middle of those it tuned.
var (
	Default = Config{Target: 0.5, Every: 15 * time.Second, Window: 300 * time.Second, Floor: 10}
	Fast    = Config{Target: 0.6, Every: time.Second, Window: 20 * time.Second, Floor: 10}
)

// Check names the field that is wrong, its value and the rule.
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

// Policy is the rule for one container's CPU limit. It needs [mdp.CPULimit] and [mdp.CPUUsage].
type Policy struct {
	config  Config
	decided time.Time // the last decision; zero before the first
	sum     mdp.MilliCPU
	states  int    // whose usage is in sum
	wanted  []wish // within the window, oldest first
}

type wish struct {
	at    time.Time
	limit mdp.MilliCPU
}

// New makes the rule; the config must be one that passes Check.
func New(c Config) *Policy { return &Policy{config: c} }

// Decide sets the CPU limit, or nothing when it is not yet time or the limit is as it should be.
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
	p.decided, p.sum, p.states = s.At, 0, 0

	want := mdp.MilliCPU(min(float64(maxLimit), math.Ceil(usage/float64(p.config.Target))))
	want = p.stabilised(s.At, max(want, p.config.Floor))
	if want == s.Limit.CPU {
		return mdp.Action{}, nil
	}
	return mdp.Action{}.WithCPU(want), nil
}

// due tells whether it is time to decide. A tenth early is in time: a loop that ticks every second ticks now and then
// after 0.999 s, and should not wait for another tick. A clock that went back does not stop the decisions.
func (p *Policy) due(now time.Time) bool {
	since := now.Sub(p.decided)
	return p.decided.IsZero() || since < 0 || since >= p.config.Every-p.config.Every/10
}

// stabilised takes a wish into the window and gives the highest in it.
func (p *Policy) stabilised(now time.Time, limit mdp.MilliCPU) mdp.MilliCPU {
	kept := p.wanted[:0]
	highest := limit
	for _, w := range p.wanted {
		if now.Sub(w.at) < p.config.Window {
			kept = append(kept, w)
			highest = max(highest, w.limit)
		}
	}
	p.wanted = append(kept, wish{now, limit})
	return highest
}

// maxLimit is a million cores: beyond it a figure is an accident, and sums would overflow.
const maxLimit mdp.MilliCPU = 1_000_000_000
