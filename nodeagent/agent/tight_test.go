package agent

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

const mib = mdp.MiB

func plenty() mdp.Bytes { return anyMemory }

// uses is a tick in which the first container's memory is in use up to that, and no step.
func (g *rig) uses(memory mdp.Bytes) mdp.Bytes {
	g.t.Helper()
	g.memory[0] = memory
	g.tick()
	return g.limit(0).Memory
}

func TestMemoryThatIsNearlyFullIsRaisedInTheSampleThatShowsIt(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			low := g.shrunk()
			calls := len(g.server.Calls())
			for _, use := range []mdp.Bytes{70 * mib, 80 * mib, 90 * mib, 100 * mib, 107 * mib} {
				if l := g.uses(use); l != low.Memory {
					t.Fatalf("%v in use: the limit is %v, and was %v", use, l, low.Memory)
				}
			}
			g.uses(110 * mib)
			if l := g.uses(118 * mib); l != web.Memory {
				t.Errorf("118Mi of %v in use: the limit is %v, want all of %v", low.Memory, l, web.Memory)
			}
			if l := g.limit(0).CPU; l != low.CPU {
				t.Errorf("the CPU limit moved from %v to %v", low.CPU, l)
			}
			if n := len(g.server.Calls()); n != calls {
				t.Errorf("%d calls of the container runtime: relief waited for it", n-calls)
			}
			g.run(8 * time.Second)
			c := g.server.Calls()
			if len(c) == calls || c[len(c)-1].MemoryLimitInBytes != int64(g.limit(0).Memory) {
				t.Errorf("the runtime was told %v, and in force is %v", c[calls:], g.limit(0))
			}
			if s := g.summary(0); s.Problem != "" || s.Conflicts != 0 {
				t.Errorf("its own raise is a problem: %+v", s)
			}
			if l := g.limit(0).Memory; float64(l) < 1.25*float64(118*mib) {
				t.Errorf("later the limit is %v with 118Mi in use", l)
			}
		})
	}
}

// What will be used by the next sample counts: a process that takes a tenth of its limit in
// each sample is beyond it in the one after.
func TestMemoryThatGrowsFastIsRaisedBeforeItIsFull(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	low := g.shrunk()
	for _, use := range []mdp.Bytes{70 * mib, 82 * mib, 94 * mib} {
		if l := g.uses(use); l != low.Memory {
			t.Fatalf("%v in use: the limit is %v", use, l)
		}
	}
	if l := g.uses(106 * mib); l != web.Memory {
		t.Errorf("12Mi more in each sample, 106Mi in use: the limit is %v", l)
	}
}

// The kernel drops file pages when it needs them. A limit that is full of them is not too low.
func TestFilePagesAreNotMemoryThatIsNearlyFull(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	low := g.shrunk()
	pages := func(n mdp.Bytes) {
		g.host.Put(t, g.pathOf(0, "c0"), "memory.stat", fmt.Sprintf("anon 0\nfile 0\ninactive_file %d\n", int64(n)))
	}
	pages(60 * mib)
	for range 20 {
		if l := g.uses(127 * mib); l != low.Memory {
			t.Fatalf("the limit is %v, and 67Mi are in use without file pages", l)
		}
	}
	pages(5 * mib) // the process has taken their place: the sum is what it was
	for range 6 {
		g.uses(127 * mib)
	}
	if l := g.limit(0).Memory; l != web.Memory {
		t.Errorf("122Mi are in use without file pages, and the limit is %v", l)
	}
}

// Where file pages are a part of what is in use, what counts is the rest. The kernel's count of them
// costs a file more: it is read each half second, and when more is in use.
func TestALimitThatIsFullOfFilePagesIsLookedAtNowAndThen(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	low := g.shrunk().Memory
	m := &g.agent.containers[g.ref(0)].track.memory
	uses := func(memory, pages mdp.Bytes) mdp.Bytes {
		t.Helper()
		g.host.Put(t, g.pathOf(0, "c0"), "memory.stat", fmt.Sprintln("inactive_file", int64(pages)))
		return g.uses(memory)
	}
	for _, use := range []mdp.Bytes{80, 90, 100, 110, 120} {
		uses(use*mib, 15*mib)
	}
	looks, last := 0, m.lookedAt
	for range 20 {
		if l := uses(120*mib, 15*mib); l != low {
			t.Fatalf("105Mi are in use without file pages, and the limit of %v became %v", low, l)
		}
		if !m.lookedAt.Equal(last) {
			looks, last = looks+1, m.lookedAt
		}
	}
	if looks != 4 {
		t.Errorf("in two seconds the file pages were counted %d times, want 4", looks)
	}
	if l := uses(122*mib, 0); l != web.Memory {
		t.Errorf("more is in use, and no file pages: the limit is %v", l)
	}
}

