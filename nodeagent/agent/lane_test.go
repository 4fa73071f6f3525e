package agent

import (
	"context"
	"errors"
	"fmt"
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
	"golang.org/x/sys/unix"
)

// tick is one CFS period of work and one sample, without a step.
func (g *rig) tick() {
	g.t.Helper()
	g.now = g.now.Add(100 * time.Millisecond)
	for i := range g.stage.pods {
		w := g.workers[i]
		w.Demand, w.Memory = g.demand[i], g.memory[i]
		w.Work(g.t, g.host, g.pathOf(i, g.stage.pods[i].Containers[0].ID))
	}
	g.agent.Sample(g.now)
}

// burst lets the first container ask for more than there is, and samples until its limit
// is another one, which a step takes no part in. It fails when that takes three samples.
func (g *rig) burst() mdp.MilliCPU {
	g.t.Helper()
	before := g.limit(0).CPU
	g.demand[0] = 50000
	for range 3 {
		if g.tick(); g.limit(0).CPU != before {
			return g.limit(0).CPU
		}
	}
	g.t.Fatalf("three throttled periods, and the limit is still %v: %+v", before, g.summary(0))
	return 0
}

// upTo is a grant's change: that CPU limit at most.
func atMost(c mdp.MilliCPU) func(*api.Grant) { return func(m *api.Grant) { m.Bounds.CPU.Max = c } }

func TestABurstIsRelievedInTheSampleThatShowsIt(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			low := g.shrunk().CPU
			calls := len(g.server.Calls())
			if l := g.burst(); l != web.CPU {
				t.Errorf("relieved from %v to %v, want all of %v at once", low, l, web.CPU)
			}
			if n := len(g.server.Calls()); n != calls {
				t.Errorf("%d calls of the container runtime: relief waited for it", n-calls)
			}
			g.run(restsAfter + 2*time.Second)
			c := g.server.Calls()
			if last := c[len(c)-1]; len(c) == calls || last.CpuQuota != cgroup.Quota(g.limit(0).CPU, 100000) {
				t.Errorf("the runtime was told %v, and in force is %v", last, g.limit(0))
			}
			if s := g.summary(0); s.Problem != "" || s.Conflicts != 0 {
				t.Errorf("its own raise is a problem: %+v", s)
			}
		})
	}
}

// The same with a kernel that throttles, on this machine's own groups. However slow the
// machine is: no sample shows throttling and leaves the limit.
func TestARealBurstIsRelievedInTheSampleThatShowsIt(t *testing.T) {
	host := cgrouptest.Real(t)
	path := host.Parent + "/pod/c"
	low, top := limitsOf(mdp.Size{CPU: 50}), limitsOf(mdp.Size{CPU: 400})
	host.Add(t, host.Parent+"/pod", limitsOf(mdp.Size{CPU: 1000}))
	host.Add(t, path, low)
	group, err := host.Tree.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Sampler{tree: host.Tree}
	track := s.Add(group)
	defer s.Remove(track)
	s.Open(track, lane{has: low, top: top})
	s.Sample(time.Now())
	host.Start(t, path, cgrouptest.Burn)
	for begun := time.Now(); ; {
		time.Sleep(100 * time.Millisecond)
		s.Sample(time.Now())
		shown := track.throttled() || track.full()
		if is := host.Limits(t, path).CPU(); shown && is != 400 || !shown && is != 50 {
			t.Fatalf("throttled %v, full %v, and the limit is %v: %+v", track.throttled(), track.full(), is, s.Heard(track))
		}
		if shown {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("a process that uses all CPU was not throttled in a minute")
		}
	}
	if r := s.Heard(track); r.err != nil || r.to != (cgroup.Limits{Quota: top.Quota, Period: top.Period}) {
		t.Errorf("relief %+v", r)
	}
}

// A policy that wants what is in force makes no call. The runtime must be told all the
// same: its next update would bring back what it has.
func TestTheRuntimeIsToldOfReliefAlsoWhenThePolicyWantsNothing(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	wants := mdp.Action{}.WithCPU(300)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
	}
	g.boot()
	g.grant(api.Auto)
	g.run(20 * time.Second)
	if l := g.limit(0).CPU; l != 300 {
		t.Fatalf("the limit is %v, want 300m", l)
	}
	wants = mdp.Action{}
	before := len(g.server.Calls())
	g.run(500 * time.Millisecond)
	g.burst()
	g.run(g.now.Truncate(time.Second).Add(time.Second).Sub(g.now))
	if n := len(g.server.Calls()); n != before {
		t.Errorf("%d calls in the second of the burst: the limit has not come to rest", n-before)
	}
	g.run(3 * time.Second)
	calls := g.server.Calls()
	if last := calls[len(calls)-1]; last.CpuQuota != 100000 || g.limit(0).CPU != web.CPU {
		t.Errorf("the last call was %v, in force is %v", last, g.limit(0))
	}
	n := len(calls)
	if g.run(5 * time.Second); len(g.server.Calls()) != n {
		t.Errorf("%d calls more when the runtime knew already", len(g.server.Calls())-n)
	}
}

// wants makes every container's policy want that CPU limit.
func (g *rig) wants(c mdp.MilliCPU) { g.follows(&c) }

// follows boots an agent whose policy wants the CPU limit that c is at the time.
func (g *rig) follows(c *mdp.MilliCPU) {
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}.WithCPU(*c), nil })
	}
	g.boot()
}

func TestReliefIsTakenBackSlowly(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.wants(200)
	g.demand[0] = 100
	strict := func(m *api.Grant) { m.Throttle = 0.002 }
	g.grant(api.Auto, strict)
	g.run(10 * time.Second)
	step := func() {
		g.demand[0] = 195 // all of what it had before: it is not over
		g.grant(api.Auto, strict)
		g.run(time.Second)
	}
	for _, c := range []struct {
		burst       mdp.MilliCPU // of a tenth of a second; 0 is none
		seconds     int          // after it
		least, most mdp.MilliCPU
	}{
		{450, 1, 350, 700},
		{0, 15, 250, 260}, // 1.3 times what is used
		{900, 0, 600, 1000},
		{900, 1, 700, 1000}, // bursts that come often keep it up
		{0, 15, 250, 260},   // 1.3 times what is used
	} {
		if c.burst > 0 {
			g.demand[0] = c.burst
			if g.tick(); g.limit(0).CPU != web.CPU {
				t.Fatalf("a burst of %v is not relieved: %v", c.burst, g.limit(0))
			}
			step()
		}
		for range c.seconds {
			step()
		}
		if l := g.limit(0).CPU; l < c.least || l > c.most {
			t.Errorf("%d s after a burst of %v the limit is %v, want %v to %v", c.seconds, c.burst, l, c.least, c.most)
		}
	}
}

