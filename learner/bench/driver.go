package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
	"awarescale.dev/aware/learner/sim"
)

// pilot drives all services of a world: a production Loop for each, and a tower where there is one.
type driver struct {
	world *sim.World
	loops []mdp.Loop
	every time.Duration

	tower    *tower.Tower
	captains []*captain.Captain
	usage    []minute // per service
	mark     sim.Snapshot
	slo      mdp.SLO
	guard    float64
}

// minute adds up a service's usage.
type minute struct {
	sum mdp.MilliCPU
	n   int
}

// start makes a choice ready to drive a world. A tower that has been warmed up goes on.
func (c Choice) start(w *sim.World, app sim.App, warm *tower.Tower, seed uint64) (*driver, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	b, err := c.baseline()
	if err != nil {
		return nil, err
	}
	p := &driver{world: w, every: b.every, slo: app.SLO, mark: w.Snapshot(), guard: c.get("guard")}
	var names []string
	for i, h := range w.Services() {
		policy, err := b.make(c, app, app.Services[i])
		if err != nil {
			return nil, fmt.Errorf("policy %s for %s: %w", c.Policy, h.Name(), err)
		}
		if k, ok := policy.(*captain.Captain); ok {
			p.captains = append(p.captains, k)
		}
		names = append(names, h.Name())
		p.loops = append(p.loops, mdp.Loop{
			Sensor: h.Sensor(), Actuator: h.Actuator(b.path), Objective: mdp.Objective{SLO: app.SLO, Alpha: 0.5},
			Policy: guard.Standard(policy, b.guards, guard.Place{Bounds: h.Bounds, SLO: app.SLO}),
		})
	}
	if b.name != "autothrottle" {
		return p, nil
	}
	p.usage = make([]minute, len(names))
	p.tower = warm
	if warm == nil {
		config := tower.Default
		config.SLO, config.BinRPS = app.SLO, mdp.Rate(c.get("bin_rps"))
		if err := config.Check(); err != nil {
			return nil, err
		}
		p.tower = tower.New(config, names, seed)
	}
	p.retarget()
	return p, nil
}

// second lets a second pass, with what is due at its end.
func (p *driver) second(ctx context.Context) error {
	p.world.Advance(time.Second)
	at := p.world.Elapsed()
	if at%p.every == 0 {
		for i := range p.loops {
			d, err := p.loops[i].Step(ctx, p.world.Now())
			var unknown *mdp.UnknownError
			if err != nil && !errors.As(err, &unknown) {
				return err
			}
			if p.tower != nil && d.State.Knows(mdp.CPUUsage) {
				p.usage[i].sum += d.State.Usage.CPU * mdp.MilliCPU(d.State.Replicas)
				p.usage[i].n++
			}
		}
	}
	if p.tower != nil && at%time.Minute == 0 {
		return p.observe()
	}
	return nil
}

// observe tells the tower of the minute that is over.
func (p *driver) observe() error {
	now := p.world.Snapshot()
	m := tower.Minute{
		Observed:  mdp.SetOf(mdp.Throughput, mdp.CPULimit),
		RPS:       mdp.Rate((now.Totals.Requests - p.mark.Totals.Requests) / 60),
		Allocated: mdp.MilliCPU((now.Totals.Allocated - p.mark.Totals.Allocated) / 60 * 1000),
		Usage:     make([]mdp.MilliCPU, len(p.usage)),
	}
	known := true
	for i, u := range p.usage {
		if u.n == 0 {
			known = false
			break
		}
		m.Usage[i] = u.sum / mdp.MilliCPU(u.n)
	}
	if known {
		m.Observed |= mdp.SetOf(mdp.CPUUsage)
	}
	if l, ok := p.world.Overall(p.mark, p.slo.Percentile); ok {
		// A guard below 1 lets the tower keep some distance to the SLO: a minute counts as slower than it was.
		m.Observed, m.Latency = m.Observed|mdp.SetOf(mdp.Latency), time.Duration(float64(l)/p.guard)
	}
	p.mark = now
	clear(p.usage)
	var unknown *mdp.UnknownError
	if err := p.tower.Observe(m); err != nil && !errors.As(err, &unknown) {
		return err
	}
	p.retarget()
	return nil
}

func (p *driver) retarget() {
	for i, t := range p.tower.Targets() {
		p.captains[i].Retarget(t)
	}
}
