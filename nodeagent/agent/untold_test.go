package agent

import (
	"errors"
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

// resize is somebody who updates the CPU limit through the runtime. It returns the memory limit then.
func (g *rig) resize() mdp.Bytes {
	g.t.Helper()
	if err := g.client.Update(g.t.Context(), "c0", cri.Change{Quota: 100000, Period: 100000}); err != nil {
		g.t.Fatal(err)
	}
	return g.host.Limits(g.t, g.pathOf(0, "c0")).Memory
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
				g.resize()
				g.run(time.Second)
			})
		}
	})
}

// The runtime is told also when there is nothing else to say to it.
func TestTheRuntimeIsToldWhatSomebodyElseWroteOfOneLimit(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	wants := mdp.Action{}.WithCPU(300).WithMemory(128 * mdp.MiB)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
	}
	g.boot()
	g.grant(api.Auto)
	g.run(20 * time.Second)
	g.told()
	wants = mdp.Action{}.WithCPU(300)
	g.elsewhere(cgroup.Limits{Memory: web.Memory})
	g.run(3 * time.Second)
	if m := g.resize(); m != web.Memory {
		t.Errorf("an update of the CPU limit brought %v back", m)
	}
}

// A restore of one limit does not bring the other one back.
func TestARestoreKeepsWhatSomebodyElseWrote(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.shrunk()
	g.server.Fail(errors.New("busy"))
	g.grant(api.Auto, memoryFrom(web.Memory))
	g.elsewhere(cgroup.Limits{Memory: web.Memory})
	g.run(3 * time.Second)
	g.server.Fail(nil)
	g.each = func() {
		if m := g.limit(0).Memory; m != web.Memory {
			t.Fatalf("the restore of the CPU limit brought %v back", m)
		}
	}
	g.grant(api.Off)
	g.run(3 * time.Second)
	g.isRestored("opted out")
}

// A container of which nothing is ours any more stays in the journal until the runtime knows: it is
// told by this agent, by the next one, after its owner has opted out, and when the agent ends.
func TestAnEntryStaysUntilTheRuntimeWasTold(t *testing.T) {
	later := func(g *rig) {
		g.grant(api.Off)
		g.run(2 * time.Minute)
		if e := g.agent.journal.Entries(); len(e) > 0 {
			g.t.Errorf("still in the journal: %+v", e)
		}
	}
	for who, tells := range map[string]func(*rig){
		"this agent":     later,
		"the next agent": func(g *rig) { g.boot(); later(g) },
		"opted out": func(g *rig) {
			g.stage.mu.Lock()
			g.stage.pods, g.stage.optedOut = nil, g.stage.pods
			g.stage.mu.Unlock()
			later(g)
		},
		"an agent that ends": func(g *rig) {
			waits := g.agent.touched()
			err := g.agent.Restore(g.t.Context(), g.now.Add(time.Second))
			if !waits || err != nil || g.agent.touched() {
				g.t.Errorf("it has something to do before %v, and after %v: %v", waits, g.agent.touched(), err)
			}
		},
	} {
		t.Run(who, func(t *testing.T) {
			g := newRig(t, cgroup.V1, 1)
			ours := g.shrunk()
			g.server.Fail(errors.New("busy"))
			g.elsewhere(limitsOf(web))
			g.grant(api.Off)
			g.run(3 * time.Second)
			e, ok := g.agent.journal.Get("c0")
			if !ok || !e.Wrote.Covers(limitsOf(ours)) {
				t.Fatalf("the runtime still has %v, and the journal %+v", ours, e)
			}
			g.server.Fail(nil)
			tells(g)
			if m := g.resize(); m != web.Memory {
				t.Errorf("an update of the CPU limit brought %v back", m)
			}
		})
	}
}

// Before the runtime knows, an update of another's can bring back what was ours: that is restored.
func TestWhatAnothersUpdateBringsBackIsRestored(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	ours := g.shrunk()
	g.agent.runtime.Pressure(g.now, 1) // the breaker is open
	g.elsewhere(limitsOf(web))
	g.grant(api.Off)
	g.run(3 * time.Second)
	if m := g.resize(); m != ours.Memory {
		t.Fatalf("%v; the runtime should have brought %v back", m, ours)
	}
	for range 4 {
		g.grant(api.Off)
		g.run(30 * time.Second)
	}
	g.isRestored("brought back")
}

// Somebody else has taken the limits away: that is told, too.
func TestTheRuntimeIsToldThatThereIsNoLimit(t *testing.T) {
	for version, files := range map[cgroup.Version]map[string]string{
		cgroup.V1: {"cpu/cpu.cfs_quota_us": "-1", "memory/memory.limit_in_bytes": "9223372036854771712"},
		cgroup.V2: {"cpu.max": "max 100000", "memory.max": "max"},
	} {
		g := newRig(t, version, 1)
		g.shrunk()
		for name, content := range files {
			g.host.Put(t, g.pathOf(0, "c0"), name, content)
		}
		g.grant(api.Off)
		g.run(tellAfter + 2*time.Second)
		calls := g.server.Calls()
		if last := calls[len(calls)-1]; last.CpuQuota != -1 || last.CpuPeriod != 100000 || last.MemoryLimitInBytes != -1 {
			t.Errorf("v%d: told %v", version, last)
		}
	}
}

