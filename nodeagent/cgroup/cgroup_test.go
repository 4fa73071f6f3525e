package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

func TestOpenNamesABadRoot(t *testing.T) {
	dir := t.TempDir()
	_, err := cgroup.Open(dir)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "memory") ||
		!strings.Contains(err.Error(), "--cgroup-root") {
		t.Errorf("err = %v, want the path, what is missing, and what to set", err)
	}
	if _, err := cgroup.Open(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
}

func TestPathOfBothCgroupDrivers(t *testing.T) {
	tree := cgrouptest.Fixture(t, cgroup.V2).Tree
	for name, c := range map[string]struct{ in, want string }{
		"cgroupfs": {"/kubepods/burstable/pod12/abc", "kubepods/burstable/pod12/abc"},
		"systemd": {"kubepods-burstable-pod1_2.slice:cri-containerd:abc",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope"},
		"CRI-O":             {"kubepods-pod1.slice:crio:abc", "kubepods.slice/kubepods-pod1.slice/crio-abc.scope"},
		"no prefix":         {"a.slice::abc", "a.slice/abc.scope"},
		"the default slice": {":runc:abc", "system.slice/runc-abc.scope"},
		"the root slice":    {"-.slice:runc:abc", "runc-abc.scope"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := tree.Path(c.in); err != nil || got != c.want {
				t.Errorf("Path(%q) = %q, %v; want %q", c.in, got, err, c.want)
			}
		})
	}
	for _, bad := range []string{
		"", "/", "/kubepods/../../etc", "a.slice:b", "a--b.slice:x:y", "../a.slice:x:y", "a.slice:x:../../y",
	} {
		if got, err := tree.Path(bad); err == nil {
			t.Errorf("Path(%q) = %q, want an error", bad, got)
		}
	}
}

func TestReadInBothVersions(t *testing.T) {
	const path = "kubepods/pod1/abc"
	want := cgroup.Usage{
		CPU: cgroup.CPU{
			Usage:            1500 * time.Millisecond,
			Periods:          100,
			ThrottledPeriods: 7,
			ThrottledTime:    30 * time.Millisecond,
		},
		Memory: 100 * mdp.MiB, WorkingSet: 60 * mdp.MiB, OOMKills: 2, IOBytes: 12288 + 4096,
	}
	both := cgroup.CPUUsage | cgroup.Throttling | cgroup.MemoryUsage | cgroup.WorkingSet | cgroup.OOMKills | cgroup.IOBytes
	for version, files := range map[cgroup.Version]map[string]string{
		cgroup.V1: {
			"cpuacct/cpuacct.usage": "1500000000\n", "cpu/cpu.stat": "nr_periods 100\nnr_throttled 7\nthrottled_time 30000000\n",
			"memory/memory.usage_in_bytes": "104857600\n",
			"memory/memory.stat":           "cache 1\ninactive_file 5\ntotal_inactive_file 41943040\n",
			"memory/memory.oom_control":    "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"blkio/blkio.throttle.io_service_bytes": "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 12288\n8:0 Total 12288\n" +
				"8:16 Read 4096\n8:16 Total 4096\nTotal 16384\n",
		},
		cgroup.V2: {
			"cpu.stat": "usage_usec 1500000\nuser_usec 1\nsystem_usec 1\n" +
				"nr_periods 100\nnr_throttled 7\nthrottled_usec 30000\nnr_bursts 0\n",
			"memory.current": "104857600\n", "memory.stat": "anon 5\ninactive_file 41943040\n",
			"memory.events":   "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
			"io.stat":         "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=5 dios=0\n8:16 rbytes=4096 wbytes=0 rios=1\n",
			"cpu.pressure":    "some avg10=1.00 avg60=0.00 avg300=0.00 total=5000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4000\n",
			"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3000\n",
			"io.pressure":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=2000\n",
		},
	} {
		t.Run(version.String(), func(t *testing.T) {
			host := cgrouptest.Fixture(t, version)
			limits := cgroup.Limits{Quota: 50000, Period: 100000, Memory: 256 * mdp.MiB}
			host.Add(t, path, limits)
			for name, content := range files {
				host.Put(t, path, name, content)
			}
			want := want
			want.Observed = both
			if version == cgroup.V2 {
				want.Observed |= cgroup.CPUPressure | cgroup.MemoryPressure | cgroup.IOPressure
				want.CPUSome = 5 * time.Millisecond
				want.MemoryFull = 3 * time.Millisecond
				want.IOFull = 2 * time.Millisecond
			}
			g, err := host.Tree.Group(path)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			var got cgroup.Usage
			if err := g.Read(&got); err != nil || got != want {
				t.Errorf("Read = %+v, %v\nwant   %+v", got, err, want)
			}
			if l, err := g.Limits(); err != nil || l != limits {
				t.Errorf("Limits = %+v, %v; want %+v", l, err, limits)
			}
			if l := limits.Size(); l.CPU != 500 || l.Memory != 256*mdp.MiB {
				t.Errorf("Size = %v", l)
			}
		})
	}
}

