package agent

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/restore"
)

// told fails unless the runtime knows what is in force: its update of memory brings back what
// it knows of the CPU limit.
func (g *rig) told() {
	g.t.Helper()
	before := g.limit(0)
	if err := g.client.Update(g.t.Context(), "c0", cri.Change{Memory: before.Memory}); err != nil {
		g.t.Fatal(err)
	}
	if l := g.limit(0); l != before {
		g.t.Errorf("in force was %v, and the runtime knows %v", before, l)
	}
}

// A limit comes down in many steps. A call for each would take the node's five a second from
// everybody else.
func TestALimitThatSettlesCostsFewCalls(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			g.wants(100)
			g.grant(api.Auto)
			steps := 0
			before := g.limit(0).CPU
			g.each = func() {
				if l := g.limit(0).CPU; l != before {
					before = l
					steps++
				}
			}
			g.demand[0] = 50
			g.run(20 * time.Second)
			g.burst()
			g.demand[0] = 97 // too much for the lane to take relief back
			g.run(20 * time.Second)
			g.demand[0] = 50
			g.run(5 * time.Second)
			if calls := len(g.server.Calls()); calls > 5 || steps < 8 {
				t.Errorf("%d calls of the runtime for %d changes", calls, steps)
			}
			if l := g.limit(0).CPU; l != 100 {
				t.Errorf("the limit is %v, want 100m", l)
			}
			g.told()
		})
	}
}

// A limit that never rests is told, too.
func TestALimitThatKeepsMovingIsToldInTime(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	wants := mdp.MilliCPU(200)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
			wants += 10
			return mdp.Action{}.WithCPU(wants), nil
		})
	}
	g.boot()
	g.demand[0] = 50
	last, calls := g.now, 0
	g.each = func() {
		g.grant(api.Auto)
		if n := len(g.server.Calls()); n != calls {
			calls, last = n, g.now
		}
		if since := g.now.Sub(last); since > commitWithin+2*time.Second {
			t.Fatalf("the runtime was told nothing for %v", since)
		}
	}
	g.run(time.Minute)
	if calls > 15 {
		t.Errorf("%d calls in a minute, of a limit that moves each second", calls)
	}
}

// atRest is a rig whose one container has had the CPU limit that is wanted for so long that the runtime knows it.
func atRest(t *testing.T, wants *mdp.MilliCPU) *rig {
	t.Helper()
	g := newRig(t, cgroup.V2, 1)
	g.follows(wants)
	g.demand[0] = 50
	g.grant(api.Auto)
	g.run(restsAfter + 2*time.Second)
	g.told()
	return g
}

// What the runtime cannot be told is not lowered further: it would be further and further from
// what the runtime brings back. A raise is never late, and the lane keeps it.
func TestALimitThatTheRuntimeIsNotToldIsRaisedAndNotLowered(t *testing.T) {
	wants := mdp.MilliCPU(900)
	g := atRest(t, &wants)
	g.server.Stop()
	wants = 700
	g.run(commitWithin + 3*time.Second)
	if l := g.limit(0).CPU; l != 700 {
		t.Fatalf("the limit is %v, want 700m: the first change is not late", l)
	}
	wants = 500
	g.run(5 * time.Second)
	if l := g.limit(0).CPU; l != 700 {
		t.Errorf("lowered to %v, and the runtime does not know of the 700m", l)
	}
	wants = 800
	g.run(2 * time.Second)
	if l := g.limit(0).CPU; l != 800 {
		t.Errorf("the limit is %v: a raise does not wait", l)
	}
	if l := g.burst(); l != web.CPU {
		t.Errorf("relieved to %v", l)
	}
	g.demand[0] = 50
	for range 5 {
		if g.tick(); g.limit(0).CPU != web.CPU {
			t.Fatalf("the runtime does not know of 800m, and relief is taken back to %v", g.limit(0))
		}
	}
}

