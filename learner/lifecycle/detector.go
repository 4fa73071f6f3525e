package lifecycle

import (
	"fmt"
	"math"

	"awarescale.dev/aware/learner/mdp"
)

// Detector sees within an episode that a workload has changed: a policy that was learned for another one is worth less from one
// step to the next. It is Page's cumulative sum: what each step's reward is below what is usual, less Slack, is
// added up, and never below zero. Where the sum reaches Alarm the workload has changed.
//
// With an Alarm of 8 a drop by two deviations is seen after about six steps: each adds one and a half deviations in the mean.
type Detector struct {
	Mean, Deviation float64 // of a step, that are usual
	Alarm           float64 // in deviations
	Slack           float64 // in deviations: what a step may earn less than usual before it counts

	sum float64 // in deviations
}

// The defaults of Detector.Alarm and Detector.Slack.
const (
	alarm = 8
	slack = 0.5
)

// NewDetector makes a detector of what is usual: the mean and the deviation of a step's reward.
func NewDetector(mean, deviation float64) *Detector {
	return &Detector{Mean: mean, Deviation: max(deviation, 0.01*math.Abs(mean), 1e-9), Alarm: alarm, Slack: slack}
}

// seen is what was seen before, or what the reward of a step shows. A nil Detector sees nothing.
func (d *Detector) seen(before string, reward mdp.Reward) string {
	if d == nil {
		return before
	}
	if why := d.Add(float64(reward)); why != "" {
		return why
	}
	return before
}

// Add takes in the reward of a step. It returns why the workload is another one, or nothing. A step of
// which the reward is not known is not added: a gap is no drift.
func (d *Detector) Add(reward float64) (drift string) {
	if !finite(reward) {
		return ""
	}
	d.sum = max(0, d.sum+(d.Mean-reward)/d.Deviation-d.Slack)
	if d.sum < d.Alarm {
		return ""
	}
	d.sum = 0
	return fmt.Sprintf(
		"the rewards of the last steps are below %.4g, which was usual, by more than its deviation of %.4g explains",
		d.Mean, d.Deviation)
}
