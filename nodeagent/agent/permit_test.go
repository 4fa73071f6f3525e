package agent

import (
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"awarescale.dev/aware/nodeagent/cgroup"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// permit gives the node a permit, with the last grants.
func (g *rig) permit(number uint64, amount mdp.Size) {
	g.agent.Renew(g.now, api.Permit{ID: api.PermitID{Epoch: 1, Number: number}, Amount: amount})
}

// has makes the node have so much memory to give away.
func (g *rig) has(spare mdp.Bytes) {
	free := memoryMargin + spare
	g.free = &free
}

// sum is what the limits in force come to.
func (g *rig) sum() mdp.Size {
	g.t.Helper()
	var s mdp.Size
	for i := range g.stage.Snapshot() {
		s = plus(s, g.limit(i))
	}
	return s
}

// urged is whether a report is wanted at once.
func (g *rig) urged() bool {
	select {
	case <-g.agent.Urgent():
		return true
	default:
		return false
	}
}

// settled is a node whose limits are down: two containers of which each has 64Mi in use and
// 128Mi as its limit.
func settled(t *testing.T) *rig {
	t.Helper()
	g := newRig(t, cgroup.V2, 2)
	g.shrunk()
	if l := g.limit(1); l.Memory != 128*mdp.MiB || g.limit(0).Memory != l.Memory {
		t.Fatalf("the limits are %v and %v", g.limit(0), l)
	}
	return g
}

func TestACPURaiseNeverWaitsForAPermit(t *testing.T) {
	g := settled(t)
	g.has(0)
	g.permit(1, mdp.Size{CPU: 10, Memory: 1})
	g.run(time.Second)
	g.urged()
	g.demand[0], g.demand[1] = 5000, 5000
	g.run(5 * time.Second)
	for i := range 2 {
		if l := g.limit(i); l.CPU != web.CPU {
			t.Errorf("container %d has %v: a permit that is too small stopped a CPU raise", i, l.CPU)
		}
	}
	if r := g.agent.Report(g.now); r.Account.InForce.CPU != 2*web.CPU || r.Account.Asked.CPU != 2*web.CPU {
		t.Errorf("account %+v, want that it has and asks for %v", r.Account, 2*web.CPU)
	}
	if !g.urged() {
		t.Error("nothing was asked for at once")
	}
}

// Nor does one of the step's own.
func TestAStepRaisesACPULimitBeyondThePermit(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	wants := mdp.MilliCPU(300)
	g.counted(&wants)
	g.demand[0] = 50
	g.grant(api.Auto)
	g.run(10 * time.Second)
	g.has(0)
	g.permit(1, mdp.Size{CPU: 10, Memory: 1})
	wants = 900
	g.run(2 * time.Second)
	if l := g.limit(0).CPU; l != 900 {
		t.Errorf("the limit is %v, want 900m", l)
	}
}

// A memory limit goes up to what the permit and the node have, and on when there is more.
func TestAMemoryRaiseWaitsForThePermitOrTheNode(t *testing.T) {
	const low = 128 * mdp.MiB
	for name, c := range map[string]struct {
		permit mdp.Bytes // for both containers; 0: none
		spare  mdp.Bytes // that the node has; -1: not known
		want   mdp.Bytes // of a limit that is to be 180Mi
	}{
		"neither has room":                         {2 * low, 0, low},
		"neither has room, and less is permitted":  {low, 0, low},
		"the permit has room":                      {2*low + 52*mdp.MiB, 0, 180 * mdp.MiB},
		"the permit has some room":                 {2*low + 20*mdp.MiB, 0, low + 20*mdp.MiB},
		"the node has room":                        {2 * low, 100 * mdp.MiB, 180 * mdp.MiB},
		"the node has some room":                   {2 * low, 20 * mdp.MiB, low + 20*mdp.MiB},
		"both have some room":                      {2*low + 10*mdp.MiB, 20 * mdp.MiB, low + 30*mdp.MiB},
		"the node's memory is not known":           {2 * low, -1, low},
		"it is not known, and the permit has room": {4 * low, -1, 180 * mdp.MiB},
		"much is in force beyond the permit":       {low / 2, 100 * mdp.MiB, 180 * mdp.MiB},
		"there is no permit":                       {0, 0, web.Memory},
	} {
		t.Run(name, func(t *testing.T) {
			g := settled(t)
			if c.spare >= 0 {
				g.has(c.spare)
			}
			if c.permit > 0 {
				g.permit(1, mdp.Size{Memory: c.permit})
			}
			g.memory[0] = 120 * mdp.MiB
			g.run(2 * time.Second)
			if l := g.limit(0).Memory; l != c.want {
				t.Errorf("with 120Mi in use the limit is %v, want %v", l, c.want)
			}
			s, waits := g.summary(0), c.want < 180*mdp.MiB
			clipped, says := s.Want.Clipped&mdp.ClippedBudget != 0, strings.Contains(s.Problem, "its memory limit waits")
			if clipped != waits || says != waits {
				t.Errorf("clipped by %v, problem %q: want that it says whether it waits: %v", s.Want.Clipped, s.Problem, waits)
			}
			if a := g.agent.Report(g.now).Account; waits && a.Asked.Memory <= c.permit {
				t.Errorf("account %+v: it waits, and asks for no more than it has", a)
			}
			g.permit(2, mdp.Size{Memory: 10 * low})
			g.run(2 * time.Second)
			if l := g.limit(0).Memory; l != max(c.want, 180*mdp.MiB) {
				t.Errorf("with a larger permit the limit is %v", l)
			}
		})
	}
}

// What was taken of the node's memory counts until there is another permit: who gave that knows of it.
func TestWhatWasTakenCountsUnderOnePermit(t *testing.T) {
	const low = 128 * mdp.MiB
	g := settled(t)
	g.permit(1, mdp.Size{Memory: 2 * low})
	g.memory[0] = 120 * mdp.MiB // a limit of 180Mi is wanted
	for _, c := range []struct {
		permit uint64
		spare  mdp.Bytes
		want   mdp.Bytes
	}{{1, 20, 148}, {1, 12, 148}, {1, 34, 162}, {2, 18, 180}} {
		g.permit(c.permit, mdp.Size{Memory: 2 * low})
		g.has(c.spare * mdp.MiB)
		g.run(2 * time.Second)
		if l := g.limit(0).Memory; l != c.want*mdp.MiB {
			t.Errorf("permit %d, and %dMi to give: the limit is %v, want %dMi", c.permit, c.spare, l, c.want)
		}
	}
}

// Whatever the containers use, permits come and the node has: under one permit the memory
// limits are raised by no more than what both have together. The report says what is in force,
// and asks for no more than there can be.
func TestMemoryIsNotPromisedTwice(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, uint64(version)))
			g := newRig(t, version, 4)
			g.agent.config.Guards.MemoryDwell = 0 // so that limits go up and down
			g.grant(api.Auto)
			g.run(5 * time.Second)
			raised, bound := 0, 0
			for number := range uint64(60) {
				before := g.sum().Memory
				amount := max(0, before+mdp.Bytes(rng.IntN(200)-100)*mdp.MiB) + mdp.Bytes(rng.IntN(4096))
				spare := mdp.Bytes(max(0, rng.IntN(160)-100)) * mdp.MiB
				g.grant(api.Auto)
				g.permit(number+1, mdp.Size{CPU: mdp.MilliCPU(rng.IntN(4000)), Memory: amount})
				g.has(spare)
				for i := range g.memory {
					g.memory[i] = mdp.Bytes(16+rng.IntN(150)) * mdp.MiB
				}
				g.run(time.Duration(1+rng.IntN(3)) * time.Second)
				after := g.sum()
				if most := max(before, amount) + spare; after.Memory > most {
					t.Fatalf("step %d: %v of limits became %v, with a permit for %v and %v free",
						number, before, after.Memory, amount, spare)
				} else if after.Memory > before {
					raised++
					if after.Memory > most-8192 {
						bound++
					}
				}
				a := g.agent.Report(g.now).Account
				tooMuch := a.Asked.Memory > 4*web.Memory || a.Asked.CPU > 4*web.CPU
				if a.InForce.Memory < after.Memory || a.Holds.Number != number+1 || tooMuch {
					t.Fatalf("step %d: account %+v, with %v in force", number, a, after)
				}
			}
			if raised < 20 || bound < 10 {
				t.Errorf("%d steps raised something, and %d all that they could", raised, bound)
			}
			g.run(3 * time.Second)
			if a, is := g.agent.Report(g.now).Account, g.sum(); a.InForce != is {
				t.Errorf("when nothing moves %v is reported, and %v is in force", a.InForce, is)
			}
		})
	}
}

