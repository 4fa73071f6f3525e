package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/train/lesson"
	"k8s.io/klog/v2"
)

// What the store keeps: of a workload what a lesson reads, and of all together as much as its volume has room for. An episode
// of 100 steps takes about 40 KiB.
const (
	episodesOfOne = 100
	episodesOfAll = 20_000
	keptFor       = 14 * 24 * time.Hour
)

// prunable is a store that does not prune itself.
type prunable interface {
	trajectory.Store
	Prune(ctx context.Context, now time.Time, keep trajectory.Retention) (int64, error)
}

// prune deletes the oldest episodes of each workload.
func (m *minds) prune(ctx context.Context, store prunable) error {
	workloads, err := store.Workloads(ctx)
	if err != nil {
		return err
	}
	each := max(1, min(episodesOfOne, episodesOfAll/max(1, len(workloads))))
	_, err = store.Prune(ctx, m.now(), trajectory.Retention{Episodes: each, Age: keptFor})
	return err
}

// teach gives lessons, one after the other, until the context ends, and writes what has changed to files.
func (m *minds) teach(ctx context.Context, store trajectory.Store) error {
	workspace := agent.NewWorkspace()
	var pruned time.Time
	for {
		pause := 5 * time.Second
		if m.deciding() {
			if p, ok := store.(prunable); ok && m.now().Sub(pruned) > time.Hour {
				if err := m.prune(ctx, p); err != nil {
					klog.ErrorS(err, "Pruning the trajectory store")
				}
				pruned = m.now()
			}
			if o := m.due(); m.teaches && o != nil && o.lend(m.now()) {
				begin := m.now()
				m.lesson(ctx, o, store, workspace)
				took := m.now().Sub(begin)
				pause = time.Duration(float64(took) * (1/m.share - 1))
			}
		}
		m.keepAll(false)
		select {
		case <-ctx.Done():
			m.keepAll(true)
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// due is the mind whose last lesson is the longest ago, of those that are to have one and that no learner has; nil: none is.
func (m *minds) due() *mind {
	next, _ := m.waiting()
	return next
}

// waiting is the mind that is due first, and how many are due.
func (m *minds) waiting() (next *mind, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var oldest time.Time
	for _, o := range m.all {
		o.mu.Lock()
		taught, away, training := o.taught, o.away, o.agent.Training()
		o.mu.Unlock()
		if now := m.now(); training == lifecycle.NoTraining || now.Sub(taught) < m.every || now.Before(away) {
			continue
		}
		if n++; next == nil || taught.Before(oldest) {
			next, oldest = o, taught
		}
	}
	return next, n
}

// lentFor is how long a learner may take for a lesson. It takes some seconds; where a machine is busy, some more.
const lentFor = 10 * time.Minute

// lend gives the mind's lesson to a learner for that time, unless another one has it.
func (o *mind) lend(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.away) {
		return false
	}
	o.away = now.Add(lentFor)
	return true
}

// assignment is a lesson of an agent, with what was true of the agent when the lesson was made.
type assignment struct {
	mind       *mind
	lesson     lesson.Lesson
	workload   lifecycle.Workload
	generation uint64
	trouble    string // why it does not go on from what was learned before; empty: it does
}

// lesson gives one lesson.
func (m *minds) lesson(ctx context.Context, o *mind, store trajectory.Store, w *agent.Workspace) {
	a, err := m.prepare(ctx, o, store)
	var got lesson.Result
	if err == nil {
		got, err = learn(ctx, a.lesson, w)
	}
	m.finish(ctx, a, got, err)
}

// prepare makes the lesson of an agent. With an error, too, the assignment is one to finish.
func (m *minds) prepare(ctx context.Context, o *mind, store trajectory.Store) (a assignment, err error) {
	defer saved(o.workload, &err)
	o.mu.Lock()
	a = assignment{mind: o, workload: o.agent.Workload(), generation: o.agent.Generation()}
	o.mu.Unlock()
	from, err := m.weightsOf(o)
	if err != nil {
		a.trouble = anew(err.Error())
	}
	a.lesson, err = m.lessons.Prepare(ctx, store, o.workload, a.workload.Since, o.place, from)
	return a, err
}

func anew(why string) string {
	return "what it had learned cannot be read, and it begins anew: " + why
}

// learn gives a lesson, here.
func learn(ctx context.Context, l lesson.Lesson, w *agent.Workspace) (got lesson.Result, err error) {
	defer saved(l.Workload, &err)
	return l.Learn(ctx, w)
}

// saved makes an error of a panic: nothing else must stop because of one workload's lesson.
func saved(workload string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("learning of %s panicked: %v", workload, p)
	}
}

// finish takes in what was learned. Whatever went wrong is said.
func (m *minds) finish(ctx context.Context, a assignment, got lesson.Result, err error) {
	o := a.mind
	var policy mdp.Policy
	if err == nil {
		got.Policy.Snapshot.Version = a.generation + 1
		policy, err = central.Learned(got.Policy, o.place)
	}
	var little *lesson.TooLittleError
	file, w := got.Policy, got.Weights // each alone: who keeps the policy would keep the weights with it, which are far larger
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = time.Time{}
	if ctx.Err() != nil {
		return // it was not given
	}
	o.taught, o.trouble = m.now(), a.trouble
	if got.Anew != "" {
		o.trouble = anew(got.Anew)
	}
	switch {
	case errors.As(err, &little):
		o.trouble = fmt.Sprintf("there is too little experience yet (%v)", little)
	case err != nil:
		o.trouble = err.Error()
		klog.ErrorS(err, "A lesson failed", "workload", o.workload)
	case o.agent.Workload() != a.workload:
		// It has changed during the lesson: what was learned, and what it was found to be worth, is of the one before.
		o.weights = &w
	default:
		o.weights = &w
		taken, why := o.agent.Offer(policy, a.generation+1, lifecycle.Estimate{
			Known: true, Mean: got.Worth.Mean, Low: got.Worth.Low, High: got.Worth.High,
			Proven: a.lesson.Proven && got.Anew == a.lesson.Anew, // it is what ships, as it is
		})
		if taken {
			o.policy, o.before, o.generation = &file, o.policy, a.generation+1
		}
		o.changed = true
		klog.InfoS("A policy was learned", "workload", o.workload, "transitions", got.Transitions, "episodes", got.Episodes,
			"taken", taken, "why", why)
	}
}

// weightsOf is what the next lesson goes on from; nil: it begins anew.
func (m *minds) weightsOf(o *mind) (*weights.File, error) {
	o.mu.Lock()
	w := o.weights
	o.mu.Unlock()
	if w != nil || m.folder == "" {
		return w, nil
	}
	f, err := weights.Read(m.path(o.workload, ".weights"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		klog.ErrorS(err, "Reading an agent's weights", "workload", o.workload)
		return nil, err
	}
	return &f, nil
}
