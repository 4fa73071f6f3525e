// Package lifecycle is AWARE's life of a workload's agent (ATC'23, Algorithm 1). The part that is here is its
// [Profile]: the rewards of recent episodes, from whose mean and deviation the stages are told.
package lifecycle

import (
	"math"

	"awarescale.dev/aware/learner/mdp"
)

// Profile keeps the rewards of a workload's last episodes. An episode is a fixed number of steps (100 in the paper,
// §2.2), cut by time.
type Profile struct {
	Steps int // of an episode
	Keep  int // episodes

	over    []float64 // sums of the last episodes, oldest first
	count   int       // episodes that are over, kept or not
	running float64
	steps   int
}

// NewProfile keeps the last 20 episodes of 100 steps.
func NewProfile() *Profile { return &Profile{Steps: 100, Keep: 20} }

// Add takes one step's reward.
func (p *Profile) Add(r mdp.Reward) {
	p.running += float64(r)
	p.steps++
	if p.steps < p.Steps {
		return
	}
	p.over = append(p.over, p.running)
	if len(p.over) > p.Keep {
		p.over = p.over[1:]
	}
	p.count++
	p.running, p.steps = 0, 0
}

// Summary is the mean and the standard deviation of the kept episodes' rewards and how many episodes are over. Before
// the first is over it is the running one, scaled to its full length; ok is false before the first step.
func (p *Profile) Summary() (mean, std float64, episodes int, ok bool) {
	if len(p.over) == 0 {
		if p.steps == 0 {
			return 0, 0, 0, false
		}
		return p.running / float64(p.steps) * float64(p.Steps), 0, 0, true
	}
	for _, r := range p.over {
		mean += r
	}
	mean /= float64(len(p.over))
	for _, r := range p.over {
		std += (r - mean) * (r - mean)
	}
	return mean, math.Sqrt(std / float64(len(p.over))), p.count, true
}
