package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// episodes takes in transitions, and knows the rewards of each workload. It works only while
// this instance holds the learner's lease, so that one workload is learned in one place.
type episodes struct {
	learning atomic.Bool
	mu       sync.Mutex
	profiles map[string]*lifecycle.Profile
}

func newEpisodes() *episodes { return &episodes{profiles: map[string]*lifecycle.Profile{}} }

// Record takes one transition of a workload.
func (e *episodes) Record(workload string, t mdp.Transition) {
	if !e.learning.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.profiles[workload]
	if p == nil {
		p = lifecycle.NewProfile()
		e.profiles[workload] = p
	}
	if t.RewardKnown {
		p.Add(t.Reward)
	}
}

// Rewards sums up a workload's last episodes.
func (e *episodes) Rewards(workload string) (mean, std float64, n int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.profiles[workload]
	if p == nil {
		return 0, 0, 0, false
	}
	return p.Summary()
}

// run holds the learner's lease until the context ends or the lease is lost.
func (e *episodes) run(ctx context.Context, client kubernetes.Interface, namespace string) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("reading the host's name for the lease: %w", err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "aware-learner", Namespace: namespace},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("%s_%d", host, os.Getpid())},
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: "aware-learner", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { e.learning.Store(true) },
			OnStoppedLeading: func() { e.learning.Store(false) },
		},
	})
	if err != nil {
		return fmt.Errorf("making the learner's lease: %w", err)
	}
	elector.Run(ctx)
	if ctx.Err() == nil {
		return fmt.Errorf("the lease aware-learner was lost")
	}
	return nil
}