// A burst of a tenth of a second costs the ceiling for four samples, and not for seconds.
func TestReliefIsTakenBackWhenTheBurstIsOver(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			g.wants(200)
			g.grant(api.Auto)
			g.demand[0] = 150
			g.run(10 * time.Second)
			for phase := range 10 { // the steps are anywhere
				g.grant(api.Auto)
				g.run(time.Duration(20+phase) * 100 * time.Millisecond)
				g.burst()
				g.demand[0] = 150
				g.run(200 * time.Millisecond)
				if l := g.limit(0).CPU; l < web.CPU/2 {
					t.Errorf("phase %d: after two samples that are calm the limit is %v", phase, l)
				}
				if g.run(100 * time.Millisecond); g.limit(0).CPU != 200 {
					t.Errorf("phase %d: after three samples that are calm the limit is %v", phase, g.limit(0))
				}
			}
			if g.run(5 * time.Second); g.limit(0).CPU != 200 {
				t.Errorf("in the end the limit is %v", g.limit(0))
			}
			if s := g.summary(0); s.Conflicts != 0 || s.Problem != "" {
				t.Errorf("what it has taken back is a problem: %+v", s)
			}
			g.told()
			g.burst()
			g.demand[0] = 150
			g.run(400 * time.Millisecond)
			g.boot()
			g.isRestored("after a kill")
		})
	}
}

// throttled is a tick in which the first container does little, and has one more throttled period.
func (d *node) throttled() {
	d.t.Helper()
	d.now = d.now.Add(100 * time.Millisecond)
	d.workers[0].Demand = 10
	d.workers[0].Work(d.t, d.host, d.paths[0])
	d.workers[0].Demand = 0
	throttle(d.t, d.host, d.paths[0], int(d.tracks[0].back(0).ThrottledPeriods)+1)
	d.sampler.Sample(d.now)
}

// Samples from before the raise do not say that the burst is over, also when the step ends meanwhile.
func TestReliefStaysForThreeSamplesAfterTheRaise(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		top := limitsOf(mdp.Size{CPU: 400, Memory: web.Memory})
		for stepAt := range calmSamples + 1 {
			d := newNode(t, host, 1)
			d.tick()
			for burst := range 2 { // the second one finds the lane as the first one has left it
				if d.throttled(); d.limit(0) != 400 {
					t.Fatalf("burst %d: a period is throttled, and the limit is %v", burst, d.limit(0))
				}
				for calm := range calmSamples {
					if calm == stepAt {
						d.sampler.Heard(d.tracks[0])
						d.sampler.Open(d.tracks[0], lane{has: top, top: top})
					}
					if d.limit(0) != 400 {
						t.Errorf("burst %d: the limit is %v after %d calm samples", burst, d.limit(0), calm)
					}
					d.tick()
				}
				if d.limit(0) != 100 {
					t.Fatalf("burst %d: the limit is %v after the burst", burst, d.limit(0))
				}
			}
		}
	})
}

// A burst has lulls, and in each of them its relief would be taken back. Where that costs more throttled
// periods than the target allows, the lane waits longer the next time; less long again after bursts that are
// far apart.
func TestALullIsNotTheEndOfABurst(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		const far = 100 // samples
		for _, c := range []struct {
			name   string
			target mdp.Ratio
			lulls  []int // samples from each end of relief to the next throttled period
			waits  []int // calm samples until relief is taken back
		}{
			{"a relief in five seconds is allowed", 0.02, []int{2, 2, 2, 2}, []int{3, 6, 12, 12}},
			{"and then they are far apart", 0.02, []int{2, 2, far, far, far}, []int{3, 6, 12, 6, 3}},
			{"a second after its end it is another burst", 0.02, []int{10, 11, 11}, []int{3, 6, 3}},
			{"a relief in each second is allowed", 0.1, []int{2, 2, 2, 2}, []int{3, 6, 12, 6}},
			{"there are no more", 0.1, []int{7, 7, 7}, []int{3, 3, 3}},
			{"a strict target", 0.002, []int{8, 8, 8}, []int{3, 6, 12}},
			{"none is allowed", 0, []int{8, 8, 8}, []int{3, 6, 12}},
		} {
			d := newNode(t, host, 1)
			track := d.tracks[0]
			d.tick()
			for i, want := range c.waits {
				d.sampler.Heard(track) // a step
				d.sampler.Open(track, lane{
					has:     d.host.Limits(t, d.paths[0]),
					top:     limitsOf(mdp.Size{CPU: 400}),
					between: between(c.target),
				})
				if d.throttled(); d.limit(0) != 400 {
					t.Fatalf("%s, burst %d: a period is throttled, and the limit is %v", c.name, i, d.limit(0))
				}
				got := 0
				for ; d.limit(0) != 100 && got < far; got++ {
					d.tick()
				}
				if got != want {
					t.Errorf("%s, burst %d: relief is taken back after %d samples, want %d", c.name, i, got, want)
				}
				for range c.lulls[i] - 1 {
					d.tick()
				}
			}
		}
	})
}

// The step hears how often the lane has raised, and whether its relief is still there: only then
// the limit comes down slowly.
func TestTheStepHearsWhetherReliefIsOver(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
	d.tick()
	for bursts := 1; bursts <= 2; bursts++ {
		d.throttled()
		if r := d.tracks[0].lane.news; r.over || r.n != bursts || r.to.CPU() != 400 {
			t.Errorf("burst %d: %+v", bursts, r)
		}
		for range calmSamples {
			d.tick()
		}
		if r := d.tracks[0].lane.news; !r.over || r.n != bursts || r.to.CPU() != 100 {
			t.Errorf("after burst %d: %+v", bursts, r)
		}
	}
	s := settling{at: noon, top: 400, half: mostHalf}
	if s.heard(d.sampler.Heard(d.tracks[0]), 0.1); s != (settling{}) {
		t.Errorf("relief is over, and the limit settles: %+v", s)
	}
}

// The step may set less than what the lane takes relief back to, and look again later: nothing is
// raised when the burst is over.
func TestNothingIsRaisedWhenReliefIsTakenBack(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V1), 1)
	d.tick()
	d.throttled()
	d.sampler.Heard(d.tracks[0])
	if relieved, err := d.sampler.Set(d.tracks[0], limitsOf(mdp.Size{CPU: 60})); relieved || err != nil {
		t.Fatal(relieved, err)
	}
	for range 2 * calmSamples {
		if d.tick(); d.limit(0) != 60 {
			t.Fatalf("the step has set 60m, and the limit is %v", d.limit(0))
		}
	}
}

// When relief is over the lane is done with it: what the step sets later stays.
func TestWhatTheStepSetsAfterReliefIsNotTakenBack(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
	d.tick()
	d.throttled()
	for range calmSamples {
		d.tick()
	}
	d.sampler.Heard(d.tracks[0])
	more := limitsOf(mdp.Size{CPU: 200, Memory: web.Memory})
	if relieved, err := d.sampler.Set(d.tracks[0], more); relieved || err != nil {
		t.Fatal(relieved, err)
	}
	d.sampler.Open(d.tracks[0], lane{has: more, top: limitsOf(mdp.Size{CPU: 400})})
	for range 2 * calmSamples {
		if d.tick(); d.limit(0) != 200 {
			t.Fatalf("the step has set 200m, and the limit is %v", d.limit(0))
		}
	}
}

