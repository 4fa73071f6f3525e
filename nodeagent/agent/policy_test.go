package agent

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
)

func byDemand(margin float64) func(*api.Grant) {
	return func(g *api.Grant) { g.Rule, g.Margin = api.Demand, margin }
}

// scattered lets a container's demand scatter around a mean, as independent requests do: a limit's margin follows
// from the scatter.
func (g *rig) scattered(mean, by mdp.MilliCPU) {
	rng := rand.New(rand.NewPCG(1, 2))
	g.each = func() { g.demand[0] = mean - by + mdp.MilliCPU(rng.IntN(int(2*by)+1)) }
}

// The margin of the grant is how far the limit is above the demand, where work may queue. It is never so far that a lower
// limit with relief would cost less.
func TestTheDemandRuleFollowsDemandWithTheGrantsMargin(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			at := func(rule func(*api.Grant)) (mean mdp.MilliCPU) {
				g := newRig(t, version, 1)
				g.scattered(200, 100)
				patient := func(m *api.Grant) { m.Patience = time.Second }
				g.grant(api.Auto, rule, patient)
				g.run(30 * time.Second)
				g.grant(api.Auto, rule, patient)
				for range 30 {
					g.run(time.Second)
					mean += g.limit(0).CPU / 30
				}
				if s := g.summary(0); s.Problem != "" {
					t.Errorf("problem: %s", s.Problem)
				}
				return mean
			}
			narrow, middle, wide := at(byDemand(0)), at(byDemand(0.5)), at(byDemand(2.5))
			captains := at(func(*api.Grant) {})
			t.Logf("%v with a narrow margin, %v with a middle one, %v with a wide one, %v by the captain", narrow, middle, wide, captains)
			if narrow < 200 || narrow > 250 {
				t.Errorf("with a narrow margin the limit is %v, at a mean of 200m", narrow)
			}
			if middle < narrow+20 || middle > 300 {
				t.Errorf("with a middle margin the limit is %v, and %v with a narrow one", middle, narrow)
			}
			if wide < middle+20 || wide > captains*11/10 {
				t.Errorf("with a wide margin the limit is %v, with a middle one %v, and by the captain %v", wide, middle, captains)
			}
		})
	}
}

// Pulses come faster than anything reacts. When the workload's windows were late, the grant's count grows, and the container has
// what the last pulse needed; another count that is the same, or began anew, changes nothing.
func TestALateWindowOfTheGrantHoldsTheSpike(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			g := newRig(t, version, 1)
			pulse := func(late uint32) (between mdp.MilliCPU) {
				g.grant(api.Auto, byDemand(0), func(m *api.Grant) { m.LateWindows, m.Throttle = late, seldom })
				g.demand[0] = 700
				g.run(time.Second)
				g.demand[0] = 200
				g.run(19 * time.Second)
				return g.limit(0).CPU
			}
			for range 6 {
				pulse(3)
			}
			for _, one := range []struct {
				late uint32
				held bool
			}{{3, false}, {0, false}, {0, false}, {1, true}, {1, true}} {
				if got := pulse(one.late); (got >= 600) != one.held {
					t.Errorf("with a count of %d the limit between pulses of 700m is %v; held: want %v", one.late, got, one.held)
				}
			}
			if s := g.summary(0); s.Problem != "" {
				t.Errorf("problem: %s", s.Problem)
			}
		})
	}
}