func TestMissingFilesAreNotObserved(t *testing.T) {
	host := cgrouptest.Fixture(t, cgroup.V2)
	host.Add(t, "a/b", cgroup.Limits{})
	for _, name := range []string{"cpu.pressure", "memory.pressure", "io.pressure", "io.stat", "memory.stat"} {
		if err := os.Remove(filepath.Join(host.Tree.Root(), "a/b", name)); err != nil {
			t.Fatal(err)
		}
	}
	host.Put(t, "a/b", "cpu.stat", "usage_usec 5\n") // a group without the cpu controller has no periods
	g, err := host.Tree.Group("a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var u cgroup.Usage
	if err := g.Read(&u); err != nil {
		t.Fatal(err)
	}
	if want := cgroup.CPUUsage | cgroup.MemoryUsage | cgroup.OOMKills; u.Observed != want {
		t.Errorf("observed %b, want %b", u.Observed, want)
	}
	if l, err := g.Limits(); err != nil || l.Quota != 0 || l.Memory != 0 || l.CPU() != 0 {
		t.Errorf("no limits are %+v, %v", l, err)
	}
}

func TestWriteAndReadLimits(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		path := host.Parent + "/pod/c"
		host.Add(t, host.Parent+"/pod", cgroup.Limits{})
		host.Add(t, path, cgroup.Limits{Quota: 50000, Period: 100000, Memory: 64 * mdp.MiB})
		for _, change := range []cgroup.Limits{
			{Quota: 20000, Period: 100000}, {Memory: 32 * mdp.MiB}, {Quota: 90000, Period: 100000, Memory: 128 * mdp.MiB},
		} {
			before := host.Limits(t, path)
			if err := host.Tree.Write(path, change); err != nil {
				t.Fatal(err)
			}
			want := before
			if change.Quota > 0 {
				want.Quota = change.Quota
			}
			if change.Memory > 0 {
				want.Memory = change.Memory
			}
			if got := host.Limits(t, path); !got.SameCPU(want) || !got.SameMemory(want) {
				t.Errorf("after %+v: %+v, want %+v", change, got, want)
			}
		}
		err := host.Tree.Write(host.Parent+"/pod/other", cgroup.Limits{Quota: 5000, Period: 100000})
		if !errors.Is(err, cgroup.ErrGone) {
			t.Errorf("writing to a group that is not there: %v, want ErrGone", err)
		}
	})
}