func TestWhatIsAskedFor(t *testing.T) {
	for name, c := range map[string]struct{ sum, ceilings, permitted, want mdp.Bytes }{
		"half more, at first":               {100, 1000, 0, 150},
		"the same, while it is enough":      {100, 1000, 150, 150},
		"the same, at four fifths of it":    {120, 1000, 150, 150},
		"more, above four fifths":           {121, 1000, 150, 181},
		"the same, at two fifths of it":     {60, 1000, 150, 150},
		"less, below two fifths":            {59, 1000, 150, 88},
		"not more than there can be":        {900, 1000, 950, 1000},
		"not more than there can be now":    {500, 600, 1000, 600},
		"what is in force above a ceiling":  {700, 600, 800, 700},
		"nothing, when there is nothing":    {0, 0, 0, 0},
		"nothing, when there is nothing on": {0, 0, 500, 0},
	} {
		if got := ask(c.sum, c.ceilings, c.permitted); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// More is asked for at once when it is news, and not more often than reports are sent anyway.
func TestMoreIsAskedForAtOnceButNotAllTheTime(t *testing.T) {
	g := settled(t)
	g.run(5 * time.Second)
	g.urged()
	g.permit(1, mdp.Size{CPU: 9999, Memory: 400 * mdp.MiB})
	g.run(3 * time.Second)
	if g.urged() {
		t.Error("the permit is enough, and more was asked for")
	}
	g.permit(2, mdp.Size{CPU: 9999, Memory: 300 * mdp.MiB}) // 256Mi is in force
	g.run(time.Second)
	if !g.urged() {
		t.Error("more than four fifths are in force, and nothing was asked for at once")
	}
	times := 0
	for range 20 {
		g.run(time.Second)
		if g.urged() {
			times++
		}
	}
	if times != 0 {
		t.Errorf("what had been asked for was asked for %d times more", times)
	}
	g.permit(3, mdp.Size{CPU: 9999, Memory: 400 * mdp.MiB})
	g.run(api.ReportEvery)
	g.permit(4, mdp.Size{CPU: 9999, Memory: 300 * mdp.MiB})
	g.run(time.Second)
	if !g.urged() {
		t.Error("what was enough is not any more, and nothing was asked for at once")
	}
	g.has(10 << 30)
	for i := range 10 {
		g.memory[0] = mdp.Bytes(64+10*i) * mdp.MiB
		g.run(time.Second)
		if g.urged() {
			times++
		}
	}
	if times == 0 || times > 3 {
		t.Errorf("in 10 s of raises more was asked for %d times", times)
	}
}

// Central is away: when the grants end the API's limits come back, those of memory as the node
// has room for them.
func TestMemoryIsRestoredAsTheNodeHasRoom(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			low := g.shrunk()
			g.permit(1, mdp.Size{CPU: 2000, Memory: 400 * mdp.MiB})
			g.has(0)
			g.run(time.Minute + 2*time.Second)
			if l := g.limit(0); l.CPU != web.CPU || l.Memory >= web.Memory {
				t.Fatalf("after the grants' end the limits are %v; want the API's CPU, and memory that waits", l)
			}
			low = g.limit(0) // a step lower than a minute ago
			if s := g.summary(0); !strings.Contains(s.Problem, "when the node has room") {
				t.Errorf("problem %q", s.Problem)
			}
			calls := len(g.server.Calls())
			g.has(5 * mdp.MiB)
			g.run(10 * time.Second)
			if l := g.limit(0); l.Memory != low.Memory || len(g.server.Calls()) != calls {
				t.Errorf("for 5Mi the limit became %v, in %d calls", l.Memory, len(g.server.Calls())-calls)
			}
			g.has(30 * mdp.MiB)
			g.run(time.Second)
			if l := g.limit(0); l.Memory != low.Memory+30*mdp.MiB {
				t.Errorf("with 30Mi to give the limit of %v became %v", low.Memory, l.Memory)
			}
			g.has(0)
			g.run(5 * time.Second)
			if l := g.limit(0); l.Memory != low.Memory+30*mdp.MiB {
				t.Errorf("with nothing to give the limit became %v", l.Memory)
			}
			for _, e := range g.agent.journal.Entries() {
				if e.API.Memory != web.Memory {
					t.Errorf("the journal wants %v to be restored", e.API.Size())
				}
			}
			g.has(web.Memory)
			g.run(2 * time.Second)
			g.isRestored("when there is room")
		})
	}
}

