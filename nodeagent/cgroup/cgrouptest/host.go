// Package cgrouptest makes cgroup trees for tests: real groups of this host
// below their own parent, or a directory of plain files that looks like one.
// Both are used in the same way.
package cgrouptest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"awarescale.dev/aware/nodeagent/cgroup"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Host is a machine with cgroups.
type Host struct {
	Tree   *cgroup.Tree
	Parent string // the test's groups are below it

	real      bool
	processes map[string][]*exec.Cmd // that Start started, by their groups
}

// IsReal reports whether the groups are the kernel's. They can have processes, and their
// files cannot be Put.
func (h *Host) IsReal() bool { return h.real }

// Real makes a parent group on this machine. It is removed, with all groups
// below it, when the test ends. Where that is not possible the test is skipped,
// with the reason.
func Real(tb testing.TB) *Host {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("real cgroups need root")
	}
	tree, err := cgroup.Open("/sys/fs/cgroup")
	if err != nil {
		tb.Skipf("no cgroups here: %v", err)
	}
	h := &Host{
		Tree:      tree,
		Parent:    fmt.Sprintf("aware-test-%d-%d", os.Getpid(), time.Now().UnixNano()),
		real:      true,
		processes: map[string][]*exec.Cmd{},
	}
	tb.Cleanup(func() { h.Remove(tb, h.Parent) })
	if err := h.create(h.Parent, cgroup.Limits{}); err != nil {
		tb.Skipf("making cgroup %s: %v", h.Parent, err)
	}
	return h
}

// Each runs a test on three machines: a fixture of each version, and this machine.
func Each(t *testing.T, run func(*testing.T, *Host)) {
	t.Helper()
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String()+" fixture", func(t *testing.T) { run(t, Fixture(t, version)) })
	}
	t.Run("this host", func(t *testing.T) { run(t, Real(t)) })
}

// Fixture is a directory that looks like a cgroup root of the given version.
func Fixture(tb testing.TB, version cgroup.Version) *Host {
	tb.Helper()
	root := inMemory(tb)
	if version == cgroup.V2 {
		write(tb, filepath.Join(root, "cgroup.controllers"), "cpuset cpu io memory pids\n")
	} else {
		for _, name := range []string{"cpu", "cpuacct", "memory", "blkio"} {
			if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
				tb.Fatal(err)
			}
		}
	}
	tree, err := cgroup.Open(root)
	if err != nil {
		tb.Fatal(err)
	}
	return &Host{Tree: tree, Parent: "kubepods"}
}

// inMemory makes a folder that is on no disk, as the kernel's groups are not: a test writes its
// files some hundred times a second. Where there is no such file system it is on a disk.
func inMemory(tb testing.TB) string {
	tb.Helper()
	root, err := os.MkdirTemp("/dev/shm", "aware-cgroups-")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { os.RemoveAll(root) })
	return root
}

// Add makes a group with limits, or changes the limits of one that is there. The zero ones
// are none.
func (h *Host) Add(tb testing.TB, path string, l cgroup.Limits) {
	tb.Helper()
	if h.real {
		err := h.create(path, l)
		// On v1 a group that was removed a moment ago still counts: no group above it may have a smaller quota until the
		// kernel has freed it.
		for tries := 0; errors.Is(err, syscall.EINVAL) && tries < 500; tries++ {
			time.Sleep(10 * time.Millisecond)
			err = h.create(path, l)
		}
		if err != nil {
			tb.Fatalf("making cgroup %s: %v", path, err)
		}
		tb.Cleanup(func() { h.Remove(tb, path) })
		return
	}
	quota, memory := "-1", "9223372036854771712"
	if l.Quota > 0 {
		quota = strconv.FormatInt(l.Quota, 10)
	}
	if l.Memory > 0 {
		memory = strconv.FormatInt(int64(l.Memory), 10)
	}
	period := strconv.FormatInt(max(l.Period, 1000), 10)
	if l.Period == 0 {
		period = "100000"
	}
	files := map[string]string{
		"cpuacct/cpuacct.usage":                 "0\n",
		"cpu/cpu.stat":                          "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
		"cpu/cpu.cfs_quota_us":                  quota + "\n",
		"cpu/cpu.cfs_period_us":                 period + "\n",
		"memory/memory.usage_in_bytes":          "0\n",
		"memory/memory.stat":                    "cache 0\nrss 0\ninactive_file 0\ntotal_cache 0\ntotal_inactive_file 0\n",
		"memory/memory.limit_in_bytes":          memory + "\n",
		"memory/memory.oom_control":             "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
		"blkio/blkio.throttle.io_service_bytes": "Total 0\n",
	}
	if h.Tree.Version() == cgroup.V2 {
		if l.Quota <= 0 {
			quota = "max"
		}
		if l.Memory <= 0 {
			memory = "max"
		}
		psi := "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
		files = map[string]string{
			"cpu.stat":        "usage_usec 0\nuser_usec 0\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
			"cpu.max":         quota + " " + period + "\n",
			"cpu.max.burst":   "0\n",
			"memory.current":  "0\n",
			"memory.stat":     "anon 0\nfile 0\ninactive_file 0\n",
			"memory.max":      memory + "\n",
			"memory.events":   "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
			"io.stat":         "",
			"cpu.pressure":    psi,
			"memory.pressure": psi,
			"io.pressure":     psi,
		}
	}
	for name, content := range files {
		h.Put(tb, path, name, content)
	}
	if parent := filepath.Dir(path); strings.Contains(parent, "/") && !h.hasLimits(parent) {
		h.Add(tb, parent, cgroup.Limits{})
	}
}

