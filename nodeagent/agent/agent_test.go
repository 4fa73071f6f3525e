package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
	dto "github.com/prometheus/client_model/go"
)

func TestLimitsFollowTheDemand(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			g.run(5 * time.Second)
			if l := g.limit(0); l != web {
				t.Fatalf("without a grant the limits became %v", l)
			}
			if s := g.summary(0); !strings.Contains(s.Problem, "waiting for central") ||
				!s.State.Knows(mdp.CPUUsage, mdp.CPUPeak, mdp.Throttled) ||
				s.State.Usage.CPU != 200 || s.State.Throttled != 0 || s.State.Usage.Memory != 64*mdp.MiB {
				t.Errorf("want that it observes: %+v", s)
			}
			low := g.shrunk()
			if low.CPU > 300 || low.CPU < 200 {
				t.Errorf("at a demand of 200m the limit is %v, want a little above", low.CPU)
			}
			if want := 128 * mdp.MiB; low.Memory != want {
				t.Errorf("with 64Mi in use the memory limit is %v, want %v: half of it, for one step a minute", low.Memory, want)
			}
			g.demand[0] = 600
			g.run(15 * time.Second)
			if l := g.limit(0); l.CPU < 580 {
				t.Errorf("15 s into a burst of 600m the limit is %v", l.CPU)
			}
			g.demand[0] = 5000
			g.run(30 * time.Second)
			if l := g.limit(0); l.CPU != web.CPU {
				t.Errorf("with more than it may have the limit is %v, want all of the API's %v", l.CPU, web.CPU)
			}
			s := g.summary(0)
			if s.Mode != api.Auto || s.Resizes == 0 || s.Bounds.CPU.Max != web.CPU || s.Problem != "" {
				t.Errorf("summary %+v", s)
			}
			for _, c := range g.server.Calls() {
				if (c.CpuQuota != 0) != (c.CpuPeriod != 0) || c.CpuQuota > 100000 {
					t.Errorf("call %v", c)
				}
			}
		})
	}
}

// The agent asks its captain once a second, so a decrease that could be taken back
// until the next decision only could never be taken back: see [Default].
func TestABurstSecondsAfterADecreaseTakesItBackInOneStep(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.demand[0] = 560
	g.grant(api.Auto)
	g.run(12 * time.Second)
	before := g.limit(0).CPU
	g.demand[0] = 300
	for g.limit(0).CPU > 400 {
		if g.run(time.Second); g.now.Sub(noon) > 30*time.Second {
			t.Fatalf("with 300m in use the limit stays %v", before)
		}
	}
	g.run(3 * time.Second)
	low := g.limit(0).CPU
	if low > 400 {
		t.Fatalf("with 300m in use the limit is %v after %v", low, before)
	}
	g.demand[0] = 560
	g.run(time.Second)
	if l := g.limit(0).CPU; l < before {
		t.Errorf("a second into a burst, 3 s after a decrease from %v to %v, the limit is %v", before, low, l)
	}
}

func TestTheEndOfAGrantRestores(t *testing.T) {
	grant := func(mode api.Mode) func(*rig) {
		return func(g *rig) { g.grant(mode); g.run(2 * time.Second) }
	}
	for name, end := range map[string]func(*rig){
		"central silent for longer than its grants hold": func(g *rig) { g.run(time.Minute + 2*time.Second) },
		"observe":   grant(api.Observe),
		"recommend": grant(api.Recommend),
		"off":       grant(api.Off),
		"no longer listed": func(g *rig) {
			g.agent.Apply(g.now, api.Grants{TTL: time.Minute})
			g.run(2 * time.Second)
		},
		"a deleted pod": func(g *rig) {
			g.stage.change(0, func(p *Pod, _ *Container) { p.Deleting = true })
			g.run(2 * time.Second)
		},
		"opting out": func(g *rig) {
			pods := g.stage.pods
			g.stage.pods, g.stage.optedOut = nil, pods
			g.agent.Step(g.t.Context(), g.now.Add(time.Second))
			g.stage.pods, g.stage.optedOut = pods, nil
		},
		"an agent that ends": func(g *rig) {
			if err := g.agent.Restore(g.t.Context(), g.now); err != nil {
				g.t.Error(err)
			}
		},
		"an agent that starts": func(g *rig) { g.boot(); g.run(2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
				g := newRigOn(t, host, 1)
				g.shrunk()
				end(g)
				g.isRestored(name)
			})
		})
	}
}