// Somebody's update brings back what the runtime knows, and the runtime is spared: the limit cannot go down to what is
// decided. What is reported is the limit in force, with the reason.
func TestALimitThatIsBroughtBackIsReported(t *testing.T) {
	wants := mdp.MilliCPU(900)
	g := atRest(t, &wants)
	g.agent.runtime.Pressure(g.now, 1) // the breaker opens
	wants = 500
	g.run(commitWithin + 3*time.Second)
	if s := g.summary(0); s.State.Limit.CPU != 500 || s.Problem != "" {
		t.Fatalf("%v is reported (%s), want 500m: the first change is not late", s.State.Limit, s.Problem)
	}
	if err := g.client.Update(t.Context(), "c0", cri.Change{Memory: web.Memory}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		g.run(time.Second)
		s, l := g.summary(0), g.limit(0)
		if l.CPU != 900 || s.State.Limit.CPU != 900 || !strings.Contains(s.Problem, "breaker is open: refused: the node stalls") {
			t.Errorf("%v is reported (%q), and %v in force, want 900m", s.State.Limit, s.Problem, l)
		}
	}
	for range 70 { // until the breaker is closed
		g.grant(api.Auto)
		g.run(time.Second)
	}
	if s, l := g.summary(0), g.limit(0); l.CPU != 500 || s.State.Limit.CPU != 500 || s.Problem != "" {
		t.Errorf("in the end %v is reported (%q), and %v in force, want 500m", s.State.Limit, s.Problem, l)
	}
}

// Relief that ends goes back to what the runtime knows, although that cannot be told anything: otherwise a node that
// stalls now and then would keep its limits at the ceilings for a minute each time.
func TestReliefEndsAlsoWhereTheRuntimeCannotBeTold(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			g.wants(300)
			g.demand[0] = 50
			g.grant(api.Auto)
			g.run(5 * time.Second)
			g.told()
			calls := len(g.server.Calls())
			g.agent.runtime.Pressure(g.now, 1) // the breaker opens
			g.demand[0] = 900
			g.run(commitWithin + 5*time.Second)
			if l := g.limit(0).CPU; l != web.CPU {
				t.Fatalf("in a burst of 900m the limit is %v", l)
			}
			g.demand[0] = 50
			g.run(20 * time.Second)
			if l := g.limit(0).CPU; l != 300 {
				t.Errorf("20 s after the burst the limit is %v, and the runtime knows 300m", l)
			}
			if n := len(g.server.Calls()); n != calls {
				t.Errorf("%d calls of a runtime that is to be left alone", n-calls)
			}
			g.told()
		})
	}
}

// A memory limit that goes down needs a call of the runtime. A CPU limit does not wait with it while there is none.
func TestACPULimitDoesNotWaitForTheCallThatMemoryNeeds(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			cpu, memory := mdp.MilliCPU(900), web.Memory
			g.policy = func(api.ContainerRef) mdp.Policy {
				return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
					return mdp.Action{}.WithCPU(cpu).WithMemory(memory), nil
				})
			}
			g.boot()
			g.demand[0] = 50
			g.grant(api.Auto)
			g.run(3 * time.Second)
			g.agent.runtime.Pressure(g.now, 1) // the breaker opens
			cpu, memory = 700, web.Memory/2
			g.run(time.Second) // in later steps the guards hold memory back, and not CPU
			if l := g.limit(0); l.CPU != 700 || l.Memory != web.Memory {
				t.Errorf("the limits are %v, want 700m, and memory as it was", l)
			}
			cpu = 500
			g.run(2 * time.Second)
			if l := g.limit(0); l.CPU != 500 || l.Memory != web.Memory {
				t.Errorf("the limits are %v, want 500m, and memory as it was", l)
			}
			for range 70 {
				g.grant(api.Auto)
				g.run(time.Second)
			}
			if l := g.limit(0); l.CPU != 500 || l.Memory != web.Memory/2 {
				t.Errorf("with a runtime again the limits are %v", l)
			}
			g.told()
		})
	}
}

