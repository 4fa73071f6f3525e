package recommender

import (
	"slices"
	"time"
)

// canaryHold is how long no canary is chosen after one was reverted.
const canaryHold = 5 * time.Minute

// canary is the one pod of a workload that may be resized in mode canary. Both
// the resizes through the API and the grants to the nodes follow it.
type canary struct {
	pod       string    // its name; empty when there is none
	heldUntil time.Time // no pod is chosen before this time
}

// next chooses the canary of this step: the first pod by name, so that it stays
// the same. When the canary violates the SLO it is reverted, and for canaryHold
// no pod is chosen.
func (c canary) next(now time.Time, pods []string, violated bool) canary {
	if len(pods) == 0 {
		return canary{heldUntil: c.heldUntil}
	}
	if violated {
		return canary{heldUntil: now.Add(canaryHold)}
	}
	if now.Before(c.heldUntil) {
		return canary{heldUntil: c.heldUntil}
	}
	return canary{pod: slices.Min(pods), heldUntil: c.heldUntil}
}