func TestAPauseKeepsWhatIsInForce(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	low := g.shrunk()
	g.grant(api.Auto, func(m *api.Grant) { m.Paused = true })
	g.demand[0] = 900
	g.run(10 * time.Second)
	if l := g.limit(0); l != low {
		t.Errorf("limits moved from %v to %v in a pause", low, l)
	}
	if s := g.summary(0); s.Effect != mdp.Refused || s.Want.Clipped&mdp.ClippedPaused == 0 {
		t.Errorf("want %v clipped by %v, %v; want a report of what is held", s.Want, s.Want.Clipped, s.Effect)
	}
}

func TestForeignChangesThatAreFarApartAreNoFight(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.shrunk()
	for _, c := range g.agent.containers {
		c.backoff = 10 * time.Second
	}
	for i := range 4 {
		if err := g.host.Tree.Write(g.pathOf(0, "c0"), cgroup.Limits{Quota: int64(95000 - 1000*i), Period: 100000}); err != nil {
			t.Fatal(err)
		}
		g.grant(api.Auto)
		g.run(15 * time.Second)
	}
	if s := g.summary(0); s.Conflicts != 4 || s.Problem != "" {
		t.Errorf("conflicts %d, problem %q; want four, and nothing done about it", s.Conflicts, s.Problem)
	}
}

func TestAfterThreeForeignChangesAContainerIsLeftAlone(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 1)
		g.shrunk()
		for i := range 3 {
			l := cgroup.Limits{Quota: int64(95000 - 1000*i), Period: 100000}
			if err := g.host.Tree.Write(g.pathOf(0, "c0"), l); err != nil {
				t.Fatal(err)
			}
			g.grant(api.Auto)
			g.run(4 * time.Second)
		}
		s := g.summary(0)
		if s.Conflicts != 3 || !strings.Contains(s.Problem, "ConflictDetected") {
			t.Fatalf("conflicts %d, problem %q", s.Conflicts, s.Problem)
		}
		before := len(g.server.Calls())
		for range 8 {
			g.grant(api.Auto)
			g.run(30 * time.Second)
		}
		if n := len(g.server.Calls()); n != before {
			t.Errorf("%d calls to a container that is left alone", n-before)
		}
		for range 3 {
			g.grant(api.Auto)
			g.run(30 * time.Second)
		}
		if n := len(g.server.Calls()); n == before {
			t.Error("after five minutes it is still left alone")
		}
	})
}

func TestAChangeOfTheKubeletIsAdoptedWithoutAConflict(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.shrunk()
	raised := mdp.Size{CPU: 2000, Memory: 512 * mdp.MiB}
	g.stage.change(0, func(_ *Pod, c *Container) { c.Limits, c.ResizePending = raised, true })
	g.demand[0] = 5000
	g.grant(api.Auto)
	g.run(20 * time.Second)
	if l := g.limit(0); l.CPU > web.CPU {
		t.Fatalf("limit %v while the raise is pending: the ceiling is the old %v", l.CPU, web.CPU)
	}
	// Now the kubelet carries it out.
	if err := g.client.Update(t.Context(), "c0", cri.Change{Quota: 200000, Period: 100000, Memory: raised.Memory}); err != nil {
		t.Fatal(err)
	}
	g.stage.change(0, func(_ *Pod, c *Container) { c.ResizePending = false })
	g.run(3 * time.Second)
	s := g.summary(0)
	if s.Conflicts != 0 || s.Bounds.CPU.Max != 2000 {
		t.Errorf("conflicts %d, bounds %+v", s.Conflicts, s.Bounds)
	}
	g.demand[0] = 100
	g.grant(api.Auto)
	g.run(10 * time.Second)
	if l := g.limit(0); l.CPU >= 2000 {
		t.Fatalf("limits %v", l)
	}
	g.grant(api.Observe)
	g.run(2 * time.Second)
	g.isRestored("after an adopted change")
}

