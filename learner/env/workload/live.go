package workload

import (
	"context"
	"time"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
)

// Running is an Environment of a workload that runs, whatever anybody does.
type Running struct {
	episode
	end   func(ctx context.Context) error
	began bool
}

// Live makes an Environment of a real Sensor and Actuator. Between acting and
// looking the step really passes: pair.Wait waits for it; nil waits by a timer,
// and a nil pair.Now is time.Now. end leaves the workload as it was found; it
// may be nil.
func Live(pair Pair, spaces Spaces, o mdp.Objective, end func(ctx context.Context) error) (*Running, error) {
	spaces.World = Real
	if err := spaces.Check(); err != nil {
		return nil, err
	}
	if pair.Now == nil {
		pair.Now = time.Now
	}
	if pair.Wait == nil {
		pair.Wait = wait
	}
	return &Running{episode: episode{pair: pair, spaces: spaces, objective: o}, end: end}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Spaces describes the workload.
func (r *Running) Spaces() Spaces { return r.spaces }

// Reset looks at the workload as it is. There is nothing that a seed could change.
func (r *Running) Reset(ctx context.Context, _ uint64) (mdp.State, error) {
	s, err := r.begin(ctx)
	r.began = r.began || err == nil
	return s, err
}

// Step takes as long as a step is.
func (r *Running) Step(ctx context.Context, a mdp.Action) (Outcome, error) {
	if !r.began {
		return Outcome{Effect: mdp.Failed}, env.ErrNotRunning
	}
	out := make([]Outcome, 1)
	err := stepAll(ctx, []*episode{&r.episode}, []mdp.Action{a}, out)
	return out[0], err
}

// Close leaves the workload as it was found.
func (r *Running) Close(ctx context.Context) error {
	if r.end == nil {
		return nil
	}
	return r.end(ctx)
}
