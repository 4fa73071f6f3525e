package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	"golang.org/x/sys/unix"
)

// meanwhile is a runtime in which something happens during its next call.
type meanwhile struct {
	cri.Runtime
	when   func(cri.Change) bool // it is this call; nil is the next one
	before func() error          // what happens, and why the call is not carried out; nil is nothing
	after  func()                // it was carried out, and the caller has not heard of it; nil is nothing
	done   bool
}

func (m *meanwhile) Update(ctx context.Context, id string, c cri.Change) error {
	if m.done || m.when != nil && !m.when(c) {
		return m.Runtime.Update(ctx, id, c)
	}
	m.done = true
	if m.before != nil {
		if err := m.before(); err != nil {
			return err
		}
	}
	err := m.Runtime.Update(ctx, id, c)
	if m.after != nil {
		m.after()
	}
	return err
}

// A container ends while the runtime changes its limits: it is restarted, or its pod is
// deleted. What was meant for the old one is not for the new one.
func TestAContainerThatEndsDuringAnUpdateLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct{ landed, deleted bool }{
		"restarted, before the call lands":        {false, false},
		"restarted, after it":                     {true, false},
		"its pod is deleted, before it lands":     {false, true},
		"its pod is deleted, after it has landed": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
				g := newRigOn(t, host, 2)
				end := func() {
					g.host.Remove(t, g.pathOf(0, "c0"))
					g.server.Remove("c0")
				}
				m := &meanwhile{Runtime: g.client}
				if c.landed {
					m.after = end
				} else {
					m.before = func() error { end(); return nil }
				}
				m.when = func(cri.Change) bool { return g.agent.journal.Entries()["c0"].ID != "" }
				g.runtime = m
				g.boot()
				g.grant(api.Auto)
				for range 20 {
					if g.run(time.Second); m.done {
						break
					}
				}
				if !m.done {
					t.Fatal("no call was made for the container")
				}
				g.run(2 * time.Second) // the API server knows it later
				if c.deleted {
					g.stage.mu.Lock()
					g.stage.pods = g.stage.pods[1:]
					g.stage.mu.Unlock()
					g.demand, g.memory, g.workers = g.demand[1:], g.memory[1:], g.workers[1:]
				} else {
					g.add(0, "d0", web)
					g.workers[0] = new(cgrouptest.Worker)
					g.stage.change(0, func(_ *Pod, c *Container) { c.ID = "d0" })
					g.grant(api.Observe)
				}
				g.run(4 * time.Second)
				if _, ok := g.agent.journal.Get("c0"); ok {
					t.Errorf("the one that ended is in the journal: %+v", g.agent.journal.Entries())
				}
				if n := g.agent.sampler.Len(); n != len(g.stage.Snapshot()) {
					t.Errorf("%d containers are sampled, and there are %d", n, len(g.stage.Snapshot()))
				}
				if c.deleted {
					return
				}
				g.isRestored("a new instance")
				g.grant(api.Auto)
				g.run(10 * time.Second)
				if l := g.limit(0); l.CPU >= web.CPU {
					t.Errorf("the new instance is not moved: %v, %+v", l, g.summary(0))
				}
				g.grant(api.Observe)
				g.run(2 * time.Second)
				g.isRestored("in the end")
			})
		})
	}
}

// A container takes memory while its limit comes down to what it had before. On cgroup v1
// the kernel refuses the limit, and on v2 it kills. Either way the container gets what the API
// says, and is not pressed again at once.
func TestMemoryThatIsTakenWhileTheLimitComesDown(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		g := newRigOn(t, host, 1)
		path := g.pathOf(0, "c0")
		m := &meanwhile{Runtime: g.client}
		m.when = func(c cri.Change) bool { return c.Memory > 0 && c.Memory < web.Memory }
		m.before = func() error {
			g.memory[0] = 200 * mdp.MiB
			switch {
			case host.IsReal():
				for range 11 {
					host.Start(t, path, cgrouptest.Hold)
				}
			case host.Tree.Version() == cgroup.V1:
				g.workers[0].Memory = g.memory[0]
				g.workers[0].Work(t, host, path)
				return fmt.Errorf("runc update: %w", unix.EBUSY)
			}
			return nil
		}
		m.after = func() {
			if !host.IsReal() { // v2: the kernel kills one of its processes
				g.memory[0] = 100 * mdp.MiB
				host.Put(t, path, "memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n")
			}
		}
		g.runtime = m
		g.boot()
		g.grant(api.Auto)
		for range 20 {
			if g.run(time.Second); m.done {
				break
			}
		}
		if !m.done {
			t.Fatal("memory never came down")
		}
		low := g.limit(0).Memory
		t.Logf("the limit was to come down to what was taken meanwhile, and is %v", low)
		for range 30 {
			g.grant(api.Auto)
			g.run(time.Second)
			now := g.limit(0)
			if now.Memory > web.Memory || now.CPU > web.CPU {
				t.Fatalf("%v is in force", now)
			}
			if now.Memory < low {
				t.Fatalf("the limit came down to %v, and was %v when it hurt", now.Memory, low)
			}
			low = now.Memory
		}
		g.grant(api.Observe)
		g.run(2 * time.Minute) // the breaker may be open
		g.isRestored("after the race")
	})
}