// At an uninstall the API's sizes become the template's while the agent ends: the
// kubelet may have written values that the agent does not know yet.
func TestEndingKeepsWhatTheKubeletHasJustWritten(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 1)
		g.shrunk()
		c := cri.Change{Quota: 70000, Period: 100000, Memory: 512 * mdp.MiB}
		if err := g.client.Update(t.Context(), "c0", c); err != nil {
			t.Fatal(err)
		}
		if err := g.agent.Restore(t.Context(), g.now); err != nil {
			t.Fatal(err)
		}
		if l := g.limit(0); l.CPU != 700 || l.Memory != 512*mdp.MiB {
			t.Errorf("limits %v, want the kubelet's 700m and 512Mi", l)
		}
	})
}

func TestALoweredAPILimitHoldsAtOnce(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.demand[0] = 820
	g.grant(api.Auto)
	g.run(10 * time.Second)
	g.stage.change(0, func(_ *Pod, c *Container) { c.Limits.CPU, c.ResizePending = 700, true })
	g.run(2 * time.Second)
	if l := g.limit(0); l.CPU > 700 {
		t.Errorf("limit %v, above the new 700m", l.CPU)
	}
}

func TestANewInstanceStartsFromTheAllocatedValues(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 1)
		g.shrunk()
		g.host.Remove(t, g.pathOf(0, "c0"))
		g.server.Remove("c0")
		g.grant(api.Observe)
		g.run(time.Second) // the API shows it later
		g.add(0, "d0", web)
		g.workers[0] = new(cgrouptest.Worker)
		g.stage.change(0, func(_ *Pod, c *Container) { c.ID, c.OOMKilled = "d0", g.now })
		g.run(7 * time.Second)
		g.isRestored("a new instance")
		s := g.summary(0)
		if !s.State.Knows(mdp.CPUUsage) || s.Problem != "" || s.Resizes == 0 || s.Conflicts != 0 {
			t.Errorf("summary %+v: want it observed, with the counts of its earlier instance", s)
		}
		// The count of kills went with the cgroup. The policy must know of the kill anyway.
		g.grant(api.Auto)
		g.run(50 * time.Second)
		if l := g.limit(0); l.Memory < web.Memory {
			t.Errorf("memory shrunk to %v right after an OOM kill", l.Memory)
		}
	})
}

func TestOOMKillsAreReportedFor15Seconds(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.grant(api.Observe)
	g.run(3 * time.Second)
	g.host.Put(t, g.pathOf(0, "c0"), "memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\n")
	g.run(10 * time.Second)
	if s := g.summary(0).State; s.OOMKills != 2 || !s.Knows(mdp.OOMKills) {
		t.Errorf("ten seconds later %d kills are reported, want 2", s.OOMKills)
	}
	g.run(10 * time.Second)
	if s := g.summary(0).State; s.OOMKills != 0 {
		t.Errorf("twenty seconds later %d kills are reported", s.OOMKills)
	}
}

