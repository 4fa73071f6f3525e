package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"awarescale.dev/aware/nodeagent/cgroup"
)

// A bare write of a CPU limit looks at all groups of the machine, and an L0 is one of them, or two where quota and period change.
// As between two reliefs there is a pause between two of them, or all that the kernel looks at is in the CPU's caches.
const bareEvery = 100 * time.Millisecond

// bare is a group's CPU limit as a file.
type bare struct {
	file   *os.File
	values [2]string // that are written by turns; the second is what the group has in the end
	n      int
}

func (st *stage) bare(group string) (*bare, error) {
	name, b := filepath.Join(st.tree.Root(), "cpu", group, "cpu.cfs_period_us"), &bare{values: [2]string{"400000", "100000"}}
	if st.tree.Version() == cgroup.V2 {
		name, b.values = filepath.Join(st.tree.Root(), group, "cpu.max"), [2]string{"20000 400000", "20000 100000"}
	}
	var err error
	b.file, err = os.OpenFile(name, os.O_WRONLY, 0)
	return b, err
}

// write is one write, and what it took.
func (b *bare) write() (time.Duration, error) {
	begun := time.Now()
	_, err := b.file.WriteString(b.values[b.n%2])
	b.n++
	return time.Since(begun), err
}

// beside makes bare writes until it is stopped, to a group without processes and without
// a quota: what the kernel takes for one at that time.
func (st *stage) beside(ctx context.Context) (stop func() ([]time.Duration, error), err error) {
	group := path.Join(st.cluster.CgroupParent(), "bare")
	dir := filepath.Join(st.tree.Root(), group)
	if st.tree.Version() == cgroup.V1 {
		dir = filepath.Join(st.tree.Root(), "cpu", group)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a group for bare writes: %w", err)
	}
	b, err := st.bare(group)
	if err != nil {
		os.Remove(dir)
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all []time.Duration
	var failed error
	var writing sync.WaitGroup
	writing.Go(func() {
		for pause(ctx, bareEvery) == nil {
			took, err := b.write()
			if err != nil {
				failed = err
				return
			}
			all = append(all, took)
		}
	})
	return func() ([]time.Duration, error) {
		cancel()
		writing.Wait()
		b.file.Close()
		if err := os.Remove(dir); err != nil && failed == nil {
			failed = err
		}
		return all, failed
	}, nil
}