// The ceiling is met when a container is throttled there again and again. A period from before the
// raise, or one now and then, is not that, nor is the use of all that there is.
func TestOneThrottledPeriodNowAndThenDoesNotMeetTheCeiling(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		d := newNode(t, host, 1)
		d.limited(0, limitsOf(mdp.Size{CPU: 400}))
		d.tick()
		var s mdp.State
		for range 5 {
			if d.throttled(); d.sampler.Met(d.tracks[0], d.now, &s) {
				t.Fatal("one period in a second met the ceiling")
			}
			for range 10 {
				d.tick()
			}
		}
		d.workers[0].Demand = 400 // all of it, and no more
		for range 10 {
			if d.tick(); d.sampler.Met(d.tracks[0], d.now, &s) {
				t.Fatal("nothing was throttled, and the ceiling is met")
			}
		}
		d.throttled()
		if d.throttled(); !d.sampler.Met(d.tracks[0], d.now, &s) || s.Limit.CPU != 400 {
			t.Errorf("two in a row did not: %+v", s)
		}
	})
}

func TestReliefThatIsNeededIsNotTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*rig)
		want    mdp.MilliCPU // after some samples; until then all that there is
	}{
		"it uses most of what it had": {func(g *rig) { g.demand[0] = 195 }, 550}, // the highest use is that of its begin
		"it uses more":                {func(g *rig) { g.demand[0] = 700 }, 780},
		"each third tenth is a burst": {func(g *rig) { g.demand[0] = 0 }, web.CPU},
		"somebody else has written":   {func(g *rig) { g.demand[0] = 50; g.write(0, 70000) }, 700},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, cgroup.V2, 1)
			g.wants(200)
			g.grant(api.Auto)
			g.demand[0] = 150
			g.run(10 * time.Second)
			g.burst()
			c.happens(g)
			for i := range 8 {
				if g.demand[0] == 0 || g.demand[0] == 900 {
					g.demand[0] = []mdp.MilliCPU{0, 0, 900}[i%3]
				}
				g.tick()
				if l := g.limit(0).CPU; l != c.want && (i >= calmSamples-1 || l != web.CPU) {
					t.Fatalf("sample %d: the limit is %v, want %v", i, l, c.want)
				}
			}
		})
	}
}

// uses lets the first container use so much for some samples, as far as its limit allows.
func (d *node) uses(c mdp.MilliCPU, samples int) {
	d.t.Helper()
	d.workers[0].Demand = c
	for range samples {
		d.tick()
	}
}

// While a limit cuts a burst off nobody knows how much it needs. Then relief comes down to a little above that, once; it
// goes up again when that is too little; and what was in force before the burst is in force after it.
func TestReliefIsEasedToWhatTheBurstNeeds(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		d := newNode(t, host, 1)
		use := func(c mdp.MilliCPU, samples int, want mdp.MilliCPU) {
			t.Helper()
			if d.uses(c, samples); d.limit(0) != want {
				t.Fatalf("%v in use: the limit is %v, want %v", c, d.limit(0), want)
			}
		}
		step := func(has mdp.MilliCPU) {
			t.Helper()
			if r := d.sampler.Heard(d.tracks[0]); r.to.CPU() != has || r.over {
				t.Fatalf("the step hears %+v, and %v is in force", r, has)
			}
			in := limitsOf(mdp.Size{CPU: has, Memory: web.Memory})
			d.sampler.Open(d.tracks[0], lane{has: in, top: limitsOf(mdp.Size{CPU: 400})})
		}
		use(50, 12, 100)
		use(250, 1, 400)
		use(250, calmSamples-1, 400)
		step(400)
		use(250, 1, 280)
		use(200, 20, 280) // the step's business
		step(280)
		use(200, 20, 280)
		use(300, 6, 400)
		use(300, 10, 400) // a third more is more than what a write is worth
		use(50, 2*mostCalmSamples, 100)
	})
}

func TestReliefIsNotEased(t *testing.T) {
	for name, open := range map[string]func(*lane){
		"where the target has no room":                      func(l *lane) { l.early = true },
		"where the runtime should know of it, and does not": func(l *lane) { l.keep = true },
	} {
		d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
		l := lane{has: limitsOf(mdp.Size{CPU: 100, Memory: web.Memory}), top: limitsOf(mdp.Size{CPU: 400})}
		open(&l)
		d.sampler.Open(d.tracks[0], l)
		d.uses(50, 12)
		if d.uses(250, 20); d.limit(0) != 400 {
			t.Errorf("%s: the limit is %v", name, d.limit(0))
		}
	}
}

// Eased relief has the form that the step gives a limit: a longer period, and the usual one where work may queue.
func TestEasedReliefHasThePeriodOfALimit(t *testing.T) {
	for patience, want := range map[time.Duration]int64{0: 140_000, tenth: 100_000} {
		d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
		d.tracks[0].lane.patience = patience
		d.uses(50, 12)
		d.uses(250, 10)
		if l := d.host.Limits(t, d.paths[0]); l.CPU() != 280 || l.Period != want {
			t.Errorf("patience %v: %+v, want 280m in periods of %v us", patience, l, want)
		}
	}
}

// What the step has lowered it settles, and a burst that is throttled at its ceiling may need more than it uses.
func TestReliefIsEasedOnlyFromWhatItCameTo(t *testing.T) {
	for name, each := range map[string]func(d *node, sample int){
		"the step has lowered it": func(d *node, sample int) {
			if sample > 0 {
				return
			}
			d.sampler.Heard(d.tracks[0])
			low := limitsOf(mdp.Size{CPU: 300, Memory: web.Memory})
			if _, err := d.sampler.Set(d.tracks[0], low); err != nil {
				d.t.Fatal(err)
			}
			d.sampler.Open(d.tracks[0], lane{has: low, top: limitsOf(mdp.Size{CPU: 400})})
		},
		"it is throttled in each second sample": func(d *node, sample int) {
			throttle(d.t, d.host, d.paths[0], int(d.tracks[0].back(0).ThrottledPeriods)+sample%2)
		},
	} {
		d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
		d.uses(50, 12)
		d.throttled()
		for i := range 20 {
			d.now = d.now.Add(tenth)
			d.workers[0].Demand = 150
			d.workers[0].Work(t, d.host, d.paths[0])
			each(d, i)
			if d.sampler.Sample(d.now); d.limit(0) < 300 {
				t.Fatalf("%s: after %d samples the limit is %v", name, i+1, d.limit(0))
			}
		}
	}
}

// What the lane has lowered is no relief: the limit settles from there, and no slower than before.
func TestEasedReliefSettlesFromWhereItIs(t *testing.T) {
	s := settling{at: noon, top: 1000, half: 2 * time.Second}
	s.heard(relief{at: noon.Add(time.Second), to: limitsOf(mdp.Size{CPU: 600})}, 0.02)
	if want := (settling{at: noon, top: 600, half: 2 * time.Second}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// Relief that is eased while a call of the step is on its way is in force after it, and the step knows of another limit.
// A burst that needs more is relieved all the same.
func TestReliefThatIsEasedDuringACallIsRaisedAgain(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		d := newNode(t, host, 1)
		one := d.tracks[0]
		step := func(has mdp.MilliCPU) {
			d.sampler.Open(one, lane{has: limitsOf(mdp.Size{CPU: has, Memory: web.Memory}), top: limitsOf(mdp.Size{CPU: 400})})
		}
		d.uses(50, 12)
		d.uses(250, calmSamples)
		d.sampler.Heard(one)
		step(400)
		next := limitsOf(mdp.Size{CPU: 350})
		d.sampler.Expect(one, next)
		if d.uses(250, 1); d.limit(0) != 280 {
			t.Fatalf("the limit is %v, want 280m: it was not eased", d.limit(0))
		}
		if err := host.Tree.Write(d.paths[0], next); err != nil {
			t.Fatal(err)
		}
		d.sampler.Again(one)
		step(350)
		if d.uses(400, 3); d.limit(0) != 400 {
			t.Errorf("0.3 s into a burst the limit is %v, want the ceiling of 400m", d.limit(0))
		}
	})
}

