package recommender

import (
	"testing"
	"time"
)

func TestCanaryIsOnePodUntilItViolatesTheSLO(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pods := []string{"web-2", "web-1", "web-3"}
	held := canary{heldUntil: noon.Add(canaryHold)}
	for name, c := range map[string]struct {
		before   canary
		now      time.Time
		pods     []string
		violated bool
		want     canary
	}{
		"the first pod by name": {
			now: noon, pods: pods, want: canary{pod: "web-1"}},
		"another pod when the first is gone": {
			before: canary{pod: "web-1"}, now: noon, pods: []string{"web-3", "web-2"}, want: canary{pod: "web-2"}},
		"none without pods": {
			before: canary{pod: "web-1"}, now: noon, want: canary{}},
		"none after a violation": {
			before: canary{pod: "web-1"}, now: noon, pods: pods, violated: true, want: held},
		"none while it is held": {
			before: held, now: noon.Add(canaryHold - time.Second), pods: pods, want: held},
		"one again when the hold ends": {
			before: held, now: noon.Add(canaryHold), pods: pods, want: canary{pod: "web-1", heldUntil: noon.Add(canaryHold)}},
		"a violation during the hold extends it": {
			before: held, now: noon.Add(time.Minute), pods: pods, violated: true,
			want: canary{heldUntil: noon.Add(time.Minute + canaryHold)}},
		"a hold outlives the pods": {
			before: held, now: noon, violated: true, want: held},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.before.next(c.now, c.pods, c.violated); got != c.want {
				t.Errorf("canary %+v, want %+v", got, c.want)
			}
		})
	}
}
