package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

const ms = time.Millisecond

// cfs is CFS bandwidth control of one group of a fixture, in steps of a millisecond. Each write of the limit fills the quota up.
// A period goes on to its end, and the one after it is as long as was written last (kernel/sched/fair.c: tg_set_cfs_bandwidth,
// start_cfs_bandwidth, do_sched_cfs_period_timer).
type cfs struct {
	host *cgrouptest.Host
	path string

	limit  cgroup.Limits
	left   time.Duration // of the period
	got    time.Duration // since the quota was filled up
	held   bool          // in the period
	used   time.Duration
	counts [2]int // periods, throttled
}

// hear takes in writes of the limit. It leaves the files with a zero before their numbers, by which it knows the next write. No
// limit is none.
func (c *cfs) hear(t testing.TB) {
	t.Helper()
	names := []string{"cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"}
	if c.host.Tree.Version() == cgroup.V2 {
		names = []string{"cpu.max"}
	}
	written := false
	for _, name := range names {
		dir, base := filepath.Split(name)
		text, err := os.ReadFile(filepath.Join(c.host.Tree.Root(), dir, c.path, base))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "0") && !strings.HasPrefix(string(text), "max") {
			written = true
			c.host.Put(t, c.path, name, "0"+string(text))
		}
	}
	if written {
		c.limit, c.got = c.host.Limits(t, c.path), 0
	}
}

// take uses CPU time, as far as the quota goes.
func (c *cfs) take(wants time.Duration) (got time.Duration) {
	got = min(wants, c.quota()-c.got)
	c.got, c.used = c.got+got, c.used+got
	c.held = c.held || got < wants
	return got
}

// quota is that of a period.
func (c *cfs) quota() time.Duration { return microseconds(c.limit.Quota) }

// pass lets a millisecond pass.
func (c *cfs) pass() {
	if c.left -= ms; c.left > 0 {
		return
	}
	c.counts[0]++
	if c.held {
		c.counts[1]++
	}
	c.left, c.got, c.held = microseconds(c.limit.Period), 0, false
}

// count writes what the kernel counts. The pod's group has the time of the groups below it.
func (c *cfs) count(t testing.TB) {
	t.Helper()
	for _, path := range []string{c.path, filepath.Dir(c.path)} {
		counts := fmt.Sprintf("nr_periods %d\nnr_throttled %d\n", c.counts[0], c.counts[1])
		if c.host.Tree.Version() == cgroup.V2 {
			c.host.Put(t, path, "cpu.stat", fmt.Sprintf("usage_usec %d\n%sthrottled_usec 0\n", c.used.Microseconds(), counts))
			continue
		}
		c.host.Put(t, path, "cpuacct/cpuacct.usage", fmt.Sprintln(int64(c.used)))
		c.host.Put(t, path, "cpu/cpu.stat", counts+"throttled_time 0\n")
	}
}