// Half of a restore is done when something else happens.
func TestARestoreThatWaitsIsNotForgotten(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"the agent ends": func(g *rig) {
			if err := g.agent.Restore(g.t.Context(), g.now); err != nil {
				g.t.Error(err)
			}
		},
		"the agent is killed, and starts anew": func(g *rig) { g.boot(); g.run(2 * time.Second) },
		"the node's memory is not known":       func(g *rig) { g.free = nil; g.run(2 * time.Second) },
		"central permits it, and ends the grant": func(g *rig) {
			g.grant(api.Observe)
			g.permit(9, mdp.Size{Memory: web.Memory})
			g.run(2 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, cgroup.V2, 1)
			g.shrunk()
			g.has(0)
			g.run(time.Minute)
			g.has(30 * mdp.MiB)
			g.run(time.Second)
			g.has(0)
			g.run(2 * time.Second)
			if l := g.limit(0); l.Memory >= web.Memory || l.CPU != web.CPU {
				t.Fatalf("the limits are %v", l)
			}
			end(g)
			g.isRestored(name)
		})
	}
	t.Run("central is back, and it is to act again", func(t *testing.T) {
		g := newRig(t, cgroup.V2, 1)
		g.shrunk()
		g.has(0)
		g.run(time.Minute)
		g.has(30 * mdp.MiB)
		g.run(time.Second)
		g.has(0)
		g.run(2 * time.Second)
		g.grant(api.Auto)
		g.run(2 * time.Minute / 3)
		if s := g.summary(0); s.Effect == mdp.Failed || s.Conflicts != 0 || s.Problem != "" {
			t.Errorf("summary %+v", s)
		}
	})
}

