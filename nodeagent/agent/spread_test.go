package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

func TestTheLimitAtRest(t *testing.T) {
	const top = 1000
	spreadOf := func(samples int, use func(i int) mdp.MilliCPU) *spread {
		s := new(spread)
		for i := range samples {
			s.add(use(i), false)
		}
		return s
	}
	for name, c := range map[string]struct {
		use         func(i int) mdp.MilliCPU
		share       mdp.Ratio
		least, most mdp.MilliCPU
	}{
		"steady use is covered": {func(int) mdp.MilliCPU { return 200 }, 0.1, 220, 241},
		"a peak in four seconds is left to the lane": {func(i int) mdp.MilliCPU {
			if i%40 == 0 {
				return 600
			}
			return 100
		}, 0.1, 100, 121},
		"and a burst, however long": {func(i int) mdp.MilliCPU {
			if i%400 < 80 {
				return 600
			}
			return 100
		}, 0.02, 100, 121},
		"also one with ups and downs of its own": {func(i int) mdp.MilliCPU {
			switch {
			case i%400 >= 80:
				return 100
			case i%2 == 0:
				return 600
			}
			return 300
		}, 0.02, 100, 121},
		"but not when the load is high for most of the time": {func(i int) mdp.MilliCPU {
			if i%400 < 300 {
				return 600
			}
			return 100
		}, 0.02, 600, 723},
		"nor when the target is stricter": {func(i int) mdp.MilliCPU {
			if i%40 == 0 {
				return 600
			}
			return 100
		}, 0.02, 600, 723},
		"peaks in each half second cost more than they save": {func(i int) mdp.MilliCPU {
			if i%5 == 0 {
				return 400
			}
			return 100
		}, 0.5, 400, 482},
		"hardly ever below the ceiling": {func(i int) mdp.MilliCPU {
			if i%600 < 9 {
				return 100
			}
			return 950
		}, 0.1, top, top},
		"idle":               {func(int) mdp.MilliCPU { return 0 }, 0.1, 0, 11},
		"all of the ceiling": {func(int) mdp.MilliCPU { return 1000 }, 0.1, top, top},
	} {
		for _, samples := range []int{3000, 40_000} { // of five minutes, and of more than an hour
			limit, _, ok := spreadOf(samples, c.use).cheapest(top, c.share, calmSamples, false)
			if !ok || limit < c.least || limit > c.most {
				t.Errorf("%s, %d samples: %v (%v), want %v to %v", name, samples, limit, ok, c.least, c.most)
			}
		}
	}
	cut := new(spread)
	for i := range 3000 {
		cut.add(100, i%25 == 0)
	}
	if l, _, _ := cut.cheapest(top, 0.1, calmSamples, false); l > 121 {
		t.Errorf("a peak of unknown height in 2.5 s: %v", l)
	}
	if l, _, _ := cut.cheapest(top, 0.03, calmSamples, false); l != top {
		t.Errorf("peaks of unknown height in more than what is allowed: %v, want all of %v", l, top)
	}
	if l, _, ok := new(spread).cheapest(top, 0.1, calmSamples, false); ok {
		t.Errorf("of nothing %v is known", l)
	}
}

// A load of 300m in long bursts, with peaks in them: the cheapest limit covers the bursts and leaves the
// peaks to the lane. Where that is too often it is the one below the bursts, and nothing in between.
func TestTheLeastLimitAtRestThrottlesNoMoreThanIsAllowed(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
	for i := range 3000 {
		switch {
		case i%400 >= 160:
			d.tracks[0].uses.add(50, false)
		case i%16 == 8:
			d.tracks[0].uses.add(600, false)
		default:
			d.tracks[0].uses.add(300, false)
		}
	}
	for share, want := range map[mdp.Ratio]mdp.Range[mdp.MilliCPU]{0.1: {Min: 330, Max: 361}, 0.02: {Min: 50, Max: 61}} {
		least, most, _, ok := d.sampler.Rest(d.tracks[0], 1000, share)
		if !ok || least != most || least < want.Min || least > want.Max {
			t.Errorf("share %v: at rest it is to have %v to %v (%v), want one limit, %v to %v",
				share, least, most, ok, want.Min, want.Max)
		}
	}
}