// shrinksFrom500 runs until a call of that runtime shrinks the first container from 500m, with 50m in use.
func (g *rig) shrinksFrom500(m *meanwhile) {
	g.t.Helper()
	m.when = func(c cri.Change) bool { return c.Quota > 0 && c.Quota*1000 < 500*c.Period }
	g.runtime = m
	wants := mdp.Action{}.WithCPU(500)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
	}
	g.boot()
	g.demand[0] = 50
	g.grant(api.Auto)
	g.run(10 * time.Second)
	wants = wants.WithCPU(300).WithMemory(200 * mdp.MiB) // with memory it is a call of the runtime
	for range 20 {
		if g.run(time.Second); m.done {
			return
		}
	}
	g.t.Fatalf("no call shrinks it: %+v", g.summary(0))
}

// A shrink hangs: what was in force before is in force. A burst is relieved from there in the
// sample that shows it, and not by a step that the runtime holds up.
func TestABurstWhileAShrinkHangsIsRelievedAtOnce(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			m := &meanwhile{Runtime: g.client}
			m.before = func() error { return context.DeadlineExceeded }
			g.shrinksFrom500(m)
			low := g.limit(0).CPU
			if low != 500 {
				t.Fatalf("a shrink hangs, and %v is in force: %+v", low, g.summary(0))
			}
			g.demand[0] = 3000
			g.run(300 * time.Millisecond)
			if l := g.limit(0).CPU; l != web.CPU {
				t.Errorf("0.3 s into a burst %v is in force, as before (%v)", l, low)
			}
			g.run(3 * time.Second)
			g.grant(api.Observe)
			g.run(2 * time.Minute) // the breaker is open
			g.isRestored("after the burst")
		})
	}
}

// A shrink has set its limit, and does not return: a burst is relieved from what it has set.
func TestABurstAfterACallHasSetItsLimitIsRelievedBeforeItReturns(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			var set, relieved mdp.MilliCPU
			m := &meanwhile{Runtime: g.client}
			m.after = func() {
				set = g.limit(0).CPU
				g.demand[0] = 3000
				for range 3 {
					g.tick()
				}
				relieved = g.limit(0).CPU
			}
			g.shrinksFrom500(m)
			if set >= 500 || relieved != web.CPU {
				t.Errorf("a call set %v, and 0.3 s into a burst %v is in force, want %v", set, relieved, web.CPU)
			}
			g.run(time.Second)
			if l := g.limit(0).CPU; l != web.CPU {
				t.Errorf("the call has returned, and %v is in force", l)
			}
		})
	}
}

// The agent is killed and started fifty times, at any moment. Each time everything is as the API
// says at once, and it goes on.
func TestFiftyRestarts(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		rng := rand.New(rand.NewPCG(50, 1))
		g := newRigOn(t, host, 2)
		moved := 0
		for i := range 50 {
			g.grant(api.Auto)
			g.demand[0] = mdp.MilliCPU(rng.IntN(1500))
			g.run(time.Duration(10+rng.IntN(60)) * 100 * time.Millisecond)
			for one := range 2 {
				l := g.limit(one)
				if l.CPU > web.CPU || l.Memory > web.Memory {
					t.Fatalf("restart %d: %v is in force", i, l)
				}
				if l != web {
					moved++
				}
			}
			g.boot()
			if damage := g.agent.journal.Damage(); damage != "" {
				t.Fatalf("restart %d: %s", i, damage)
			}
			for one := range 2 {
				if l := g.limit(one); l != web {
					t.Fatalf("restart %d left %v in force", i, l)
				}
			}
		}
		if moved < 25 {
			t.Errorf("in 50 restarts there were %d limits to restore: too little was tested", moved)
		}
		g.run(lateGrace + 2*time.Second)
		g.isRestored("after fifty restarts")
		if n := g.summary(0).Conflicts; n != 0 {
			t.Errorf("%d conflicts with itself", n)
		}
	})
}