// What a container gives back says nothing against what it still has.
func TestMemoryThatFallsAndIsNearlyFullAllTheSameIsRaised(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.shrunk()
	g.host.Put(t, g.pathOf(0, "c0"), "memory.stat", fmt.Sprintln("inactive_file", int64(60*mib)))
	for range 5 {
		g.uses(127 * mib)
	}
	g.host.Put(t, g.pathOf(0, "c0"), "memory.stat", "anon 0\nfile 0\ninactive_file 0\n")
	if l := g.uses(119 * mib); l != web.Memory {
		t.Errorf("119Mi are in use, and no file pages: the limit is %v", l)
	}
}

// What grew while nobody sampled says nothing of the next tenth of a second.
func TestMemoryThatGrewLongAgoIsNotGrowing(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	low := g.shrunk().Memory
	g.now = g.now.Add(time.Second)
	if l := g.uses(105 * mib); l != low {
		t.Errorf("41Mi more than a second ago, 105Mi of %v in use: the limit is %v", low, l)
	}
	if l := g.uses(118 * mib); l != web.Memory {
		t.Errorf("118Mi of %v in use: the limit is %v", low, l)
	}
}

// A container may need both at once, while the step moves its limits.
func TestMemoryAndCPUAreRaisedTogether(t *testing.T) {
	low := limitsOf(mdp.Size{CPU: 100, Memory: web.Memory})
	top := limitsOf(mdp.Size{CPU: 400, Memory: 2 * web.Memory})
	for name, c := range map[string]struct{ before, between func(*node) }{
		"memory first":  {nil, nil},
		"CPU first":     {(*node).throttled, nil},
		"the step ends": {nil, func(d *node) { d.sampler.Open(d.tracks[0], lane{has: low, top: top}) }},
		"a call is made": {func(d *node) {
			less := cgroup.Limits{Quota: low.Quota / 2, Period: low.Period}
			d.sampler.Expect(d.tracks[0], less)
			if err := d.host.Tree.Write(d.paths[0], less); err != nil {
				d.t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
				d := newNode(t, host, 1)
				d.sampler.Lend(plenty)
				d.sampler.Open(d.tracks[0], lane{has: low, top: top})
				d.tick()
				if c.before != nil {
					c.before(d)
				}
				d.workers[0].Demand, d.workers[0].Memory = 10, web.Memory-mib
				d.tick()
				if l := d.host.Limits(t, d.paths[0]).Memory; l != top.Memory {
					t.Errorf("all but a megabyte is in use, and the limit is %v", l)
				}
				if c.between != nil {
					c.between(d)
				}
				if d.throttled(); d.limit(0) != 400 {
					t.Errorf("a period is throttled, and the limit is %v", d.limit(0))
				}
			})
		})
	}
}

// What the lanes have taken is said once, and another permit ends what was lent under the last one.
func TestWhatIsLentIsAccountedForOnce(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	low := g.shrunk().Memory
	g.permit(1, mdp.Size{CPU: 2000, Memory: web.Memory})
	g.run(time.Second)
	g.permit(2, mdp.Size{CPU: 2000, Memory: low})
	if l := g.uses(122 * mib); l != low {
		t.Errorf("a permit for %v, and the limit is %v", low, l)
	}
	s := g.agent.sampler
	s.Lend(plenty)
	if l := g.uses(122 * mib); l != web.Memory {
		t.Fatalf("lent was plenty, and the limit is %v", l)
	}
	for _, want := range []mdp.Bytes{web.Memory - low, 0} {
		if taken := s.Lend(nil); taken != want {
			t.Errorf("taken was %v, want %v", taken, want)
		}
	}
}

// A limit that was raised is not memory in use: the node seems to have as much as before, and what a
// lane took of that is not given to another container seconds later.
func TestWhatALaneTookIsNotGivenAgain(t *testing.T) {
	g := settled(t)
	g.has(40 * mib)
	g.permit(1, mdp.Size{CPU: 10, Memory: 256 * mib})
	g.run(time.Second)
	if l := g.uses(122 * mib); l != 168*mib {
		t.Fatalf("the node has 40Mi, and a limit of 128Mi became %v", l)
	}
	g.run(2 * time.Second)
	g.memory[1] = 122 * mib
	g.run(3 * time.Second)
	if s := g.sum().Memory; s != 296*mib {
		t.Errorf("the sum is %v, want no more than the permit for 256Mi and the node's 40Mi", s)
	}
}