// write is somebody else's.
func (g *rig) write(i int, quota int64) {
	g.t.Helper()
	path := g.pathOf(i, g.stage.pods[i].Containers[0].ID)
	if err := g.host.Tree.Write(path, cgroup.Limits{Quota: quota, Period: 100000}); err != nil {
		g.t.Fatal(err)
	}
}

// A period counts as throttled when it has ended. What has used all that its limit gives is
// relieved before, and what uses a little less is not, however long.
func TestAContainerThatUsedAllOfItsLimitIsRelievedBeforeThePeriodEnds(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			g.wants(200)
			g.demand[0] = 195
			g.grant(api.Auto)
			g.run(20 * time.Second)
			l := g.limit(0).CPU
			if l >= 300 || l < 214 {
				t.Fatalf("with 195m in use the limit is %v, want a tenth more", l)
			}
			g.demand[0] = l - 5
			for range 20 {
				if g.tick(); g.limit(0).CPU != l {
					t.Fatalf("with %v in use the limit of %v became %v", g.demand[0], l, g.limit(0).CPU)
				}
			}
			g.demand[0] = l // all of it, and nothing is throttled
			if g.tick(); g.limit(0).CPU != web.CPU {
				t.Errorf("it has used all of %v, and has %v", l, g.limit(0).CPU)
			}
			if s := g.agent.containers[g.ref(0)].track; s.throttled() {
				t.Error("this test is about a period that is not throttled")
			}
			if g.urgent() {
				t.Error("the ceiling is met, and nothing was throttled")
			}
		})
	}
}

// The half-life follows from how often relief was needed: each one is a throttled
// period, and the target says how many of them may be.
func TestTheHalfLifeFollowsFromTheBursts(t *testing.T) {
	for name, c := range map[string]struct {
		every  time.Duration
		target mdp.Ratio
		want   time.Duration
	}{
		"a burst in 2 s, one period in 50 allowed":  {2 * time.Second, 0.02, mostHalf},
		"a burst in 10 s, one period in 50 allowed": {10 * time.Second, 0.02, leastHalf},
		"a burst in 2 s, one period in 10 allowed":  {2 * time.Second, 0.1, leastHalf},
		"a burst in 10 s, one period in 500":        {10 * time.Second, 0.002, leastHalf},
		"a burst in an hour, none allowed":          {time.Hour, 0, mostHalf},
	} {
		t.Run(name, func(t *testing.T) {
			var s settling
			now := noon
			for range 10 {
				now = now.Add(c.every)
				s.relieved(now, 1000, c.target)
			}
			if s.half != c.want {
				t.Errorf("half-life %v, want %v", s.half, c.want)
			}
			last := mdp.MilliCPU(1000)
			for i := range 100 {
				f := s.floor(now.Add(time.Duration(i)*s.half/10), 200)
				if i == 10 && f != 600 || f > last || f < 200 {
					t.Errorf("after %d tenths of a half-life the floor is %v, before it was %v", i, f, last)
				}
				last = f
			}
			if f := s.floor(now, 1200); f != 1200 {
				t.Errorf("with 1200m wanted the floor is %v", f)
			}
		})
	}
	if f := new(settling).floor(noon, 200); f != 200 {
		t.Errorf("without relief the floor is %v", f)
	}
}

// A policy that wants a little more than a moment ago, and less than there is, does not
// get what the floor of its new wish would be.
func TestSettlingRaisesNothing(t *testing.T) {
	c := managedContainer{settling: settling{at: noon, top: 1000, half: 10 * time.Second}}
	c.inForce = limitsOf(mdp.Size{CPU: 450})
	now := noon.Add(10 * time.Second) // half of what is above the wish is left
	for want, is := range map[mdp.MilliCPU]mdp.MilliCPU{400: 450, 200: 450, 0: 450, 450: 450, 600: 600} {
		if got := c.slowly(now, mdp.Action{}.WithCPU(want)); got.Limit.CPU != is {
			t.Errorf("with %v wanted and 450m in force: %v, want %v", want, got.Limit.CPU, is)
		}
	}
	later := noon.Add(30 * time.Second)
	if got := c.slowly(later, mdp.Action{}.WithCPU(200)); got.Limit.CPU != 300 {
		t.Errorf("after three half-lives with 200m wanted: %v, want 300m", got.Limit.CPU)
	}
	if got := c.slowly(now, mdp.Action{}.WithMemory(64*mdp.MiB)); got != (mdp.Action{}).WithMemory(64*mdp.MiB) {
		t.Errorf("an action for memory only became %v", got)
	}
}

// Where the target has no room a limit stays well above what was used in any tenth of the last seconds, and
// otherwise a little above that of the last second.
func TestALimitComesDownToThePeakThatTheTargetAllows(t *testing.T) {
	for target, want := range map[mdp.Ratio]mdp.MilliCPU{0: 520, 0.019: 520, seldom: 116, 0.1: 116} {
		c := managedContainer{target: target, peak: 400, track: &Track{second: 105}}
		c.inForce = limitsOf(mdp.Size{CPU: 550})
		if got := c.slowly(noon, mdp.Action{}.WithCPU(50)); got.Limit.CPU != want {
			t.Errorf("target %v: 50m is wanted, and set is %v, want %v", target, got.Limit.CPU, want)
		}
	}
}

func TestWhatIsForbiddenBetweenTwoStepsIsNotRelieved(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*rig)
		after   mdp.MilliCPU // the next step; 0: what was in force before
	}{
		"central says observe":               {func(g *rig) { g.grant(api.Observe) }, web.CPU},
		"central says off":                   {func(g *rig) { g.grant(api.Off) }, web.CPU},
		"central pauses":                     {func(g *rig) { g.grant(api.Auto, func(m *api.Grant) { m.Paused = true }) }, 0},
		"the container is no longer granted": {func(g *rig) { g.agent.Apply(g.now, api.Grants{TTL: time.Minute}) }, web.CPU},
		"the API's limit is lowered": {func(g *rig) {
			g.stage.change(0, func(_ *Pod, c *Container) { c.Limits.CPU, c.ResizePending = 400, true })
			g.agent.refresh(g.t.Context(), g.now)
		}, 0},
		"somebody else has written": {func(g *rig) { g.write(0, 33300) }, 0},
		"somebody else has written the memory limit": {func(g *rig) {
			if err := g.host.Tree.Write(g.pathOf(0, "c0"), cgroup.Limits{Memory: 200 * mdp.MiB}); err != nil {
				g.t.Fatal(err)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, cgroup.V1, 1)
			g.shrunk()
			c.happens(g)
			before := g.limit(0).CPU
			g.demand[0] = 50000
			for range 5 {
				g.tick()
				if l := g.limit(0).CPU; l != before {
					t.Fatalf("raised from %v to %v", before, l)
				}
			}
			g.agent.Step(t.Context(), g.now)
			if l := g.limit(0).CPU; c.after > 0 && l != c.after {
				t.Errorf("after the next step the limit is %v, want %v", l, c.after)
			}
			if name != "central pauses" {
				return
			}
			for range 5 {
				if g.tick(); g.limit(0).CPU != before {
					t.Fatalf("raised from %v to %v in a pause", before, g.limit(0))
				}
			}
		})
	}
}

