package agent

import (
	"errors"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/restore"
)

// counted counts the steps of the first container, whose policy wants a limit.
func (g *rig) counted(wants *mdp.MilliCPU) *int {
	n := new(int)
	g.policy = func(ref api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
			if ref.Pod == "web-0" {
				*n++
			}
			return mdp.Action{}.WithCPU(*wants), nil
		})
	}
	g.boot()
	return n
}

// A container that does nothing is looked at every four seconds, and one that does something
// each second. Whatever is new about it ends its rest with the next step.
func TestAContainerThatDoesNothingRestsUntilSomethingIsNew(t *testing.T) {
	for _, mode := range []api.Mode{api.Auto, api.Observe} {
		t.Run(string(mode), func(t *testing.T) {
			g := newRig(t, cgroup.V1, 2)
			wants := mdp.MilliCPU(300)
			steps := g.counted(&wants)
			in := func(d time.Duration) int {
				before := *steps
				g.run(d)
				return *steps - before
			}
			g.grant(mode)
			if n := in(10 * time.Second); n != 10 {
				t.Errorf("%d steps in ten seconds with something to do", n)
			}
			g.demand[0] = 0
			in(15 * time.Second)
			if n := in(12 * time.Second); n != 3 {
				t.Errorf("%d steps in twelve seconds with nothing to do, want one in four", n)
			}
			rest := func() {
				t.Helper()
				for in(time.Second) == 0 { // until a step
				}
			}
			for what, happens := range map[string]func(){
				"a grant":      func() { g.grant(mode, atMost(700)) },
				"the API":      func() { g.stage.change(0, func(_ *Pod, c *Container) { c.Requests.CPU++ }) },
				"a sidecar":    func() { g.stage.change(0, func(p *Pod, _ *Container) { p.PodLimits = !p.PodLimits }) },
				"the pod runs": func() { g.demand[0] = 100 },
			} {
				rest()
				happens()
				if n := in(time.Second); n != 1 {
					t.Errorf("%s: %d steps in the second after it", what, n)
				}
				g.demand[0] = 0
				g.grant(mode)
				in(15 * time.Second)
			}
			rest()
			if s := g.summary(0); s.State.Usage.CPU != 0 || g.now.Sub(s.State.At) > restMost {
				t.Errorf("%v after its step it reports %+v", g.now.Sub(s.State.At), s)
			}
		})
	}
}

// A limit that is on its way down, and one that the runtime does not know, leave no rest.
func TestWhatIsUnderWayLeavesNoRest(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	wants := mdp.MilliCPU(300)
	g.counted(&wants)
	g.demand[0] = 50
	g.grant(api.Auto)
	g.run(20 * time.Second)
	g.burst()
	g.demand[0] = 0
	g.run(20 * time.Second)
	if l := g.limit(0).CPU; l != 300 {
		t.Errorf("the limit is %v, want 300m", l)
	}
	g.told()
	wants = 200 // of what nobody but the policy knows it hears within four seconds
	g.run(restMost + time.Second)
	if l := g.limit(0).CPU; l != 200 {
		t.Errorf("the limit is %v, want 200m", l)
	}
	g.run(4 * time.Second)
	g.told()
}

// The end of central's grants, and of a pause, is no rest either.
func TestARestingContainerIsRestoredWhenItsGrantEnds(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	wants := mdp.MilliCPU(300)
	g.counted(&wants)
	g.demand[0] = 50
	g.grant(api.Auto)
	g.run(10 * time.Second)
	g.demand[0] = 0
	g.run(15 * time.Second)
	if l := g.limit(0).CPU; l != 300 {
		t.Fatalf("the limit is %v", l)
	}
	g.run(36 * time.Second) // the grants hold for a minute
	if l := g.limit(0); l != web {
		t.Errorf("a second after its grant ended it has %v", l)
	}
}

