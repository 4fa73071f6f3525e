package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The demo does not use package nodeagent/cgroup: a measurement of AWARE must not share
// its errors.

// cgroupHost is the paths of a machine's control groups. On cgroup v1 each controller
// has its own tree, on v2 there is one. A hybrid machine has v1's controllers.
type cgroupHost struct {
	cpu     string // v1
	cpuacct string // v1
	memory  string // v1
	unified string // v2, used when there is no v1 tree for the CPU
}

// findCgroups reads a mountinfo, whose lines are, proc(5):
//
//	36 35 98:0 /root /mount/point rw,noatime master:1 - cgroup cgroup rw,cpu
func findCgroups(mountinfo io.Reader) (cgroupHost, error) {
	var h cgroupHost
	s := bufio.NewScanner(mountinfo)
	for s.Scan() {
		before, after, ok := strings.Cut(s.Text(), " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(kind) < 3 || f[3] != "/" {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			h.unified = f[4]
		case "cgroup":
			for controller := range strings.SplitSeq(kind[2], ",") {
				switch controller {
				case "cpu":
					h.cpu = f[4]
				case "cpuacct":
					h.cpuacct = f[4]
				case "memory":
					h.memory = f[4]
				}
			}
		}
	}
	if (h.cpu == "" || h.cpuacct == "" || h.memory == "") && h.unified == "" {
		return h, errors.New("no control groups with cpu, cpuacct and memory are mounted")
	}
	return h, s.Err()
}

// reading is the kernel's values of one container.
type reading struct {
	limit  limits
	usage  time.Duration // CPU time since it was created
	memory float64       // MiB in use, the page cache included
}

// limits is the limits in force; nil is no limit.
type limits struct {
	milli  *float64
	memory *float64 // MiB
}

func (l limits) String() string {
	return fmt.Sprintf("%sm %sMi", figure(l.milli, 0), figure(l.memory, 0))
}

// read reads the group at a path below the hierarchies' roots. An error that wraps
// fs.ErrNotExist says that the container does not exist.
func (h cgroupHost) read(path string) (reading, error) {
	if h.cpu != "" {
		return h.readV1(path)
	}
	return h.readV2(path)
}

func (h cgroupHost) readV1(path string) (reading, error) {
	var n files
	quota := n.int(h.cpu, path, "cpu.cfs_quota_us")
	period := n.int(h.cpu, path, "cpu.cfs_period_us")
	usage := n.int(h.cpuacct, path, "cpuacct.usage")
	limit := n.int(h.memory, path, "memory.limit_in_bytes")
	used := n.int(h.memory, path, "memory.usage_in_bytes")
	if n.err != nil {
		return reading{}, n.err
	}
	r := reading{usage: time.Duration(usage), memory: mib(used)}
	if quota > 0 && period > 0 {
		r.limit.milli = known(1000 * float64(quota) / float64(period))
	}
	if limit < 1<<60 { // no limit is the largest number of pages
		r.limit.memory = known(mib(limit))
	}
	return r, nil
}

// readV2 reads cpu.max ("50000 100000" or "max 100000"), cpu.stat ("usage_usec 1234"
// and more lines), memory.max (bytes, or "max") and memory.current.
func (h cgroupHost) readV2(path string) (reading, error) {
	var n files
	cpuMax := strings.Fields(n.text(h.unified, path, "cpu.max"))
	stat := n.text(h.unified, path, "cpu.stat")
	memoryMax := strings.TrimSpace(n.text(h.unified, path, "memory.max"))
	used := n.int(h.unified, path, "memory.current")
	if n.err != nil {
		return reading{}, n.err
	}
	r := reading{memory: mib(used)}
	if len(cpuMax) != 2 {
		return r, fmt.Errorf("cpu.max of %s is %q", path, cpuMax)
	}
	if cpuMax[0] != "max" {
		quota, err1 := strconv.ParseFloat(cpuMax[0], 64)
		period, err2 := strconv.ParseFloat(cpuMax[1], 64)
		if err := errors.Join(err1, err2); err != nil || period <= 0 {
			return r, fmt.Errorf("cpu.max of %s is %q", path, cpuMax)
		}
		r.limit.milli = known(1000 * quota / period)
	}
	if memoryMax != "max" {
		limit, err := strconv.ParseInt(memoryMax, 10, 64)
		if err != nil {
			return r, fmt.Errorf("memory.max of %s: %w", path, err)
		}
		r.limit.memory = known(mib(limit))
	}
	for line := range strings.Lines(stat) {
		if text, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			r.usage = time.Duration(us) * time.Microsecond
			return r, err
		}
	}
	return r, fmt.Errorf("cpu.stat of %s has no usage_usec", path)
}

// files reads files until one fails.
type files struct{ err error }

func (n *files) text(root, path, file string) string {
	if n.err != nil {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(root, path, file))
	n.err = err
	return string(data)
}

func (n *files) int(root, path, file string) int64 {
	text := strings.TrimSpace(n.text(root, path, file))
	if n.err != nil {
		return 0
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		n.err = fmt.Errorf("reading %s: %w", filepath.Join(root, path, file), err)
	}
	return v
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// known is a pointer to an observed value. A nil pointer is an unknown value, which is
// not zero.
func known(v float64) *float64 { return &v }

// machineBusy is the busy time of all cores since boot. /proc/stat begins with this
// line, in hundredths of a second, proc(5):
//
//	cpu  user nice system idle iowait irq softirq steal guest guest_nice
//
// Stolen time was used by other machines on the host, so it counts as busy.
func machineBusy() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(data), "\n")
	f := strings.Fields(first)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", first)
	}
	sum := int64(0)
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat begins with %q: %w", first, err)
		}
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond, nil
}