func TestReliefKeepsToALowerGrantAtOnce(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	low := g.shrunk().CPU
	g.grant(api.Auto, atMost(500))
	g.demand[0] = 50000
	for range 3 {
		g.tick()
		if l := g.limit(0).CPU; l > 500 {
			t.Fatalf("raised from %v to %v, granted 500m", low, l)
		}
	}
	g.agent.Step(t.Context(), g.now)
	if l := g.limit(0).CPU; l > 500 {
		t.Errorf("the next step set %v", l)
	}
	g.run(2 * time.Second)
	if l := g.limit(0).CPU; l != 500 {
		t.Errorf("under load it has %v, want the 500m that are granted", l)
	}
}

// The pod's own limits are the kubelet's. It may have lowered them before the news of it
// are heard.
func TestReliefKeepsToThePodsRoom(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.host.Put(t, filepath.Dir(g.pathOf(0, "c0")), "cpu.max", "65500 100000\n")
	g.host.Put(t, filepath.Dir(g.pathOf(0, "c0")), "memory.max", "max\n")
	g.shrunk()
	if l := g.burst(); l != 650 {
		t.Errorf("relieved to %v, and the pod has 655m: want that, in whole steps", l)
	}
}

// The next agent, or whoever restores next, must know a raised limit for ours, although
// the journal was not written for it.
func TestAReliefThatNobodyHeardOfIsRestored(t *testing.T) {
	for name, ends := range map[string]func(*rig){
		"the agent is killed": func(g *rig) { g.boot() },
		"the agent ends": func(g *rig) {
			if err := g.agent.Restore(g.t.Context(), g.now); err != nil {
				g.t.Error(err)
			}
		},
		"central is gone": func(g *rig) {
			g.agent.Apply(g.now, api.Grants{TTL: time.Minute})
			g.agent.Step(g.t.Context(), g.now)
		},
		"the owner opts out": func(g *rig) {
			pods := g.stage.pods
			g.stage.pods, g.stage.optedOut = nil, pods
			g.agent.Step(g.t.Context(), g.now)
			g.agent.Step(g.t.Context(), g.now.Add(time.Second))
			g.stage.pods, g.stage.optedOut = pods, nil
		},
	} {
		for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			t.Run(fmt.Sprint(name, " ", version), func(t *testing.T) {
				g := newRig(t, version, 1)
				g.grant(api.Auto, atMost(705))
				g.run(10 * time.Second)
				if l := g.burst(); l != 705 {
					t.Fatalf("relieved to %v, want 705m", l)
				}
				g.demand[0] = 100
				ends(g)
				if l := g.limit(0); l != web {
					t.Errorf("limits %v, want the API's %v", l, web)
				}
				g.isRestored(name)
			})
		}
	}
}

// hooked is a runtime with something that happens while a call is made.
type hooked struct {
	cri.Runtime
	before, after func() // the cgroup is written
}

func (h hooked) Update(ctx context.Context, id string, c cri.Change) error {
	h.before()
	err := h.Runtime.Update(ctx, id, c)
	h.after()
	return err
}

// A shrink takes the runtime a while. A burst that comes meanwhile is relieved, whether
// the shrink is in force already or not, and a late shrink does not take that back.
func TestAShrinkThatIsOnItsWayDoesNotTakeReliefBack(t *testing.T) {
	for _, when := range []string{"before it is in force", "when it is in force"} {
		t.Run(when, func(t *testing.T) {
			g := newRig(t, cgroup.V1, 1)
			did := true
			during := func() {
				if did {
					return
				}
				did = true
				if l := g.burst(); l != web.CPU {
					t.Errorf("relieved to %v", l)
				}
				g.demand[0] = 100
			}
			runtime := hooked{g.client, func() {}, func() {}}
			if when == "before it is in force" {
				runtime.before = during
			} else {
				runtime.after = during
			}
			g.runtime = runtime
			g.boot()
			g.demand[0] = 400
			g.grant(api.Auto)
			g.run(12 * time.Second)
			if l := g.limit(0).CPU; l > 600 {
				t.Fatalf("with 400m in use the limit is %v", l)
			}
			g.demand[0] = 100
			did = false
			for i := 0; !did; i++ {
				if g.run(time.Second); i > 60 {
					t.Fatalf("with 100m in use the limit stays %v", g.limit(0))
				}
			}
			if l := g.limit(0).CPU; l != web.CPU {
				t.Errorf("a shrink that was on its way left %v", l)
			}
			if s := g.summary(0); s.Conflicts != 0 {
				t.Errorf("a conflict with itself: %+v", s)
			}
		})
	}
}

// A call that missed its deadline lands seconds later, with an older value of ours. The next burst
// is relieved as ever.
func TestABurstAfterALateCallIsRelieved(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	slow := &late{Runtime: g.client}
	g.runtime = slow
	wants := mdp.MilliCPU(400)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
			if s.Limit.CPU <= wants {
				return mdp.Action{}, nil
			}
			return mdp.Action{}.WithCPU(wants), nil
		})
	}
	g.boot()
	slow.next = true
	g.demand[0] = 50
	g.grant(api.Auto)
	for i := 0; slow.land == nil && i < 10; i++ {
		g.run(time.Second)
	}
	wants = 200
	g.run(time.Second)
	if l := g.limit(0).CPU; slow.land == nil || l != 200 {
		t.Fatalf("the limit is %v: want a call that has not landed, and 200m", l)
	}
	if err := slow.land(); err != nil {
		t.Fatal(err)
	}
	wants = 500 // it stays as it landed
	g.run(2 * time.Second)
	if l := g.limit(0).CPU; l == 200 {
		t.Fatalf("the limit is %v: the call did not land", l)
	}
	if l := g.burst(); l != web.CPU {
		t.Errorf("relieved to %v", l)
	}
}

// The limits are restored by a call of the runtime. A burst meanwhile is not relieved: the
// call does that, and nothing is ours any more.
func TestABurstWhileLimitsAreRestoredIsNotRelieved(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	tried := false
	runtime := hooked{g.client, func() {
		if len(g.agent.grants.byContainer) > 0 && g.agent.grants.byContainer[g.ref(0)].Mode == api.Auto {
			return
		}
		tried = true
		before := g.limit(0).CPU
		g.demand[0] = 50000
		for range 3 {
			g.tick()
		}
		if l := g.limit(0).CPU; l != before {
			t.Errorf("raised from %v to %v", before, l)
		}
	}, func() {}}
	g.runtime = runtime
	g.boot()
	g.shrunk()
	g.grant(api.Observe)
	g.run(2 * time.Second)
	if s := g.summary(0); !tried || s.Problem != "" {
		t.Errorf("tried %v: %+v", tried, s)
	}
	g.isRestored("after observe")
}

