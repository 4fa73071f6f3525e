package agent

import (
	"math"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

// A container that is throttled now and then waits for its turn. One that is throttled without a break is relieved after its
// patience, and not before.
func TestReliefWaitsForThrottlingWithoutABreak(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		d := newNode(t, host, 1)
		track := d.tracks[0]
		track.lane.patience = 300 * time.Millisecond
		d.tick()
		idle := func(n int) {
			for range n {
				d.workers[0].Demand = 10
				d.tick()
			}
		}
		for range 10 {
			d.throttled()
			d.throttled()
			if idle(1); d.limit(0) != 100 {
				t.Fatalf("relieved to %v after two throttled periods and one that was not", d.limit(0))
			}
		}
		for i := range 3 {
			if d.limit(0) != 100 {
				t.Fatalf("relieved to %v after %d throttled periods, of three", d.limit(0), i)
			}
			d.throttled()
			l := track.lane // as a step opens it, which comes in between
			l.held = time.Time{}
			d.sampler.Open(track, l)
		}
		if d.limit(0) != 400 {
			t.Errorf("%v in force after three throttled periods in a row", d.limit(0))
		}
	})
}

// Samples and periods are as long as each other: now and then no period ends between two samples, and then two do. That is no
// break. A container in which no period ends for longer is idle.
func TestASampleWithoutAPeriodIsNoBreak(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
	d.tracks[0].lane.patience = 500 * time.Millisecond
	d.tick()
	nothing := func(n int) {
		for range n {
			d.now = d.now.Add(tenth)
			d.sampler.Sample(d.now)
		}
	}
	d.throttled()
	nothing(3)
	for range 3 {
		d.throttled()
	}
	if d.limit(0) != 100 {
		t.Fatalf("an idle container that is throttled again is relieved to %v after 300 ms", d.limit(0))
	}
	nothing(1)
	if d.throttled(); d.limit(0) != 400 {
		t.Errorf("%v in force after 500 ms, in which one sample saw no period", d.limit(0))
	}
}

// A ticker jitters. The sample that ends a container's patience may be a little early, and the next one is a period later.
func TestASampleThatIsALittleEarlyEndsPatience(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
	d.tracks[0].lane.patience = 300 * time.Millisecond
	d.tick()
	d.throttled()
	d.throttled()
	d.now = d.now.Add(-2 * time.Millisecond)
	if d.throttled(); d.limit(0) != 400 {
		t.Errorf("%v in force after 298 ms of throttling, and the next sample is at 398 ms", d.limit(0))
	}
}

// At its ceiling a container has nothing to wait for: that it is throttled there is said as soon as ever.
func TestPatienceDoesNotDelayWhatIsSaidOfTheCeiling(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
	d.tracks[0].lane.patience = time.Second
	d.tick()
	for range 10 {
		d.throttled()
	}
	if d.limit(0) != 400 {
		t.Fatalf("%v in force", d.limit(0))
	}
	d.workers[0].Demand = 390
	for range 2 {
		d.tick() // a break
	}
	d.throttled()
	if d.throttled(); !d.tracks[0].lane.met {
		t.Error("two throttled periods at the ceiling, and nobody hears of it")
	}
}

// What queueing costs is what is in force, relief included. Where that is more than the cheapest limit with relief, work
// does not queue for some minutes, and then it may be tried again.
func TestWorkQueuesWhereThatIsCheaper(t *testing.T) {
	c := &managedContainer{rule: api.Demand, patience: 300 * time.Millisecond}
	if c.mayQueue(185, 200, false, 0) {
		t.Error("it queues for 185 instead of 200 millicores: not worth a change")
	}
	if c.queueing = (mean{}); !c.mayQueue(170, 200, false, 0) {
		t.Error("it does not queue for 170 instead of 200 millicores")
	}
	seconds := 0
	for seconds < 1000 && c.mayQueue(170, 200, true, 300) {
		seconds++
	}
	if seconds < 10 || seconds > 60 {
		t.Errorf("at 300 millicores in the mean it queued for %d seconds", seconds)
	}
	again := 0
	for again < 3000 && !c.mayQueue(170, 200, false, 0) {
		again++
	}
	if again < 200 || again > 1800 {
		t.Errorf("it queues again after %d seconds", again)
	}
	for name, other := range map[string]*managedContainer{
		"by the captain":   {rule: api.Captain, patience: time.Second},
		"without patience": {rule: api.Demand},
	} {
		if other.mayQueue(10, 1000, true, 10) {
			t.Errorf("%s work queues", name)
		}
	}
}