func TestWhenTheRuntimeIsTold(t *testing.T) {
	const bound = commitWithin + oneStep
	for name, c := range map[string]struct {
		moved, behind time.Duration // ago
		due, late     bool
	}{
		"it has just moved":           {restsAfter - 1, restsAfter - 1, false, false},
		"it rests":                    {restsAfter, restsAfter, true, false},
		"it moves all the time":       {1, commitWithin - 1, false, false},
		"it has moved for long":       {1, commitWithin, true, false},
		"it was told nothing in time": {1, bound, true, false},
		"and still nothing":           {1, bound + 1, true, true},
	} {
		one := managedContainer{task: acting, movedAt: noon.Add(-c.moved)}
		one.behindAt = noon.Add(-c.behind)
		one.ownership = restore.Ownership{State: restore.Ours, Behind: true}
		if due, late := one.due(noon), one.late(noon); due != c.due || late != c.late {
			t.Errorf("%s: due %v, late %v", name, due, late)
		}
		if one.task = pausing; one.due(noon) {
			t.Errorf("%s: told, and the owner holds it", name)
		}
		one.task, one.ownership.Behind = acting, false
		if one.due(noon) || one.late(noon) {
			t.Errorf("%s: told, and it knows", name)
		}
	}
}

// How far the runtime is behind is a ratio, of either limit: no limit at all is furthest.
func TestHowFarTheRuntimeIsBehind(t *testing.T) {
	far := func(ours, knows mdp.Size) float64 {
		var c managedContainer
		c.ownership = restore.Ownership{Ours: limitsOf(ours), Before: limitsOf(knows)}
		return c.far()
	}
	near := far(mdp.Size{CPU: 400, Memory: 100 * mib}, mdp.Size{CPU: 300, Memory: 100 * mib})
	up := far(mdp.Size{CPU: 400, Memory: 100 * mib}, mdp.Size{CPU: 200, Memory: 100 * mib})
	down := far(mdp.Size{CPU: 200, Memory: 100 * mib}, mdp.Size{CPU: 400, Memory: 100 * mib})
	memory := far(mdp.Size{CPU: 400, Memory: 100 * mib}, mdp.Size{CPU: 300, Memory: 300 * mib})
	none := far(mdp.Size{CPU: 400}, mdp.Size{})
	if !(near > 0 && near < up && up == down && up < memory && memory < none) {
		t.Errorf("%v, %v up and %v down, %v of memory, %v of nothing", near, up, down, memory, none)
	}
	if f := far(mdp.Size{}, mdp.Size{CPU: 100, Memory: mib}); f != 0 {
		t.Errorf("nothing is ours, and the runtime is behind by %v", f)
	}
}

// What is late does not wait for larger differences: what has waited longest is told first.
func TestWhatIsLateIsToldBeforeWhatIsFar(t *testing.T) {
	behind := func(ago time.Duration, ours mdp.MilliCPU) *managedContainer {
		var c managedContainer
		c.behindAt = noon.Add(-ago)
		c.ownership = restore.Ownership{State: restore.Ours, Behind: true}
		c.ownership.Ours, c.ownership.Before = limitsOf(mdp.Size{CPU: ours}), limitsOf(mdp.Size{CPU: 100})
		return &c
	}
	want := []*managedContainer{
		behind(time.Hour, 110), behind(time.Minute, 900), behind(5*time.Second, 900), behind(5*time.Second, 200),
	}
	for i, x := range want {
		for j, y := range want {
			if got := first(noon, x, y); got != cmp.Compare(i, j) {
				t.Errorf("of %d and %d: %d", i, j, got)
			}
		}
	}
}

// What the runtime does not know goes with a call, but no more than the API allows by now.
func TestACallHasNoMoreThanTheCeiling(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.shrunk()
	c := g.agent.containers[g.ref(0)]
	c.ownership.Ours, c.ownership.Behind = limitsOf(mdp.Size{CPU: 900, Memory: 200 * mib}), true
	for _, top := range []mdp.Size{{CPU: 400, Memory: 150 * mib}, {CPU: 1000, Memory: 250 * mib}} {
		c.envelope.Bounds.CPU.Max, c.envelope.Bounds.Memory.Max = top.CPU, top.Memory
		want := mdp.Size{CPU: min(900, top.CPU), Memory: min(200*mib, top.Memory)}
		to := c.stretched(want.CPU)
		to.Memory = want.Memory
		if m := c.whole(move{}).call; m.To != want || changed(m.Change) != to || !m.Commit {
			t.Errorf("below %v: %+v, want %v", top, m, want)
		}
	}
}

// calledFor notes for which containers the runtime is called.
type calledFor struct {
	cri.Runtime
	ids *[]string
}

