// Package headroom is a scheduler plugin. It scores nodes by what is left of
// them after the upper bounds: the most that the workloads on a node may use
// before the scheduler is asked again. The default plugins count requests,
// which are reservations. Where sizes move in place, a node full of small
// requests with large limits has no room.
package headroom

import (
	"context"
	"time"

	"awarescale.dev/aware/plugins/fleet"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-scheduler/framework"
)

// Name is the plugin's name in scheduler profiles.
const Name = "AwareHeadroom"

// maxReportAge is how old an agent's report may be.
const maxReportAge = 30 * time.Second

// Headroom scores nodes. It is a [framework.ScorePlugin].
type Headroom struct {
	fleet *fleet.Fleet
	now   func() time.Time
}

var _ framework.ScorePlugin = (*Headroom)(nil)

// New makes the plugin's factory for a registry. The fleet may be empty: an
// instance that does not decide gets no reports, and scores by the limits in
// the API.
func New(f *fleet.Fleet,
	now func() time.Time) func(context.Context, runtime.Object, framework.Handle) (framework.Plugin, error) {
	return func(context.Context, runtime.Object, framework.Handle) (framework.Plugin, error) {
		return &Headroom{fleet: f, now: now}, nil
	}
}

// Name is the plugin's name.
func (h *Headroom) Name() string { return Name }