// hasLimits reports whether a fixture's group was added.
func (h *Host) hasLimits(path string) bool {
	_, err := h.Tree.Limits(path)
	return err == nil
}

// Put writes one file of a fixture's group: on v1 the name has the controller
// before it, as in cpu/cpu.stat.
func (h *Host) Put(tb testing.TB, path, name, content string) {
	tb.Helper()
	dir, base := filepath.Split(name)
	write(tb, filepath.Join(h.Tree.Root(), dir, path, base), content)
}

// Limits reads a group's limits.
func (h *Host) Limits(tb testing.TB, path string) cgroup.Limits {
	tb.Helper()
	g, err := h.Tree.Group(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer g.Close()
	l, err := g.Limits()
	// A plain file is empty for a moment while somebody writes it, and a control file never is.
	for tries := 0; err != nil && tries < 100; tries++ {
		time.Sleep(time.Millisecond)
		l, err = g.Limits()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// Enter puts a process into a real group.
func (h *Host) Enter(tb testing.TB, path string, pid int) {
	tb.Helper()
	var err error
	if h.Tree.Version() == cgroup.V2 {
		var m *cgroup2.Manager
		if m, err = cgroup2.Load("/"+path, cgroup2.WithMountpoint(h.Tree.Root())); err == nil {
			err = m.AddProc(uint64(pid))
		}
	} else {
		var g cgroup1.Cgroup
		if g, err = cgroup1.Load(cgroup1.StaticPath("/"+path), cgroup1.WithHierarchy(h.hierarchies)); err == nil {
			err = g.Add(cgroup1.Process{Pid: pid})
		}
	}
	if err != nil {
		tb.Fatalf("putting process %d into cgroup %s: %v", pid, path, err)
	}
}

// Remove removes a group and those below it, and ends their processes that Start started.
func (h *Host) Remove(tb testing.TB, path string) {
	if !h.real {
		for _, dir := range []string{"", "cpu", "cpuacct", "memory", "blkio"} {
			os.RemoveAll(filepath.Join(h.Tree.Root(), dir, path))
		}
		return
	}
	h.stop(path)
	if h.Tree.Version() == cgroup.V2 {
		if !h.Tree.Exists(path) {
			return
		}
		m, err := cgroup2.Load("/"+path, cgroup2.WithMountpoint(h.Tree.Root()))
		if err == nil {
			err = m.Delete()
		}
		if err != nil {
			tb.Errorf("removing cgroup %s: %v", path, err)
		}
		return
	}
	g, err := cgroup1.Load(cgroup1.StaticPath("/"+path), cgroup1.WithHierarchy(h.hierarchies))
	if errors.Is(err, cgroup1.ErrCgroupDeleted) {
		return
	}
	if err == nil {
		err = g.Delete()
	}
	if err != nil {
		tb.Errorf("removing cgroup %s: %v", path, err)
	}
}

// create makes a real group with limits, or changes those of one that is there.
func (h *Host) create(path string, l cgroup.Limits) error {
	if h.Tree.Version() == cgroup.V2 {
		return h.create2(path, l)
	}
	quota, memory := int64(-1), int64(-1) // none
	cpu := &specs.LinuxCPU{Quota: &quota}
	if l.Quota > 0 {
		quota = l.Quota
		period := uint64(l.Period)
		cpu.Period = &period
	}
	if l.Memory > 0 {
		memory = int64(l.Memory)
	}
	r := &specs.LinuxResources{CPU: cpu, Memory: &specs.LinuxMemory{Limit: &memory}}
	_, err := cgroup1.New(cgroup1.StaticPath("/"+path), r, cgroup1.WithHierarchy(h.hierarchies))
	return err
}

func (h *Host) create2(path string, l cgroup.Limits) error {
	// What is not nil is enabled for the group, as the kubelet does it.
	cpu := &cgroup2.CPU{Max: cgroup2.NewCPUMax(nil, nil)}
	r := &cgroup2.Resources{CPU: cpu, Memory: &cgroup2.Memory{}, IO: &cgroup2.IO{}}
	if l.Quota > 0 {
		period := uint64(l.Period)
		cpu.Max = cgroup2.NewCPUMax(&l.Quota, &period)
	}
	if _, err := cgroup2.NewManager(h.Tree.Root(), "/"+path, r); err != nil {
		return err
	}
	memory := "max" // which the library cannot write
	if l.Memory > 0 {
		memory = strconv.FormatInt(int64(l.Memory), 10)
	}
	return os.WriteFile(filepath.Join(h.Tree.Root(), path, "memory.max"), []byte(memory), 0o644)
}

func (h *Host) hierarchies() ([]cgroup1.Subsystem, error) {
	root := h.Tree.Root()
	return []cgroup1.Subsystem{
		cgroup1.NewCpu(root),
		cgroup1.NewCpuacct(root),
		cgroup1.NewMemory(root),
		cgroup1.NewBlkio(root),
	}, nil
}

func write(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		tb.Fatal(err)
	}
}
