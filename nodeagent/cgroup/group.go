package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
	"unsafe"

	"awarescale.dev/aware/learner/mdp"
	"golang.org/x/sys/unix"
)

// Figures is a set of what was observed of a group.
type Figures uint16

// The figures. Those of CPU are read by [Group.ReadCPU], all by [Group.Read].
const (
	CPUUsage Figures = 1 << iota
	Throttling
	MemoryUsage
	WorkingSet
	OOMKills
	IOBytes
	CPUPressure
	MemoryPressure
	IOPressure
)

// Has reports whether all the given figures are in the set.
func (f Figures) Has(all Figures) bool { return f&all == all }

// CPU is a group's CPU usage and throttling since it was made.
type CPU struct {
	Observed         Figures
	Usage            time.Duration
	Periods          uint64 // CFS periods that elapsed with something to run
	ThrottledPeriods uint64 // and those in which the quota was used up
	ThrottledTime    time.Duration
}

// Usage is everything about a group at one moment. Counters run since the group
// was made.
type Usage struct {
	CPU
	Memory     mdp.Bytes // all that is charged to the group
	WorkingSet mdp.Bytes // without the file pages that can be dropped, as the kubelet computes it
	OOMKills   uint64
	IOBytes    uint64        // read and written
	CPUSome    time.Duration // in which some task waited for CPU; v2
	MemoryFull time.Duration // in which all tasks waited for memory; v2
	IOFull     time.Duration // in which all tasks waited for I/O; v2
}

// Limits are a group's limits as the kernel has them. None is 0.
type Limits struct {
	Quota  int64 // microseconds of CPU time in each period
	Period int64 // microseconds
	Memory mdp.Bytes
}

// CPU is the limit in millicores; 0 is none.
func (l Limits) CPU() mdp.MilliCPU {
	if l.Quota <= 0 || l.Period <= 0 {
		return 0
	}
	return mdp.MilliCPU((float64(l.Quota)*1000 + float64(l.Period)/2) / float64(l.Period))
}

// Size is the limits as package mdp has them.
func (l Limits) Size() mdp.Size { return mdp.Size{CPU: l.CPU(), Memory: l.Memory} }

// Quota is the CFS quota for a limit, in a period in microseconds. The kernel takes no
// quota below 1 ms.
func Quota(c mdp.MilliCPU, period int64) int64 {
	if c <= 0 {
		return 0
	}
	return max(1000, int64(c)*period/1000)
}

// SameCPU reports whether l, which is in force, is the CPU limit that was written:
// exactly, or as systemd rounds it up, to steps of 10 ms per second. Anything else,
// however near, was written by somebody else.
func (l Limits) SameCPU(written Limits) bool {
	if l.Quota <= 0 || written.Quota <= 0 || l.Period <= 0 || written.Period <= 0 {
		return (l.Quota <= 0) == (written.Quota <= 0)
	}
	if l.Quota*written.Period == written.Quota*l.Period {
		return true
	}
	const second, step = 1_000_000, 10_000 // microseconds
	perSecond := (written.Quota*second + written.Period - 1) / written.Period
	rounded := (perSecond + step - 1) / step * step
	return l.Quota == rounded*l.Period/second
}

// SameMemory reports whether two limits are the same memory limit in whole pages,
// which is how the kernel keeps them.
func (l Limits) SameMemory(other Limits) bool {
	const page = 4096
	return (l.Memory <= 0) == (other.Memory <= 0) && l.Memory/page == other.Memory/page
}

// file is one file held open.
type file struct {
	fd    int // -1 when the kernel has no such file
	path  string
	plain bool // a plain file, of a test: a control file has no length
}

// The files that a Group keeps open.
const (
	fileUsage       = iota // v1: cpuacct.usage
	fileCPUStat            // cpu.stat
	fileQuota              // v1: cpu.cfs_quota_us; v2: cpu.max
	filePeriod             // v1: cpu.cfs_period_us
	fileMemory             // v1: memory.usage_in_bytes; v2: memory.current
	fileMemoryStat         // memory.stat
	fileMemoryLimit        // v1: memory.limit_in_bytes; v2: memory.max
	fileOOM                // v1: memory.oom_control; v2: memory.events
	fileIO                 // v1: blkio.throttle.io_service_bytes; v2: io.stat
	fileCPUPressure        // v2: cpu.pressure
	fileMemoryPressure
	fileIOPressure
	files
)