func TestWithoutARuntimeLimitsAreWrittenDirectlyAndTheRuntimeIsUpdatedLater(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 1)
		g.shrunk()
		low := g.limit(0)
		g.server.Fail(errors.New("shim is gone"))
		g.grant(api.Observe)
		g.run(2 * time.Second)
		if l := g.limit(0); l != web {
			t.Fatalf("limits %v: without a runtime the API's values are written directly", l)
		}
		if s := g.summary(0); !strings.Contains(s.Problem, "does not know yet") || s.Conflicts != 0 {
			t.Errorf("problem %q", s.Problem)
		}
		// The agent is killed. The next one finds the right values in the cgroup, and
		// must still update the runtime, which has ours.
		g.boot()
		g.server.Fail(nil)
		g.grant(api.Observe)
		g.run(3 * time.Second)
		g.isRestored("the runtime is there again")
		if err := g.client.Update(t.Context(), "c0", cri.Change{Memory: web.Memory}); err != nil {
			t.Fatal(err)
		}
		if l := g.limit(0); l != web {
			t.Errorf("a kubelet's memory update brought %v back (ours were %v)", l, low)
		}
	})
}

// late is a runtime whose next update misses its deadline, and lands when the test
// says so.
type late struct {
	cri.Runtime
	next bool
	land func() error
}

func (l *late) Update(ctx context.Context, id string, c cri.Change) error {
	if !l.next {
		return l.Runtime.Update(ctx, id, c)
	}
	l.next = false
	l.land = func() error { return l.Runtime.Update(context.WithoutCancel(ctx), id, c) }
	return context.DeadlineExceeded
}

// A call that lands long after its deadline is ours: no conflict, and it is
// restored in the end. In between the container had the API's values.
func TestACallThatLandsLateIsOursAndIsRestored(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 1)
		slow := &late{Runtime: g.client, next: true}
		g.runtime = slow
		g.boot()
		g.grant(api.Auto)
		g.run(10 * time.Second)
		g.grant(api.Observe) // the breaker is open: written directly
		g.run(2 * time.Second)
		if slow.land == nil || g.limit(0) != web {
			t.Fatalf("limits %v: want a first call that has not landed, and the API's values", g.limit(0))
		}
		if err := slow.land(); err != nil {
			t.Fatal(err)
		}
		if g.limit(0) == web {
			t.Fatal("the call did not land")
		}
		g.run(2 * time.Second)
		if s := g.summary(0); s.Conflicts != 0 {
			t.Errorf("%d conflicts: the late call is taken for somebody else's", s.Conflicts)
		}
		g.grant(api.Observe)
		g.run(2 * time.Minute) // the breaker is open for a while
		g.isRestored("after a late call")
	})
}

// An agent that starts while the API server is away restores, and its call lands after the kubelet has resized the container
// and the CPU limit alone is ours again. The memory limit is then ours, too, and not somebody else's: it is restored in the end.
// So it is where the call is of memory alone, and another one has made it certain what is ours.
func TestACallThatLandsLateIsOursOfWhateverLimit(t *testing.T) {
	t.Run("of both", func(t *testing.T) { landsLate(t, 5, change(web)) })
	t.Run("of memory", func(t *testing.T) { landsLate(t, 70, cri.Change{Memory: web.Memory}) })
}