func TestWriteCPUChangesTheQuotaAndNothingElse(t *testing.T) {
	for name, h := range map[string]*cgrouptest.Host{
		"v1 fixture": cgrouptest.Fixture(t, cgroup.V1), "v2 fixture": cgrouptest.Fixture(t, cgroup.V2), "this host": cgrouptest.Real(t),
	} {
		t.Run(name, func(t *testing.T) {
			path := h.Parent + "/raised"
			was := cgroup.Limits{Quota: 20000, Period: 50000, Memory: 64 * mdp.MiB}
			h.Add(t, path, was)
			to := cgroup.Limits{Quota: 100000, Period: 50000}
			g, err := h.Tree.Group(path)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if err := g.WriteCPU(to); err != nil {
				t.Fatal(err)
			}
			want := was
			want.Quota = to.Quota
			if l := h.Limits(t, path); l != want {
				t.Errorf("limits %+v, want %+v", l, want)
			}
			if l, err := h.Tree.CPULimit(path); err != nil || l != to {
				t.Errorf("the CPU limit is %+v, %v", l, err)
			}
			g.Close()
			if err := g.WriteCPU(to); !errors.Is(err, cgroup.ErrGone) || !strings.Contains(err.Error(), "raised") {
				t.Errorf("a group that is closed: %v", err)
			}
			if _, err := h.Tree.CPULimit(h.Parent + "/none"); !errors.Is(err, cgroup.ErrGone) {
				t.Errorf("the limit of a group that is gone: %v", err)
			}
		})
	}
}

func TestWriteLowersABurstAboveTheQuota(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *cgrouptest.Host{
		"v1 fixture": func(t *testing.T) *cgrouptest.Host { return cgrouptest.Fixture(t, cgroup.V1) },
		"v2 fixture": func(t *testing.T) *cgrouptest.Host { return cgrouptest.Fixture(t, cgroup.V2) },
		"this host":  func(t *testing.T) *cgrouptest.Host { return cgrouptest.Real(t) },
	} {
		t.Run(name, func(t *testing.T) {
			host := start(t)
			path := host.Parent + "/c"
			host.Add(t, path, cgroup.Limits{Quota: 50000, Period: 100000})
			burst := filepath.Join(host.Tree.Root(), path, "cpu.max.burst")
			if host.Tree.Version() == cgroup.V1 {
				burst = filepath.Join(host.Tree.Root(), "cpu", path, "cpu.cfs_burst_us")
			}
			if err := os.WriteFile(burst, []byte("40000\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := host.Tree.Write(path, cgroup.Limits{Quota: 20000, Period: 100000}); err != nil {
				t.Fatal(err)
			}
			if b, _ := os.ReadFile(burst); strings.TrimSpace(string(b)) != "0" {
				t.Errorf("burst is %q: the kernel refuses a quota below it", b)
			}
			if l := host.Limits(t, path); l.Quota != 20000 {
				t.Errorf("quota %d, want 20000", l.Quota)
			}
		})
	}
}

func TestRoomIsThePodsLimitsWithoutThoseOfTheOthers(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		pod := host.Parent + "/pod"
		host.Add(t, pod, cgroup.Limits{Quota: 150000, Period: 100000, Memory: 192 * mdp.MiB})
		host.Add(t, pod+"/app", cgroup.Limits{Quota: 50000, Period: 100000, Memory: 64 * mdp.MiB})
		host.Add(t, pod+"/sidecar", cgroup.Limits{Quota: 30000, Period: 100000, Memory: 32 * mdp.MiB})
		host.Add(t, pod+"/pause", cgroup.Limits{})
		room, err := host.Tree.Room(pod+"/app", nil)
		if want := (mdp.Size{CPU: 1200, Memory: 160 * mdp.MiB}); err != nil || room != want {
			t.Errorf("room %v, %v; want %v", room, err, want)
		}
		room, err = host.Tree.Room(pod+"/app", func(path string) cgroup.Limits {
			if path != pod+"/sidecar" {
				return cgroup.Limits{}
			}
			return cgroup.Limits{Quota: 60000, Period: 100000, Memory: 96 * mdp.MiB}
		})
		if want := (mdp.Size{CPU: 900, Memory: 96 * mdp.MiB}); err != nil || room != want {
			t.Errorf("room %v, %v; want %v, because the sidecar gets more back", room, err, want)
		}
	})
}

// until reads a group until it is as wanted, or half a minute has passed: a machine may be busy or emulated.
func until(t *testing.T, g *cgroup.Group, want func(cgroup.Usage) bool) (u cgroup.Usage) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := g.Read(&u); err != nil {
			t.Fatal(err)
		}
		if want(u) {
			break
		}
	}
	return u
}