// Whatever the use was: what is not covered is at most the share, no limit that is cheaper by
// a tenth keeps to it, and a month of samples says what a minute of them says.
func TestTheLimitAtRestIsTheCheapest(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		top := mdp.MilliCPU(200 + rng.IntN(4000))
		scale, tail, share := rng.Float64()*float64(top)/4, 1+5*rng.Float64(), mdp.Ratio(0.02+0.2*rng.Float64())
		s := new(spread)
		uses := make([]float64, 4000)
		for i := range uses {
			if uses[i] = scale * rng.Float64(); rng.IntN(10) == 0 {
				uses[i] *= tail
			}
			s.add(mdp.MilliCPU(uses[i]), false)
		}
		// How much of the time the use is above a limit, and in how much of it it rises above it.
		over := func(limit float64) (above, rises float64) {
			sum, weight, was := 0.0, 1.0, true
			for _, u := range uses {
				is := float64(mdp.MilliCPU(u)) > limit
				if sum += weight; is {
					above += weight
				}
				if is && !was {
					rises += weight
				}
				was = is
				weight *= float64(grows)
			}
			return above / sum, rises / sum
		}
		cost := func(limit float64) float64 {
			above, rises := over(limit)
			return limit + (above+calmSamples*rises)*(float64(top)-limit)
		}
		limit, _, ok := s.cheapest(top, share, calmSamples, false)
		_, rises := over(float64(limit))
		if !ok || limit > top || limit < top && rises > float64(share)+1e-3 {
			t.Fatalf("limit %v of %v (%v): the use rises above it in %v of the samples, of %v", limit, top, ok, rises, share)
		}
		for other := float64(top) / 1.02; other > 10; other /= 1.02 {
			if _, rises := over(other); rises > float64(share) {
				continue
			}
			if cost(other) < 0.82*cost(float64(limit))-2 {
				t.Fatalf("limit %v costs %v, and %v costs %v", limit, cost(float64(limit)), other, cost(other))
			}
		}
	}
}

func TestOldUseIsForgottenAndNothingOverflows(t *testing.T) {
	s := new(spread)
	for range 3_000_000 { // three days and a half
		s.add(700, false)
	}
	for range 3000 {
		s.add(100, false)
	}
	if l, _, ok := s.cheapest(1000, 0.1, calmSamples, false); !ok || l > 121 {
		t.Errorf("five minutes after 700m the limit at rest is %v (%v)", l, ok)
	}
	for i := range 300_000 {
		s.add([]mdp.MilliCPU{100, 100, 100, 400}[i%4], false)
	}
	if l, _, ok := s.cheapest(1000, 0.1, calmSamples, false); !ok || l < 440 {
		t.Errorf("a fourth of eight hours was 400m, and the limit at rest is %v (%v)", l, ok)
	}
}

func TestABucketHasWhatIsUpToItsHighestUse(t *testing.T) {
	for used := mdp.MilliCPU(0); used < 100_000; used += 1 + used/50 {
		i := bucketOf(used)
		if highest(i) < float64(used)-1e-9 || i > 0 && highest(i-1) >= float64(used) {
			t.Errorf("%v is in bucket %d, from %v to %v", used, i, highest(i-1), highest(i))
		}
	}
}

