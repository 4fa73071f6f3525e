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
// one of its own, nobody waits longer than may be, and the journal knows it for ours.
func TestAStretchedLimitIsTheSameLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		ceiling := mdp.MilliCPU(10 + rng.IntN(1<<rng.IntN(18)))
		limit := max(10, mdp.MilliCPU(rng.IntN(int(ceiling)))/restore.CPUStep*restore.CPUStep)
		period := []int64{10_000, 50_000, 100_000, 1_000_000}[rng.IntN(4)]
		if int64(limit)*period < 1_000_000 {
			continue // the kernel has no smaller quota than a millisecond
		}
		most := []int64{longest, longestStrict}[rng.IntN(2)]
		l := stretch(limit, ceiling, period, most)
		switch {
		case l.CPU() != limit:
			t.Fatalf("%v below %v is %+v, which is %v", limit, ceiling, l, l.CPU())
		case l.Quota > max(cgroup.Quota(ceiling, period), cgroup.Quota(limit, period)):
			t.Fatalf("%v: the quota of %+v is more than that of %v", limit, l, ceiling)
		case l.Period < period || l.Period > max(period, most):
			t.Fatalf("%v below %v: %+v", limit, ceiling, l)
		case !l.SameCPU(cgroup.Limits{Quota: cgroup.Quota(limit, period), Period: period}):
			t.Fatalf("%v below %v: %+v is not what it is in the usual period", limit, ceiling, l)
		}
	}
	if l := stretch(250, 1000, 100_000, longest); l != (cgroup.Limits{Quota: 100_000, Period: 400_000}) {
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

// Where the target has no room the period is as long as the kernel allows, and the quota the ceiling's.
func TestThePeriodIsLongerWhereTheTargetHasNoRoom(t *testing.T) {
	for target, want := range map[mdp.Ratio]int64{0.002: 500_000, seldom: longest, 0.1: longest} {
		g := newRig(t, cgroup.V1, 1)
		g.wants(200)
		g.demand[0] = 50
		g.grant(api.Auto, func(m *api.Grant) { m.Throttle = target })
		g.run(5 * time.Second)
		if l := g.host.Limits(t, g.pathOf(0, "c0")); l.CPU() != 200 || l.Period != want {
			t.Errorf("target %v: %+v is in force, want a period of %v us", target, l, want)
		}
	}
}

// A surge is a use of much of the ceiling, and far above the limit. Only where the
// target has no room is it relieved before the quota is used up.
func TestASurgeIsRelievedEarlyWhereTheTargetHasNoRoom(t *testing.T) {
	for _, c := range []struct {
		limit, use mdp.MilliCPU
		surges     bool
	}{
		{250, 900, true},
		{250, 500, true},
		{120, 240, false}, // twice the limit, and less than a fourth of the ceiling
		{120, 260, true},
		{600, 770, false}, // much of the ceiling, and near the limit
		{600, 790, true},
		{600, 500, false},
	} {
		for _, early := range []bool{true, false} {
			d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
			low := stretch(c.limit, 1000, 100_000, longest)
			d.limited(0, low)
			d.sampler.Open(d.tracks[0], lane{has: low, top: limitsOf(mdp.Size{CPU: 1000}), early: early})
			d.tick()
			d.workers[0].Demand = c.use
			d.tick()
			if raised := d.limit(0) == 1000; raised != (early && c.surges) {
				t.Errorf("%v of a limit of %v, early %v: the limit is %v", c.use, c.limit, early, d.limit(0))
			}
		}
	}
}

// A burst of nine tenths of the ceiling begins at any moment of a sample and of a period. Where the target has
// no room the limit is raised before the container has waited for long: what it could not use is the
// queue that it has then, and at nine tenths a queue takes nine times as long to get empty.
func TestABurstAtALowLimitHardlyWaits(t *testing.T) {
	host := cgrouptest.Fixture(t, cgroup.V2)
	waits := func(limit mdp.MilliCPU) (worst time.Duration) {
		for part := mdp.MilliCPU(5); part <= 100; part += 10 { // of the first sample, in percent
			for into := range 5 {
				d := newNode(t, host, 1)
				low := stretch(limit, 1000, 100_000, longestStrict)
				d.limited(0, low)
				d.sampler.Open(d.tracks[0], lane{has: low, top: limitsOf(mdp.Size{CPU: 1000}), early: true})
				d.workers[0].Demand = 50
				for range 20 + 2*into {
					d.tick()
				}
				if d.limit(0) != limit {
					t.Fatalf("%v is in force without a burst", d.limit(0))
				}
				used := func() time.Duration { return d.tracks[0].back(0).Usage }
				begun, wanted := used(), time.Duration(0)
				for samples := 0; d.limit(0) == limit; samples++ {
					if d.workers[0].Demand = 900; samples == 0 {
						d.workers[0].Demand = 50 + 850*part/100
					}
					wanted += time.Duration(d.workers[0].Demand) * tenth / 1000
					if d.tick(); samples == 4 {
						t.Fatal("the burst is not relieved")
					}
				}
				worst = max(worst, wanted-(used()-begun))
				d.sampler.Remove(d.tracks[0])
			}
		}
		return worst
	}
	for limit, most := range map[mdp.MilliCPU]time.Duration{120: 40, 160: 35, 300: 35} {
		if worst := waits(limit); worst > most*time.Millisecond {
			t.Errorf("a burst at %v waits for %v of CPU time, want %v at most", limit, worst, most*time.Millisecond)
		}
	}
}

// Nine tenths of a quota that are used, and then no more: the container may be throttled, with a slice left
// for each CPU. Where the target has no room nobody waits for the end of the period to know it.
func TestAQuotaOfWhichSlicesAreLeftCountsAsUsedWhereTheTargetHasNoRoom(t *testing.T) {
	for early, want := range map[bool]mdp.MilliCPU{true: 1000, false: 120} {
		d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
		low := stretch(120, 1000, 100_000, longest) // 48 ms in each 400 ms
		d.limited(0, low)
		d.sampler.Open(d.tracks[0], lane{has: low, top: limitsOf(mdp.Size{CPU: 1000}), early: early})
		d.tick()
		d.workers[0].Demand = 220 // less than a surge: 44 ms in two samples
		if d.tick(); d.limit(0) != 120 {
			t.Fatalf("early %v: with less than a half of it used the limit is %v", early, d.limit(0))
		}
		if d.tick(); d.limit(0) != want {
			t.Errorf("early %v: with 44 of 48 ms used the limit is %v, want %v", early, d.limit(0), want)
		}
	}
}

// Where the target has room nine tenths are not all. When nothing is used in the sample after them, the container waits for the
// end of its period, as a rule, and that may be 0.3 s away: it is relieved. One that has used less is idle.
func TestAContainerThatStandsAfterNearlyAllOfItsQuotaIsRelieved(t *testing.T) {
	for _, c := range []struct {
		uses  []mdp.MilliCPU // in each sample; the quota is 48 ms in each 400 ms
		early bool           // the target has no room: nine tenths are all, and a little less is not
		want  mdp.MilliCPU
	}{
		{[]mdp.MilliCPU{220, 220}, false, 120},
		{[]mdp.MilliCPU{220, 220, 0}, false, 1000},
		{[]mdp.MilliCPU{220, 220, 10}, false, 120},
		{[]mdp.MilliCPU{200, 200, 0, 0, 0}, false, 120},
		{[]mdp.MilliCPU{180, 180, 0, 0, 0}, true, 120},
	} {
		d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 2)
		low := stretch(120, 1000, 100_000, longest)
		d.limited(0, low)
		d.sampler.Open(d.tracks[0], lane{has: low, top: limitsOf(mdp.Size{CPU: 1000}), early: c.early})
		d.tick()
		for _, use := range c.uses {
			d.workers[0].Demand = use
			d.tick()
		}
		if is := d.limit(0); is != c.want {
			t.Errorf("after %v, early %v, the limit is %v, want %v", c.uses, c.early, is, c.want)
		}
	}
}

