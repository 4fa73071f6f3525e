package cgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"awarescale.dev/aware/learner/mdp"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// ErrReadOnly says that this process may not write the cgroups: their mount is
// read-only.
var ErrReadOnly = errors.New("cgroup cannot be written")

// Write changes a group's limits directly, without the container runtime; 0
// leaves a limit as it is. The runtime does not know of it, and its next update
// of the container reverts it. So it is for raises and restores while the runtime
// does not answer, and the runtime is told later. A quota needs its period.
//
// The limits are written in the order of [Knobs] upwards, and in the opposite one downwards.
func (t *Tree) Write(path string, l Limits) error {
	if l.Quota > 0 && l.Period <= 0 {
		return fmt.Errorf("writing cgroup %s: quota %d without its period", path, l.Quota)
	}
	g, err := t.Group(path)
	if err != nil {
		return err
	}
	now, err := g.Limits()
	g.Close()
	if err != nil {
		return err
	}
	for _, k := range order(now, l) {
		if err := explained(k.write(t, path, now, l), path, l); err != nil {
			return err
		}
	}
	return nil
}

// explained is the error of a write, with what was written where.
func explained(err error, path string, l Limits) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("writing cgroup %s: %w (%w)", path, ErrGone, err)
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("writing cgroup %s: %w (%w)", path, ErrReadOnly, err)
	}
	return fmt.Errorf("writing %+v to cgroup %s: %w", l, path, err)
}

// Writable reports whether [Group.WriteCPU] may write: the mount may be read-only.
func (g *Group) Writable() bool { return g.files[fileQuota].fd >= 0 && g.readOnly == nil }

// WriteCPU is [Tree.Write] for a CPU limit, to the descriptors that are open. On v2 that is one
// write. On v1 the quota and the period are written one after the other, where they change; in between
// is the smaller one of the two limits that can be, because the pod's group may allow no more.
// A quota below cpu.max.burst is EINVAL; Tree.Write lowers that, too.
func (g *Group) WriteCPU(l Limits) error {
	var is Limits
	if g.version == V1 && g.Writable() {
		var err error
		if is, err = g.CPULimit(); err != nil {
			return err
		}
	}
	return g.ReplaceCPU(is, l)
}

// ReplaceCPU is [Group.WriteCPU] for who has just read the limit in force.
func (g *Group) ReplaceCPU(is, l Limits) error {
	f := g.files[fileQuota]
	if f.fd < 0 {
		return explained(unix.ENODEV, g.path, l)
	}
	if g.readOnly != nil {
		return explained(g.readOnly, g.path, l)
	}
	if g.version == V2 {
		return explained(g.put(fileQuota, l.Quota, l.Period), g.path, l)
	}
	var err error
	quota := func() error { return g.put(fileQuota, l.Quota) }
	period := func() error { return g.put(filePeriod, l.Period) }
	switch {
	case is.Period == l.Period:
		err = quota()
	case is.Quota == l.Quota:
		err = period()
	case quotaFirst(is, l):
		if err = quota(); err == nil {
			err = period()
		}
	default:
		if err = period(); err == nil {
			err = quota()
		}
	}
	return explained(err, g.path, l)
}

// quotaFirst reports whether the new quota in the old period is the smaller limit than the old
// quota in the new period.
func quotaFirst(is, to Limits) bool {
	if is.Quota <= 0 || is.Period <= 0 {
		return true // no limit: what comes first is one
	}
	return float64(to.Quota)/float64(is.Period) < float64(is.Quota)/float64(to.Period)
}

// put writes numbers to a file that is open.
func (g *Group) put(which int, numbers ...int64) error {
	b := make([]byte, 0, 48)
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	f := g.files[which]
	if f.plain { // it would keep the end of a longer text
		if err := unix.Ftruncate(f.fd, 0); err != nil {
			return err
		}
	}
	return pwrite(f.fd, append(b, '\n'))
}

