package agent

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// server is a container that works on an open load: in the order in which requests come, two at a time, under CFS
// bandwidth control in steps of a millisecond.
type server struct {
	cfs
	queue []request
	took  []time.Duration // of the requests that have ended
	force float64         // core-seconds in force
}

// request is one of an open load.
type request struct {
	at   time.Time
	left time.Duration // of its CPU time
	ends func()
}

// wants is how many CPUs it would use now.
func (s *server) wants() int {
	if s.got >= s.quota() {
		return 0
	}
	return min(2, len(s.queue))
}

// work is a millisecond, which ends now. Each request that is worked on gets a share of a CPU.
func (s *server) work(now time.Time, share float64) {
	s.force += float64(s.limit.CPU()) / 1000 * ms.Seconds()
	for i := min(2, len(s.queue)) - 1; i >= 0; i-- {
		r := &s.queue[i]
		r.left -= s.take(min(time.Duration(share*float64(ms)), r.left))
		if r.left <= 0 {
			s.took = append(s.took, now.Sub(r.at))
			r.ends()
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
		}
	}
	s.pass()
}

// loaded is a node with two replicas of a workload under an open load, and what central does for them: it grants, and keeps the
// error budget of the rule demand.
type loaded struct {
	*rig
	servers []*server
	rng     *rand.Rand
	rate    func(second int) float64         // requests a second, of both
	next    func() (to *server, ends func()) // whom the next request goes to
	cpus    func() float64                   // that others leave of the machine, in this millisecond; nil: enough
	slo     time.Duration
	least   mdp.MilliCPU // that may be in force
	rule    api.Rule
	budget  *demand.Budget
}

// loadCost is the CPU time of a request, give or take a tenth.
const loadCost = 10 * time.Millisecond

