package cgrouptest

import (
	"context"
	"runtime"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"golang.org/x/sys/unix"
)

// Relief is how a group's CPU limit was raised after the group was throttled.
type Relief struct {
	Throttled bool // the end of a throttled period was seen
	Raised    bool // and then, or before, a larger limit
	// Took is the time from the end of the first throttled period to the larger limit. It is
	// never too short: it begins at the last look that saw no throttled period yet, and ends
	// after the look that saw the larger limit.
	Took time.Duration
	// Waited is the time from begin to the larger limit. With limits of long periods it says more
	// than Took: a burst that is seen before its period ends is never throttled.
	Waited time.Duration
	// Gap is the longest time between two looks, which is what Took may be too long by, twice.
	Gap time.Duration
}

// lookEvery is the time between two looks at a group.
const lookEvery = time.Millisecond

// Watch looks at a group's counters and its limit until the limit has become larger, or the
// context ends. begin is called before the first look that counts; it starts what the group
// is throttled for.
func Watch(ctx context.Context, tree *cgroup.Tree, path string, begin func()) (Relief, error) {
	// A look that comes late measures itself. Where the process may, it goes before others.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	if before, err := unix.Getpriority(unix.PRIO_PROCESS, thread); err == nil &&
		unix.Setpriority(unix.PRIO_PROCESS, thread, -20) == nil {
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, thread, 20-before) }() // the call returns 20 minus the priority
	}
	g, err := tree.Group(path)
	if err != nil {
		return Relief{}, err
	}
	defer g.Close()
	w := watch{group: g}
	if err := w.look(); err != nil {
		return Relief{}, err
	}
	w.low, w.before, w.relief = w.limit.CPU(), w.counts.ThrottledPeriods, Relief{}
	w.start = time.Now()
	begin()
	for ctx.Err() == nil && !w.relief.Raised {
		time.Sleep(lookEvery)
		if err := w.look(); err != nil {
			return w.relief, err
		}
		w.judge()
	}
	return w.relief, nil
}

// watch is a group that is looked at.
type watch struct {
	group  *cgroup.Group
	low    mdp.MilliCPU // at the beginning
	before uint64       // throttled periods at the beginning
	counts cgroup.CPU
	limit  cgroup.Limits
	begun  time.Time // of the last look
	ended  time.Time // of the last look
	last   time.Time // when the look before the last one began
	start  time.Time // when begin was called
	from   time.Time // the end of the first throttled period is not before
	relief Relief
}

func (w *watch) look() error {
	w.last = w.begun
	w.begun = time.Now()
	if err := w.group.ReadCPU(&w.counts); err != nil {
		return err
	}
	var err error
	w.limit, err = w.group.CPULimit()
	w.ended = time.Now()
	return err
}

func (w *watch) judge() {
	r := &w.relief
	r.Gap = max(r.Gap, w.ended.Sub(w.last))
	if !r.Throttled && w.counts.ThrottledPeriods > w.before {
		r.Throttled = true
		w.from = w.last
	}
	if w.limit.CPU() > w.low {
		r.Raised = true
		r.Waited = w.ended.Sub(w.start)
	}
	if r.Raised && r.Throttled {
		r.Took = w.ended.Sub(w.from)
	}
}