// Several lanes may raise in one sample. Together they take no more than the permit and the node
// have, and what they took counts in the step after.
func TestLanesDoNotTakeMemoryTwice(t *testing.T) {
	for name, c := range map[string]struct {
		permit mdp.Bytes // in sum
		spare  mdp.Bytes // of the node
		want   mdp.Bytes // the sum after a sample, and after more steps
	}{
		"nothing is free":          {256 * mib, 0, 256 * mib},
		"the node has some":        {256 * mib, 40 * mib, 296 * mib},
		"the permit allows some":   {290 * mib, 0, 290 * mib},
		"both do":                  {290 * mib, 30 * mib, 320 * mib},
		"there is enough for both": {600 * mib, 0, 512 * mib},
		"more than the limits' sum is in force, and the node has some": {100 * mib, 60 * mib, 316 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			g := settled(t)
			g.has(c.spare)
			g.permit(1, mdp.Size{CPU: 10, Memory: c.permit})
			g.run(time.Second)
			g.memory[0], g.memory[1] = 122*mib, 122*mib
			g.tick()
			g.tick()
			if s := g.sum().Memory; s != c.want {
				t.Errorf("two lanes made the sum %v, want %v", s, c.want)
			}
			g.has(0) // it is taken by now
			g.memory[0], g.memory[1] = 64*mib, 64*mib
			g.run(2 * time.Second)
			if g.memory[0] = g.limit(0).Memory - mib; g.limit(0) != g.limit(1) {
				g.memory[1] = g.limit(1).Memory - mib
			}
			g.run(3 * time.Second)
			if s := g.sum().Memory; s > max(c.want, c.permit) {
				t.Errorf("three seconds later the sum is %v, want at most %v", s, max(c.want, c.permit))
			}
		})
	}
}

func TestMemoryIsNotRaisedWhereThatIsForbidden(t *testing.T) {
	pod := func(g *rig) string { return filepath.Dir(g.pathOf(0, "c0")) }
	for name, c := range map[string]struct {
		happens func(*rig)
		want    mdp.Bytes // 0: what was in force before
	}{
		"central says observe": {func(g *rig) { g.grant(api.Observe) }, 0},
		"central says less": {func(g *rig) {
			g.grant(api.Auto, func(m *api.Grant) { m.Bounds.Memory.Max = 200 * mib })
		}, 0},
		"central has said less": {func(g *rig) {
			g.grant(api.Auto, func(m *api.Grant) { m.Bounds.Memory.Max = 200 * mib })
			g.run(2 * time.Second)
		}, 200 * mib},
		"the owner keeps memory": {func(g *rig) {
			g.grant(api.Auto, func(m *api.Grant) { m.Bounds.Memory = mdp.Range[mdp.Bytes]{Min: 128 * mib, Max: 128 * mib} })
			g.run(2 * time.Second)
		}, 0},
		"the API's limit is lowered": {func(g *rig) {
			g.stage.change(0, func(_ *Pod, c *Container) { c.Limits.Memory, c.ResizePending = 160*mib, true })
			g.agent.refresh(g.t.Context(), g.now)
		}, 0},
		"the pod has less": {func(g *rig) { g.host.Put(g.t, pod(g), "memory.max", fmt.Sprintln(int64(150*mib))) }, 150 * mib},
		"the pod has nothing more": {func(g *rig) {
			g.host.Put(g.t, pod(g), "memory.max", fmt.Sprintln(int64(100*mib)))
		}, 0},
		"somebody else has written": {func(g *rig) {
			if err := g.host.Tree.Write(g.pathOf(0, "c0"), cgroup.Limits{Memory: 130 * mib}); err != nil {
				g.t.Fatal(err)
			}
		}, 130 * mib},
		"somebody else has written the CPU limit": {func(g *rig) { g.write(0, 90000) }, 0},
		"the limit cannot be read": {func(g *rig) {
			g.host.Put(g.t, pod(g), "memory.max", "nonsense\n")
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, cgroup.V2, 1)
			low := g.shrunk().Memory
			g.host.Put(t, pod(g), "cpu.max", "max 100000\n")
			g.host.Put(t, pod(g), "memory.max", "max\n")
			c.happens(g)
			if c.want == 0 {
				c.want = low
			}
			for range 5 {
				if l := g.uses(126 * mib); l != c.want {
					t.Fatalf("the limit is %v, want %v", l, c.want)
				}
			}
		})
	}
}

// The owner may leave only memory to us.
func TestMemoryIsRaisedWhereTheCPULimitIsNotOurs(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	cpu := func(m *api.Grant) { m.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: web.CPU, Max: web.CPU} }
	g.grant(api.Auto, cpu)
	g.run(10 * time.Second)
	if l := g.limit(0); l.CPU != web.CPU || l.Memory >= web.Memory {
		t.Fatalf("limits %v", l)
	}
	g.demand[0] = 5000 // it meets its ceiling, which is not ours
	g.uses(120 * mib)
	if l := g.uses(120 * mib); l != web.Memory || g.limit(0).CPU != web.CPU {
		t.Errorf("limits %v", g.limit(0))
	}
	g.grant(api.Observe)
	g.run(2 * time.Second)
	g.isRestored("after observe")
}

