package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/perfmodel"
)

// plant is what a formula needs to know about an application: per service the
// CPU seconds of a client request, and the waits on its way.
type plant struct {
	services []string
	demand   []float64 // CPU seconds per request, in the order of services, background calls included
	serial   []float64 // the part of demand that the request waits for
	most     []float64 // factor at which the largest work of the service's operations is mostWork
	wait     float64   // seconds of waiting per request
}

// mostWork is the most CPU time of one operation, in seconds. Cilantro's
// unsaturated windows bound it: three replicas of one core serve 2,976 requests
// per second.
const mostWork = 0.001

// newPlant counts the calls of an application. Calls of one stage count as if
// they ran one after the other.
func newPlant(app sim.App, services []string) *plant {
	p := &plant{
		services: services,
		demand:   make([]float64, len(services)),
		serial:   make([]float64, len(services)),
		most:     make([]float64, len(services)),
	}
	ops := map[string]sim.Operation{}
	for _, o := range app.Operations {
		ops[o.Name] = o
	}
	largest := make([]float64, len(services))
	var visit func(name string, times float64, waits bool)
	visit = func(name string, times float64, waits bool) {
		o := ops[name]
		if i := slices.Index(services, o.Service); i >= 0 {
			p.demand[i] += times * o.Work.Seconds()
			largest[i] = max(largest[i], o.Work.Seconds())
			if waits {
				p.serial[i] += times * o.Work.Seconds()
			}
		}
		if waits {
			p.wait += times * o.Wait.Seconds()
		}
		for _, stage := range o.Stages {
			for _, c := range stage {
				visit(c.Operation, times*float64(c.Share), waits)
			}
		}
		for _, c := range o.Background {
			visit(c.Operation, times*float64(c.Share), false)
		}
	}
	total := 0.0
	for _, e := range app.Endpoints {
		total += float64(e.Share)
	}
	for _, e := range app.Endpoints {
		visit(e.Operation, float64(e.Share)/total, true)
	}
	for i, w := range largest {
		p.most[i] = 1
		if w > 0 {
			p.most[i] = mostWork / w
		}
	}
	return p
}

// factors scale the constants of a plant. They are what is fitted.
type factors struct {
	work []float64 // of each service
	wait float64   // of all waits
}

// client is how the clients of a measurement send.
type client struct {
	offered     float64 // requests per second
	connections float64 // requests that can be open at once
	seconds     float64 // length of a window
	settle      float64 // seconds at its beginning whose latencies are not reported
}

// response is the mean response time in seconds at a completed rate, with each
// replica an M/M/1 queue of one core. It is +Inf when a service is overloaded.
func (p *plant) response(f factors, alloc []float64, rate float64) float64 {
	r := p.wait * f.wait
	for i, d := range p.serial {
		load := rate * p.demand[i] * f.work[i] / max(alloc[i], leastCPU)
		if load >= 1 {
			return math.Inf(1)
		}
		r += d * f.work[i] / (1 - load)
	}
	return r
}

// leastCPU is the lowest allocation of a service, in cores.
const leastCPU = 0.01

// answer is the completed rate per second, and the p99 in ms, that the formula
// predicts. The rate is the highest at which the connections suffice: rate *
// response <= connections (Little's law). Above it requests wait at the client,
// and at the time t the wait is t * (1 - rate/offered).
func (p *plant) answer(f factors, alloc []float64, c client) (rate, p99 float64) {
	rate = c.offered
	if rate*p.response(f, alloc, rate) > c.connections {
		low, high := 0.0, c.offered
		for range 30 {
			rate = (low + high) / 2
			if rate*p.response(f, alloc, rate) > c.connections {
				high = rate
			} else {
				low = rate
			}
		}
		rate = low
	}
	late := (c.seconds - 0.01*(c.seconds-c.settle)) * (1 - rate/c.offered)
	return rate, 1000 * (late + perfmodel.Exponential*p.response(f, alloc, rate))
}

// Constants of the fit.
const (
	starts = 5     // from random factors
	sweeps = 4     // at most, over all factors
	ridge  = 0.001 // cost of (ln factor)^2: what the data does not decide stays as it is
)

var (
	workLevels = []float64{0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1} // of the largest factor
	waitLevels = []float64{0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6}
)

// fitPlant searches the factors by coordinate descent, from the application as
// it is and from random factors, and returns the best. The cost is 1 - Spearman
// of the p99, plus the mean absolute log error of the completed rate. The random
// numbers are the same in each fit.
func fitPlant(p *plant, rows []Window, c client) factors {
	origin := factors{make([]float64, len(p.services)), 1}
	for i := range origin.work {
		origin.work[i] = min(1, p.most[i])
	}
	fit := newFitting(rows)
	random := rand.New(rand.NewPCG(1, 0xf17))
	best, lowest := fit.descend(p, origin, origin, c)
	for range starts {
		from := factors{slices.Clone(origin.work), waitLevels[random.IntN(len(waitLevels))]}
		for i := range from.work {
			if p.demand[i] > 0 {
				from.work[i] = workLevels[random.IntN(len(workLevels))] * p.most[i]
			}
		}
		if f, cost := fit.descend(p, from, origin, c); cost < lowest {
			best, lowest = f, cost
		}
	}
	return best
}

// descend changes one factor at a time while that lowers the cost.
func (fit *fitting) descend(p *plant, from, origin factors, c client) (f factors, cost float64) {
	f = factors{slices.Clone(from.work), from.wait}
	best := fit.cost(p, f, origin, c)
	try := func(at *float64, levels []float64, scale float64) (better bool) {
		keep := *at
		for _, l := range levels {
			*at = l * scale
			if cost := fit.cost(p, f, origin, c); cost < best-1e-9 {
				best, keep, better = cost, *at, true
			}
		}
		*at = keep
		return better
	}
	for range sweeps {
		better := try(&f.wait, waitLevels, 1)
		for i := range f.work {
			if p.demand[i] > 0 && try(&f.work[i], workLevels, p.most[i]) {
				better = true
			}
		}
		if !better {
			break
		}
	}
	return f, best
}

// fitting holds what does not change during a fit.
type fitting struct {
	rows  []Window
	group []int       // of each row: the index of its allocation
	alloc [][]float64 // distinct
	ranks []float64   // of the measured p99
}

func newFitting(rows []Window) *fitting {
	f := &fitting{rows: rows, ranks: ranks(column(rows, func(w Window) float64 { return w.P99 }))}
	at := map[string]int{}
	for _, w := range rows {
		k := key(w.Alloc)
		i, known := at[k]
		if !known {
			i = len(f.alloc)
			at[k] = i
			f.alloc = append(f.alloc, w.Alloc)
		}
		f.group = append(f.group, i)
	}
	return f
}

// cost judges factors. Those that are far from the origin cost a little more.
func (fit *fitting) cost(p *plant, g, origin factors, c client) float64 {
	rate, p99 := make([]float64, len(fit.alloc)), make([]float64, len(fit.alloc))
	for i, a := range fit.alloc {
		rate[i], p99[i] = p.answer(g, a, c)
	}
	off, of := 0.0, make([]float64, len(fit.rows))
	for i, w := range fit.rows {
		of[i] = p99[fit.group[i]]
		off += min(2, math.Abs(math.Log(max(1, rate[fit.group[i]])/max(1, w.Rate()))))
	}
	order := correlation(fit.ranks, ranks(of))
	away := math.Pow(math.Log(g.wait/origin.wait), 2)
	for i := range g.work {
		away += math.Pow(math.Log(g.work[i]/origin.work[i]), 2)
	}
	return 1 - order + off/float64(len(fit.rows)) + ridge*away
}