// A new limit begins a period of its own: what was used before it does not count, whoever has written
// it, and what is used since does.
func TestWhatWasUsedBeforeALimitWasWrittenDoesNotCount(t *testing.T) {
	was, is := limitsOf(mdp.Size{CPU: 900}), stretch(250, 1000, 100_000, longest) // 100 ms in each 400 ms
	top := limitsOf(mdp.Size{CPU: 1000})
	directly := func(d *node) {
		if relieved, err := d.sampler.Set(d.tracks[0], is); relieved || err != nil {
			t.Fatal(relieved, err)
		}
	}
	for name, write := range map[string]func(*node){
		"directly": directly,
		"directly, and the step ends": func(d *node) {
			directly(d)
			d.sampler.Open(d.tracks[0], lane{has: is, top: top})
		},
		"by the runtime": func(d *node) {
			if err := d.host.Tree.Write(d.paths[0], is); err != nil {
				t.Fatal(err)
			}
			d.sampler.Open(d.tracks[0], lane{has: is, top: top})
		},
	} {
		t.Run(name, func(t *testing.T) {
			fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
				d := newNode(t, host, 1)
				d.limited(0, was)
				d.sampler.Open(d.tracks[0], lane{has: was, top: top})
				d.workers[0].Demand = 600
				d.tick()
				d.tick()
				write(d)
				d.workers[0].Demand = 500
				if d.tick(); d.limit(0) != 250 {
					t.Fatalf("50 ms of 100 ms are used, and the limit is %v", d.limit(0))
				}
				if d.tick(); d.limit(0) != 1000 {
					t.Errorf("all of 100 ms are used, and the limit is %v", d.limit(0))
				}
			})
		})
	}
}