// The runtime's update of one limit sets the others to what it knows of them. So what it
// was not told goes with each call: otherwise it would take our own raise back, and that
// would pass for somebody else's change.
func TestACallForMemoryDoesNotTakeReliefBack(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			wants := mdp.Action{}.WithCPU(300).WithMemory(128 * mdp.MiB)
			g.policy = func(api.ContainerRef) mdp.Policy {
				return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
			}
			g.boot()
			g.grant(api.Auto)
			g.run(20 * time.Second)
			wants = mdp.Action{}.WithMemory(web.Memory)
			g.burst()
			g.demand[0] = 299
			for range 20 {
				g.tick()
			}
			eased := g.limit(0).CPU
			g.agent.Step(t.Context(), g.now)
			if l := g.limit(0); eased <= 300 || l.CPU != eased || l.Memory < web.Memory {
				t.Fatalf("after a call for memory the limits are %v, and relief was %v", l, eased)
			}
			g.demand[0] = 299
			g.run(3 * time.Second)
			if s := g.summary(0); s.Conflicts != 0 || g.limit(0).CPU != eased {
				t.Errorf("limits %v: %+v", g.limit(0), s)
			}
			g.grant(api.Observe)
			g.run(2 * time.Second)
			g.isRestored("after observe")
		})
	}
}

// A limit that moves all the time is one that the runtime was not told of. A resize, or a call of somebody else, brings back what
// the runtime knows, and the step that finds it goes on from what was in force before, too.
func TestAResizeLiftsAMovingLimitForOneStepOnly(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			moves := mdp.MilliCPU(0)
			g.policy = func(api.ContainerRef) mdp.Policy {
				return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
					moves = (moves + 10) % 30
					return mdp.Action{}.WithCPU(200 + moves), nil
				})
			}
			g.boot()
			g.demand[0] = 50
			resets := 0
			for range 30 {
				g.grant(api.Auto)
				g.run(time.Second)
				o, was := g.agent.containers[g.ref(0)].ownership, g.limit(0).CPU
				if !o.Behind || o.Before.CPU() < 300 {
					continue
				}
				resets++
				if err := g.client.Update(t.Context(), "c0", change(o.Before.Size())); err != nil {
					t.Fatal(err)
				}
				g.run(time.Second)
				if l := g.limit(0).CPU; l > max(was, 220) {
					t.Errorf("%v was in force, and %v was brought back; a step later %v is in force", was, o.Before.Size(), l)
				}
			}
			if s := g.summary(0); resets == 0 || s.Conflicts != 0 {
				t.Errorf("%d conflicts in %d resets", s.Conflicts, resets)
			}
		})
	}
}

// resizedInRelief is a resize that comes while relief is in force, which is all that the API has: what it lifts is memory alone.
// The sampler takes the relief back to what was in force before, and the step has not looked.
func (g *rig) resizedInRelief(before mdp.MilliCPU) {
	g.t.Helper()
	g.burst()
	g.stage.change(0, func(_ *Pod, c *Container) { c.Requests.CPU += 10 })
	if err := g.client.Update(g.t.Context(), "c0", change(web)); err != nil {
		g.t.Fatal(err)
	}
	g.demand[0] = 50
	for range 2 * mostCalmSamples {
		g.tick()
	}
	if l := g.limit(0); l.CPU != before || l.Memory != web.Memory {
		g.t.Fatalf("the limits are %v; the CPU limit was %v, and relief is over", l, before)
	}
}

// After a resize that met relief the step finds that the CPU limit is ours, and the next burst is relieved up to the ceiling.
func TestAResizeDuringReliefLeavesTheCeiling(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			g.policy = func(api.ContainerRef) mdp.Policy {
				return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
					return mdp.Action{}.WithCPU(300).WithMemory(128 * mdp.MiB), nil
				})
			}
			g.boot()
			g.demand[0] = 50
			g.grant(api.Auto)
			g.run(30 * time.Second)
			low := g.limit(0)
			g.resizedInRelief(low.CPU)
			g.grant(api.Auto)
			g.agent.Step(t.Context(), g.now)
			if ceiling := g.agent.containers[g.ref(0)].facts.Ceiling(); ceiling != web {
				t.Errorf("the ceiling is %v, and the API has %v", ceiling, web)
			}
			g.run(2 * time.Second)
			if l := g.burst(); l != web.CPU {
				t.Errorf("a burst is relieved up to %v: %+v", l, g.summary(0))
			}
		})
	}
}

// What somebody else has set is a ceiling until the kubelet sets what the API says.
func TestAResizeEndsSomebodyElsesCeiling(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.shrunk()
	g.write(0, 70000)
	g.run(time.Second)
	c := g.agent.containers[g.ref(0)]
	if ceiling := c.facts.Ceiling(); ceiling.CPU != 700 {
		t.Fatalf("somebody else has set 700m, and the ceiling is %v", ceiling)
	}
	g.stage.change(0, func(_ *Pod, c *Container) { c.Requests.CPU += 10 })
	if err := g.client.Update(t.Context(), "c0", change(web)); err != nil {
		t.Fatal(err)
	}
	g.grant(api.Auto)
	g.run(time.Second)
	if ceiling := c.facts.Ceiling(); ceiling != web {
		t.Errorf("the kubelet has set %v, and the ceiling is %v", web, ceiling)
	}
}

// The API's news of a request do not explain a limit that they do not have: it is a ceiling, whose news are late.
func TestNewsOfARequestDoNotExplainALowerLimit(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.shrunk()
	g.stage.change(0, func(_ *Pod, c *Container) { c.Requests.CPU += 10 })
	if err := g.client.Update(t.Context(), "c0", change(mdp.Size{CPU: 700, Memory: web.Memory})); err != nil {
		t.Fatal(err)
	}
	g.grant(api.Auto)
	g.run(time.Second)
	if ceiling := g.agent.containers[g.ref(0)].facts.Ceiling(); ceiling.CPU != 700 {
		t.Errorf("the kubelet has set 700m, and the ceiling is %v", ceiling)
	}
}

// A resize can come into the begin of a burst. What it lifts the limit to is relief then, and settles as relief does: what has
// been used until the step is not what the burst will need.
func TestAResizeThatComesIntoABurstIsRelief(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			low := g.shrunk().CPU
			for i := range 5 {
				g.grant(api.Auto)
				quiet := g.demand[0]
				g.stage.change(0, func(_ *Pod, c *Container) { c.Requests.CPU += 10 })
				if err := g.client.Update(t.Context(), "c0", change(web)); err != nil {
					t.Fatal(err)
				}
				g.demand[0] = web.CPU * 4 / 10
				g.run(time.Second)
				if l := g.limit(0).CPU; l < 2*g.demand[0] {
					t.Errorf("resize %d: %v is in use, and a step after the resize %v is in force; it was %v before",
						i, g.demand[0], l, low)
				}
				g.demand[0] = quiet
				g.run(40 * time.Second)
				if l := g.limit(0).CPU; l > low*11/10 {
					t.Errorf("resize %d: long after the burst %v is in force, and it was %v before", i, l, low)
				}
			}
			if s := g.summary(0); s.Conflicts != 0 {
				t.Errorf("%d conflicts", s.Conflicts)
			}
		})
	}
}