// group makes a real group and opens it.
func group(t *testing.T, host *cgrouptest.Host, path string, l cgroup.Limits) *cgroup.Group {
	t.Helper()
	host.Add(t, path, l)
	g, err := host.Tree.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func TestARealGroupIsThrottledAndThenGone(t *testing.T) {
	host := cgrouptest.Real(t)
	path := host.Parent + "/c"
	g := group(t, host, path, cgroup.Limits{Quota: 10000, Period: 100000, Memory: 64 * mdp.MiB})
	burn := host.Start(t, path, cgrouptest.Burn)
	figures := cgroup.CPUUsage | cgroup.Throttling | cgroup.MemoryUsage | cgroup.WorkingSet | cgroup.OOMKills | cgroup.IOBytes
	pressure := false
	if _, err := os.Stat("/proc/pressure/cpu"); err == nil && host.Tree.Version() == cgroup.V2 {
		figures |= cgroup.CPUPressure | cgroup.MemoryPressure | cgroup.IOPressure
		pressure = true
	}
	u := until(t, g, func(u cgroup.Usage) bool {
		return u.Usage > 0 && u.ThrottledPeriods > 0 && u.ThrottledTime > 0 && u.WorkingSet >= cgrouptest.Held &&
			(u.CPUSome > 0) == pressure
	})
	burn.Process.Kill()
	burn.Wait()
	if u.Observed != figures {
		t.Errorf("observed %b, want %b", u.Observed, figures)
	}
	if u.Usage <= 0 || u.ThrottledPeriods == 0 || u.ThrottledTime == 0 || u.WorkingSet < cgrouptest.Held ||
		(u.CPUSome > 0) != pressure {
		t.Errorf("a busy loop with a tenth of a core: %+v", u)
	}
	host.Remove(t, path)
	if err := g.Read(&u); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("after the container ended: %v, want ErrGone", err)
	}
	if _, err := host.Tree.Group(path); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("opening it: %v, want ErrGone", err)
	}
}

// The kernel still counts the group that has just ended when its pod gets less: the tests wait for it.
func TestAPodGetsASmallerQuotaWhenItsContainerHasEnded(t *testing.T) {
	host := cgrouptest.Real(t)
	pod := host.Parent + "/pod"
	app := pod + "/app"
	for range 10 {
		for _, path := range []string{pod, app} {
			host.Add(t, path, cgroup.Limits{Quota: 150000, Period: 100000})
		}
		host.Remove(t, app)
		host.Add(t, pod, cgroup.Limits{Quota: 100000, Period: 100000})
		if l := host.Limits(t, pod); l.Quota != 100000 {
			t.Fatalf("the pod's quota is %d, want 100000", l.Quota)
		}
	}
}

func TestARealGroupCountsTheKillsForWantOfMemory(t *testing.T) {
	if swaps, _ := os.ReadFile("/proc/swaps"); strings.Count(string(swaps), "\n") > 1 {
		t.Skip("this machine swaps: what a group has no memory for goes there")
	}
	host := cgrouptest.Real(t)
	path := host.Parent + "/c"
	g := group(t, host, path, cgroup.Limits{Memory: 32 * mdp.MiB})
	grow := host.Start(t, path, cgrouptest.Grow)
	u := until(t, g, func(u cgroup.Usage) bool { return u.OOMKills > 0 })
	if u.OOMKills != 1 {
		t.Fatalf("%d kills of a process that takes memory without end: %+v", u.OOMKills, u)
	}
	if err := grow.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v", err)
	}
}

// In v1 a new kernel counts the bytes only of disks on which some group has a throttle.
func TestARealGroupCountsWhatItWritesToADisk(t *testing.T) {
	dir := t.TempDir()
	var info unix.Stat_t
	if err := unix.Stat(dir, &info); err != nil {
		t.Fatal(err)
	}
	if unix.Major(info.Dev) == 0 {
		t.Skipf("%s is on no block device of its own", dir)
	}
	host := cgrouptest.Real(t)
	if host.Tree.Version() == cgroup.V1 {
		t.Skip("cgroup v1: what is not throttled need not be counted")
	}
	path := host.Parent + "/c"
	g := group(t, host, path, cgroup.Limits{Memory: 64 * mdp.MiB})
	if err := host.Start(t, path, cgrouptest.Store(filepath.Join(dir, "file"))).Wait(); err != nil {
		t.Fatal(err)
	}
	u := until(t, g, func(u cgroup.Usage) bool { return u.IOBytes >= uint64(cgrouptest.Stored) })
	if u.IOBytes < uint64(cgrouptest.Stored) || !u.Observed.Has(cgroup.IOBytes) {
		t.Errorf("%d bytes, and a process of the group wrote %d", u.IOBytes, cgrouptest.Stored)
	}
}