func (c calledFor) Update(ctx context.Context, id string, change cri.Change) error {
	*c.ids = append(*c.ids, id)
	return c.Runtime.Update(ctx, id, change)
}

// When the calls do not reach for all, what is furthest from what the runtime knows is told first.
func TestWhatIsFurthestFromTheRuntimeIsToldFirst(t *testing.T) {
	g := newRig(t, cgroup.V1, 5)
	var ids []string
	g.runtime = calledFor{g.client, &ids}
	wants := map[string]mdp.MilliCPU{"web-0": 700, "web-1": 500, "web-2": 950, "web-3": 600, "web-4": 800}
	g.policy = func(ref api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}.WithCPU(wants[ref.Pod]), nil })
	}
	g.boot()
	for i := range g.demand {
		g.demand[i] = 50
	}
	g.grant(api.Auto)
	for len(g.agent.containers) == 0 || !g.agent.containers[g.ref(4)].ownership.Behind {
		g.run(time.Second)
	}
	if len(ids) > 0 {
		t.Fatalf("the runtime was told of %v as soon as it was written", ids)
	}
	g.agent.containers[g.ref(4)].behindAt = g.now.Add(-time.Minute) // it is late, and is told before what is further
	g.run(5 * time.Second)
	want := []string{"c4", "c1", "c3", "c0", "c2"}
	if !slices.Equal(ids, want) {
		t.Errorf("the runtime was told of %v, want %v", ids, want)
	}
}

// slow is a runtime of which each call takes a time that passes on the agent's clock only.
type slow struct {
	cri.Runtime
	takes time.Duration
	spent *time.Duration
}

func (s slow) Update(ctx context.Context, id string, change cri.Change) error {
	*s.spent += s.takes
	return s.Runtime.Update(ctx, id, change)
}

// Slow calls do not hold a step up: it begins them in a tenth of the time between two steps, and the next ones make the
// others.
func TestSlowCallsDoNotHoldAStepUp(t *testing.T) {
	g := newRig(t, cgroup.V1, 12)
	var spent time.Duration
	g.runtime = slow{g.client, 200 * time.Millisecond, &spent}
	g.wants(500)
	g.agent.clock = func() time.Time { return noon.Add(spent) }
	for i := range g.demand {
		g.demand[i] = 50
	}
	g.grant(api.Auto)
	longest, steps, before := time.Duration(0), 0, time.Duration(0)
	for ; steps < 40 && len(g.server.Calls()) < 12; steps++ {
		g.run(time.Second)
		longest, before = max(longest, spent-before), spent
	}
	if longest != 200*time.Millisecond {
		t.Errorf("a step has waited for its calls for %v, want 200ms: one", longest)
	}
	if steps > 18 {
		t.Errorf("it took %d steps to make 12 calls", steps)
	}
	g.told()
}

// The sampler may raise a limit after the step has looked, and before it writes. What relieves
// stays.
func TestADirectShrinkDoesNotTakeBackAReliefThatTheStepHasNotSeen(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			wants, bursts := mdp.MilliCPU(300), false
			g.policy = func(api.ContainerRef) mdp.Policy {
				return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
					if bursts { // while the policy thinks
						bursts = false
						g.burst()
					}
					return mdp.Action{}.WithCPU(wants), nil
				})
			}
			g.boot()
			g.demand[0] = 50
			g.grant(api.Auto)
			g.run(10 * time.Second)
			if l := g.limit(0).CPU; l != 300 {
				t.Fatalf("the limit is %v, want 300m", l)
			}
			wants, bursts = 200, true
			g.now = g.now.Add(time.Second)
			g.agent.Step(t.Context(), g.now)
			if l, ours := g.limit(0).CPU, g.agent.containers[g.ref(0)].ownership.Ours.CPU(); l != web.CPU || ours != l {
				t.Errorf("relief was taken back: the limit is %v, and %v is known", l, ours)
			}
			g.demand[0] = 50
			g.run(30 * time.Second)
			if l, s := g.limit(0).CPU, g.summary(0); l != 200 || s.Conflicts != 0 {
				t.Errorf("the limit is %v later: %+v", l, s)
			}
			g.told()
		})
	}
}

