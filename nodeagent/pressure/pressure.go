// Package pressure reads the pressure (PSI) of a whole node and its free memory, with
// github.com/prometheus/procfs.
//
// The breaker of package cri needs it, because a node that stalls must not get more
// load. Nodes with cgroup v1 need it too, because their kernel has no PSI of each
// container. On v2 package cgroup reads a container's own PSI.
package pressure

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"

	"awarescale.dev/aware/learner/mdp"
	"github.com/prometheus/procfs"
)

// Node is the node's pressure: shares of the last ten seconds. What is not in
// Observed is not known; a kernel without PSI, or with psi=0, knows nothing.
// Full pressure of CPU is missing: for a whole node it has no meaning, and the
// kernel writes 0.
type Node struct {
	Observed   mdp.Set   // of CPUPressure, MemoryPressure and IOPressure
	CPUSome    mdp.Ratio // some task waited for CPU
	MemoryFull mdp.Ratio // all tasks waited for memory
	IOFull     mdp.Ratio // all tasks waited for I/O
}

// Reader reads the pressure below a proc root.
type Reader struct{ fs procfs.FS }

// Open takes the root of the proc file system, usually /proc.
func Open(root string) (*Reader, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return nil, fmt.Errorf("proc root %s: %w", root, err)
	}
	return &Reader{fs}, nil
}

// Read reads the node's pressure now.
func (r *Reader) Read() (Node, error) {
	var n Node
	for _, one := range []struct {
		name   string
		signal mdp.Signal
		take   func(procfs.PSIStats) (*procfs.PSILine, *mdp.Ratio)
	}{
		{"cpu", mdp.CPUPressure, func(s procfs.PSIStats) (*procfs.PSILine, *mdp.Ratio) { return s.Some, &n.CPUSome }},
		{"memory", mdp.MemoryPressure, func(s procfs.PSIStats) (*procfs.PSILine, *mdp.Ratio) { return s.Full, &n.MemoryFull }},
		{"io", mdp.IOPressure, func(s procfs.PSIStats) (*procfs.PSILine, *mdp.Ratio) { return s.Full, &n.IOFull }},
	} {
		stats, err := r.fs.PSIStatsForResource(one.name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			return Node{}, fmt.Errorf("reading the node's %s pressure: %w", one.name, err)
		}
		line, into := one.take(stats)
		if line == nil {
			continue
		}
		*into = mdp.Ratio(line.Avg10 / 100)
		n.Observed |= mdp.SetOf(one.signal)
	}
	return n, nil
}

// MemoryAvailable is the kernel's estimate of how much memory the node's processes could
// have more without swapping. A container reads that of the node, too.
func (r *Reader) MemoryAvailable() (mdp.Bytes, error) {
	m, err := r.fs.Meminfo()
	if err != nil {
		return 0, fmt.Errorf("reading the node's memory: %w", err)
	}
	if m.MemAvailableBytes == nil || *m.MemAvailableBytes > math.MaxInt64 {
		return 0, errors.New("reading the node's memory: no MemAvailable in meminfo, or too large a one")
	}
	return mdp.Bytes(*m.MemAvailableBytes), nil
}
