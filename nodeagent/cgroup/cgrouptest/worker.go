package cgrouptest

import (
	"fmt"
	"math"
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
}

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

// Period is how long one Work takes: a CFS period.
const Period = 100 * time.Millisecond

// Work is the work of one period. It writes what the kernel would count. It does nothing to
// a real group: the kernel counts there.
func (w *Worker) Work(tb testing.TB, h *Host, path string) {
	tb.Helper()
	if h.real {
		return
	}
	limit := h.Limits(tb, path).CPU()
	if limit == 0 {
		limit = math.MaxInt32
	}
	did := time.Duration(min(limit, w.Demand)) * Period / 1000
	w.used += did
	for above := filepath.Dir(path); h.hasLimits(above); above = filepath.Dir(above) {
		h.charge(tb, above, did)
	}
	w.periods++
	if w.Demand > limit {
		w.throttled += 1 - float64(limit)/float64(w.Demand)
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