// What somebody's update lowers stays low until the policy wants more: it may be the API's new limit, of which the agent has
// not heard.
func TestALimitThatAnUpdateLowersIsNotRaisedAgain(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	wants := mdp.Action{}.WithCPU(300)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
	}
	g.boot()
	g.demand[0] = 50
	g.grant(api.Auto)
	g.run(10 * time.Second)
	wants = mdp.Action{}.WithCPU(600)
	g.run(time.Second)
	o := g.agent.containers[g.ref(0)].ownership
	if !o.Behind || o.Before.CPU() != 300 || g.limit(0).CPU != 600 {
		t.Fatalf("%v is in force, and the runtime knows %v", g.limit(0), o.Before.Size())
	}
	wants = mdp.Action{}
	if err := g.client.Update(t.Context(), "c0", change(o.Before.Size())); err != nil {
		t.Fatal(err)
	}
	g.agent.Step(t.Context(), g.now)
	if l := g.limit(0).CPU; l != 300 {
		t.Errorf("an update has lowered the limit to 300m, the policy wants nothing, and %v is in force", l)
	}
}

// Central changes requests, and the ceiling stays. The kubelet sets all that the API has,
// the limit with it. That is no conflict, however often. Here the memory limit is ours, and
// as large as the API's.
func TestAResizeOfRequestsIsNoConflict(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	wants := mdp.Action{}.WithCPU(300).WithMemory(128 * mdp.MiB)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
	}
	g.boot()
	g.demand[0] = 100
	g.grant(api.Auto)
	g.run(20 * time.Second)
	wants = mdp.Action{}.WithCPU(300).WithMemory(web.Memory)
	for i := range 6 {
		g.grant(api.Auto)
		g.run(15 * time.Second)
		if l := g.limit(0); l.CPU != 300 || l.Memory != web.Memory {
			t.Fatalf("after %d resizes the limits are %v: %+v", i, l, g.summary(0))
		}
		g.stage.change(0, func(_ *Pod, c *Container) { c.Requests.CPU += 10 })
		if err := g.client.Update(t.Context(), "c0", change(web)); err != nil {
			t.Fatal(err)
		}
	}
	g.run(time.Second)
	if s := g.summary(0); s.Conflicts != 0 || strings.Contains(s.Problem, "ConflictDetected") {
		t.Errorf("%+v", s)
	}
}

// The kubelet sets all limits anew with a resize of a request. The step that finds it goes on from what was
// in force before: it does not come down from the ceiling again, which takes seconds.
func TestAResizeLiftsTheLimitForOneStepOnly(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			low := g.shrunk().CPU
			for i := range 5 {
				g.grant(api.Auto)
				g.stage.change(0, func(_ *Pod, c *Container) { c.Requests.CPU += 10 })
				if err := g.client.Update(t.Context(), "c0", change(web)); err != nil {
					t.Fatal(err)
				}
				if l := g.limit(0).CPU; l != web.CPU {
					t.Fatalf("after a resize %v is in force", l)
				}
				g.run(time.Second)
				if l := g.limit(0).CPU; l > low*11/10 {
					t.Errorf("resize %d: %v is in force a step later, and %v was before", i, l, low)
				}
				g.run(4 * time.Second)
			}
			if s := g.summary(0); s.Conflicts != 0 {
				t.Errorf("%d conflicts", s.Conflicts)
			}
			g.stage.change(0, func(_ *Pod, c *Container) { c.Limits.CPU = 60 }) // below what was in force
			if err := g.client.Update(t.Context(), "c0", change(mdp.Size{CPU: 60, Memory: web.Memory})); err != nil {
				t.Fatal(err)
			}
			if g.run(time.Second); g.limit(0).CPU > 60 {
				t.Errorf("%v is in force, and the API gives 60m", g.limit(0))
			}
		})
	}
}

// Each entry is synced to disk, which takes milliseconds on a busy one.
func TestTheJournalIsNotWrittenForEachStep(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.grant(api.Auto)
	path := filepath.Join(g.dir, "journal")
	for i := range 60 {
		g.demand[0] = mdp.MilliCPU(150 + 20*(i%7))
		if i%10 == 9 {
			g.burst()
		}
		g.run(time.Second)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	moves := g.summary(0).Resizes
	if lines := strings.Count(string(b), "\n"); lines > 12 || moves < 15 {
		t.Errorf("%d lines for %d resizes", lines, moves)
	}
}

// An entry that is not on disk covers nothing: without it nothing is raised that a next
// agent would not know.
func TestWithoutAJournalTheLaneStaysShut(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.grant(api.Auto, atMost(600))
	g.run(10 * time.Second)
	before := g.limit(0).CPU
	if before >= 600 {
		t.Fatalf("the limit is %v", before)
	}
	if err := g.agent.journal.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(g.dir, g.dir+".away"); err != nil {
		t.Fatal(err)
	}
	g.grant(api.Auto, atMost(900))
	for range 2 {
		g.now = g.now.Add(time.Second)
		g.agent.Step(t.Context(), g.now)
	}
	g.demand[0] = 50000
	for range 5 {
		g.tick()
	}
	if l := g.limit(0).CPU; l > 600 {
		t.Errorf("raised from %v to %v, and the journal has 600m at most", before, l)
	}
}

// Where the cgroup may not be written the runtime is asked in the same moment, and not
// at the next step.
func TestWhereTheCgroupIsReadOnlyTheRuntimeIsAskedAtOnce(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	view := t.TempDir()
	if err := unix.Mount(g.host.Tree.Root(), view, "", unix.MS_BIND, ""); errors.Is(err, unix.EPERM) {
		t.Skip("mounting needs root: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(view, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", view, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroup.Open(view)
	if err != nil {
		t.Fatal(err)
	}
	writable := g.host.Tree
	g.host.Tree = tree
	g.boot()
	g.host.Tree = writable
	g.shrunk()
	g.run(2 * time.Second)
	// Nobody relieves it within a sample: the period is the usual one, and no peak is left to the lane.
	if l := g.host.Limits(t, g.pathOf(0, "c0")); l.Period != 100_000 {
		t.Errorf("%+v is in force", l)
	}
	c := g.agent.containers[g.ref(0)]
	c.target = 0.1
	s := mdp.State{Limit: web, Observed: mdp.SetOf(mdp.CPULimit)}
	if a := c.atRest(s, mdp.Action{}); a != (mdp.Action{}) || c.track.window() != 1 {
		t.Errorf("at rest it is to have %v, by samples of %d tenths", a, c.track.window())
	}
	g.demand[0] = 50000
	for range 3 {
		g.tick()
	}
	select {
	case <-g.agent.wanted:
		g.now = g.now.Add(time.Second) // the runtime's least time between two calls
		g.agent.relieve(t.Context(), g.now)
	default:
		t.Fatal("the sampler could not write, and nobody was told")
	}
	if l := g.limit(0).CPU; l != web.CPU {
		t.Errorf("the limit is %v", l)
	}
	g.demand[0] = 200
	g.run(time.Second)
	if l := g.limit(0).CPU; l < web.CPU/2 {
		t.Errorf("a second later it is %v", l)
	}
}

// urgent reports whether a report may not wait.
func (g *rig) urgent() bool {
	select {
	case <-g.agent.wanted:
		g.agent.relieve(g.t.Context(), g.now)
	default:
	}
	select {
	case <-g.agent.Urgent():
		return true
	default:
		return false
	}
}

// When the ceiling is met only more replicas help, and they take seconds to start. So it
// is reported within two samples, without a step, and then as often as anything else.
func TestACeilingThatIsMetIsReportedAtOnce(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 2)
			g.shrunk()
			if g.urgent() {
				t.Fatal("urgent without a burst")
			}
			g.burst()
			if g.urgent() {
				t.Error("urgent as soon as it is relieved")
			}
			samples := 0
			for ; samples < 20 && !g.urgent(); samples++ {
				g.tick()
			}
			if samples > 3 {
				t.Errorf("not urgent before %d samples at the ceiling", samples)
			}
			s := g.summary(0)
			if !s.AtCeiling() || s.State.Limit.CPU != web.CPU || !s.State.Knows(mdp.CPUBurst) || s.State.Usage.CPU == 0 {
				t.Errorf("the report is %+v", s)
			}
			if g.summary(1).AtCeiling() {
				t.Error("its neighbour has met its ceiling too")
			}
			again := g.now
			for !g.urgent() && g.now.Sub(again) < time.Minute {
				g.tick()
			}
			if after := g.now.Sub(again); after < api.ReportEvery || after > api.ReportEvery+time.Second {
				t.Errorf("urgent again after %v, want as often as it is reported anyway", after)
			}
			g.demand[0] = 1
			g.run(2 * time.Second)
			g.urgent()
			for range 100 {
				if g.tick(); g.urgent() {
					t.Fatal("urgent without load")
				}
			}
		})
	}
}