func landsLate(t *testing.T, seconds int, lands cri.Change) {
	t.Helper()
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 1)
		slow := &late{Runtime: g.client}
		g.runtime = slow
		wants := mdp.Action{}.WithCPU(300).WithMemory(150 * mdp.MiB)
		g.policy = func(api.ContainerRef) mdp.Policy {
			return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
		}
		g.boot()
		g.shrunk()
		pod := g.host.Parent + "/burstable/podu0"
		g.host.Add(t, pod, limitsOf(web)) // the room to restore without the API server
		g.stage.away(true)
		slow.next = true
		g.boot()
		given := mdp.Size{CPU: web.CPU, Memory: 300 * mdp.MiB}
		g.host.Add(t, pod, limitsOf(given))
		if err := g.client.Update(t.Context(), "c0", change(given)); err != nil {
			t.Fatal(err)
		}
		g.run(2 * time.Second)
		g.stage.change(0, func(_ *Pod, c *Container) { c.Limits = given })
		g.stage.away(false)
		wants = mdp.Action{}.WithCPU(300)
		g.run(time.Second)
		for range seconds {
			g.grant(api.Auto)
			g.run(time.Second)
		}
		if ours := g.agent.containers[g.ref(0)].ownership.Ours; ours.Memory != 0 || ours.Quota == 0 || slow.land == nil {
			t.Fatalf("%+v is ours, want the CPU limit alone, and a call that is late: %v", ours, slow.land != nil)
		}
		before := g.summary(0).Conflicts
		if err := g.client.Update(t.Context(), "c0", lands); err != nil { // what slow.land does, or a part of it
			t.Fatal(err)
		}
		if l := g.limit(0); l.Memory != web.Memory {
			t.Fatalf("%v landed, want %v", l, web)
		}
		g.run(2 * time.Second)
		if s := g.summary(0); s.Conflicts != before {
			t.Errorf("%d conflicts, %d before: the late call is taken for somebody else's", s.Conflicts, before)
		}
		if f := g.agent.containers[g.ref(0)].facts.Foreign; f != (mdp.Size{}) {
			t.Errorf("%v is taken for what somebody else has set", f)
		}
		g.grant(api.Observe)
		g.run(2 * time.Minute)
		g.isRestored("after a late call")
	})
}

func TestAnIllegalActionRestores(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	step := 0
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
			if step++; step > 8 {
				return mdp.Action{}.WithCPU(-1 << 62), nil // int64(NaN)
			}
			return mdp.Action{}.WithCPU(300), nil
		})
	}
	g.boot()
	g.grant(api.Auto)
	g.run(6 * time.Second)
	if l := g.limit(0); l.CPU != 300 {
		t.Fatalf("limit %v, want the policy's 300m", l.CPU)
	}
	g.run(5 * time.Second)
	g.isRestored("an illegal action")
	if s := g.summary(0); !strings.Contains(s.Problem, "no legal action") {
		t.Errorf("problem %q", s.Problem)
	}
}

