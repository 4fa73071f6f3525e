package agent

import (
	"context"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
)

// elsewhere is another writer, which the runtime does not know of.
func (g *rig) elsewhere(l cgroup.Limits) {
	g.t.Helper()
	if err := g.host.Tree.Write(g.pathOf(0, "c0"), l); err != nil {
		g.t.Fatal(err)
	}
}

// memoryFrom lets the agent give memory, but no less than that.
func memoryFrom(least mdp.Bytes) func(*api.Grant) {
	return func(m *api.Grant) { m.Bounds.Memory.Min = least }
}

// The runtime keeps what it was told of all limits, and writes all of them with each update. A
// limit that somebody else has written into the cgroup stays when a later call, of ours or of
// another's, sets the other limit.
func TestWhatSomebodyElseWroteIsNotUndoneByALaterCall(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		for name, theirs := range map[string]cgroup.Limits{
			"memory": {Memory: web.Memory},
			"all":    limitsOf(web),
		} {
			t.Run(name, func(t *testing.T) {
				g := newRigOn(t, host, 1)
				defer g.host.Remove(t, g.pathOf(0, "c0"))
				ours := g.shrunk()
				g.elsewhere(theirs)
				g.each = func() {
					if l := g.limit(0); l.Memory != web.Memory {
						t.Fatalf("memory is %v; somebody else gave %v, and %v was ours", l.Memory, web.Memory, ours.Memory)
					}
				}
				g.grant(api.Auto, memoryFrom(web.Memory)) // from now on only the CPU limit is moved
				g.demand[0] = 400
				g.run(10 * time.Second)
				g.demand[0] = 100
				g.run(20 * time.Second)
				if l := g.limit(0); l.CPU >= web.CPU {
					t.Errorf("its CPU limit is not moved any more: %v", l)
				}
				g.grant(api.Off)
				g.run(3 * time.Second)
				g.isRestored("opted out")
				if err := g.client.Update(t.Context(), "c0", cri.Change{Quota: 50000, Period: 100000}); err != nil {
					t.Fatal(err)
				}
				g.run(time.Second)
			})
		}
	})
}

// A container of which nothing is ours any more stays in the journal until the runtime knows,
// also for the next agent.
func TestWhatTheRuntimeWasNotToldOutlivesTheAgent(t *testing.T) {
	for _, dies := range []bool{false, true} {
		g := newRig(t, cgroup.V1, 1)
		ours := g.shrunk()
		g.server.Fail(context.DeadlineExceeded)
		g.elsewhere(limitsOf(web))
		g.grant(api.Off)
		g.run(3 * time.Second)
		e, ok := g.agent.journal.Get("c0")
		if !ok || !e.Wrote.Covers(limitsOf(ours)) {
			t.Fatalf("the runtime still has %v, and the journal %+v", ours, e)
		}
		if dies {
			g.boot()
		}
		g.server.Fail(nil)
		g.grant(api.Off)
		g.run(2 * time.Minute)
		g.isRestored("told")
		// Whoever updates the other limit next brings nothing of ours back.
		if err := g.client.Update(t.Context(), "c0", cri.Change{Quota: 50000, Period: 100000}); err != nil {
			t.Fatal(err)
		}
		if l := g.limit(0); l.Memory != web.Memory {
			t.Errorf("the agent dies %v: %v came back", dies, l)
		}
	}
}

// Before the runtime knows, an update of another's can bring back what was ours: that is restored.
func TestWhatAnothersUpdateBringsBackIsRestored(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	ours := g.shrunk()
	g.agent.runtime.Pressure(g.now, 1, 0) // the breaker is open
	g.elsewhere(limitsOf(web))
	g.grant(api.Off)
	g.run(3 * time.Second)
	if err := g.client.Update(t.Context(), "c0", cri.Change{Quota: 100000, Period: 100000}); err != nil {
		t.Fatal(err)
	}
	if l := g.limit(0); l.Memory != ours.Memory {
		t.Fatalf("%v; the runtime should have brought %v back", l, ours)
	}
	for range 4 {
		g.grant(api.Off)
		g.run(30 * time.Second)
	}
	g.isRestored("brought back")
}