// Relief stands until a second has passed without throttling, and then the rule's own limit holds: there is no
// half-life, since the rule knows the scatter.
func TestReliefUnderTheDemandRuleStandsForASecond(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	g.grant(api.Auto, byDemand(0))
	g.run(30 * time.Second)
	rest := g.limit(0).CPU
	if rest > 300 {
		t.Fatalf("at a demand of 200m the limit is %v", rest)
	}
	g.demand[0] = 2000
	g.run(3 * time.Second)
	if l := g.limit(0).CPU; l != web.CPU {
		t.Fatalf("in a burst of all that there is, the limit is %v", l)
	}
	g.demand[0] = 200
	g.run(6 * time.Second)
	if l := g.limit(0).CPU; l > 900 {
		t.Errorf("6 s after the burst the limit is %v", l)
	}
	for range 4 {
		g.grant(api.Auto, byDemand(0))
		g.run(time.Minute)
	}
	if l := g.limit(0).CPU; l > rest*3/2 {
		t.Errorf("four minutes after the burst the limit is %v, and was %v before", l, rest)
	}
}

// What a container lacks at its ceiling no margin gives it: after twenty seconds of overload the captain's limit is what it was.
func TestAnOverloadAtTheCeilingDoesNotWidenTheCaptainsMargin(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	strict := func(one *api.Grant) { one.Throttle = 0.002 } // elsewhere the limit at rest is below it
	mean := func() (of mdp.MilliCPU) {
		g.scattered(200, 100)
		for range 3 {
			g.grant(api.Auto, strict)
			g.run(10 * time.Second)
		}
		for range 30 {
			g.grant(api.Auto, strict)
			g.run(time.Second)
			of += g.limit(0).CPU / 30
		}
		return of
	}
	before := mean()
	g.scattered(500, 100) // what it has when the overload begins is more than it needs afterwards
	for range 3 {
		g.grant(api.Auto, strict)
		g.run(10 * time.Second)
	}
	g.each, g.demand[0] = nil, 2000
	g.grant(api.Auto, strict)
	g.run(20 * time.Second)
	if l := g.limit(0).CPU; l != web.CPU {
		t.Fatalf("in an overload the limit is %v", l)
	}
	after := mean()
	t.Logf("%v before an overload, %v after", before, after)
	if after > before*11/10 {
		t.Errorf("the limit is %v in the mean after an overload, and was %v before", after, before)
	}
}

// The grant may change its rule at any time; what is in force goes on from there.
func TestARuleCanBeChangedAtAnyTime(t *testing.T) {
	g := newRig(t, cgroup.V2, 1)
	g.shrunk()
	for i, rule := range []api.Rule{api.Demand, api.Captain, api.Demand, "clairvoyant"} {
		before := g.limit(0).CPU
		g.grant(api.Auto, func(one *api.Grant) { one.Rule = rule })
		g.run(time.Second)
		if l := g.limit(0).CPU; l > before*3/2 || l < 200 {
			t.Errorf("change %d, to %q: the limit went from %v to %v", i, rule, before, l)
		}
		problem := g.summary(0).Problem
		if known := rule.Known(); known != (problem == "") || !known && !strings.Contains(problem, `rule "clairvoyant"`) {
			t.Errorf("rule %q: problem %q", rule, problem)
		}
		g.run(9 * time.Second)
	}
}

// Relief stands for a second, and for as long as there is throttling; then the demand rule's limit holds at once. The
// captain's comes down by a half-life.
func TestHowReliefComesDownByRule(t *testing.T) {
	for name, c := range map[string]struct {
		rule    api.Rule
		ago     time.Duration
		pressed bool
		want    mdp.MilliCPU
	}{
		"demand, at once":        {api.Demand, 500 * time.Millisecond, false, 1000},
		"demand, a second later": {api.Demand, 2 * time.Second, false, 200},
		"demand, throttled":      {api.Demand, 2 * time.Second, true, 1000},
		"captain":                {api.Captain, 2 * time.Second, false, 400},
	} {
		one := managedContainer{
			rule: c.rule, pressed: c.pressed, inForce: limitsOf(web),
			settling: settling{at: noon, top: web.CPU, half: time.Second},
		}
		got := one.slowly(noon.Add(c.ago), mdp.Action{}.WithCPU(200))
		if got.Limit.CPU != c.want {
			t.Errorf("%s: %v, want %v", name, got.Limit.CPU, c.want)
		}
	}
}
