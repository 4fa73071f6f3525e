package bench

import (
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
)

// Foresight is how far the oracle knows the rate of arrivals.
const Foresight = 10 * time.Second

// oracle knows what no policy can know: the constants of the application (call
// graph, work and waits of its operations, initial replicas), and the rate of
// arrivals up to [Foresight] from now. It does not know the random numbers of the
// run: neither which second has how many arrivals nor the work of a request.
type oracle struct {
	services map[string]*foreseen
}

// foreseen is the expected CPU demand of a service in each second of a run, per
// replica and in cores, with the work of a request as it is without interference.
type foreseen struct {
	slices  []float64 // in each slice of the run
	mean    []float64 // over the second
	peak    []float64 // highest of its slices
	scatter float64   // standard deviation in a slice, divided by the root of the demand
}

// slicesIn is the number of the simulator's slices in a second.
const slicesIn = int(time.Second / sim.Slice)

// course is what an application does with one client request: the CPU time of
// each service, by the time since the client sent the request.
type course struct {
	app   sim.App
	ops   map[string]sim.Operation
	work  map[string][]float64 // of a service: CPU seconds in each slice
	moved map[string]float64   // of a service: sum of the second moments of its requests' work
}

// visit adds an operation that is called at a time, by a share of the requests.
// It returns when its awaited calls have ended. Nothing queues.
func (c *course) visit(name string, share float64, at time.Duration) time.Duration {
	o := c.ops[name]
	slot := min(int(at/sim.Slice), int(Foresight/sim.Slice)-1)
	for len(c.work[o.Service]) <= slot {
		c.work[o.Service] = append(c.work[o.Service], 0)
	}
	work := o.Work.Seconds()
	c.work[o.Service][slot] += share * work
	variation := 0.5
	for _, s := range c.app.Services {
		if s.Name == o.Service {
			variation = s.Variation
		}
	}
	c.moved[o.Service] += share * work * work * (1 + variation*variation)
	at += o.Work + o.Wait
	for _, stage := range o.Stages {
		end := at
		for _, call := range stage {
			end = max(end, c.visit(call.Operation, share*float64(call.Share), at))
		}
		at = end
	}
	for _, call := range o.Background {
		c.visit(call.Operation, share*float64(call.Share), at)
	}
	return at
}

// newOracle computes the demand of an application under a load, for a time from
// the start of a world.
func newOracle(app sim.App, load sim.Load, length time.Duration) *oracle {
	c := course{app: app, ops: map[string]sim.Operation{}, work: map[string][]float64{}, moved: map[string]float64{}}
	for _, o := range app.Operations {
		c.ops[o.Name] = o
	}
	shares := 0.0
	for _, e := range app.Endpoints {
		shares += float64(e.Share)
	}
	for _, e := range app.Endpoints {
		c.visit(e.Operation, float64(e.Share)/shares, 0)
	}
	seconds := int((length + Foresight) / time.Second)
	rates := make([]float64, seconds)
	for t := range rates {
		rates[t] = float64(load.Rate(time.Duration(t) * time.Second))
	}
	o := &oracle{services: map[string]*foreseen{}}
	for _, s := range app.Services {
		total, replicas := 0.0, float64(s.Replicas)
		for _, w := range c.work[s.Name] {
			total += w
		}
		d := &foreseen{
			slices: make([]float64, seconds*slicesIn),
			mean:   make([]float64, seconds),
			peak:   make([]float64, seconds),
		}
		if total > 0 {
			d.scatter = math.Sqrt(c.moved[s.Name] / total / sim.Slice.Seconds())
		}
		for t := range rates {
			for slice := range slicesIn {
				cores := 0.0
				for lag, w := range c.work[s.Name] {
					if at := t*slicesIn + slice - lag; at >= 0 {
						cores += w * rates[at/slicesIn]
					}
				}
				cores /= replicas
				d.slices[t*slicesIn+slice] = cores
				d.mean[t] += cores / float64(slicesIn)
				d.peak[t] = max(d.peak[t], cores)
			}
		}
		o.services[s.Name] = d
	}
	return o
}