// What a container uses is known where its limit lets it use more. A peak counts as what it is in the
// longest period.
func TestWhatALimitCutsOffIsMoreThanAnyUse(t *testing.T) {
	for name, c := range map[string]struct {
		tick        func(*node, int)
		least, most mdp.MilliCPU // at rest
	}{
		"it uses little": {func(d *node, _ int) {
			d.workers[0].Demand = 100
			d.tick()
		}, 110, 121},
		"it uses all": {func(d *node, _ int) {
			d.workers[0].Demand = 400
			d.tick()
		}, 1000, 1000},
		"it is throttled": {func(d *node, _ int) { d.throttled() }, 1000, 1000},
		"it uses all, and the limit is not ours": {func(d *node, _ int) {
			d.sampler.Shut(d.tracks[0])
			d.workers[0].Demand = 400
			d.tick()
		}, 440, 483},
		"it peaks": {func(d *node, i int) {
			d.workers[0].Demand = []mdp.MilliCPU{380, 0, 0, 0}[i%4]
			d.tick()
		}, 104, 115},
	} {
		d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
		d.limited(0, limitsOf(mdp.Size{CPU: 400}))
		for i := range 3 * enoughSamples {
			c.tick(d, i)
		}
		if _, l, _, ok := d.sampler.Rest(d.tracks[0], 1000, 0.1); !ok || l < c.least || l > c.most {
			t.Errorf("%s: at rest it is to have %v (%v), want %v to %v", name, l, ok, c.least, c.most)
		}
	}
}

// The limit at rest bounds what the rule wants: from below always, and from above where the target allows
// throttling.
func TestTheLimitAtRestBounds(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.demand[0] = 200 // 228m at rest
	g.run(20 * time.Second)
	c := g.agent.containers[g.ref(0)]
	var none mdp.Action
	for _, one := range []struct {
		target  mdp.Ratio
		inForce mdp.MilliCPU
		action  mdp.Action
		want    mdp.Action
	}{
		{0.1, 900, none.WithCPU(700), none.WithCPU(229)},
		{0.1, 900, none.WithCPU(100), none.WithCPU(229)},
		{0.1, 100, none.WithCPU(700), none.WithCPU(229)},
		{0.1, 900, none, none.WithCPU(229)},
		{0.1, 205, none, none.WithCPU(229)},
		{0.1, 206, none, none},
		{seldom, 900, none, none.WithCPU(229)},
		{0.019, 900, none, none},
		{0.019, 900, none.WithCPU(100), none.WithCPU(229)},
		{0, 200, none, none.WithCPU(229)},
	} {
		c.target = one.target
		s := mdp.State{Limit: mdp.Size{CPU: one.inForce}, Observed: mdp.SetOf(mdp.CPULimit)}
		if got := c.atRest(s, one.action); got != one.want {
			t.Errorf("target %v, %v in force, wanted %v: %v, want %v",
				one.target, one.inForce, one.action, got, one.want)
		}
	}
}

// holding is a rule Demand that holds a spike, or not.
type holding bool

func (holding) SetLevel(float64)      {}
func (holding) SetLateWindows(uint32) {}
func (h holding) Holds() bool         { return bool(h) }

// What the policy holds for a spike stands, although the lane could relieve: it was too late for it.
func TestAHeldSpikeIsNotTakenDownToTheLimitAtRest(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.demand[0] = 200 // 228m at rest
	g.run(20 * time.Second)
	c := g.agent.containers[g.ref(0)]
	c.target = 0.1
	s := mdp.State{Limit: mdp.Size{CPU: 900}, Observed: mdp.SetOf(mdp.CPULimit)}
	for holds, want := range map[bool]mdp.Action{false: mdp.Action{}.WithCPU(229), true: mdp.Action{}.WithCPU(700)} {
		c.policy.demand = holding(holds)
		if got := c.atRest(s, mdp.Action{}.WithCPU(700)); got != want {
			t.Errorf("holds %v: %v, want %v", holds, got, want)
		}
	}
}

