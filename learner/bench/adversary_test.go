package bench

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
)

// candidate is a policy of an adversary: constant limits of each service, or
// limits that jump up and down, chosen by a search and not by need.
type candidate struct {
	cpu, memory []float64 // of each service, as a share of the static rule's
	swing       float64   // share of the CPU limits that is taken away in the low phase
	period      float64   // of the phases, in seconds
	duty        float64   // share of the period that is low
}

// bounds of the search, in logarithms where a share is meant.
var searched = struct{ cpu, memory, period [2]float64 }{
	cpu:    [2]float64{math.Log(0.02), math.Log(1.5)},
	memory: [2]float64{math.Log(0.05), 0},
	period: [2]float64{math.Log(2), math.Log(240)},
}

// read makes a candidate of a point of the search, which it clips to its bounds.
func read(x []float64, services int) candidate {
	in := func(v float64, b [2]float64) float64 { return math.Exp(max(b[0], min(b[1], v))) }
	var c candidate
	for i := range services {
		c.cpu = append(c.cpu, in(x[i], searched.cpu))
		c.memory = append(c.memory, in(x[services+i], searched.memory))
	}
	c.swing = max(0, min(0.95, x[2*services]))
	c.period = in(x[2*services+1], searched.period)
	c.duty = max(0, min(1, x[2*services+2]))
	return c
}

// choice is the candidate as a contestant. base is the static rule's limits.
func (c candidate) choice(app sim.App, base map[string]mdp.Size) Choice {
	index := map[string]int{}
	for i, s := range app.Services {
		index[s.Name] = i
	}
	return Choice{Encoding: Encoding, Policy: "adversary", custom: &baseline{
		name: "adversary", every: time.Second, path: sim.L0, guards: guard.Published,
		newPolicy: func(_ Choice, _ sim.App, s sim.Service) (mdp.Policy, error) {
			i := index[s.Name]
			return mdp.PolicyFunc(func(state mdp.State) (mdp.Action, error) {
				cpu := float64(base[s.Name].CPU) * c.cpu[i]
				at := math.Mod(state.At.Sub(sim.Epoch).Seconds(), c.period) / c.period
				if at < c.duty {
					cpu *= 1 - c.swing
				}
				return mdp.Action{}.WithCPU(max(1, mdp.MilliCPU(cpu))).
					WithMemory(max(1, mdp.Bytes(float64(base[s.Name].Memory)*c.memory[i]))), nil
			}), nil
		},
	}}
}

// write is the inverse of read.
func (c candidate) write() []float64 {
	var x []float64
	for _, v := range slices.Concat(c.cpu, c.memory) {
		x = append(x, math.Log(v))
	}
	return append(x, c.swing, math.Log(c.period), c.duty)
}

// attack is a candidate with a name.
type attack struct {
	candidate
	name string
}

// attacks are ways to win that the first judge rewarded, and some more. A service
// is behind when no client waits for it.
func attacks(app sim.App) []attack {
	behind := map[string]bool{}
	for _, s := range app.Services {
		behind[s.Name] = true
	}
	for _, name := range awaited(app) {
		behind[name] = false
	}
	with := func(name string, cpu, memory func(behind bool) float64) attack {
		a := attack{candidate{period: 10}, name}
		for _, s := range app.Services {
			a.cpu = append(a.cpu, cpu(behind[s.Name]))
			a.memory = append(a.memory, memory(behind[s.Name]))
		}
		return a
	}
	all := func(v float64) func(bool) float64 { return func(bool) float64 { return v } }
	background := func(v float64) func(bool) float64 {
		return func(behind bool) float64 {
			if behind {
				return v
			}
			return 1
		}
	}
	flush := with("queues flushed by kills", all(0.5), all(0.15))
	outage := with("lean, with brief outages", all(0.55), all(1))
	outage.swing, outage.period, outage.duty = 0.95, 240, 0.02
	return []attack{
		with("starving what nobody waits for", background(0.03), all(1)),
		with("crash loop", all(0.02), all(0.05)),
		with("crash loop of what nobody waits for", background(0.02), background(0.05)),
		flush, outage,
		with("too lean for the load", all(0.3), all(1)),
	}
}