// Two containers are not restored into the same memory.
func TestTwoRestoresShareWhatTheNodeHas(t *testing.T) {
	for _, spare := range []mdp.Bytes{40 * mdp.MiB, 200 * mdp.MiB} {
		g := settled(t)
		g.run(50 * time.Second)
		g.has(0)
		g.run(12 * time.Second)
		before := g.sum().Memory
		g.has(spare)
		g.run(time.Second)
		if after := g.sum().Memory; after > before+spare || after < before+spare*3/4 {
			t.Errorf("with %v to give, %v of limits became %v", spare, before, after)
		}
		if a := g.agent.Report(g.now).Account; a.InForce.Memory < g.sum().Memory {
			t.Errorf("%v is reported, and %v is in force", a.InForce, g.sum())
		}
	}
}

// A permit holds for its time. A central of an earlier release gives none, and renews grants
// all the same: then it ends, and what is done is as it was in that release.
func TestAPermitEnds(t *testing.T) {
	first := api.Permit{ID: api.PermitID{Epoch: 1, Number: 1}, Amount: mdp.Size{Memory: 1}}
	second := api.Permit{ID: api.PermitID{Epoch: 1, Number: 2}, Amount: mdp.Size{Memory: 2}}
	other := api.Permit{ID: api.PermitID{Epoch: 2, Number: 1}, Amount: mdp.Size{Memory: 3}}
	after := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	a := &Agent{access: access{sampler: new(Sampler)}}
	wants := func(s int, want api.Permit) {
		t.Helper()
		if got := a.grants.permitted(after(s)); got != want {
			t.Errorf("%d s: permit %+v, want %+v", s, got, want)
		}
	}
	wants(0, api.Permit{})
	a.Renew(after(0), first)
	wants(0, api.Permit{}) // of grants that were never received
	a.Apply(after(0), api.Grants{TTL: time.Minute, Permit: first})
	wants(60, first)
	wants(61, api.Permit{})
	a.Renew(after(30), second)
	wants(90, second)
	a.Renew(after(40), first) // late
	wants(90, second)
	wants(91, api.Permit{})
	a.Apply(after(50), api.Grants{TTL: time.Minute}) // without one
	wants(90, second)
	wants(91, api.Permit{})
	a.Renew(after(100), api.Permit{})
	wants(101, api.Permit{})
	a.Renew(after(102), other)
	wants(162, other)
	if o := a.grants.order(after(163), api.ContainerRef{}); o.problem == "" {
		t.Errorf("order %+v", o)
	}
}

