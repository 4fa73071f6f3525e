package cgrouptest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// Worker is the work in a fixture's group, which has no processes. It uses CPU as far as
// the group's limit lets it.
type Worker struct {
	Demand mdp.MilliCPU
	Memory mdp.Bytes // in use

	used      time.Duration
	periods   int
	throttled float64 // of the periods

	limit     cgroup.Limits
	into      time.Duration // of the present period
	got, want time.Duration // in it
}

// Throttled is how many periods were throttled, of which one may be a part.
func (w *Worker) Throttled() float64 { return w.throttled }

// charge adds to the CPU time of a fixture's group, in which that of the groups below it is.
func (h *Host) charge(tb testing.TB, path string, did time.Duration) {
	tb.Helper()
	g, err := h.Tree.Group(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer g.Close()
	used, known, err := g.CPUTime()
	if err != nil || !known {
		tb.Fatalf("the CPU time of %s: known %v, %v", path, known, err)
	}
	used += did
	if h.Tree.Version() == cgroup.V2 {
		h.Put(tb, path, "cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n", used.Microseconds()))
		return
	}
	h.Put(tb, path, "cpuacct/cpuacct.usage", fmt.Sprintln(int64(used)))
}

// slice is what a tenth of a second is worked in: periods are whole numbers of it.
const slice = 10 * time.Millisecond

// work is the CPU time that the limit lets it use in a tenth of a second. A new limit begins a
// new period.
func (w *Worker) work(l cgroup.Limits) (did time.Duration) {
	l.Memory = 0
	if l != w.limit {
		w.limit, w.into, w.got, w.want = l, 0, 0, 0
	}
	period := max(slice, time.Duration(l.Period)*time.Microsecond)
	wants := time.Duration(w.Demand) * slice / 1000
	for range Period / slice {
		can := wants
		if l.Quota > 0 {
			can = min(wants, time.Duration(l.Quota)*time.Microsecond-w.got)
		}
		w.into, w.got, w.want, did = w.into+slice, w.got+can, w.want+wants, did+can
		if w.into < period {
			continue
		}
		w.periods++
		if w.want > w.got {
			w.throttled += 1 - float64(w.got)/float64(w.want)
		}
		w.into, w.got, w.want = 0, 0, 0
	}
	return did
}

// Period is how long one Work takes: the usual CFS period.
const Period = 100 * time.Millisecond

// Work is the work of one period. It writes what the kernel would count. It does nothing to
// a real group: the kernel counts there.
func (w *Worker) Work(tb testing.TB, h *Host, path string) {
	tb.Helper()
	if h.real {
		return
	}
	did := w.work(h.Limits(tb, path))
	w.used += did
	for above := filepath.Dir(path); h.hasLimits(above); above = filepath.Dir(above) {
		h.charge(tb, above, did)
	}
	cfs := fmt.Sprintf("nr_periods %d\nnr_throttled %d\n", w.periods, int(w.throttled))
	memory := fmt.Sprintln(int64(w.Memory))
	if h.Tree.Version() == cgroup.V2 {
		h.Put(tb, path, "cpu.stat", fmt.Sprintf("usage_usec %d\n%sthrottled_usec 0\n", w.used.Microseconds(), cfs))
		h.Put(tb, path, "memory.current", memory)
		return
	}
	h.Put(tb, path, "cpuacct/cpuacct.usage", fmt.Sprintln(int64(w.used)))
	h.Put(tb, path, "cpu/cpu.stat", cfs+"throttled_time 0\n")
	h.Put(tb, path, "memory/memory.usage_in_bytes", memory)
}