// Group is one container's group. It holds about ten descriptors until Close.
// It is used by one goroutine at a time.
type Group struct {
	path     string
	version  Version
	files    [files]file
	readOnly error   // why the quota cannot be written; nil where it can
	buffer   *[]byte // becomes as large as the largest file that was read
}

// firstBuffer is what most files fit into.
const firstBuffer = 1024

// Share lets groups read into one buffer. They are used by one goroutine at a time then, all
// together.
func (g *Group) Share(buffer *[]byte) { g.buffer = buffer }

// names are a group's files; empty where the version has none of the kind.
func (t *Tree) names(path string) [files]string {
	at := func(dir, name string) string {
		if dir == "" {
			return ""
		}
		return filepath.Join(dir, path, name)
	}
	if t.version == V2 {
		return [files]string{
			fileCPUStat: at(t.root, "cpu.stat"), fileQuota: at(t.root, "cpu.max"),
			fileMemory: at(t.root, "memory.current"), fileMemoryStat: at(t.root, "memory.stat"),
			fileMemoryLimit: at(t.root, "memory.max"), fileOOM: at(t.root, "memory.events"),
			fileIO: at(t.root, "io.stat"), fileCPUPressure: at(t.root, "cpu.pressure"),
			fileMemoryPressure: at(t.root, "memory.pressure"), fileIOPressure: at(t.root, "io.pressure"),
		}
	}
	return [files]string{
		fileUsage: at(t.cpuacct, "cpuacct.usage"), fileCPUStat: at(t.cpu, "cpu.stat"),
		fileQuota: at(t.cpu, "cpu.cfs_quota_us"), filePeriod: at(t.cpu, "cpu.cfs_period_us"),
		fileMemory: at(t.memory, "memory.usage_in_bytes"), fileMemoryStat: at(t.memory, "memory.stat"),
		fileMemoryLimit: at(t.memory, "memory.limit_in_bytes"), fileOOM: at(t.memory, "memory.oom_control"),
		fileIO: at(t.blkio, "blkio.throttle.io_service_bytes"),
	}
}

// Group opens the group at a path from [Tree.Path].
func (t *Tree) Group(path string) (*Group, error) {
	g := &Group{path: path, version: t.version, buffer: new([]byte)}
	for i := range g.files {
		g.files[i].fd = -1
	}
	if !t.Exists(path) {
		return nil, fmt.Errorf("opening cgroup %s: %w", filepath.Join(t.cpu, path), ErrGone)
	}
	names := t.names(path)
	for i, name := range names {
		if name == "" {
			continue
		}
		fd, err := g.open(i, name)
		switch {
		case err == nil:
			var st unix.Stat_t
			g.files[i] = file{fd, name, unix.Fstat(fd, &st) == nil && st.Size > 0}
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
			// A kernel without this controller, or with PSI switched off: not observed.
		default:
			g.Close()
			return nil, fmt.Errorf("opening %s: %w", name, err)
		}
	}
	if g.files[fileCPUStat].fd < 0 && g.files[fileMemory].fd < 0 {
		g.Close()
		return nil, fmt.Errorf("opening cgroup %s: neither cpu nor memory figures in it: %w", path, ErrGone)
	}
	return g, nil
}

// open opens a file for reading, and those of the CPU limit for writing, too, where that is allowed.
func (g *Group) open(which int, name string) (fd int, err error) {
	if which == fileQuota || which == filePeriod {
		fd, err = unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EROFS) && !errors.Is(err, fs.ErrPermission) {
			return fd, err
		}
		g.readOnly = err
	}
	return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// Path is the group's path below the tree's root.
func (g *Group) Path() string { return g.path }

// Close closes the descriptors. A closed Group observes nothing.
func (g *Group) Close() {
	for i := range g.files {
		if g.files[i].fd >= 0 {
			unix.Close(g.files[i].fd)
			g.files[i].fd = -1
		}
	}
}

