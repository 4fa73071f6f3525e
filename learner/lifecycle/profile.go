// Package lifecycle is the lifecycle of a workload's agent in AWARE (ATC'23,
// Algorithm 1). It contains the [Profile]: the rewards of recent episodes.
// Their mean and deviation determine the stage of the lifecycle.
package lifecycle

import (
	"math"

	"awarescale.dev/aware/learner/mdp"
)

// Profile keeps the rewards of the last episodes of a workload. An episode has
// a constant number of steps (100 in the paper, §2.2).
type Profile struct {
	Steps int // number of steps in an episode
	Keep  int // number of episodes to keep

	over    []float64 // total rewards of the last complete episodes, oldest first
	count   int       // number of complete episodes, including those no longer kept
	running float64   // total reward of the running episode
	steps   int       // number of steps in the running episode
}

// NewProfile creates a profile that keeps the last 20 episodes of 100 steps.
func NewProfile() *Profile { return &Profile{Steps: 100, Keep: 20} }

// Add adds the reward of one step.
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
	p.running = 0
	p.steps = 0
}

// Summary returns the mean and the standard deviation of the total rewards of
// the kept episodes, and the number of complete episodes. Before the first
// episode is complete, the mean is the reward of the running episode, scaled to
// the full length. ok is false before the first step.
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
