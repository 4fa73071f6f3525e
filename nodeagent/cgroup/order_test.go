package cgroup_test

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"golang.org/x/sys/unix"
)

// written is the files of a fixture's group that something writes, in their order, each of them once.
func written(t *testing.T, h *cgrouptest.Host, path string, do func() error) (names []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	dirs := []string{path}
	if h.Tree.Version() == cgroup.V1 {
		dirs = []string{"cpu/" + path, "memory/" + path}
	}
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, filepath.Join(h.Tree.Root(), dir), unix.IN_MODIFY); err != nil {
			t.Fatal(err)
		}
	}
	if err := do(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, _ := unix.Read(fd, b) // nothing to read is nothing written
	for b = b[:max(0, n)]; len(b) >= unix.SizeofInotifyEvent; {
		end := unix.SizeofInotifyEvent + binary.NativeEndian.Uint32(b[12:])
		name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00"))
		if b = b[end:]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// On v1 the quota and the period are two files. In between the smaller one of the two limits that can
// be is in force: the pod's group may allow no more.
func TestTheSmallerLimitIsInForceBetweenQuotaAndPeriod(t *testing.T) {
	const quota, period = "cpu.cfs_quota_us", "cpu.cfs_period_us"
	h := cgrouptest.Fixture(t, cgroup.V1)
	path := h.Parent + "/c"
	limit := func(quota, period int64) cgroup.Limits {
		return cgroup.Limits{Quota: quota * 1000, Period: period * 1000}
	}
	for _, c := range []struct {
		from, to cgroup.Limits
		want     []string
	}{
		{limit(50, 100), limit(20, 200), []string{quota, period}},
		{limit(50, 100), limit(40, 200), []string{period, quota}},
		{limit(50, 100), limit(100, 400), []string{period, quota}},
		{limit(100, 400), limit(50, 100), []string{quota, period}},
		{limit(40, 200), limit(50, 100), []string{quota, period}},
		{limit(40, 200), limit(90, 100), []string{period, quota}},
		{limit(50, 100), limit(60, 100), []string{quota}},
		{limit(50, 100), limit(50, 200), []string{period}},
	} {
		h.Add(t, path, c.from)
		g, err := h.Tree.Group(path)
		if err != nil {
			t.Fatal(err)
		}
		got := written(t, h, path, func() error { return g.WriteCPU(c.to) })
		g.Close()
		if is := h.Limits(t, path); !slices.Equal(got, c.want) || is != c.to {
			t.Errorf("from %+v to %+v: %v was written, want %v; in force is %+v", c.from, c.to, got, c.want, is)
		}
		h.Add(t, path, c.from)
		got = written(t, h, path, func() error { return h.Tree.Write(path, c.to) })
		if is := h.Limits(t, path); len(c.want) > 1 && got[0] != c.want[0] || is != c.to {
			t.Errorf("from %+v to %+v, with all checks: %v was written, want %v; in force is %+v",
				c.from, c.to, got, c.want, is)
		}
	}
}

// Memory becomes tight last, and gets room first.
func TestMemoryIsRaisedFirstAndLoweredLast(t *testing.T) {
	for version, names := range map[cgroup.Version][2]string{
		cgroup.V1: {"cpu.cfs_quota_us", "memory.limit_in_bytes"}, cgroup.V2: {"cpu.max", "memory.max"},
	} {
		h := cgrouptest.Fixture(t, version)
		path := h.Parent + "/c"
		for _, c := range []struct {
			was, is mdp.Bytes
			last    string
		}{{64, 128, names[0]}, {128, 64, names[1]}, {0, 64, names[1]}} {
			h.Add(t, path, cgroup.Limits{Quota: 50000, Period: 100000, Memory: c.was * mdp.MiB})
			got := written(t, h, path, func() error {
				return h.Tree.Write(path, cgroup.Limits{Quota: 60000, Period: 100000, Memory: c.is * mdp.MiB})
			})
			if len(got) < 2 || got[len(got)-1] != c.last {
				t.Errorf("%v: from %dMi to %dMi %v was written, want %s last", version, c.was, c.is, got, c.last)
			}
		}
	}
}

// Where swap is counted memory and swap together must never be below memory.
func TestMemoryWithSwapIsNeverBelowMemory(t *testing.T) {
	h := cgrouptest.Fixture(t, cgroup.V1)
	path := h.Parent + "/c"
	const memory, swap = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	for _, c := range []struct {
		was, is mdp.Bytes
		want    []string
	}{{64, 128, []string{swap, memory}}, {128, 64, []string{memory, swap}}, {0, 64, []string{memory, swap}}} {
		h.Add(t, path, cgroup.Limits{Memory: c.was * mdp.MiB})
		h.Put(t, path, "memory/"+swap, "9223372036854771712\n")
		to := cgroup.Limits{Memory: c.is * mdp.MiB}
		got := written(t, h, path, func() error { return h.Tree.Write(path, to) })
		if !slices.Equal(got, c.want) {
			t.Errorf("from %dMi to %dMi: %v was written, want %v", c.was, c.is, got, c.want)
		}
	}
}