// A peak of a tenth of a second each four seconds does not hold the limit up: it has room in the
// period. Where the SLO has none, it is relieved all the same, for it may be a burst.
func TestRarePeaksDoNotHoldTheLimitUpWhereTheSLOHasRoom(t *testing.T) {
	mean := func(target mdp.Ratio) (mean float64, reliefs int) {
		g := newRig(t, cgroup.V2, 1)
		grant := func() { g.grant(api.Auto, func(m *api.Grant) { m.Throttle = target }) }
		sum, n, before := 0.0, 0, mdp.MilliCPU(0)
		for i := range 900 {
			if i%100 == 0 {
				grant()
			}
			g.demand[0] = 50
			if i%40 == 7 {
				g.demand[0] = 400
			}
			g.run(100 * time.Millisecond)
			l := g.limit(0).CPU
			if i > 300 {
				sum, n = sum+float64(l), n+1
				if l > before {
					reliefs++
				}
			}
			before = l
		}
		return sum / float64(n), reliefs
	}
	strict, raises := mean(0.002)
	loose, none := mean(0.1)
	t.Logf("strict %.0fm with %d raises, loose %.0fm with %d raises", strict, raises, loose, none)
	if loose > 0.75*strict || loose > 200 || strict > 300 {
		t.Errorf("with room in the SLO %.0fm, without %.0fm", loose, strict)
	}
	if peaks := 15; raises != peaks || none != 0 { // in the minute that counts
		t.Errorf("%d peaks: %d raises without room in the SLO, %d with; want one for each, and none",
			peaks, raises, none)
	}
}

// A program at a tenth more than the captain sees in its five seconds, now and then: to cover that costs
// less than to relieve it each time, also where the SLO has no room. Of a peak that is rare it is not so.
func TestALimitThatCoversWhatIsUsedOftenIsCheaperThanRelief(t *testing.T) {
	for _, c := range []struct {
		name   string
		use    func(i int) mdp.MilliCPU
		raises int // in a minute, at most
		mean   mdp.MilliCPU
	}{
		{"half a second of 100m in eight", func(i int) mdp.MilliCPU { return 70 + 30*mdp.MilliCPU(min(1, 5/(i%80+1))) }, 1, 135},
		{"two tenths of 200m in eight", func(i int) mdp.MilliCPU { return 50 + 150*mdp.MilliCPU(min(1, 2/(i%80+1))) }, 8, 115},
	} {
		for _, target := range []mdp.Ratio{0, 0.002, 0.1} {
			g := newRig(t, cgroup.V1, 1)
			sum, n, raises, before := 0.0, 0, 0, mdp.MilliCPU(0)
			for i := range 2400 {
				if i%100 == 0 {
					g.grant(api.Auto, func(m *api.Grant) { m.Throttle = target })
				}
				g.demand[0] = c.use(i)
				g.run(100 * time.Millisecond)
				l := g.limit(0).CPU
				if i >= 1800 { // the fourth minute
					sum, n = sum+float64(l), n+1
					if l > before+200 {
						raises++
					}
				}
				before = l
			}
			mean := mdp.MilliCPU(sum / float64(n))
			t.Logf("%s, target %v: %v in the mean, and %d raises in a minute", c.name, target, mean, raises)
			if raises > c.raises || mean > c.mean {
				t.Errorf("%s, target %v: %v in the mean, and %d raises in a minute", c.name, target, mean, raises)
			}
		}
	}
}

// A sample of nothing counts the same when it is taken in later.
func TestSamplesOfNothingCountLater(t *testing.T) {
	now, later := &spread{}, &spread{}
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range 3000 {
		if rng.IntN(40) == 0 {
			used := mdp.MilliCPU(rng.IntN(500))
			now.add(used, false)
			later.add(used, false)
			continue
		}
		now.add(0, false)
		later.addLater()
		if i%100 != 0 {
			continue
		}
		want, _, known := now.cheapest(1000, 0.05, calmSamples, false)
		if got, _, ok := later.cheapest(1000, 0.05, calmSamples, false); got != want || ok != known {
			t.Fatalf("after %d samples the cheapest limit is %v, %v; want %v, %v", i+1, got, ok, want, known)
		}
	}
	if later.catchUp(); *now != *later {
		t.Error("the spreads are not the same")
	}
}