// awaited are the services that a client's request waits for.
func awaited(app sim.App) []string {
	operations := map[string]sim.Operation{}
	for _, o := range app.Operations {
		operations[o.Name] = o
	}
	var names []string
	var visit func(name string)
	visit = func(name string) {
		o := operations[name]
		names = append(names, o.Service)
		for _, stage := range o.Stages {
			for _, c := range stage {
				visit(c.Operation)
			}
		}
	}
	for _, e := range app.Endpoints {
		visit(e.Operation)
	}
	return names
}

// cheats reports whether a run that the request level judged broke a promise
// that the static rule keeps, with a tenth of the SLO as the margin within which
// the two levels may disagree.
func cheats(s Score, slo mdp.SLO) bool {
	return s.P99.Seconds() > 1.1*slo.Latency.Seconds() ||
		s.LostRatio > 1.2*float64(slo.Lost) || s.Late > 1.2*(1-float64(slo.Background))
}

// hunt searches by the cross-entropy method for candidates that the score or the
// reward likes. goal is what the adversary wants, more is better.
func hunt(t *testing.T, cell Cell, base map[string]mdp.Size, goal func(Score) float64, seed uint64) []candidate {
	t.Helper()
	const elite = 6
	population, rounds := 16, 4
	if testing.Short() {
		population, rounds = 12, 3
	}
	n := len(cell.App.Services)
	r := rand.New(rand.NewPCG(seed, 0xadc))
	mean, deviation := make([]float64, 2*n+3), make([]float64, 2*n+3)
	for i := range n {
		deviation[i], deviation[n+i] = 0.3, 0.3
	}
	mean[2*n], deviation[2*n] = 0.1, 0.2
	mean[2*n+1], deviation[2*n+1] = math.Log(20), 1
	mean[2*n+2], deviation[2*n+2] = 0.2, 0.3
	known := attacks(cell.App)
	type scored struct {
		x    []float64
		goal float64
	}
	var best []scored
	for round := range rounds {
		tried := make([]scored, population)
		for i := range tried {
			x := make([]float64, len(mean))
			for k := range x {
				x[k] = mean[k] + deviation[k]*r.NormFloat64()
			}
			if round == 0 && i < len(known) {
				x = known[i].write()
			}
			tried[i].x = x
		}
		if err := InParallel(t.Context(), len(tried), func(ctx context.Context, i int) error {
			s, err := Run(ctx, cell, read(tried[i].x, n).choice(cell.App, base), Options{Seed: 1, Length: huntLength, Lead: huntLead})
			tried[i].goal = goal(s)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		best = append(best, tried...)
		slices.SortStableFunc(best, func(a, b scored) int { return cmp.Compare(b.goal, a.goal) })
		best = best[:elite]
		for k := range mean {
			sum, squares := 0.0, 0.0
			for _, b := range best {
				sum += b.x[k] / elite
			}
			for _, b := range best {
				squares += (b.x[k] - sum) * (b.x[k] - sum) / elite
			}
			mean[k], deviation[k] = sum, math.Sqrt(squares)+0.05
		}
	}
	var found []candidate
	for _, b := range best[:3] {
		found = append(found, read(b.x, n))
	}
	return found
}

// The adversary's runs are short: it needs many.
const (
	huntLength = 6 * time.Minute
	huntLead   = 100 * time.Second
)

// staticLimits are the limits of the tuned static rule.
func staticLimits(t *testing.T, cell Cell) (Choice, map[string]mdp.Size) {
	t.Helper()
	tuned, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	found, ok := tuned.For(cell, "static")
	if !ok {
		t.Fatalf("%s under %s has no tuned static rule", cell.Application, cell.Trace.Name)
	}
	base := map[string]mdp.Size{}
	for _, s := range cell.App.Services {
		cpu := found.Choice.Settings["cpu."+s.Name] * found.Choice.get("factor")
		base[s.Name] = mdp.Size{CPU: mdp.MilliCPU(cpu), Memory: s.Size.Memory}
	}
	return found.Choice, base
}

// Each of these paid under the first judge. It must break a promise in the eyes
// of both levels, and earn less than the static rule, which does the work.
func TestKnownAttacksNeitherHoldNorPay(t *testing.T) {
	for _, cell := range burstyCells(t) {
		static, base := staticLimits(t, cell)
		for _, level := range []sim.Fidelity{sim.Fluid, sim.Requests} {
			honest := judged(t, cell, static, level)
			for _, a := range attacks(cell.App) {
				s := judged(t, cell, a.choice(cell.App, base), level)
				t.Logf("%s, level %d, %s: %.1f cores, p99 %.0f ms, lost %.4f, late %.4f, %d kills, reward %.2f (static %.2f)",
					cell.Application, level, a.name, s.Cores, s.P99MS, s.LostRatio, s.Late, s.OOMKills, s.Reward, honest.Reward)
				if !s.Violates {
					t.Errorf("%s, level %d: %s holds", cell.Application, level, a.name)
				}
				if s.Reward >= honest.Reward {
					t.Errorf("%s, level %d: %s earns %.3f, the static rule %.3f",
						cell.Application, level, a.name, s.Reward, honest.Reward)
				}
			}
		}
	}
}

// burstyCells are the cells under the bursty trace, one of each application.
func burstyCells(t *testing.T) []Cell {
	t.Helper()
	cells, err := Cells()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(cells, func(c Cell) bool { return c.Trace.Name != "bursty" })
}

// judged is the score of a choice in the adversary's runs.
func judged(t *testing.T, cell Cell, c Choice, level sim.Fidelity) Score {
	t.Helper()
	s, err := Run(t.Context(), cell, c, Options{Seed: 2, Length: huntLength, Lead: huntLead, Fidelity: level})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An adversary who knows the judge searches for limits that save by not doing the
// work. None that the request level catches breaking a promise may hold a cell,
// or earn more than the static rule, at either level.
func TestNobodyWinsByNotDoingTheWork(t *testing.T) {
	goals := map[string]func(Score) float64{
		"reward": func(s Score) float64 { return s.Reward },
		"score": func(s Score) float64 {
			if s.Violates {
				return -1000 - s.P99MS - 1e5*(s.LostRatio+s.Late)
			}
			return -s.Cores - s.MemoryGiB/4
		},
	}
	levels := []sim.Fidelity{sim.Fluid, sim.Requests}
	for _, cell := range burstyCells(t) {
		t.Run(cell.Application, func(t *testing.T) {
			static, base := staticLimits(t, cell)
			var honest [2]Score
			for _, level := range levels {
				if honest[level] = judged(t, cell, static, level); cheats(honest[level], cell.App.SLO) {
					t.Fatalf("the static rule breaks its promises: %+v", honest[level])
				}
			}
			for _, name := range []string{"reward", "score"} {
				for i, c := range hunt(t, cell, base, goals[name], 3) {
					var at [2]Score
					for _, level := range levels {
						at[level] = judged(t, cell, c.choice(cell.App, base), level)
					}
					truth := at[sim.Requests]
					t.Logf("%s %d: %.1f cores, p99 %.0f/%.0f ms, lost %.4f, late %.4f, %d kills, reward %.3f/%.3f (static %.3f)",
						name, i, truth.Cores, at[sim.Fluid].P99MS, truth.P99MS, truth.LostRatio, truth.Late, truth.OOMKills,
						at[sim.Fluid].Reward, truth.Reward, honest[sim.Requests].Reward)
					if !cheats(truth, cell.App.SLO) {
						continue
					}
					for _, level := range levels {
						if !at[level].Violates {
							t.Errorf("%s %d holds at level %d, though it breaks a promise: %+v", name, i, level, truth)
						}
						if at[level].Reward >= honest[level].Reward {
							t.Errorf("%s %d breaks a promise and earns %.3f at level %d, the static rule %.3f",
								name, i, at[level].Reward, level, honest[level].Reward)
						}
					}
				}
			}
		})
	}
}

func TestEachPromiseCounts(t *testing.T) {
	slo := mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond, Lost: 0.005, Background: 0.99}
	for name, c := range map[string]struct {
		s     Score
		broke bool
	}{
		"all kept":        {Score{P99: 100 * time.Millisecond, LostRatio: 0.005, Late: 0.0099}, false},
		"too slow":        {Score{P99: 101 * time.Millisecond}, true},
		"too many lost":   {Score{P99: time.Millisecond, LostRatio: 0.0051}, true},
		"work left to do": {Score{P99: time.Millisecond, Late: 0.011}, true},
	} {
		if got := c.s.breaks(slo); got != c.broke {
			t.Errorf("%s: breaks = %v", name, got)
		}
	}
}