// Whatever central, the API and others on the node do: the agent never writes a
// limit above what is certainly allocated, or below the floor. In the end
// everything is restored.
func TestNoLimitIsSetOutsideOfTheEnvelope(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			g := newRig(t, cgroup.Version(1+seed%2), 4)
			allocated := make(map[string]mdp.Size) // by the kubelet
			ceiling := make(map[string]mdp.Size)   // the smaller of allocated and spec
			foreign := make(map[string]bool)       // somebody wrote above it
			theirs := make(map[string]int64)       // the quota that somebody else wrote last: the runtime is told
			for _, p := range g.stage.pods {
				allocated[p.Containers[0].ID], ceiling[p.Containers[0].ID] = web, web
			}
			seen := 0
			check := func() {
				calls := g.server.Calls()
				for _, c := range calls[seen:] {
					top := ceiling[c.ID]
					q := mdp.MilliCPU(c.CpuQuota * 1000 / max(1, c.CpuPeriod))
					if c.CpuQuota != 0 && c.CpuQuota != theirs[c.ID] && (q > top.CPU || q < 10) {
						t.Fatalf("%v: %s was given %v (%v), allocated %v", g.now, c.ID, q, c, top)
					}
					if m := mdp.Bytes(c.MemoryLimitInBytes); m > top.Memory || m != 0 && m < 4*mdp.MiB {
						t.Fatalf("%v: %s was given %v, allocated %v", g.now, c.ID, m, top)
					}
				}
				seen = len(calls)
				for i, p := range g.stage.Snapshot() {
					if id := p.Containers[0].ID; !foreign[id] {
						if l := g.limit(i); l.CPU > allocated[id].CPU || l.Memory > allocated[id].Memory || l.CPU < 10 {
							t.Fatalf("%v: %s has %v, allocated %v", g.now, id, l, allocated[id])
						}
					}
				}
			}
			g.each = check
			for range 40 {
				check()
				i := rng.IntN(4)
				id := g.stage.pods[i].Containers[0].ID
				switch rng.IntN(7) {
				case 0:
					g.grant([]api.Mode{
						api.Off, api.Observe, api.Recommend, api.Canary, api.Auto, api.Auto, api.Auto,
					}[rng.IntN(7)], func(m *api.Grant) {
						m.Paused = rng.IntN(4) == 0
						m.Bounds.CPU.Min, m.Bounds.CPU.Max = mdp.MilliCPU(rng.IntN(2000)), mdp.MilliCPU(rng.IntN(4000))
					})
				case 1, 2:
					g.grant(api.Auto)
				case 3:
					g.demand[i] = mdp.MilliCPU(rng.IntN(2500))
					g.memory[i] = mdp.Bytes(8+rng.IntN(100)) * mdp.MiB
				case 4: // the spec changes
					want := mdp.Size{CPU: mdp.MilliCPU(200 + rng.IntN(1800)), Memory: mdp.Bytes(128+rng.IntN(256)) * mdp.MiB}
					g.stage.change(i, func(_ *Pod, c *Container) { c.Limits, c.ResizePending = want, true })
					old := allocated[id]
					ceiling[id] = mdp.Size{CPU: min(old.CPU, want.CPU), Memory: min(old.Memory, want.Memory)}
				case 5: // the kubelet carries it out
					want := g.stage.pods[i].Containers[0].Limits
					if err := g.client.Update(t.Context(), id, change(want)); err != nil {
						t.Fatal(err)
					}
					g.stage.change(i, func(_ *Pod, c *Container) { c.ResizePending = false })
					allocated[id] = want
					ceiling[id] = want
					foreign[id] = false
				case 6: // somebody else writes
					foreign[id], theirs[id] = true, int64(5000+rng.IntN(300000))
					if err := g.host.Tree.Write(g.pathOf(i, id), cgroup.Limits{Quota: theirs[id], Period: 100000}); err != nil {
						t.Fatal(err)
					}
				}
				check()
				g.run(time.Duration(1+rng.IntN(4)) * time.Second)
			}
			g.run(65 * time.Second) // central goes silent
			for i, p := range g.stage.Snapshot() {
				if c := p.Containers[0]; c.ResizePending { // in the journal until it is known what is allocated
					if l := g.limit(i); !foreign[c.ID] && (l.CPU > ceiling[c.ID].CPU || l.Memory > ceiling[c.ID].Memory) {
						t.Errorf("%s waits with %v, above %v", c.ID, l, ceiling[c.ID])
					}
					if err := g.client.Update(t.Context(), c.ID, change(c.Limits)); err != nil {
						t.Fatal(err)
					}
					allocated[c.ID], ceiling[c.ID] = c.Limits, c.Limits
					g.stage.change(i, func(_ *Pod, c *Container) { c.ResizePending = false })
				}
			}
			g.run(8 * time.Second) // longer than news may be late
			if e := g.agent.journal.Entries(); len(e) != 0 {
				t.Errorf("still in the journal: %+v", e)
			}
			for i, p := range g.stage.Snapshot() {
				c := p.Containers[0]
				if l := g.limit(i); !foreign[c.ID] && l != c.Limits {
					t.Errorf("%s ended with %v, the API says %v", c.ID, l, c.Limits)
				}
			}
			if n := g.server.MostAtOnce(); n > 1 {
				t.Errorf("%d calls at once", n)
			}
		})
	}
}

// change is what the kubelet sends for a size.
func change(s mdp.Size) cri.Change {
	return cri.Change{Quota: int64(s.CPU) * 100, Period: 100000, Memory: s.Memory}
}

