package aware

import (
	"context"

	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/mdp"
)

// Figures are sums over steps of a workload.
type Figures struct {
	Steps      int     `json:"steps"`
	Known      int     `json:"known"`      // of which the reward is known
	Reward     float64 `json:"reward"`     // of those
	Squares    float64 `json:"squares"`    // of their rewards
	CPU        float64 `json:"cpu"`        // utilisation: used over limit
	Memory     float64 `json:"memory"`     // the same
	Violations int     `json:"violations"` // steps in which the SLO was not kept
	Cores      float64 `json:"cores"`      // limit, or reservation, of all replicas together
}

// add takes in what was seen at the end of a step.
func (f *Figures) add(out workload.Outcome, slo mdp.SLO) {
	f.Steps++
	if out.RewardKnown {
		f.Known++
		f.Reward += float64(out.Reward)
		f.Squares += float64(out.Reward) * float64(out.Reward)
	}
	if sp, ok := slo.Preservation(out.Judged); ok && sp < 1 {
		f.Violations++
	}
	s := out.Judged
	allocated := mdp.CPULimit
	if s.Knows(mdp.CPUReservation) { // what central decides on
		allocated = mdp.CPUReservation
	}
	if cpu := allocated.Value(&s); s.Knows(allocated, mdp.CPUUsage) && cpu > 0 {
		f.CPU += min(1, float64(s.Usage.CPU)/cpu)
	}
	if s.Knows(mdp.MemoryLimit, mdp.MemoryUsage) && s.Limit.Memory > 0 {
		f.Memory += min(1, float64(s.Usage.Memory)/float64(s.Limit.Memory))
	}
	if s.Knows(allocated, mdp.Replicas) {
		f.Cores += allocated.Value(&s) / 1000 * float64(s.Replicas)
	}
}

// Since is what was added since an earlier copy.
func (f Figures) Since(was Figures) Figures {
	return Figures{
		Steps: f.Steps - was.Steps, Known: f.Known - was.Known, Reward: f.Reward - was.Reward,
		Squares: f.Squares - was.Squares, CPU: f.CPU - was.CPU,
		Memory: f.Memory - was.Memory, Violations: f.Violations - was.Violations, Cores: f.Cores - was.Cores,
	}
}

// plus is the sum of both.
func (f Figures) plus(g Figures) Figures {
	return Figures{
		Steps: f.Steps + g.Steps, Known: f.Known + g.Known, Reward: f.Reward + g.Reward,
		Squares: f.Squares + g.Squares, CPU: f.CPU + g.CPU,
		Memory: f.Memory + g.Memory, Violations: f.Violations + g.Violations, Cores: f.Cores + g.Cores,
	}
}

// Mean is the mean reward of a step.
func (f Figures) Mean() float64 { return f.Reward / float64(max(1, f.Known)) }

// measured is an Environment whose steps are added up.
type measured struct {
	*workload.Simulation
	figures  *Figures  // nil: none
	features *Features // nil: none
}

// Step implements [workload.Environment].
func (m measured) Step(ctx context.Context, a mdp.Action) (workload.Outcome, error) {
	out, err := m.Simulation.Step(ctx, a)
	if err == nil && m.figures != nil {
		m.figures.add(out, m.Spaces().SLO)
	}
	if err == nil && m.features != nil {
		m.features.add(out.State)
	}
	return out, err
}
