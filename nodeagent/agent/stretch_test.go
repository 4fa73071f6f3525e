package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/restore"
)

// Whatever the limit: it is that limit, exactly, in no period more is used than the ceiling gives in
// one of its own, nobody waits longer than longest, and the journal knows it for ours.
func TestAStretchedLimitIsTheSameLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		ceiling := mdp.MilliCPU(10 + rng.IntN(1<<rng.IntN(18)))
		limit := max(10, mdp.MilliCPU(rng.IntN(int(ceiling)))/restore.CPUStep*restore.CPUStep)
		period := []int64{10_000, 50_000, 100_000, 1_000_000}[rng.IntN(4)]
		if int64(limit)*period < 1_000_000 {
			continue // the kernel has no smaller quota than a millisecond
		}
		l := stretch(limit, ceiling, period)
		switch {
		case l.CPU() != limit:
			t.Fatalf("%v below %v is %+v, which is %v", limit, ceiling, l, l.CPU())
		case l.Quota > max(cgroup.Quota(ceiling, period), cgroup.Quota(limit, period)):
			t.Fatalf("%v: the quota of %+v is more than that of %v", limit, l, ceiling)
		case l.Period < period || l.Period > max(period, longest):
			t.Fatalf("%v below %v: %+v", limit, ceiling, l)
		case !l.SameCPU(cgroup.Limits{Quota: cgroup.Quota(limit, period), Period: period}):
			t.Fatalf("%v below %v: %+v is not what it is in the usual period", limit, ceiling, l)
		}
	}
	if l := stretch(250, 1000, 100_000); l != (cgroup.Limits{Quota: 100_000, Period: 400_000}) {
		t.Errorf("a quarter of a core is %+v", l)
	}
}

// What is over in a tenth of a second is not throttled, at a limit of a third of it.
func TestAPeakThatIsOverSoonIsNotThrottled(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	loose := func(m *api.Grant) { m.Throttle = 0.1 }
	g.wants(250)
	g.demand[0] = 50
	g.grant(api.Auto, loose)
	g.run(10 * time.Second)
	for range 10 {
		g.grant(api.Auto, loose)
		g.demand[0] = 750
		g.run(100 * time.Millisecond)
		g.demand[0] = 50
		g.run(1900 * time.Millisecond)
	}
	if s := g.summary(0); s.State.Throttled != 0 || g.limit(0).CPU != 250 {
		t.Errorf("limit %v, %v throttled", g.limit(0), s.State.Throttled)
	}
}

// A burst of nine tenths of the ceiling is relieved in the first or second sample, before
// the quota is used up, where the target is strict.
func TestABurstIsRelievedBeforeItIsThrottled(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		g := newRig(t, version, 1)
		g.wants(250)
		g.demand[0] = 50
		strict := func(m *api.Grant) { m.Throttle = 0.002 }
		g.grant(api.Auto, strict)
		g.run(10 * time.Second)
		g.demand[0] = 900
		g.tick()
		if l := g.limit(0).CPU; l != web.CPU {
			t.Errorf("%v: after a tenth of a second of a burst the limit is %v", version, l)
		}
		for range 10 {
			g.tick()
		}
		if w := g.workers[0]; w.Throttled() != 0 {
			t.Errorf("%v: %v periods were throttled", version, w.Throttled())
		}
	}
}

// Limits that go up and down, as pods' limits do around them: the kernel takes each of them at the
// first try, on the way up and down.
func TestTheKernelTakesStretchedLimits(t *testing.T) {
	host := cgrouptest.Real(t)
	pod, path := host.Parent+"/pod", host.Parent+"/pod/c"
	rng := rand.New(rand.NewPCG(3, 4))
	host.Add(t, pod, limitsOf(mdp.Size{CPU: 500}))
	host.Add(t, path, limitsOf(mdp.Size{CPU: 500}))
	group, err := host.Tree.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	for i := range 500 {
		limit := mdp.MilliCPU(10+rng.IntN(491)) / 10 * 10
		to := stretch(limit, 500, 100_000)
		write := group.WriteCPU
		if i%2 == 0 {
			write = func(l cgroup.Limits) error { return host.Tree.Write(path, l) }
		}
		if err := write(to); err != nil {
			t.Fatalf("from %+v to %+v: %v", host.Limits(t, path), to, err)
		}
		if is := host.Limits(t, path); is.Quota != to.Quota || is.Period != to.Period {
			t.Fatalf("%+v is in force, want %+v", is, to)
		}
	}
}
