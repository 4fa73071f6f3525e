package fault

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/restore"
	"awarescale.dev/aware/nodeagent/restore/disktest"
)

// onDisk is what an agent that starts now would find in a folder's journal.
func onDisk(t *testing.T, dir string) map[string]restore.Entry {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	copied, err := os.MkdirTemp("", "aware-journal-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(copied)
	if err := os.WriteFile(filepath.Join(copied, "journal"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := restore.Open(copied)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	return j.Entries()
}

// unknown is what of the limits in force is neither given nor in a journal's entry.
func unknown(l cgroup.Limits, e restore.Entry, given ...mdp.Size) cgroup.Limits {
	for _, g := range given {
		if l.CPU() == g.CPU {
			l.Quota, l.Period = 0, 0
		}
		if l.Memory == g.Memory {
			l.Memory = 0
		}
	}
	if e.Wrote.Covers(cgroup.Limits{Quota: l.Quota, Period: l.Period}) {
		l.Quota, l.Period = 0, 0
	}
	if e.Wrote.Covers(cgroup.Limits{Memory: l.Memory}) {
		l.Memory = 0
	}
	return l
}

// covered fails when a limit is in force that neither the kubelet has set nor the journal on
// disk knows.
func (n *node) covered() {
	n.t.Helper()
	entries := onDisk(n.t, n.dir)
	for id, given := range n.sizes {
		l := n.host.Limits(n.t, n.path(id))
		if left := unknown(l, entries[id], given); left != (cgroup.Limits{}) {
			n.t.Fatalf("%s: of %+v in force the disk does not know %+v: %+v (%s)", id, l, left, entries[id], n.problem(id))
		}
	}
}

// The disk with the agent's state becomes full while the API's limits change and containers burst: no limit
// is in force that a restart would not find, the lane does not open above it, opting out restores, and with
// space again everything goes on.
func TestOnAFullDiskNothingIsInForceThatTheJournalDoesNotKnow(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		const pages = 4 // with the lock's
		d := disktest.New(t, pages)
		n := newNodeOn(t, host, d.Dir, one(web))
		n.shrunk()
		d.Fill(0)
		given := web
		full := 0
		for i := 0; full < 10; i++ {
			if i == 200 {
				t.Fatalf("the disk is never full: %s", n.problem("app"))
			}
			given = mdp.Size{CPU: web.CPU + mdp.MilliCPU(20*(i+1)), Memory: web.Memory + mdp.Bytes(i+1)*mdp.MiB}
			n.kubelet(one(given))
			n.api.says("app", given, false)
			n.forget()
			for _, demand := range []mdp.MilliCPU{50, 5000} {
				n.demand["app"] = demand
				n.grant(api.Auto)
				for range 4 {
					n.run(time.Second)
					n.covered()
				}
			}
			n.never("app", given)
			if strings.Contains(n.problem("app"), "no space left") {
				full++
			}
		}
		n.grant(api.Observe)
		n.run(3 * time.Second)
		n.is("app", given, "after opting out, on a full disk")
		d.Free()
		n.demand["app"] = 50
		n.grant(api.Auto)
		n.run(15 * time.Second)
		if l := n.limit("app"); l.CPU >= given.CPU {
			t.Errorf("with space again it is not moved: %v, %s", l, n.problem("app"))
		}
		n.covered()
		n.grant(api.Observe)
		n.run(3 * time.Second)
		n.is("app", given, "in the end")
		n.forgotten()
	})
}

// mute is a runtime that says nothing of its containers, either: an agent that starts does not find out whose limits it
// has in its journal.
type mute struct{ *late }

func (m mute) Container(ctx context.Context, id string) (cri.Container, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hung {
		return cri.Container{}, context.DeadlineExceeded
	}
	return m.late.Container(ctx, id)
}

// What is put back on a full disk the journal does not know. So the runtime is not called, whose call might land when somebody
// has set other limits; and where the news of a resize are late, the values of before it are not put back.
func TestOnAFullDiskWhatIsPutBackIsWhatTheAPIServerGivesNow(t *testing.T) {
	eachFixture(t, func(t *testing.T, host *cgrouptest.Host) {
		for name, set := range map[string]func(n *node){
			"a late call has landed": func(n *node) {
				if err := host.Tree.Write(n.path("app"), limits(mdp.Size{CPU: 800, Memory: 200 * mdp.MiB})); err != nil {
					t.Fatal(err)
				}
			},
			"news are late": func(n *node) { // the kubelet's values could be ours
				n.kubelet(one(mdp.Size{CPU: 800, Memory: 200 * mdp.MiB}))
				n.api.ahead = map[string]mdp.Size{"app": n.sizes["app"]}
			},
		} {
			d := disktest.New(t, 4)
			n := newNodeOn(t, host, d.Dir, one(web))
			n.shrunk()
			d.Fill(0)
			for i := 0; !strings.Contains(n.problem("app"), "no space left"); i++ {
				if i == 200 {
					t.Fatalf("the disk is never full: %s", n.problem("app"))
				}
				given := mdp.Size{CPU: web.CPU + mdp.MilliCPU(20*(i+1)), Memory: web.Memory + mdp.Bytes(i+1)*mdp.MiB}
				n.kubelet(one(given))
				n.api.says("app", given, false)
				n.run(4 * time.Second)
			}
			slow := &late{Runtime: n.client, hung: true}
			n.runtime = mute{slow}
			n.boot()
			set(n)
			n.grant(api.Observe)
			for range 10 {
				n.run(time.Second)
				n.covered()
			}
			if len(slow.calls) > 0 {
				t.Errorf("%s: %d calls for what the journal does not know", name, len(slow.calls))
			}
			n.api.says("app", n.sizes["app"], false)
			n.run(10 * time.Second)
			n.is("app", n.sizes["app"], name)
			slow.hang(false)
			d.Free()
			n.run(10 * time.Second)
			n.is("app", n.sizes["app"], name+", with space again")
			n.covered()
			host.Remove(t, n.path("app"))
		}
	})
}

// The agent is started on a full disk: it restores at once what the one before has touched,
// touches nothing new, and says why.
func TestAnAgentStartsAndRestoresOnAFullDisk(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		d := disktest.New(t, 8)
		n := newNodeOn(t, host, d.Dir, one(web))
		n.shrunk()
		d.Fill(0)
		n.boot()
		n.is("app", web, "at once")
		if damage := n.journal.Damage(); !strings.Contains(damage, "no space left") {
			t.Errorf("nothing is said of the full disk: %q", damage)
		}
		n.forget()
		n.grant(api.Auto)
		n.demand["app"] = 50
		for range 10 {
			n.run(time.Second)
			n.covered()
		}
		n.is("app", web, "on the full disk")
		contains(t, n.problem("app"), "no space left")
		n.never("app", web)
		n.boot() // and again
		n.is("app", web, "at the second start")
		d.Free()
		n.shrunk()
		n.covered()
		n.grant(api.Observe)
		n.run(3 * time.Second)
		n.is("app", web, "in the end")
		n.forgotten()
	})
}