// Who sets limits through the runtime, as the kubelet does in several calls for one resize, has told it. A call of ours with
// what was in force would undo the next of these calls.
func TestWhatTheRuntimeWasToldIsNotToldAgain(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 1)
		defer g.host.Remove(t, g.pathOf(0, "c0"))
		g.shrunk()
		before := len(g.server.Calls())
		if err := g.client.Update(t.Context(), "c0", cri.Change{Quota: 70000, Period: 100000, Memory: 2 * web.Memory}); err != nil {
			t.Fatal(err)
		}
		g.grant(api.Off)
		g.run(time.Minute)
		if calls := g.server.Calls()[before+1:]; len(calls) > 0 {
			t.Errorf("our calls after the kubelet's: %v", calls)
		}
		if e := g.agent.journal.Entries(); len(e) > 0 {
			t.Errorf("still in the journal: %+v", e)
		}
	})
}

// The same where the other limit stays ours: our calls are of that one only.
func TestACallSaysNothingOfALimitThatTheRuntimeWasTold(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		g := newRig(t, version, 1)
		g.shrunk()
		before := len(g.server.Calls())
		if err := g.client.Update(t.Context(), "c0", cri.Change{Memory: web.Memory}); err != nil {
			t.Fatal(err)
		}
		g.grant(api.Auto, memoryFrom(web.Memory))
		g.demand[0] = 400
		g.run(10 * time.Second)
		g.demand[0] = 100
		g.run(20 * time.Second)
		calls := g.server.Calls()[before+1:]
		if len(calls) == 0 {
			t.Fatal("the agent has made no call")
		}
		for _, c := range calls {
			if c.MemoryLimitInBytes != 0 {
				t.Errorf("v%d: a call with the memory limit of somebody else: %v", version, c)
			}
		}
	}
}

// The kubelet's update of memory brings the API's CPU limit along, and a limit of ours that was taken back meanwhile is what
// the runtime was told last by us, and does not have any more. The next call, which has no CPU limit to say, says it.
func TestACallSaysALimitOfWhichAnothersUpdateHasToldTheRuntimeSomethingElse(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		g := newRig(t, version, 1)
		low := g.shrunk()
		g.resizedInRelief(low.CPU)
		c := g.agent.containers[g.ref(0)]
		g.each = func() {
			if l := g.limit(0); l.CPU > low.CPU {
				t.Fatalf("v%d: a call of ours brought %v back: %+v", version, l.CPU, c.ownership)
			}
		}
		g.run(10 * time.Second)
		if c.strikes > 0 {
			t.Errorf("v%d: %d conflicts with ourselves", version, c.strikes)
		}
		g.each = nil
		if g.told(); c.ownership.Behind || !c.ownership.Untold.Empty() {
			t.Errorf("v%d: the runtime was not told: %+v", version, c.ownership)
		}
	}
}

// What somebody else has written into the cgroup is not told at once: some runtimes note what they were told when they have
// set it, and only then is it known whether somebody has told them. An agent that ends does not wait.
func TestTheRuntimeIsToldAfterAWhile(t *testing.T) {
	for name, until := range map[string]func(*rig){
		"goes on": func(g *rig) { g.run(tellAfter) },
		"ends after its owner has opted out": func(g *rig) {
			g.stage.mu.Lock()
			g.stage.pods, g.stage.optedOut = nil, g.stage.pods
			g.stage.mu.Unlock()
			g.run(time.Second)
			if err := g.agent.Restore(g.t.Context(), g.now); err != nil || len(g.agent.orphans) > 0 {
				g.t.Errorf("orphans %v (%v)", g.agent.orphans, err)
			}
		},
		"ends": func(g *rig) {
			if err := g.agent.Restore(g.t.Context(), g.now.Add(time.Second)); err != nil {
				g.t.Error(err)
			}
		},
	} {
		g := newRig(t, cgroup.V1, 1)
		g.shrunk()
		before := len(g.server.Calls())
		g.elsewhere(limitsOf(web))
		g.grant(api.Off)
		g.run(tellAfter - time.Second)
		if calls := g.server.Calls()[before:]; len(calls) > 0 {
			t.Errorf("%s: told at once: %v", name, calls)
		}
		until(g)
		if calls := g.server.Calls()[before:]; len(calls) != 1 || calls[0].MemoryLimitInBytes != int64(web.Memory) {
			t.Errorf("%s: calls afterwards: %v", name, calls)
		}
	}
}