// Nothing on this node needs a call, so none can show that the runtime is well again. A release is rolled
// out to it all the same.
func TestAnAgentWithNothingToDoIsReadyAgain(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.runtime = &late{Runtime: g.client, next: true}
	g.boot()
	ready := func(when string, want bool, open float64) {
		t.Helper()
		g.run(time.Second)
		if err := g.agent.Ready(g.now); (err == nil) != want {
			t.Errorf("%s: %v", when, err)
		}
		var is dto.Metric
		if err := g.agent.metrics.breaker.Write(&is); err != nil || is.GetGauge().GetValue() != open {
			t.Errorf("%s: aware_agent_breaker_open is %v, %v", when, &is, err)
		}
	}
	ready("quiet", true, 0)
	g.agent.runtime.Pressure(g.now, 1)
	ready("the node stalls, and the runtime is spared", true, 1)
	g.run(time.Minute)
	if err := g.agent.runtime.Update(t.Context(), g.now, cri.Move{ID: "c0", Change: change(web), Must: true}); err == nil {
		t.Fatal("the call is not late")
	}
	ready("a call was late", false, 1)
	g.run(time.Minute)
	ready("a minute later", true, 0)
}

func TestRunInRealTime(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 2)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		a := g.agent
		begin := time.Now()
		go func() { done <- a.Run(ctx) }()
		g.now = begin
		for a.Ready(time.Now()) != nil && time.Since(begin) < 5*time.Second {
			time.Sleep(20 * time.Millisecond)
		}
		if err := a.Ready(time.Now()); err != nil {
			t.Fatal(err)
		}
		g.grant(api.Auto, func(m *api.Grant) { m.Bounds.CPU.Max = 500 })
		for g.limit(0).CPU > 500 && time.Since(begin) < 10*time.Second {
			time.Sleep(50 * time.Millisecond)
		}
		if l := g.limit(0); l.CPU > 500 {
			t.Errorf("limit %v, the grant allows 500m", l.CPU)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for i := range 2 {
			if l := g.limit(i); l != web {
				t.Errorf("after SIGTERM container %d has %v", i, l)
			}
		}
		if err := a.Live(time.Now().Add(a.config.maxSilence() + time.Second)); err == nil {
			t.Error("an agent whose loop stopped is not alive")
		}
	})
}