// load makes a node whose containers may have 900 millicores.
func load(t *testing.T, version cgroup.Version, rule api.Rule, cores func(second int) float64) *loaded {
	t.Helper()
	config := demand.DefaultBudget
	config.Windows, config.SLO = 0.05, 300*ms
	l := &loaded{
		rig: newRig(t, version, 2), rng: rand.New(rand.NewPCG(1, 2)), rule: rule, budget: demand.NewBudget(config), slo: 300 * ms,
		least: 50,
		rate:  func(second int) float64 { return cores(second) / loadCost.Seconds() },
	}
	turn := 0
	l.next = func() (*server, func()) {
		turn++
		return l.servers[(turn-1)%len(l.servers)], func() {}
	}
	for i := range 2 {
		path := l.pathOf(i, "c"+fmt.Sprint(i))
		l.servers = append(l.servers, &server{cfs: cfs{host: l.host, path: path}})
		l.stage.change(i, func(_ *Pod, c *Container) { c.Limits.CPU = 900 })
		for _, path := range []string{filepath.Dir(path), path} {
			if err := l.host.Tree.Write(path, limitsOf(mdp.Size{CPU: 900, Memory: web.Memory})); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// until serves until a time, and writes what the kernel counts.
func (l *loaded) until(end time.Time) {
	l.t.Helper()
	for _, s := range l.servers {
		s.hear(l.t)
	}
	for ; l.now.Before(end); l.now = l.now.Add(ms) {
		if l.rng.Float64() < l.rate(int(l.now.Sub(noon).Seconds()))*ms.Seconds() {
			s, ends := l.next()
			s.queue = append(s.queue, request{l.now, time.Duration(float64(loadCost) * (1 + l.rng.NormFloat64()/10)), ends})
		}
		share := 1.0
		if l.cpus != nil {
			want := 0
			for _, s := range l.servers {
				want += s.wants()
			}
			share = min(1, l.cpus()/float64(max(1, want)))
		}
		for _, s := range l.servers {
			s.work(l.now.Add(ms), share)
		}
	}
	for _, s := range l.servers {
		s.count(l.t)
	}
}

// second serves for a second, with samples and glances, and a step at its end.
func (l *loaded) second() {
	for range time.Second / tenth {
		for sample := l.now.Add(tenth); l.now.Before(sample); {
			due := l.agent.sampler.Due().Truncate(ms).Add(ms) // a timer is never early
			if due.Before(l.now) || due.After(sample) {
				due = sample
			}
			l.until(due)
			if due != sample {
				l.agent.Glance(l.now)
			}
		}
		l.agent.Sample(l.now)
	}
	l.agent.Step(l.t.Context(), l.now)
}

// window is ten seconds: central grants, and hears at the end what was late.
func (l *loaded) window() (late, all int) {
	level := math.Ceil(20*l.budget.Level()) / 20
	l.grant(api.Auto, func(g *api.Grant) {
		g.Throttle, g.Rule, g.Margin = seldom, l.rule, level
		g.Patience = l.budget.Patience()
		g.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: l.least, Max: 900}
	})
	for range 10 {
		l.second()
	}
	for _, s := range l.servers {
		for _, took := range s.took {
			if all++; took > l.slo {
				late++
			}
		}
		s.took = s.took[:0]
	}
	l.budget.Observe(l.now, mdp.Ratio(late)/mdp.Ratio(max(1, all)), float64(all))
	return late, all
}

// costs is what the cheapest limits at rest cost in the mean, in cores, as the agent reckons and if relief were not eased.
func (l *loaded) costs() (said, plain float64) {
	for i := range l.servers {
		track := l.agent.containers[l.ref(i)].track
		_, _, costs, _ := l.agent.sampler.Rest(track, 900, seldom)
		_, uneased, _ := track.uses.cheapest(900, seldom, calmSamples, false)
		said, plain = said+float64(costs)/1000, plain+float64(uneased)/1000
	}
	return said, plain
}

// loads are what two replicas are asked for, in cores, and the most that may be in force for it, in the mean.
var loads = map[string]struct {
	cores func(second int) float64
	most  float64
}{
	"steady": {func(int) float64 { return 0.3 }, 0.63},
	"hills": {func(second int) float64 { // up to four times the least, in three minutes
		return 0.5 - 0.3*math.Cos(2*math.Pi*float64(second)/180)
	}, 1.1},
	"bursts": {func(second int) float64 {
		if second%120 >= 100 {
			return 0.9
		}
		return 0.08
	}, 0.51},
	"spikes": {func(second int) float64 {
		if second%20 >= 18 {
			return 1.2
		}
		return 0.1
	}, 0.49},
	"storms": {func(second int) float64 { // half a minute with ups and downs
		if second%90 >= 60 {
			return 0.3 + 0.6*float64(second*7%10)/9
		}
		return 0.1
	}, 0.69},
}

// Requests that queue, the kernel's rule, the agent, and central's error budget: whichever rule the owner chooses, hardly a
// request is late, and the limits in force are far below what the workload would need without an agent. What an owner has of
// the rule demand is that it is hardly dearer than the captain, by 2 to 6 % with storms, and cheaper elsewhere; with spikes it
// was twice as dear. And what the agent takes the cheapest limit to cost is no further from what is in force than if nothing were
// eased.
func TestUnderALoadNoRuleIsLateAndDemandIsHardlyDearer(t *testing.T) {
	for name, c := range loads {
		t.Run(name, func(t *testing.T) {
			force := make(map[api.Rule]float64)
			for _, rule := range []api.Rule{api.Captain, api.Demand} {
				l := load(t, cgroup.V2, rule, c.cores)
				const warm, windows = 18, 36
				late, all := 0, 0
				var said, plain float64 // that the cheapest limit costs, with easing and without
				for i := range warm + windows {
					if i == warm {
						for _, s := range l.servers {
							s.force = 0
						}
					}
					n, of := l.window()
					if i >= warm {
						late, all = late+n, all+of
						costs, uneased := l.costs()
						said, plain = said+costs/windows, plain+uneased/windows
					}
				}
				for _, s := range l.servers {
					force[rule] += s.force / (windows * 10)
				}
				t.Logf("rule %q, level %.2f: %.3f cores in force, %d of %d requests late",
					rule, l.budget.Level(), force[rule], late, all)
				if late*1000 > all {
					t.Errorf("rule %q: %d of %d requests are late", rule, late, all)
				}
				if is := force[rule]; rule == api.Captain && math.Abs(said-is) > math.Abs(plain-is) {
					t.Errorf("%.2f cores in force; the cheapest limits are said to cost %.2f, and %.2f without easing", is, said, plain)
				}
				if force[rule] > c.most {
					t.Errorf("rule %q: %.2f cores in force of the 1.8 that both may have, want %.2f at most",
						rule, force[rule], c.most)
				}
			}
			if force[api.Demand] > 1.06*force[api.Captain] {
				t.Errorf("%.2f cores in force by the rule demand, %.2f by the captain", force[api.Demand], force[api.Captain])
			}
		})
	}
}

// busy makes the machine one of two CPUs, of which others use a fourth of one, and now and then, for up to a quarter of a second,
// nearly one and a half. And the client is one that uses the connection again that was free last: the replicas do not take turns.
func (l *loaded) busy() {
	spell := 0 // milliseconds
	l.cpus = func() float64 {
		switch {
		case spell > 0:
			spell--
			return 0.6
		case l.rng.IntN(2000) == 0:
			spell = 50 + l.rng.IntN(200)
		}
		return 1.75
	}
	var free []*server // the servers of the connections that are not used
	l.next = func() (*server, func()) {
		s := l.servers[l.rng.IntN(len(l.servers))]
		if n := len(free); n > 0 {
			s, free = free[n-1], free[:n-1]
		}
		return s, func() { free = append(free, s) }
	}
}

// hill is a load like the demo's: for some seconds of each three quarters of a minute it needs one core, and else a tenth of one.
func hill(second int) float64 {
	x := float64(second%45) - 22
	return 0.1 + 0.85*math.Exp(-x*x/12)
}

// What a busy machine delays is late whatever the limit is. Relief comes so soon that hardly more is late than if the ceiling
// were in force all the time, for a third of the cores.
func TestOnABusyMachineReliefIsNotWhatIsLate(t *testing.T) {
	const warm, windows, seeds = 9, 18, 2
	for _, rule := range []api.Rule{api.Captain, api.Demand} {
		run := func(least mdp.MilliCPU) (late int, force float64) {
			for seed := range uint64(seeds) {
				l := load(t, cgroup.V2, rule, hill)
				l.rng = rand.New(rand.NewPCG(seed, 3))
				l.busy()
				config := demand.DefaultBudget
				config.Windows, config.SLO = 0.05, 120*ms
				l.least, l.slo, l.budget = least, config.SLO, demand.NewBudget(config)
				for i := range warm + windows {
					n, _ := l.window()
					for _, s := range l.servers {
						if i >= warm {
							force += s.force / (seeds * windows * 10)
						}
						s.force = 0
					}
					if i >= warm {
						late += n
					}
				}
			}
			return late, force
		}
		late, force := run(50)
		ceiling, all := run(900)
		said := fmt.Sprintf("rule %q: %d requests are late with %.2f cores in force, and %d with %.2f", rule, late, force, ceiling, all)
		if t.Log(said); late > ceiling*5/4 || force > all/2 {
			t.Error(said)
		}
	}
}
