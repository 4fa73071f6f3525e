// Package headroom is a scheduler plugin. It scores nodes by what is left of
// them after the upper bounds: the most that the workloads on a node may use
// before the scheduler is asked again. For the workloads that a node's agent manages
// that is what central has promised of the node, where it has, and otherwise the sum
// of their ceilings. The default plugins count requests, which are reservations. Where
// sizes move in place, a node full of small requests with large limits has no room.
package headroom

import (
	"context"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-scheduler/framework"
)

// Name is the plugin's name in scheduler profiles.
const Name = "AwareHeadroom"

// MaxReportAge is how old an agent's report may be.
const MaxReportAge = 30 * time.Second

// Uppers is what agents report of the pods of each node. It does not wait: the scheduler
// asks for each node and pod.
type Uppers interface {
	// Upper is the most that the reported containers of a node can use, by pod UID.
	// It is not to be changed. ok is false when no report of the node is known that is
	// at most maxAge old.
	Upper(node string, now time.Time, maxAge time.Duration) (byPod map[string]mdp.Size, ok bool)
	// Promised is the most that the limits in force of all these containers come to. ok is
	// false when nothing is promised, or no report is known that is at most maxAge old.
	Promised(node string, now time.Time, maxAge time.Duration) (sum mdp.Size, ok bool)
}

// Headroom scores nodes. It is a [framework.ScorePlugin].
type Headroom struct {
	reports Uppers
	now     func() time.Time
}

var _ framework.ScorePlugin = (*Headroom)(nil)

// New makes the plugin's factory for a registry. Where no report is known, nodes are
// scored by the limits in the API.
func New(reports Uppers,
	now func() time.Time) func(context.Context, runtime.Object, framework.Handle) (framework.Plugin, error) {
	return func(context.Context, runtime.Object, framework.Handle) (framework.Plugin, error) {
		return &Headroom{reports: reports, now: now}, nil
	}
}

// Name is the plugin's name.
func (h *Headroom) Name() string { return Name }