// What counts as the use of one quota is what one period can cover, also where the samples jitter.
func TestTheUseOfTwoPeriodsIsNotThatOfOneQuota(t *testing.T) {
	for _, jitter := range []time.Duration{0, -time.Millisecond, time.Millisecond} {
		d := newNode(t, cgrouptest.Fixture(t, cgroup.V1), 1)
		low := stretch(250, 1000, 100_000, longest) // 100 ms in each 400 ms
		d.limited(0, low)
		d.sampler.Open(d.tracks[0], lane{has: low, top: limitsOf(mdp.Size{CPU: 1000})})
		for i, use := range []mdp.MilliCPU{0, 0, 0, 0, 0, 0, 0, 550, 140, 140, 140, 300} {
			d.workers[0].Demand = use
			d.now = d.now.Add(jitter)
			if d.tick(); d.limit(0) != 250 {
				t.Fatalf("jitter %v, sample %d: the limit is %v", jitter, i, d.limit(0))
			}
		}
	}
}

// A sample that comes late has the use of several periods.
func TestALateSampleIsNotAFullQuota(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
	d.workers[0].Demand = 90 // of 100m
	d.tick()
	for range 3 {
		d.now = d.now.Add(100 * time.Millisecond)
		d.workers[0].Work(t, d.host, d.paths[0])
	}
	if d.tick(); d.limit(0) != 100 {
		t.Errorf("nine tenths of the limit were used for 400 ms, and it became %v", d.limit(0))
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

// Where the target has room the same burst waits until its quota is used up: it may be over by then.
func TestABurstIsNotRelievedEarlyWhereTheTargetHasRoom(t *testing.T) {
	for target, want := range map[mdp.Ratio]mdp.MilliCPU{0.019: web.CPU, seldom: 250, 0.1: 250} {
		g := newRig(t, cgroup.V2, 1)
		g.wants(250)
		g.demand[0] = 50
		g.grant(api.Auto, func(m *api.Grant) { m.Throttle = target })
		g.run(10 * time.Second)
		g.demand[0] = 750
		if g.tick(); g.limit(0).CPU != want {
			t.Errorf("target %v: after a tenth of a second the limit is %v, want %v", target, g.limit(0), want)
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
		to := stretch(limit, 500, 100_000, longest)
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