// read returns a file's bytes, valid until the next read. A missing file is nil
// without an error. One pread returns a whole kernfs file when the buffer can
// hold it. A file that fills the buffer is read again into a larger one.
func (g *Group) read(which int) ([]byte, error) {
	f := g.files[which]
	if f.fd < 0 {
		return nil, nil
	}
	for {
		if len(*g.buffer) == 0 {
			*g.buffer = make([]byte, firstBuffer)
		}
		n, err := pread(f.fd, *g.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOENT):
			return nil, fmt.Errorf("reading %s: %w", f.path, ErrGone)
		case errors.Is(err, unix.EOPNOTSUPP): // PSI switched off at boot
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", f.path, err)
		case n == len(*g.buffer):
			*g.buffer = make([]byte, 2*len(*g.buffer))
			continue
		}
		return (*g.buffer)[:n], nil
	}
}

// pread reads a control file, which takes microseconds and waits for no device. So Go's
// scheduler is not told, as it is of a call that may block: that took a third of the samples'
// CPU time, in this process and in the runtime's own watcher, which looks for blocked threads.
func pread(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// ReadCPU reads the CPU usage only: one file on v2, two on v1. An agent calls
// it ten times a second.
func (g *Group) ReadCPU(into *CPU) error {
	*into = CPU{}
	b, err := g.read(g.version.usageFile())
	if err != nil {
		return err
	}
	if n, ok := g.version.usageOf(b); ok {
		into.Usage = n
		into.Observed |= CPUUsage
	}
	unit, timeField := time.Microsecond, "throttled_usec"
	if g.version == V1 {
		unit, timeField = time.Nanosecond, "throttled_time"
		if b, err = g.read(fileCPUStat); err != nil {
			return err
		}
	}
	periods, ok1 := fieldOf(b, "nr_periods")
	throttledPeriods, ok2 := fieldOf(b, "nr_throttled")
	throttledTime, ok3 := fieldOf(b, timeField)
	if ok1 && ok2 && ok3 {
		into.Periods = periods
		into.ThrottledPeriods = throttledPeriods
		into.ThrottledTime = time.Duration(throttledTime) * unit
		into.Observed |= Throttling
	}
	return nil
}

// CPUTime reads the CPU time that the group and those below it have used, and nothing else:
// one file. known is false when the kernel does not say it.
func (g *Group) CPUTime() (used time.Duration, known bool, err error) {
	b, err := g.read(g.version.usageFile())
	if err != nil {
		return 0, false, err
	}
	used, known = g.version.usageOf(b)
	return used, known, nil
}

// usageFile is the file with the CPU usage.
func (v Version) usageFile() int {
	if v == V2 {
		return fileCPUStat
	}
	return fileUsage
}

// usageOf is the CPU usage in that file.
func (v Version) usageOf(b []byte) (time.Duration, bool) {
	if v == V2 {
		n, ok := fieldOf(b, "usage_usec")
		return time.Duration(n) * time.Microsecond, ok
	}
	n, ok := uintOf(b)
	return time.Duration(n), ok
}

// Read reads everything.
func (g *Group) Read(into *Usage) error {
	if err := g.ReadOthers(into); err != nil {
		return err
	}
	var c CPU
	if err := g.ReadCPU(&c); err != nil {
		return err
	}
	c.Observed |= into.Observed
	into.CPU = c
	return nil
}

// ReadOthers reads everything but the CPU usage and throttling.
func (g *Group) ReadOthers(into *Usage) error {
	*into = Usage{}
	used, known, err := g.MemoryUsage()
	if err != nil {
		return err
	}
	if known {
		into.Memory = used
		into.Observed |= MemoryUsage
		if into.WorkingSet, known, err = g.WorkingSet(used); err != nil {
			return err
		}
		if known {
			into.Observed |= WorkingSet
		}
	}
	b, err := g.read(fileOOM)
	if err != nil {
		return err
	}
	if n, ok := fieldOf(b, "oom_kill"); ok {
		into.OOMKills = n
		into.Observed |= OOMKills
	}
	if g.files[fileIO].fd >= 0 {
		if b, err = g.read(fileIO); err != nil {
			return err
		}
		parse := blkioOf
		if g.version == V2 {
			parse = ioStatOf
		}
		if n, ok := parse(b); ok {
			into.IOBytes = n
			into.Observed |= IOBytes
		}
	}
	if into.CPUSome, err = g.pressure(fileCPUPressure, "some", CPUPressure, &into.Observed); err != nil {
		return err
	}
	if into.MemoryFull, err = g.pressure(fileMemoryPressure, "full", MemoryPressure, &into.Observed); err != nil {
		return err
	}
	into.IOFull, err = g.pressure(fileIOPressure, "full", IOPressure, &into.Observed)
	return err
}

// MemoryUsage reads all that is charged to the group: one short file. known is false when the
// kernel does not say it.
func (g *Group) MemoryUsage() (used mdp.Bytes, known bool, err error) {
	b, err := g.read(fileMemory)
	if err != nil {
		return 0, false, err
	}
	n, known := uintOf(b)
	return mdp.Bytes(n), known, nil
}

// WorkingSet is what is used without the file pages that can be dropped, as the kubelet
// computes it: one long file.
func (g *Group) WorkingSet(used mdp.Bytes) (in mdp.Bytes, known bool, err error) {
	// On v1 the plain inactive_file is of the group alone, and
	// total_inactive_file of its children too, as usage is.
	inactive := "inactive_file"
	if g.version == V1 {
		inactive = "total_inactive_file"
	}
	b, err := g.read(fileMemoryStat)
	if err != nil {
		return 0, false, err
	}
	n, known := fieldOf(b, inactive)
	return max(0, used-mdp.Bytes(n)), known, nil
}

func (g *Group) pressure(which int, kind string, figure Figures, observed *Figures) (time.Duration, error) {
	b, err := g.read(which)
	if err != nil {
		return 0, err
	}
	n, ok := pressureOf(b, kind)
	if !ok {
		return 0, nil
	}
	*observed |= figure
	return time.Duration(n) * time.Microsecond, nil
}

// noMemoryLimit is below what v1 writes when there is no limit, which is the
// largest number of whole pages, and above what any machine has.
const noMemoryLimit = 1 << 62

// Limits reads what the kernel enforces now.
func (g *Group) Limits() (Limits, error) {
	l, err := g.CPULimit()
	if err != nil {
		return l, err
	}
	return g.withMemory(l)
}

// withMemory adds the memory limit.
func (g *Group) withMemory(l Limits) (_ Limits, err error) {
	l.Memory, err = g.MemoryLimit()
	return l, err
}

// MemoryLimit is the memory part of Limits; 0 is none.
func (g *Group) MemoryLimit() (mdp.Bytes, error) {
	b, err := g.read(fileMemoryLimit)
	if err != nil || b == nil {
		return 0, err
	}
	n, none, ok := maxOf(b)
	switch {
	case !ok:
		return 0, g.noLimit(fileMemoryLimit, b)
	case none || n >= noMemoryLimit:
		return 0, nil
	}
	return mdp.Bytes(n), nil
}

// noLimit is the error of a file that says neither a limit nor that there is none: it is
// not known which limit is in force, and that is not none.
func (g *Group) noLimit(which int, b []byte) error {
	return fmt.Errorf("reading %s: %.40q is no limit", g.files[which].path, b)
}

// CPULimit is the CPU part of Limits.
func (g *Group) CPULimit() (Limits, error) {
	var l Limits
	b, err := g.read(fileQuota)
	if err != nil || b == nil {
		return l, err
	}
	ok := false
	if g.version == V2 {
		if l.Quota, l.Period, ok = cpuMaxOf(b); !ok {
			return Limits{}, g.noLimit(fileQuota, b)
		}
		return l, nil
	}
	if l.Quota, ok = intOf(b); !ok || l.Quota < -1 {
		return Limits{}, g.noLimit(fileQuota, b)
	}
	l.Quota = max(0, l.Quota) // none is -1
	if b, err = g.read(filePeriod); err != nil {
		return Limits{}, err
	}
	if l.Period, ok = intOf(b); !ok || l.Period <= 0 {
		return Limits{}, g.noLimit(filePeriod, b)
	}
	return l, nil
}