// pwrite writes a limit of CPU time. As with [pread] Go's scheduler is not told: with one processor it gives
// the agent's other work the turn meanwhile, for which a raise then waits up to 10 ms when it returns. The kernel
// takes some 100 microseconds for it, and waits for nothing but another such write. A write of a memory limit can
// wait for memory to be reclaimed, and must not be made so.
func pwrite(fd int, b []byte) error {
	n, _, errno := unix.RawSyscall6(unix.SYS_PWRITE64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	switch {
	case errno != 0:
		return errno
	case int(n) != len(b):
		return io.ErrShortWrite
	}
	return nil
}

func (t *Tree) writeCPU(path string, quota, period int64) error {
	// The burst must not be above the quota: EINVAL. One that is in the way goes first.
	burst := filepath.Join(t.cpu, path, "cpu.cfs_burst_us")
	if t.version == V2 {
		burst = filepath.Join(t.root, path, "cpu.max.burst")
	}
	if b, err := os.ReadFile(burst); err == nil {
		if n, ok := uintOf(b); ok && n > uint64(quota) {
			if err := os.WriteFile(burst, []byte("0"), 0o644); err != nil {
				return err
			}
		}
	}
	if t.version == V2 {
		m, err := cgroup2.Load("/"+path, cgroup2.WithMountpoint(t.root))
		if err != nil {
			return err
		}
		p := uint64(period)
		return m.Update(&cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &p)}})
	}
	// The library writes the period first.
	is, err := t.CPULimit(path)
	if err != nil {
		return err
	}
	if quotaFirst(is, Limits{Quota: quota, Period: period}) {
		if err := t.update1(path, t.cpu, &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota}}); err != nil {
			return err
		}
	}
	return t.update1(path, t.cpu,
		&specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota, Period: ptr(uint64(period))}})
}

func (t *Tree) writeMemory(path string, now, limit mdp.Bytes) error {
	n := int64(limit)
	if t.version == V2 {
		m, err := cgroup2.Load("/"+path, cgroup2.WithMountpoint(t.root))
		if err != nil {
			return err
		}
		return m.Update(&cgroup2.Resources{Memory: &cgroup2.Memory{Max: &n}})
	}
	memory := &specs.LinuxMemory{Limit: &n}
	// memory+swap can never be below memory: where the kernel counts swap the
	// two are set together, as CRI does.
	if !exists(filepath.Join(t.memory, path, "memory.memsw.limit_in_bytes")) {
		return t.update1(path, t.memory, &specs.LinuxResources{Memory: memory})
	}
	// memory+swap goes first on the way up and last on the way down, and the
	// other order is EINVAL. Two updates, because the library, given both,
	// exchanges the limit with the soft limit.
	swap := &specs.LinuxMemory{Swap: &n}
	order := []*specs.LinuxMemory{memory, swap}
	if now > 0 && limit > now {
		order[0], order[1] = order[1], order[0]
	}
	for _, m := range order {
		if err := t.update1(path, t.memory, &specs.LinuxResources{Memory: m}); err != nil {
			return err
		}
	}
	return nil
}

// update1 writes one v1 hierarchy through the library, which takes the
// hierarchies' parent directory.
func (t *Tree) update1(path, dir string, r *specs.LinuxResources) error {
	if !exists(filepath.Join(dir, path)) {
		return fs.ErrNotExist // the library would make the directory
	}
	group, err := cgroup1.Load(cgroup1.StaticPath("/"+path), cgroup1.WithHierarchy(t.hierarchies))
	if err != nil {
		return err
	}
	return group.Update(r)
}

func (t *Tree) hierarchies() ([]cgroup1.Subsystem, error) {
	return []cgroup1.Subsystem{cgroup1.NewCpu(t.root), cgroup1.NewMemory(t.root)}, nil
}

func ptr[T any](v T) *T { return &v }