// A central of the release before permits lets the agent do what it did: the API's limits
// bound, and a node without free memory does not. So it is, too, when the permit of a later
// central has ended.
func TestACentralOfAnEarlierReleaseBoundsNothing(t *testing.T) {
	read := func(name string) api.Grants {
		b, err := os.ReadFile("../api/testdata/before-permits/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var w linkv1.Grants
		if err := proto.Unmarshal(b, &w); err != nil {
			t.Fatal(err)
		}
		m, err := api.GrantsFromWire(&w)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for name, before := range map[string]func(*rig){
		"from the start": func(*rig) {},
		"after a later one": func(g *rig) {
			later := read("grants.binpb")
			later.TTL = 5 * time.Second
			later.Permit = api.Permit{ID: api.PermitID{Epoch: 1, Number: 1}, Amount: mdp.Size{Memory: 1}}
			g.agent.Apply(g.now, later)
			g.run(6 * time.Second)
		},
		"which had not begun":  func(g *rig) { g.agent.Apply(g.now, api.Grants{TTL: time.Minute, Unchanged: true}) },
		"while it only renews": func(g *rig) { g.agent.Renew(g.now, read("unchanged.binpb").Permit) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, cgroup.V2, 2)
			g.has(0)
			g.agent.Apply(g.now, read("grants.binpb"))
			g.run(10 * time.Second)
			if l := g.limit(0); l.Memory >= web.Memory {
				t.Fatalf("the grants are not those of this node: limits %v", l)
			}
			before(g)
			g.agent.Apply(g.now, read("grants.binpb"))
			g.memory[0] = 120 * mdp.MiB
			g.run(2 * time.Second)
			if l := g.limit(0); l.Memory < 180*mdp.MiB {
				t.Errorf("with 120Mi in use, no permit and no free memory the limit is %v", l)
			}
			if a := g.agent.Report(g.now).Account; a.Holds != (api.PermitID{}) {
				t.Errorf("account %+v", a)
			}
		})
	}
}

// A person sees what is in force, asked for and permitted. Without a permit it is not zero that
// is permitted.
func TestTheMetricsShowThePermit(t *testing.T) {
	g := settled(t)
	shows := func(of *prometheus.GaugeVec, what string) float64 {
		var m dto.Metric
		if err := of.WithLabelValues(what).Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetGauge().GetValue()
	}
	m := g.agent.metrics
	if v := shows(m.memorySum, "permitted"); !math.IsNaN(v) {
		t.Errorf("%v is permitted without a permit", v)
	}
	g.permit(1, mdp.Size{CPU: 1500, Memory: 300 * mdp.MiB})
	g.run(time.Second)
	for what, want := range map[string]float64{"in_force": 256 << 20, "asked": 384 << 20, "permitted": 300 << 20} {
		if v := shows(m.memorySum, what); v != want {
			t.Errorf("memory %s: %v, want %v", what, v, want)
		}
	}
	if v := shows(m.cpuSum, "permitted"); v != 1.5 {
		t.Errorf("%v cores are permitted", v)
	}
	if v, is := shows(m.cpuSum, "in_force"), float64(g.sum().CPU)/1000; v != is {
		t.Errorf("%v cores in force, %v are", v, is)
	}
}
