package agent

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
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

// A container that does nothing is looked at every three seconds, and one that does something
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
			if n := in(12 * time.Second); n != 4 {
				t.Errorf("%d steps in twelve seconds with nothing to do, want one in three", n)
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
	wants = 200 // of what nobody but the policy knows it hears within three seconds
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