// Then what the step has seen of it must be there still: the kubelet may be setting both.
func TestMemoryIsRaisedBesideACPULimitThatTheStepHasSeen(t *testing.T) {
	for seen, want := range map[mdp.MilliCPU]mdp.Bytes{100: 2 * web.Memory, 200: web.Memory} {
		d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
		d.sampler.Lend(plenty)
		has, top := cgroup.Limits{Memory: web.Memory}, cgroup.Limits{Memory: 2 * web.Memory}
		d.sampler.Open(d.tracks[0], lane{has: has, top: top})
		d.tracks[0].limits = limitsOf(mdp.Size{CPU: seen, Memory: web.Memory})
		d.workers[0].Demand, d.workers[0].Memory = 10, web.Memory-mib
		d.tick()
		if l := d.host.Limits(t, d.paths[0]); l.Memory != want {
			t.Errorf("seen was %v, in force is %v; want %v of memory", seen, l.Size(), want)
		}
	}
}

// A call that is on its way was decided before: it sets less than what the lane has raised to.
func TestAShrinkThatIsOnItsWayDoesNotTakeMemoryBack(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	wants := mdp.Action{}.WithMemory(200 * mib)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
	}
	hook := hooked{Runtime: g.client, before: func() {}, after: func() {}}
	g.runtime = &hook
	g.boot()
	g.grant(api.Auto)
	g.run(5 * time.Second)
	if l := g.limit(0).Memory; l != 200*mib {
		t.Fatalf("the limit is %v", l)
	}
	for range 4 { // the guards' dwell
		g.grant(api.Auto)
		g.run(30 * time.Second)
	}
	done := false
	hook.before = func() {
		if !done { // while the step waits for the runtime
			done = true
			g.agent.sampler.Lend(plenty)
			g.uses(190 * mib)
			if l := g.uses(190 * mib); l != web.Memory {
				t.Errorf("while the call is on its way the limit is %v", l)
			}
		}
	}
	wants = mdp.Action{}.WithMemory(150 * mib)
	g.now = g.now.Truncate(time.Second).Add(time.Second)
	g.agent.Sample(g.now)
	g.agent.Step(t.Context(), g.now)
	if !done {
		t.Fatalf("there was no call: %+v", g.summary(0))
	}
	if l := g.limit(0).Memory; l != web.Memory {
		t.Errorf("after the call the limit is %v with 190Mi in use", l)
	}
	wants = mdp.Action{}
	g.run(8 * time.Second)
	if s := g.summary(0); s.Conflicts != 0 || g.limit(0).Memory != web.Memory {
		t.Errorf("limits %v: %+v", g.limit(0), s)
	}
}

// The next agent must know a raised limit for ours, although the journal was not written for it.
func TestMemoryThatWasRaisedBeforeAKillIsRestored(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		g := newRig(t, version, 1)
		g.grant(api.Auto, func(m *api.Grant) { m.Bounds.Memory.Max = 200 * mib })
		g.run(10 * time.Second)
		g.uses(125 * mib)
		if l := g.uses(125 * mib); l != 200*mib {
			t.Fatalf("raised to %v", l)
		}
		g.boot()
		g.isRestored("after a kill")
	}
}

// The same with a kernel that ends what is beyond its limit.
func TestARealProcessThatGrowsIsNotEnded(t *testing.T) {
	host := cgrouptest.Real(t)
	pod := host.Parent + "/pod"
	low, top := limitsOf(mdp.Size{CPU: 1000, Memory: 64 * mib}), limitsOf(mdp.Size{CPU: 1000, Memory: 160 * mib})
	grow := func(path string, sample func()) error {
		another := host.Fed(t, path)
		for range 110 {
			if err := another(); err != nil {
				return err
			}
			sample()
		}
		return nil
	}
	host.Add(t, pod, cgroup.Limits{})
	host.Add(t, pod+"/c", low)
	group, err := host.Tree.Group(pod + "/c")
	if err != nil {
		t.Fatal(err)
	}
	s := &Sampler{tree: host.Tree}
	track := s.Add(group)
	defer s.Remove(track)
	s.Lend(plenty)
	s.Open(track, lane{has: low, top: top})
	now := time.Now()
	if err := grow(pod+"/c", func() { now = now.Add(100 * time.Millisecond); s.Sample(now) }); err != nil {
		t.Errorf("ended: %v; %v, %+v", err, host.Limits(t, pod+"/c"), s.Heard(track))
	}
	if l := host.Limits(t, pod+"/c"); l.Memory != top.Memory {
		t.Errorf("the limit is %v, want %v", l.Memory, top.Memory)
	}
	host.Add(t, pod+"/left-alone", low)
	if err := grow(pod+"/left-alone", func() {}); err == nil {
		t.Error("a process that nobody helped was not ended either: nothing was tested")
	}
}
