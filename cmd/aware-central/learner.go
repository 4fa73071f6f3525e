package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"k8s.io/klog/v2"
)

// episodes takes in transitions, knows the rewards of each workload, and writes
// both to the trajectory store when there is one. It works only while this
// instance holds the autoscaler's lease, so that one workload is learned in one
// place: where it is decided on.
type episodes struct {
	deciding *atomic.Bool
	store    trajectory.Store // nil: nothing is stored
	now      func() time.Time
	minds    *minds // the agents of workloads that are learned

	mu        sync.Mutex
	recorders map[string]*lifecycle.Recorder
	failed    error // why the last transition was not stored; nil when it was
}

func newEpisodes(step time.Duration, now func() time.Time, deciding *atomic.Bool) *episodes {
	return &episodes{
		recorders: map[string]*lifecycle.Recorder{}, now: now, deciding: deciding, minds: newMinds(step, now, deciding.Load),
	}
}

// open opens the trajectory store: a file, or an InfluxDB. What is learned of it is kept in a folder.
func (e *episodes) open(ctx context.Context, at storeAt) error {
	store, err := at.open(ctx)
	if err != nil {
		return fmt.Errorf("flag --trajectory-store: %w", err)
	}
	if err := os.MkdirAll(at.agents, 0o700); err != nil {
		return fmt.Errorf("flag --agents-folder: making it: %w", errors.Join(err, store.Close()))
	}
	e.store, e.minds.folder = store, at.agents
	return nil
}

// close writes what is still buffered.
func (e *episodes) close() error {
	if e.store == nil {
		return nil
	}
	return e.store.Close()
}

// firstEpisode is the number of a workload's first episode in this process: the
// seconds since 2026. A step takes a second or more, and each step begins at
// most one episode, so the number is above every one that an earlier process
// has used.
func (e *episodes) firstEpisode() int {
	return int(e.now().Sub(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Second)
}

// Record takes one transition of a workload.
func (e *episodes) Record(workload string, t mdp.Transition, acted bool) {
	e.minds.record(workload, t, acted)
	if !e.deciding.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.recorders[workload]
	if r == nil {
		r = lifecycle.NewRecorder(e.firstEpisode())
		e.recorders[workload] = r
	}
	numbered, episode, step := r.Add(t)
	if e.store == nil {
		return
	}
	// Append only buffers. What it cannot take is counted by the store, and the
	// decision goes on.
	err := e.store.Append(context.Background(), workload, episode, step, numbered)
	if err != nil && e.failed == nil { // once, not each second
		klog.ErrorS(err, "A transition was not stored", "workload", workload, "episode", episode, "step", step)
	}
	e.failed = err
}

// Rewards sums up a workload's last episodes.
func (e *episodes) Rewards(workload string) (mean, std float64, n int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.recorders[workload]
	if r == nil {
		return 0, 0, 0, false
	}
	return r.Profile.Totals()
}

// Life is where the agent of a workload is in its life.
func (e *episodes) Life(workload string) (recommender.Life, bool) { return e.minds.life(workload) }

// Forget ends what is kept of a workload in memory. Its stored episodes stay until they are pruned.
func (e *episodes) Forget(workload string) {
	e.minds.forget(workload)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.recorders, workload)
}