// A container whose work queues is slow, and central's target is strict for that. What relief would cost is asked for a
// target with room all the same. And where nothing is known of a container its work does not queue.
func TestWhatQueuesIsNoReasonForAStricterTarget(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	for i := range 1500 {
		if g.demand[0] = 50; i%100 < 6 {
			g.demand[0] = 600
		}
		g.run(tenth)
	}
	c := g.agent.containers[g.ref(0)]
	top := c.top().CPU()
	_, _, strict, _ := c.sampler.Rest(c.track, top, 0.002)
	_, _, loose, ok := c.sampler.Rest(c.track, top, seldom)
	if !ok || loose+20 > strict {
		t.Fatalf("a strict target costs %v, one with room %v", strict, loose)
	}
	c.rule, c.patience, c.target = api.Demand, time.Second, 0.002
	between := (strict + loose) / 2
	s := mdp.State{Limit: mdp.Size{CPU: between}, Observed: mdp.SetOf(mdp.CPULimit)}
	c.queues, c.queueing = true, mean{of: float64(between), known: true}
	if c.atRest(s, mdp.Action{}.WithCPU(between)); c.queues {
		t.Errorf("it queues for %v, and the cheapest limit costs %v", between, loose)
	}
	c.queues = true
	if c.atRest(mdp.State{}, mdp.Action{}); c.queues {
		t.Error("it queues, and its limit is not known")
	}
}

// Work queues in the kernel's usual periods: in a longer one it would wait for the whole rest of it.
func TestWorkThatQueuesHasTheUsualPeriod(t *testing.T) {
	l := load(t, cgroup.V2, api.Demand, loads["hills"].cores)
	queued, stretched := 0, 0
	for range 24 {
		l.window()
		for i, s := range l.servers {
			c := l.agent.containers[l.ref(i)]
			is := l.host.Limits(t, s.path)
			switch {
			case c.queues && is.Period == 100_000:
				queued++
			case c.queues:
				t.Errorf("it queues with %+v in force", is)
			case is.Period > 100_000:
				stretched++
			}
		}
	}
	if queued == 0 || stretched == 0 {
		t.Errorf("%d times work queued, %d times a period was stretched: want both", queued, stretched)
	}
	// An agent that is told nothing of patience goes back.
	l.grant(api.Auto, func(g *api.Grant) {
		g.Throttle, g.Rule, g.Margin = seldom, api.Demand, 0
		g.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: 50, Max: 900}
	})
	for range 5 {
		l.second()
	}
	for i := range l.servers {
		if c := l.agent.containers[l.ref(i)]; c.queues {
			t.Error("it queues without patience")
		}
	}
}

// A load that rises to nine tenths of the ceilings within a second, after minutes in which work queued at a low limit: what
// waits then is relieved before most of it is late, and the queue of that time is soon empty.
func TestASurgeAfterQueueingIsRelieved(t *testing.T) {
	l := load(t, cgroup.V2, api.Demand, func(second int) float64 {
		if second >= 600 {
			return 1.6
		}
		return 0.3 - 0.1*math.Cos(2*math.Pi*float64(second)/60)
	})
	for range 60 {
		l.window()
	}
	if l.budget.Patience() < 3*tenth {
		t.Fatalf("patience %v", l.budget.Patience())
	}
	late, all := l.window()
	t.Logf("%d of %d requests of the first ten seconds were late", late, all)
	if late*100 > 20*all {
		t.Errorf("%d of %d requests of the first ten seconds are late", late, all)
	}
	if late, all = l.window(); late*100 > 5*all {
		t.Errorf("%d of %d requests of the next ten seconds are late", late, all)
	}
}