// A container that was never touched has no lane. Its ceiling is the API's limit.
func TestACeilingIsMetAlsoByAContainerThatWasNeverTouched(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.demand[0] = 50000
	g.grant(api.Observe)
	for range 3 {
		g.run(time.Second)
		if g.urgent() {
			if s := g.summary(0); !s.AtCeiling() {
				t.Errorf("the report is %+v", s)
			}
			return
		}
	}
	t.Errorf("never urgent: %+v", g.summary(0))
}

// BenchmarkRaise is the time from the sample's end to the return of the write, on this
// host's cgroups. Compare with a bare write of the file:
//
//	go test -bench 'Raise' -count 6 ./nodeagent/agent | benchstat -
func BenchmarkRaise(b *testing.B) {
	host := cgrouptest.Real(b)
	path := host.Parent + "/raise"
	low, top := limitsOf(mdp.Size{CPU: 100}), limitsOf(mdp.Size{CPU: 1000})
	host.Add(b, path, low)
	group, err := host.Tree.Group(path)
	if err != nil {
		b.Fatal(err)
	}
	s := &Sampler{tree: host.Tree}
	t := s.Add(group)
	defer s.Remove(t)
	t.count, t.next = 2, 2
	t.ring[0].Observed, t.ring[1].Observed = cgroup.Throttling, cgroup.Throttling
	t.ring[1].ThrottledPeriods = 1
	b.Run("lane", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			if err := host.Tree.Write(path, low); err != nil {
				b.Fatal(err)
			}
			s.Open(t, lane{has: low, top: top})
			b.StartTimer()
			t.relieve(s.tree, noon)
			if t.lane.news.at.IsZero() {
				b.Fatal(t.lane.news.err)
			}
		}
	})
	b.Run("bare write", func(b *testing.B) {
		file, values := filepath.Join(host.Tree.Root(), "cpu", path, "cpu.cfs_quota_us"), []string{"10000", "100000"}
		if host.Tree.Version() == cgroup.V2 {
			file, values = filepath.Join(host.Tree.Root(), path, "cpu.max"), []string{"10000 100000", "100000 100000"}
		}
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		for i := 0; b.Loop(); i++ {
			if _, err := f.WriteString(values[i%2]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A memory limit that comes down is a call of the runtime, which takes CPU from a burst: it waits for the burst's end, a
// minute at most. One that rises does not wait.
func TestMemoryIsNotLoweredInABurst(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"a short burst": 20 * time.Second, "a long burst": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, cgroup.V1, 1)
			wants := mdp.Action{}.WithCPU(300).WithMemory(128 * mdp.MiB)
			g.policy = func(api.ContainerRef) mdp.Policy {
				return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
			}
			g.boot()
			g.agent.config.Guards.MemoryDwell = 0 // nothing else holds it
			run := func(seconds time.Duration) {
				for range seconds / time.Second {
					g.grant(api.Auto) // a grant holds for a minute
					g.run(time.Second)
				}
			}
			run(20 * time.Second)
			before := g.limit(0).Memory
			g.burst()
			run(2 * time.Second)
			wants = wants.WithMemory(before * 3 / 4)
			g.demand[0] = 700
			run(lasts - 2*time.Second)
			if is := g.limit(0).Memory; (is == before) != (lasts < longBurst) {
				t.Errorf("%v into a burst the memory limit is %v, and was %v", lasts, is, before)
			}
			raised := before * 3 / 2
			wants = wants.WithMemory(raised)
			if run(2 * time.Second); g.limit(0).Memory != raised {
				t.Errorf("in a burst the memory limit is %v, and %v is wanted", g.limit(0).Memory, raised)
			}
			wants = wants.WithMemory(before)
			g.demand[0] = 50
			if run(70 * time.Second); g.limit(0).Memory != before {
				t.Errorf("after the burst the memory limit is %v, want %v", g.limit(0).Memory, before)
			}
		})
	}
}

// A memory limit that is wanted a little higher each second costs no call each second, as long as there is enough.
func TestMemoryThatIsHardlyMoreCostsNoCall(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	wants := mdp.Action{}.WithMemory(128 * mdp.MiB)
	g.policy = func(api.ContainerRef) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, nil })
	}
	g.boot()
	g.memory[0] = 80 * mdp.MiB
	g.grant(api.Auto)
	g.run(20 * time.Second)
	calls := len(g.server.Calls())
	for i := range mdp.Bytes(12) {
		wants = wants.WithMemory((128 + i) * mdp.MiB)
		g.run(time.Second)
	}
	if n := len(g.server.Calls()) - calls; n != 0 || g.limit(0).Memory != 128*mdp.MiB {
		t.Errorf("%d calls for a mebibyte each, and the limit is %v", n, g.limit(0).Memory)
	}
	for used := range mdp.Bytes(6) { // until less than a quarter is left above it
		g.memory[0] = (80 + 5*used) * mdp.MiB
		g.run(time.Second)
	}
	if l := g.limit(0).Memory; l != 139*mdp.MiB {
		t.Errorf("the limit is %v, with 105Mi in use and 139Mi wanted", l)
	}
}

// What was in force before a relief is history when limits were restored since: the journal has another entry, which
// does not know it. It is not set when the container does nothing, however long after.
func TestReliefOfBeforeARestoreIsNotTakenBack(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			want := mdp.MilliCPU(60)
			g.follows(&want)
			g.demand[0] = 20
			g.grant(api.Auto)
			g.run(10 * time.Second)
			g.burst()
			g.demand[0] = 100 // too much for what was in force before: the relief is not over
			g.run(2 * time.Second)
			g.grant(api.Off)
			g.run(lateGrace + 5*time.Second)
			want = 300
			g.grant(api.Auto)
			g.run(20 * time.Second)
			g.demand[0] = 0
			for range 2 * mostCalmSamples {
				g.tick()
				l := g.host.Limits(t, g.pathOf(0, "c0")).Only(mdp.SetOf(mdp.CPULimit))
				if e, ok := g.agent.journal.Get("c0"); !ok || l.CPU() != want || !e.Wrote.Covers(l) {
					t.Fatalf("%v is wanted, and %+v in force; the journal has %+v", want, l, e)
				}
			}
		})
	}
}