func TestReadingAllocatesNothing(t *testing.T) {
	for name, host := range map[string]*cgrouptest.Host{
		"v1": cgrouptest.Fixture(t, cgroup.V1),
		"v2": cgrouptest.Fixture(t, cgroup.V2),
	} {
		host.Add(t, "c", cgroup.Limits{Quota: 10000, Period: 100000})
		g, err := host.Tree.Group("c")
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		var u cgroup.Usage
		if n := testing.AllocsPerRun(100, func() {
			if err := g.Read(&u); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Limits(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for one reading", name, n)
		}
	}
}

// Compare within one run: go test -bench Read ./nodeagent/cgroup. The library
// opens, reads and maps every file each time.
func BenchmarkRead(b *testing.B) {
	host := cgrouptest.Real(b)
	path := host.Parent + "/c"
	host.Add(b, path, cgroup.Limits{Quota: 10000, Period: 100000, Memory: 64 * mdp.MiB})
	g, err := host.Tree.Group(path)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	b.Run("kept descriptors, CPU", func(b *testing.B) {
		b.ReportAllocs()
		var c cgroup.CPU
		for b.Loop() {
			if err := g.ReadCPU(&c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("kept descriptors, everything", func(b *testing.B) {
		b.ReportAllocs()
		var u cgroup.Usage
		for b.Loop() {
			if err := g.Read(&u); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("containerd/cgroups Stat, everything", func(b *testing.B) {
		stat := libraryStat(b, host, path)
		b.ReportAllocs()
		for b.Loop() {
			if err := stat(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// libraryStat reads a group as the library does.
func libraryStat(b *testing.B, host *cgrouptest.Host, path string) func() error {
	root := host.Tree.Root()
	if host.Tree.Version() == cgroup.V2 {
		lib, err := cgroup2.Load("/"+path, cgroup2.WithMountpoint(root))
		if err != nil {
			b.Fatal(err)
		}
		return func() error { _, err := lib.Stat(); return err }
	}
	lib, err := cgroup1.Load(cgroup1.StaticPath("/"+path), cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) {
		return []cgroup1.Subsystem{
			cgroup1.NewCpu(root), cgroup1.NewCpuacct(root), cgroup1.NewMemory(root), cgroup1.NewBlkio(root),
		}, nil
	}))
	if err != nil {
		b.Fatal(err)
	}
	return func() error { _, err := lib.Stat(cgroup1.IgnoreNotExist); return err }
}

// Compare within one run: go test -bench Write ./nodeagent/cgroup. The bare write is what the kernel takes for it.
func BenchmarkWrite(b *testing.B) {
	host := cgrouptest.Real(b)
	path := host.Parent + "/c"
	host.Add(b, path, cgroup.Limits{Quota: 10000, Period: 100000, Memory: 64 * mdp.MiB})
	b.Run("a quota, with all checks", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			l := cgroup.Limits{Quota: 10000 + int64(i%2)*1000, Period: 100000}
			if err := host.Tree.Write(path, l); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("a quota, the bare write", func(b *testing.B) {
		file, values := filepath.Join(path, "cpu.max"), []string{"10000 100000", "11000 100000"}
		if host.Tree.Version() == cgroup.V1 {
			file, values = filepath.Join("cpu", path, "cpu.cfs_quota_us"), []string{"10000", "11000"}
		}
		f, err := os.OpenFile(filepath.Join(host.Tree.Root(), file), os.O_WRONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		for i := 0; b.Loop(); i++ {
			if _, err := f.WriteAt([]byte(values[i%2]), 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