// The kubelet resizes a container again and again while it is throttled, and the lane raises it. The
// kubelet always wins: nothing is above its newest value, not for a tenth of a second.
func TestResizesWhileTheLaneRaises(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%v, seed %d", version, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 3))
				host := cgrouptest.Fixture(t, version)
				g := newRigOn(t, host, 1)
				pod := filepath.Dir(g.pathOf(0, "c0"))
				host.Add(t, pod, limitsOf(web))
				given := web
				g.each = func() {
					if l := g.limit(0); l.CPU > given.CPU || l.Memory > given.Memory {
						t.Fatalf("%v is in force, and the kubelet gives %v", l, given)
					}
				}
				reliefs := 0
				for range 70 {
					g.grant(api.Auto)
					g.demand[0] = 50
					g.run(time.Duration(10+rng.IntN(40)) * 100 * time.Millisecond)
					before := g.limit(0)
					g.demand[0] = 3000
					g.run(time.Duration(1+rng.IntN(5)) * 100 * time.Millisecond)
					if g.limit(0).CPU > before.CPU {
						reliefs++
					}
					to := mdp.Size{CPU: mdp.MilliCPU(300 + 10*rng.IntN(170)), Memory: given.Memory}
					host.Add(t, pod, limitsOf(mdp.Size{CPU: max(given.CPU, to.CPU), Memory: to.Memory}))
					if err := g.client.Update(t.Context(), "c0", change(to)); err != nil {
						t.Fatal(err)
					}
					host.Add(t, pod, limitsOf(to))
					given = to
					switch rng.IntN(3) { // the news come at once, in two parts, or late
					case 0:
						g.stage.change(0, func(_ *Pod, c *Container) { c.Limits = to })
					case 1:
						g.stage.change(0, func(_ *Pod, c *Container) { c.Limits, c.ResizePending = to, true })
						g.run(time.Duration(rng.IntN(20)) * 100 * time.Millisecond)
						g.stage.change(0, func(_ *Pod, c *Container) { c.ResizePending = false })
					default:
						g.run(time.Duration(rng.IntN(20)) * 100 * time.Millisecond)
						g.stage.change(0, func(_ *Pod, c *Container) { c.Limits = to })
					}
				}
				t.Logf("the lane raised %d times", reliefs)
				if reliefs < 20 {
					t.Errorf("the lane raised %d times: too little was tested", reliefs)
				}
				g.each = nil
				g.grant(api.Observe)
				g.run(10 * time.Second)
				g.isRestored("after the resizes")
				if s := g.summary(0); strings.Contains(s.Problem, "ConflictDetected") {
					t.Errorf("the kubelet is taken for a conflict: %s", s.Problem)
				}
			})
		}
	}
}

// A container ends while the disk is full: its entry is deleted when there is space again, and not only by the next agent.
func TestTheEntryOfAContainerThatEndedOnAFullDiskIsDeletedLater(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		d := disktest.New(t, 8)
		g := newStage(t, host, d.Dir)
		g.add(0, "c0", web)
		g.enter(0)
		g.boot()
		g.shrunk()
		d.Fill(0)
		var full error
		for i := 0; full == nil; i++ {
			full = g.agent.journal.Put(restore.Entry{ID: fmt.Sprint("other", i)})
		}
		g.host.Remove(t, g.pathOf(0, "c0"))
		g.server.Remove("c0")
		if !host.IsReal() { // whose kernel says that the group of an open file is gone
			g.stage.pods = nil
		}
		g.run(5 * time.Second)
		if _, ok := g.agent.journal.Get("c0"); !ok {
			t.Fatalf("its entry was deleted on a full disk (%v)", full)
		}
		d.Free()
		g.run(3 * time.Second)
		if e, ok := g.agent.journal.Get("c0"); ok || len(g.agent.orphans) > 0 {
			t.Errorf("still in the journal: %+v; orphans %v", e, g.agent.orphans)
		}
	})
}
