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
	Mean      float64 `json:"mean"` // of a step, that are usual
	Deviation float64 `json:"deviation"`
	Alarm     float64 `json:"alarm"` // in deviations
	Slack     float64 `json:"slack"` // in deviations: what a step may earn less than usual before it counts
	Sum       float64 `json:"sum"`   // in deviations: what has been missing until now
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

// clone is a copy that shares nothing; that of nil is nil.
func (d *Detector) clone() *Detector {
	if d == nil {
		return nil
	}
	c := *d
	return &c
}

// valid reports whether a detector of a file, or none, can be gone on with.
func (d *Detector) valid() bool {
	return d == nil || finite(d.Mean) && finite(d.Deviation) && d.Deviation > 0 && d.Alarm > 0 && d.Slack >= 0 && d.Sum >= 0
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
	d.Sum = max(0, d.Sum+(d.Mean-reward)/d.Deviation-d.Slack)
	if d.Sum < d.Alarm {
		return ""
	}
	d.Sum = 0
	return fmt.Sprintf(
		"the rewards of the last steps are below %.4g, which was usual, by more than its deviation of %.4g explains",
		d.Mean, d.Deviation)
}