// Between the step's write and its end the lane is open already.
func TestABurstRightAfterADirectShrinkIsRelieved(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.shrunk()
	track := g.agent.containers[g.ref(0)].track
	if relieved, err := g.agent.sampler.Set(track, limitsOf(mdp.Size{CPU: 60})); err != nil || relieved {
		t.Fatal(relieved, err)
	}
	if l := g.burst(); l != web.CPU {
		t.Errorf("relieved to %v", l)
	}
}

// What was written directly is told, whatever it is, and nothing else goes with a call.
func TestACallHasWhatTheRuntimeDoesNotKnowAndNothingElse(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	wants := mdp.Action{}.WithCPU(300).WithMemory(128 * mdp.MiB)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
	}
	g.boot()
	g.demand[0] = 50
	g.grant(api.Auto)
	g.run(20 * time.Second)
	g.told()
	wants = wants.WithMemory(160 * mdp.MiB)
	g.run(2 * time.Second)
	calls := g.server.Calls()
	if last := calls[len(calls)-1]; last.CpuQuota != 0 || last.MemoryLimitInBytes != int64(160*mdp.MiB) {
		t.Errorf("a raise of memory was sent as %v, and the runtime knows the CPU limit", last)
	}
	g.agent.runtime.Pressure(g.now, 1) // the breaker opens: memory is raised directly
	wants = wants.WithMemory(200 * mdp.MiB)
	g.run(3 * time.Second)
	if l := g.limit(0).Memory; l != 200*mdp.MiB || len(g.server.Calls()) != len(calls) {
		t.Fatalf("the memory limit is %v after %d calls more", l, len(g.server.Calls())-len(calls))
	}
	for range 70 { // until the breaker is closed
		g.grant(api.Auto)
		g.run(time.Second)
	}
	g.told()
	if err := g.client.Update(t.Context(), "c0", cri.Change{Quota: 30000, Period: 100000}); err != nil {
		t.Fatal(err)
	}
	if l := g.limit(0); l.Memory != 200*mdp.MiB {
		t.Errorf("the runtime brought %v back", l)
	}
}

// A lower ceiling is kept at once, also when the runtime is late. While the owner holds the
// limits nobody is called.
func TestWhatMustComeDownComesDown(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.wants(900)
	g.demand[0] = 50
	g.grant(api.Auto)
	g.agent.runtime.Pressure(g.now, 1)
	g.run(commitWithin + 5*time.Second)
	if l := g.limit(0).CPU; l != 900 {
		t.Fatalf("the limit is %v", l)
	}
	g.grant(api.Auto, atMost(400))
	g.run(2 * time.Second)
	if l := g.limit(0).CPU; l != 400 {
		t.Errorf("the limit is %v, and 400m is granted", l)
	}
	for range 60 {
		g.grant(api.Auto, func(m *api.Grant) { m.Paused = true })
		g.run(2 * time.Second)
	}
	if n := len(g.server.Calls()); n != 0 || g.limit(0).CPU != 400 {
		t.Errorf("paused: %d calls, and the limit is %v", n, g.limit(0))
	}
	g.grant(api.Auto)
	g.run(3 * time.Second)
	g.told()
	if n := len(g.server.Calls()); n == 0 {
		t.Error("the runtime was not told after the pause")
	}
}

// A burst that somebody allowed the container is in the way of a smaller quota.
func TestADirectShrinkBelowTheBurst(t *testing.T) {
	host := cgrouptest.Real(t)
	path := host.Parent + "/pod/c"
	host.Add(t, host.Parent+"/pod", cgroup.Limits{})
	host.Add(t, path, limitsOf(mdp.Size{CPU: 500}))
	name := "cpu/cpu.cfs_burst_us"
	if host.Tree.Version() == cgroup.V2 {
		name = "cpu.max.burst"
	}
	host.Put(t, path, name, "40000")
	group, err := host.Tree.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Sampler{tree: host.Tree}
	track := s.Add(group)
	defer s.Remove(track)
	if relieved, err := s.Set(track, limitsOf(mdp.Size{CPU: 200})); err != nil || relieved {
		t.Fatal(relieved, err)
	}
	if l := host.Limits(t, path).CPU(); l != 200 {
		t.Errorf("the limit is %v", l)
	}
}