// A step is left out where it would find what the last one has found. Whatever the sampler or anybody
// else has to say makes one.
func TestNothingRestsThatHasNews(t *testing.T) {
	at := noon.Add(time.Second)
	later, now := at.Add(time.Millisecond), at.Add(restMost-1)
	for name, happens := range map[string]func(*managedContainer){
		"":                             func(*managedContainer) {},
		"the last step changed it":     func(c *managedContainer) { c.stepped.calm = false },
		"four seconds":                 func(c *managedContainer) { c.stepped.at = now.Add(-restMost) },
		"the API":                      func(c *managedContainer) { c.facts.Requests.CPU++ },
		"its neighbours":               func(c *managedContainer) { c.others.limits.CPU++ },
		"it was killed":                func(c *managedContainer) { c.oomKilled = true },
		"a sample failed":              func(c *managedContainer) { c.track.fault = errors.New("gone") },
		"its memory moved":             func(c *managedContainer) { c.track.still = false },
		"nobody has looked at its pod": func(c *managedContainer) { c.track.pod.readAt = at },
		"nor lately":                   func(c *managedContainer) { c.track.pod.readAt = later },
		"its pod ran":                  func(c *managedContainer) { c.track.pod.ranAt = later },
		"it was throttled":             func(c *managedContainer) { c.track.throttledAt = later },
		"the lane has raised":          func(c *managedContainer) { c.track.lane.news.at = later },
		"the lane could not raise":     func(c *managedContainer) { c.track.lane.news.err = cgroup.ErrReadOnly },
		"it has met its ceiling":       func(c *managedContainer) { c.track.lane.met = true },
	} {
		c := &managedContainer{stepped: stepped{at: at, calm: true}}
		c.sampler = new(Sampler)
		c.track = &Track{still: true, pod: &sharedGroup{readAt: now.Add(-tenth), ranAt: at}}
		happens(c)
		if rests := c.rests(now, order{}); rests != (name == "") {
			t.Errorf("%q: it rests: %v", name, rests)
		}
		if c.rests(now, order{mode: api.Auto}) {
			t.Errorf("%q: it rests, and central has said something", name)
		}
	}
}

// What a step leaves under way is for the next one.
func TestAStepWithSomethingUnderWayIsNotCalm(t *testing.T) {
	type one = managedContainer
	for name, c := range map[string]struct {
		is   func(*one, *api.Summary)
		calm bool
	}{
		"nothing":                 {func(*one, *api.Summary) {}, true},
		"it used CPU":             {func(_ *one, s *api.Summary) { s.State.Usage.CPU = 1 }, false},
		"it was throttled":        {func(_ *one, s *api.Summary) { s.State.Throttled = 0.1 }, false},
		"its use is not known":    {func(_ *one, s *api.Summary) { s.State.Observed = 0 }, false},
		"a kill is reported":      {func(c *one, _ *api.Summary) { c.kills = 1 }, false},
		"limits were set":         {func(c *one, _ *api.Summary) { c.wrote = true }, false},
		"the runtime is behind":   {func(c *one, _ *api.Summary) { c.ownership.Behind = true }, false},
		"a call may land late":    {func(c *one, _ *api.Summary) { c.ownership.Late = true }, false},
		"a call is in doubt":      {func(c *one, _ *api.Summary) { c.ownership.State = restore.InDoubt }, false},
		"a restore is not done":   {func(c *one, _ *api.Summary) { c.task = restoring }, false},
		"there is a problem":      {func(_ *one, s *api.Summary) { s.Problem = "no journal" }, false},
		"an action was refused":   {func(_ *one, s *api.Summary) { s.Effect = mdp.Refused }, false},
		"an action had no effect": {func(_ *one, s *api.Summary) { s.Effect = mdp.Unchanged }, true},
	} {
		it := &one{task: acting}
		it.ownership.State = restore.Ours
		s := api.Summary{Want: mdp.Action{}.WithCPU(100), Effect: mdp.Unchanged}
		s.State.Observed = mdp.SetOf(mdp.CPUUsage, mdp.Throttled)
		c.is(it, &s)
		if it.remember(noon, order{}, s); it.stepped.calm != c.calm {
			t.Errorf("%s: calm %v", name, it.stepped.calm)
		}
	}
}
