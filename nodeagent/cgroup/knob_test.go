package cgroup_test

import (
	"slices"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

// What every row of the table has to hold, and what walks over it relies on.
func TestEachKnobIsOneLimitOfItsOwn(t *testing.T) {
	low := cgroup.Limits{Quota: 20_000, Period: 100_000, Memory: 64 << 20}
	high := cgroup.Limits{Quota: 100_000, Period: 400_000, Memory: 128 << 20}
	var all mdp.Set
	for _, k := range cgroup.Knobs {
		t.Run(k.Signal.String(), func(t *testing.T) {
			if all.Has(k.Signal) {
				t.Error("it is there twice")
			}
			all |= mdp.SetOf(k.Signal)
			if k.Has(cgroup.Limits{}) || !k.Has(low) {
				t.Error("no limit is a limit, or a limit is none")
			}
			if !k.Less(low, high) || k.Less(high, low) || k.Less(low, low) {
				t.Error("the lower limit is not the lower one")
			}
			if !k.Same(low, low) || k.Same(low, high) || k.Same(low, cgroup.Limits{}) || k.Same(cgroup.Limits{}, low) {
				t.Error("limits are not told apart")
			}
			mixed := low
			k.Copy(&mixed, high)
			if got := cgroup.Differ(mixed, low); got != mdp.SetOf(k.Signal) {
				t.Errorf("a copy of this limit changed %v", got)
			}
			if !k.Same(mixed, high) || mixed != low.With(high.Only(mdp.SetOf(k.Signal))) {
				t.Errorf("%+v has not taken the limit of %+v", mixed, high)
			}
			k.Copy(&mixed, cgroup.Limits{})
			if got := low.Sets().Without(mixed.Sets()); got != mdp.SetOf(k.Signal) {
				t.Errorf("the limit was taken away, and %v are missing", got)
			}
		})
	}
	if all != low.Sets() || !low.Only(0).Empty() || low.Empty() {
		t.Errorf("the table has %v, and the limits are %v", all, low.Sets())
	}
}

// The law of the order: nothing is lowered before everything is raised, and memory becomes tight last.
func TestWhatIsRaisedIsWrittenFirst(t *testing.T) {
	const memory1, memory2 = "memory.limit_in_bytes", "memory.max"
	const cpu1, cpu2 = "cpu.cfs_quota_us", "cpu.max"
	is := cgroup.Limits{Quota: 50_000, Period: 100_000, Memory: 64 << 20}
	for name, c := range map[string]struct {
		to     cgroup.Limits
		memory bool // goes first
	}{
		"both up":              {cgroup.Limits{Quota: 60_000, Period: 100_000, Memory: 96 << 20}, true},
		"both down":            {cgroup.Limits{Quota: 40_000, Period: 100_000, Memory: 48 << 20}, false},
		"CPU up, memory down":  {cgroup.Limits{Quota: 60_000, Period: 100_000, Memory: 48 << 20}, false},
		"CPU down, memory up":  {cgroup.Limits{Quota: 40_000, Period: 100_000, Memory: 96 << 20}, true},
		"CPU down by a period": {cgroup.Limits{Quota: 50_000, Period: 200_000, Memory: 96 << 20}, true},
	} {
		for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			t.Run(name+" on "+version.String(), func(t *testing.T) {
				h := cgrouptest.Fixture(t, version)
				path := h.Parent + "/c"
				h.Add(t, path, is)
				files := written(t, h, path, func() error { return h.Tree.Write(path, c.to) })
				at := func(names ...string) int {
					return slices.IndexFunc(files, func(f string) bool { return slices.Contains(names, f) })
				}
				memory, cpu := at(memory1, memory2), at(cpu1, cpu2, "cpu.cfs_period_us")
				if memory < 0 || cpu < 0 || (memory < cpu) != c.memory {
					t.Errorf("written were %v", files)
				}
				if got := h.Limits(t, path); got != c.to {
					t.Errorf("in force is %+v, want %+v", got, c.to)
				}
			})
		}
	}
}
