package agent

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

// What a node of the crowd has.
const (
	comers = 300             // containers in a minute
	lives  = 8 * time.Second // of each
)

// come makes a pod with one container that the API server knows at once.
func (g *rig) come(i int) {
	g.t.Helper()
	id := fmt.Sprint("c", i)
	g.host.Add(g.t, g.pathOf(i, id), limitsOf(web))
	g.server.Add(id, "/"+g.pathOf(i, id), limitsOf(web))
	g.stage.mu.Lock()
	defer g.stage.mu.Unlock()
	g.stage.pods = append(g.stage.pods, Pod{
		Namespace: "shop", Name: fmt.Sprint("web-", i), UID: fmt.Sprint("u", i), QoS: "Burstable",
		Containers: []Container{{Name: "app", ID: id, Running: true, Limits: web, Requests: mdp.Size{CPU: 100}}},
	})
}

// leave removes it: the API server says so after the group is gone, or before.
func (g *rig) leave(i int) {
	g.t.Helper()
	gone := func() {
		g.host.Remove(g.t, fmt.Sprintf("%s/burstable/podu%d", g.host.Parent, i))
		g.server.Remove(fmt.Sprint("c", i))
	}
	if i%3 == 0 {
		gone()
	}
	g.stage.mu.Lock()
	for at := range g.stage.pods {
		if g.stage.pods[at].UID == fmt.Sprint("u", i) {
			g.stage.pods = append(g.stage.pods[:at:at], g.stage.pods[at+1:]...)
			break
		}
	}
	g.stage.mu.Unlock()
	if i%3 != 0 {
		gone()
	}
}

// descriptors are this process's open files.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// 300 containers come and go in a minute: they are moved while they are there, nothing of them is left,
// and one that stays is served all the time.
func TestThreeHundredContainersComeAndGoInAMinute(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 1)
		g.shrunk()
		base := struct{ files, goroutines, tracks, pods int }{
			descriptors(t), runtime.NumGoroutine(), g.agent.sampler.Len(), len(g.agent.sampler.pods),
		}
		crowd := map[int]time.Time{} // when each is to go
		moved := map[int]bool{}
		stays := g.stage.Snapshot()[0]
		g.each = func() {
			for i := range crowd {
				path := g.pathOf(i, fmt.Sprint("c", i))
				l := host.Limits(t, path)
				if l.CPU() > web.CPU || l.Memory > web.Memory {
					t.Fatalf("%s has %v in force", path, l.Size())
				}
				moved[i] = moved[i] || l.Size() != web
			}
		}
		for i := 1; i <= comers || len(crowd) > 0; {
			for ; i <= comers && g.now.Sub(noon.Add(10*time.Second)) >= time.Minute/comers*time.Duration(i-1); i++ {
				g.come(i)
				crowd[i] = g.now.Add(lives)
			}
			for one, until := range crowd {
				if g.now.After(until) {
					g.leave(one)
					delete(crowd, one)
				}
			}
			// All of them use no CPU, but the one that stays.
			all := g.stage.pods
			g.stage.pods = []Pod{stays}
			w := g.workers[0]
			w.Demand, w.Memory = 200, 64*mdp.MiB
			w.Work(t, host, g.pathOf(0, "c0"))
			g.stage.pods = all
			g.now = g.now.Add(100 * time.Millisecond)
			g.agent.Sample(g.now)
			g.each()
			if g.now.Nanosecond() == 0 {
				g.grant(api.Auto)
				g.agent.Step(t.Context(), g.now)
			}
			if took := g.now.Sub(noon); took > 3*time.Minute {
				t.Fatalf("after %v %d are still there", took, len(crowd))
			}
		}
		if took := g.now.Sub(noon) - 10*time.Second; took > 75*time.Second {
			t.Errorf("%d containers took %v", comers, took)
		}
		if len(moved) < comers/3 {
			t.Errorf("%d of %d containers were moved: too little was tested", len(moved), comers)
		}
		g.each = nil
		g.grant(api.Auto)
		g.run(lateGrace + 5*time.Second)
		g.grant(api.Auto)
		g.run(time.Second)
		a := g.agent
		if n := len(a.Report(g.now).Containers); n != 1 {
			t.Errorf("%d containers are reported, want the one that is there", n)
		}
		if e := a.journal.Entries(); len(e) > 1 {
			t.Errorf("the journal has %d entries: %+v", len(e), e)
		}
		if len(a.orphans)+len(a.absent) > 0 || len(a.totals)+len(a.oomSeen) > 0 || len(a.containers) != 1 {
			t.Errorf("the agent keeps %d orphans, %d absent, totals of %d, kills of %d, %d containers",
				len(a.orphans), len(a.absent), len(a.totals), len(a.oomSeen), len(a.containers))
		}
		if tracks, pods := a.sampler.Len(), len(a.sampler.pods); tracks != base.tracks || pods != base.pods ||
			len(a.sampler.order) != base.pods {
			t.Errorf("%d containers and %d pods are sampled, before %+v", tracks, pods, base)
		}
		if n := descriptors(t); n > base.files+2 { // a connection of the test may be new
			t.Errorf("%d files are open, before %d", n, base.files)
		}
		runtime.GC()
		if n := runtime.NumGoroutine(); n > base.goroutines+2 {
			t.Errorf("%d goroutines, before %d", n, base.goroutines)
		}
		g.grant(api.Observe)
		g.run(2 * time.Second)
		g.isRestored("the one that stayed")
	})
}