// All of AWARE is uninstalled while the kubelet carries out central's last resize: the agent ends
// with what the API gives then, and not with what it gave before.
func TestAnAgentThatEndsWaitsForTheKubelet(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.shrunk()
	g.stage.change(0, func(_ *Pod, c *Container) { c.Limits.CPU, c.ResizePending = 900, true })
	ctx, stop := context.WithCancel(t.Context())
	stop() // it takes one step
	done := make(chan error, 1)
	go func() { done <- g.agent.Run(ctx) }()
	for g.limit(0).CPU != 900 { // the smaller one of what was given and what will be
		select {
		case err := <-done:
			t.Fatalf("it ended with %v in force: %v", g.limit(0), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	g.stage.change(0, func(_ *Pod, c *Container) { c.Limits.CPU, c.ResizePending = 950, false })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if l := g.limit(0); l.CPU != 950 || l.Memory != web.Memory {
		t.Errorf("it left %v in force, want 950m and %v", l, web.Memory)
	}
	if e := g.agent.journal.Entries()["c0"]; e.Ours != (cgroup.Limits{}) {
		t.Errorf("the journal has %+v", e)
	}
}

// The same, where the kubelet is done just after the first of the agent's last restores.
func TestTheLastRestoreIsOfWhatTheAPIGivesInTheEnd(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	resized := func(to mdp.MilliCPU, pending bool) {
		g.stage.change(0, func(_ *Pod, c *Container) { c.Limits.CPU, c.ResizePending = to, pending })
	}
	m := &meanwhile{Runtime: g.client, after: func() { resized(950, false) }}
	m.when = func(c cri.Change) bool { return c.Quota == cgroup.Quota(900, 100000) }
	g.runtime = m
	g.boot()
	g.shrunk()
	resized(900, true)
	if err := g.agent.restoreAll(t.Context()); err != nil || !m.done {
		t.Errorf("restored to 900m first: %v, %v", m.done, err)
	}
	if l := g.limit(0); l.CPU != 950 || l.Memory != web.Memory {
		t.Errorf("it left %v in force, want 950m and %v", l, web.Memory)
	}
}

// The runtime may be slow, and then its deadline is set to more: a step that waits for it is no
// reason to end the agent, which would restore everything by the same runtime.
func TestAStepThatWaitsForASlowRuntimeIsAlive(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.run(2 * time.Second)
	for deadline, want := range map[time.Duration]time.Duration{time.Second: 5 * time.Second, 16 * time.Second: 35 * time.Second} {
		g.agent.config.Runtime.Deadline = deadline
		if err := g.agent.Live(g.now.Add(want)); err != nil {
			t.Errorf("a deadline of %v: %v", deadline, err)
		}
		if err := g.agent.Live(g.now.Add(want + time.Second)); err == nil {
			t.Errorf("a deadline of %v: alive after %v without a step", deadline, want+time.Second)
		}
	}
}

func TestAContainerThatCannotBeAttachedSaysWhy(t *testing.T) {
	g := newRig(t, cgroup.V1, 3)
	g.server.Remove("c0")
	g.server.Add("c1", "/kubepods/elsewhere", cgroup.Limits{})
	g.stage.change(2, func(_ *Pod, c *Container) { c.Running = false })
	g.run(time.Second)
	for i, want := range []string{"no such container", "cgroup is gone", "not running"} {
		if s := g.summary(i); !strings.Contains(s.Problem, want) {
			t.Errorf("container %d: problem %q, want %q", i, s.Problem, want)
		}
	}
	g.add(0, "c0", web) // it was only late
	g.run(6 * time.Second)
	if s := g.summary(0); !s.State.Knows(mdp.CPULimit) {
		t.Errorf("a late container is not attached: %+v", s)
	}
}

func TestValidateNamesEveryBadField(t *testing.T) {
	c := Default()
	c.SampleEvery, c.Captain.Target = 2*time.Second, 7
	err := c.Validate()
	for _, want := range []string{`node name ""`, "sample every 2s", "captain target 7"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q in it", err, want)
		}
	}
	if _, err := New(config(), Deps{}); err == nil {
		t.Error("an agent was made without dependencies")
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

// Without an entry on disk nothing is touched.
func TestAJournalThatCannotBeWrittenKeepsEverythingAsItIs(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.agent.journal.Close()
	if err := os.RemoveAll(g.dir); err != nil {
		t.Fatal(err)
	}
	g.grant(api.Auto)
	g.run(10 * time.Second)
	if l := g.limit(0); l != web || len(g.server.Calls()) != 0 {
		t.Errorf("limits %v after %d calls, want none", l, len(g.server.Calls()))
	}
	if s := g.summary(0); s.Effect != mdp.Failed || !strings.Contains(s.Problem, "writing journal") {
		t.Errorf("effect %v, problem %q: want it to say that the journal failed", s.Effect, s.Problem)
	}
	g.grant(api.Observe)
	g.run(2 * time.Second)
	if s := g.summary(0); s.Conflicts != 0 || len(g.server.Calls()) != 0 {
		t.Errorf("summary %+v after %d calls: nothing was ours", s, len(g.server.Calls()))
	}
}

// The agent writes over what it has published before. What a report has is not that.
func TestAReportStaysAsItIs(t *testing.T) {
	g := newRig(t, cgroup.V2, 3)
	g.grant(api.Auto)
	g.run(3 * time.Second)
	r := g.agent.Report(g.now)
	was := slices.Clone(r.Containers)
	for i := range g.demand {
		g.demand[i] = 300
	}
	g.run(5 * time.Second)
	if !reflect.DeepEqual(r.Containers, was) {
		t.Errorf("five seconds later the report says\n%+v, and it said\n%+v", r.Containers, was)
	}
	if reflect.DeepEqual(g.agent.Report(g.now).Containers, was) {
		t.Error("a new report says the same: this proves nothing")
	}
}