// The API server and central are both away for longer than the grants hold: the limits
// return to what the API said last, and the journal keeps them until it says so again.
func TestWithoutTheAPIServerAndCentralLimitsReturn(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		side := mdp.Size{CPU: 500, Memory: 64 * mdp.MiB}
		n := newNode(t, host, two(web, side))
		n.shrunk()
		n.api.away(true)
		n.run(9 * time.Minute)
		if l := n.limit("app"); l.CPU >= web.CPU {
			t.Errorf("within the grants' time the limit became %v", l)
		}
		n.forget()
		n.run(2 * time.Minute)
		n.is("app", web, "past the grants' end")
		n.is("sidecar", side, "past the grants' end")
		n.never("app", web)
		n.never("sidecar", side)
		// Central is back, and the API server is not. Then that is back, too, with other limits.
		n.shrunk()
		small := mdp.Size{CPU: 600, Memory: 200 * mdp.MiB}
		n.kubelet(two(small, side))
		n.api.says("app", small, false)
		n.forget()
		n.run(10 * time.Second)
		n.never("app", small)
		n.api.away(false)
		n.grant(api.Observe)
		n.run(10 * time.Second)
		n.is("app", small, "in the end")
		n.is("sidecar", side, "in the end")
		n.forgotten()
	})
}

// What files of a control group may say instead of what they should.
var nonsense = []string{"", "nonsense\n", "-5\n", "99999999999999999999999999\n", strings.Repeat("9 ", 1000)}

// Files of a container's group, and of its pod's, say nonsense: nothing is set outside of what
// the API gives, the agent lives, others are served, and when the files are well again so is everything.
func TestFilesThatSayNonsenseHarmNobody(t *testing.T) {
	for version, files := range map[cgroup.Version][]string{
		cgroup.V1: {"cpuacct/cpuacct.usage", "cpu/cpu.stat", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us",
			"memory/memory.usage_in_bytes", "memory/memory.stat", "memory/memory.limit_in_bytes", "memory/memory.oom_control"},
		cgroup.V2: {"cpu.stat", "cpu.max", "memory.current", "memory.stat", "memory.max", "memory.events", "cpu.pressure"},
	} {
		for _, file := range files {
			t.Run(version.String()+" "+file, func(t *testing.T) {
				host := cgrouptest.Fixture(t, version)
				side := mdp.Size{CPU: 500, Memory: 64 * mdp.MiB}
				n := newNode(t, host, two(web, side))
				n.shrunk()
				for _, path := range []string{n.path("app"), n.podPath()} {
					for _, text := range nonsense {
						was := n.spoil(path, file, text, 2*time.Second)
						host.Put(t, path, file, was)
						n.sane()
					}
				}
				if err := n.agent.Live(n.now); err != nil {
					t.Errorf("not alive: %v", err)
				}
				n.grant(api.Observe)
				n.run(3 * time.Minute)
				n.is("app", web, "in the end")
				n.is("sidecar", side, "in the end")
				n.forgotten()
			})
		}
	}
}

// read is a file of a fixture's group.
func (n *node) read(path, file string) string {
	n.t.Helper()
	dir, base := filepath.Split(file)
	b, err := os.ReadFile(filepath.Join(n.host.Tree.Root(), dir, path, base))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b)
}

// spoil lets time pass while a file says something else. It returns what the file would say: what it
// did, or what was written to it since.
func (n *node) spoil(path, file, text string, d time.Duration) (was string) {
	n.t.Helper()
	was = n.read(path, file)
	n.grant(api.Auto)
	for end := n.now.Add(d); n.now.Before(end); {
		n.now = n.now.Add(100 * time.Millisecond)
		n.host.Put(n.t, path, file, text)
		n.agent.Sample(n.now)
		if n.now.Nanosecond() == 0 {
			n.agent.Step(n.t.Context(), n.now)
		}
		if now := n.read(path, file); now != text {
			was = now
		}
	}
	return was
}

// sane fails when a limit in force is above what the kubelet gives, or is next to nothing.
func (n *node) sane() {
	n.t.Helper()
	for id, given := range n.sizes {
		l := n.limit(id)
		if l.CPU > given.CPU || l.Memory > given.Memory || l.CPU < 10 || l.Memory < 4*mdp.MiB {
			n.t.Fatalf("%s has %v in force, and the kubelet gives %v", id, l, given)
		}
	}
}