// Margins are what the oracle adds to the demand that it knows. The search of
// [FindFloor] selects them for each cell, on the run that is scored.
type Margins struct {
	// Z is the margin for scatter within a second, in standard deviations of the
	// demand in a CFS period.
	Z float64 `json:"z"`
	// Peak is the share of the distance from a second's mean demand to its
	// highest slice that is added.
	Peak float64 `json:"peak"`
	// Ahead is the number of coming seconds of whose needs the highest counts, at
	// least 1 and at most those of Foresight.
	Ahead int `json:"ahead_s"`
	// Band is how far a limit may be above the need before it falls, as a share of
	// the need. Each fall costs calls of the container runtime.
	Band float64 `json:"band"`
	// Backlog is the share of the work not done yet that is added.
	Backlog float64 `json:"backlog"`
	// Fast is what is added in a slice after one in which the service was
	// throttled, in standard deviations of the demand in a CFS period, for each of
	// up to four such slices in a row. With 0 the oracle acts once a second, and
	// otherwise in every slice, as captains do.
	Fast float64 `json:"fast"`
	// Services are factors of Z per service; 1 when a service is missing.
	Services map[string]float64 `json:"services,omitempty"`
}

// choice is the oracle with margins, as a contestant. It acts by the cgroup, and
// leaves memory and replicas alone.
func (o *oracle) choice(m Margins) Choice {
	every := time.Second
	if m.Fast > 0 {
		every = sim.Slice
	}
	return Choice{Encoding: Encoding, Policy: "oracle", custom: &baseline{
		name: "oracle", every: every, path: sim.L0, guards: guard.Published,
		newPolicy: func(_ Choice, _ sim.App, s sim.Service) (mdp.Policy, error) {
			z := m.Z
			if f, ok := m.Services[s.Name]; ok {
				z *= f
			}
			return &seer{demand: o.services[s.Name], margins: m, z: z}, nil
		},
	}}
}

// seer is the oracle's policy for one service.
type seer struct {
	demand  *foreseen
	margins Margins
	z       float64

	used, expected float64 // exponential means of cores, for the slowdown by interference
	backlog        float64 // core-seconds of work not done, per replica
	row            float64 // slices in a row in which it was throttled, at most 4
}

// Decide implements [mdp.Policy]. The limit is
//
//	d + Peak (p - d) + z (s + 0.02 d) + Backlog B + z/(z + 0.03) thr s
//
// with d the mean and p the highest demand of the second, s the scatter of
// demand in a CFS period, B the backlog, and thr the share of throttled periods.
// It is the form of the demand policy with a known demand. With Fast, d is the
// demand of the slice, and the last term is Fast times the throttled slices in a
// row times s.
func (p *seer) Decide(s mdp.State) (mdp.Action, error) {
	at := s.At.Sub(sim.Epoch)
	now := int(at / time.Second)
	if now+p.margins.Ahead > len(p.demand.mean) {
		return mdp.Action{}, nil // the run is over
	}
	fast := p.margins.Fast > 0
	if fast {
		p.observe(s, p.demand.slices, int(at/sim.Slice), sim.Slice)
	} else {
		p.observe(s, p.demand.mean, now, time.Second)
	}
	need := 0.0
	for t := now; t < now+p.margins.Ahead; t++ {
		d := p.demand.mean[t]
		if t == now && fast {
			d = p.demand.slices[int(at/sim.Slice)]
		}
		d *= p.slow()
		scatter := p.demand.scatter * math.Sqrt(p.slow()*d)
		limit := d + p.z*(scatter+0.02*d)
		if !fast {
			limit += p.margins.Peak * (p.slow()*p.demand.peak[t] - d)
		}
		if t == now {
			limit += p.margins.Backlog*p.backlog + p.margins.Fast*p.row*scatter
			if !fast {
				limit += p.z / (p.z + 0.03) * float64(s.Throttled) * scatter
			}
		}
		need = max(need, limit)
	}
	cpu := mdp.MilliCPU(math.Ceil(1000 * need))
	have := s.Limit.CPU
	if have == cpu || have > cpu && float64(have) <= float64(cpu)*(1+p.margins.Band) {
		return mdp.Action{}, nil
	}
	return mdp.Action{}.WithCPU(max(1, cpu)), nil
}

// observe learns from the last step how much interference slows the service
// down, and how much work is left.
func (p *seer) observe(s mdp.State, demand []float64, now int, step time.Duration) {
	if now < 1 || !s.Knows(mdp.CPUUsage) || !s.Knows(mdp.Throttled) {
		return
	}
	keep := 1 - step.Minutes() // a mean over a minute, as pressure changes with the load
	used, expected := s.Usage.CPU.Cores(), demand[now-1]
	p.backlog = float64(s.Throttled) * max(0, p.backlog+(p.slow()*expected-used)*step.Seconds())
	p.row = float64(s.Throttled) * min(4, p.row+1)
	p.used = keep*p.used + (1-keep)*used
	p.expected = keep*p.expected + (1-keep)*expected
}

// slow is the factor by which interference raises the work of the service.
func (p *seer) slow() float64 {
	if p.expected == 0 {
		return 1
	}
	return max(1, min(4, p.used/p.expected))
}
