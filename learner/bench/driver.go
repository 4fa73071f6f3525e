package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
	"awarescale.dev/aware/learner/policy/heuristic/demand/correct"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
	"awarescale.dev/aware/learner/sim"
)

// driver controls all services of a world: with a production Loop for each
// service, and with a tower if the policy has one.
type driver struct {
	world *sim.World
	loops []mdp.Loop    // one per service
	every time.Duration // decision interval; see baseline

	joint JointRun       // nil for policies that decide for each service alone
	parts []*servicePart // of the joint policy, one per service

	budget    *demand.Budget // nil for policies without an error budget
	demands   []*demand.Policy
	corrected *correct.Policy // of the lead, if there is one; it is none of demands
	ended     sim.Totals      // at the budget's last window

	tower    *tower.Tower // nil for policies without a tower
	captains []*captain.Captain
	usage    []minute     // per service, since the tower's last observation
	mark     sim.Snapshot // at the tower's last observation
	slo      mdp.SLO
	guard    float64 // the latency that the tower observes is divided by it
}

// minute is the sum of a service's CPU usage.
type minute struct {
	sum mdp.MilliCPU
	n   int // number of readings in sum
}

// start creates the driver of a choice for a world. A warm tower keeps its
// state and explores no more, as in the authors' counted runs; nil is a new
// tower. The caller must call end.
func (c Choice) start(ctx context.Context, w *sim.World, app sim.App, warm *tower.Tower, seed uint64) (*driver, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	b, err := c.baseline()
	if err != nil {
		return nil, err
	}
	d := &driver{
		world: w,
		every: b.every,
		slo:   app.SLO,
		mark:  w.Snapshot(),
		guard: c.get("guard"),
	}
	var names []string
	for i, h := range w.Services() {
		policy, err := b.newPolicy(c, app, app.Services[i])
		if err != nil {
			return nil, fmt.Errorf("policy %s for %s: %w", c.Policy, h.Name(), err)
		}
		actuator, guards := h.Actuator(b.path), b.guards
		if c.lead != nil && c.lead.service == h.Name() {
			if policy, err = c.lead.over(policy, encode.Place{Bounds: h.Bounds(), SLO: app.SLO}); err != nil {
				return nil, fmt.Errorf("policy %s for %s: %w", c.Policy, h.Name(), err)
			}
			actuator, guards = byKnob{node: actuator, api: h.Actuator(sim.L2)}, c.lead.guards(guards)
		}
		switch k := policy.(type) {
		case *captain.Captain:
			d.captains = append(d.captains, k)
		case *demand.Policy:
			d.demands = append(d.demands, k)
		case *correct.Policy:
			d.corrected = k
		}
		sensor := h.Sensor()
		if b.memory {
			policy = withMemory(policy, mdp.Bytes(c.get(minMemory)*float64(app.Services[i].Size.Memory)))
		}
		if p, ok := policy.(*servicePart); ok {
			p.sensor, sensor = sensor, p
			d.parts = append(d.parts, p)
		}
		names = append(names, h.Name())
		d.loops = append(d.loops, mdp.Loop{
			Sensor:    sensor,
			Actuator:  actuator,
			Objective: objective(app),
			Policy:    guard.Standard(policy, guards, guard.Place{Bounds: h.Bounds, SLO: app.SLO}),
		})
	}
	if c.joint != nil {
		return d, d.begin(ctx, c.joint, app, seed)
	}
	if c.lead != nil && !slices.Contains(names, c.lead.service) {
		return nil, fmt.Errorf("policy %s: service %q: %s has %s", c.Policy, c.lead.service, app.Name, strings.Join(names, ", "))
	}
	if (d.demands != nil || d.corrected != nil) && c.get("share") > 0 {
		return d, d.keepBudget(c, seed)
	}
	if b.name != "autothrottle" {
		return d, nil
	}
	d.usage = make([]minute, len(names))
	if warm != nil {
		if d.tower, err = warm.Clone(); err != nil {
			return nil, err
		}
		d.tower.StopExploring()
	} else {
		config := tower.Default
		config.SLO, config.BinRPS = app.SLO, mdp.Rate(c.get("bin_rps"))
		// Half of the warm-up is uniformly random, half explores neighbours.
		config.Uniform = int(c.get("warm_hours") * 60 / 2)
		config.Explore = config.Uniform
		if err := config.Check(); err != nil {
			return nil, err
		}
		d.tower = tower.New(config, names, seed)
	}
	d.retarget()
	return d, nil
}

// second simulates one second. It runs the loops when they are due, and at the
// end of a minute the tower.
func (d *driver) second(ctx context.Context) error {
	d.relevel()
	tick := min(d.every, time.Second)
	for range time.Second / tick {
		d.world.Advance(tick)
		if d.world.Elapsed()%d.every != 0 {
			continue
		}
		if err := d.decide(ctx); err != nil {
			return err
		}
	}
	if d.budget != nil && d.world.Elapsed()%demand.Window == 0 {
		d.spend()
	}
	if d.tower != nil && d.world.Elapsed()%time.Minute == 0 {
		return d.observe()
	}
	return nil
}

// keepBudget starts the application's error budget. Where its hours begin is random: it is not to know where the hour
// that is scored begins.
func (d *driver) keepBudget(c Choice, seed uint64) error {
	config := demand.DefaultBudget
	config.Share, config.Windows = mdp.Ratio(c.get("share")), mdp.Ratio(c.get("windows"))
	config = config.BeginAnywhere(seed)
	d.budget = demand.NewBudget(config)
	return config.Check()
}

// spend reports the last window to the budget, and gives its level to the service that is corrected.
func (d *driver) spend() {
	now := d.world.Totals()
	if n := now.Ended - d.ended.Ended; n > 0 {
		d.budget.Observe(d.world.Now(), mdp.Ratio((now.Missed-d.ended.Missed)/n), n)
	}
	d.ended = now
	if d.corrected != nil {
		d.corrected.SetLevel(d.budget.Level())
		d.corrected.SetLateWindows(d.budget.LateWindows())
	}
}

// relevel gives the services the level and the late windows, with the correction of the one that is corrected, which may have
// changed since.
func (d *driver) relevel() {
	level, late := 0.0, uint32(0)
	if d.budget != nil {
		level, late = d.budget.Level(), d.budget.LateWindows()
	}
	if d.corrected != nil {
		level += d.corrected.Shift()
	}
	for _, p := range d.demands {
		p.SetLevel(level)
		p.SetLateWindows(late)
	}
}

// decide runs every loop once.
func (d *driver) decide(ctx context.Context) error {
	if d.joint != nil {
		if err := d.ask(ctx); err != nil {
			return err
		}
	}
	for i := range d.loops {
		decision, err := d.loops[i].Step(ctx, d.world.Now())
		// A call that fails is for the policy to notice: what was decided is not in force.
		if err != nil && !unknown(err) && !errors.Is(err, sim.ErrCall) {
			return fmt.Errorf("service %s: %w", d.world.Services()[i].Name(), err)
		}
		if d.tower != nil && decision.State.Knows(mdp.CPUUsage) {
			d.usage[i].sum += decision.State.Usage.CPU * mdp.MilliCPU(decision.State.Replicas)
			d.usage[i].n++
		}
	}
	return nil
}

// unknown reports whether an error says only that too little was observed.
func unknown(err error) bool {
	var missing *mdp.UnknownError
	return errors.As(err, &missing)
}

// observe reports the last minute to the tower.
func (d *driver) observe() error {
	now := d.world.Snapshot()
	m := tower.Minute{
		Observed:  mdp.SetOf(mdp.Throughput, mdp.CPULimit),
		RPS:       mdp.Rate((now.Totals.Requests - d.mark.Totals.Requests) / 60),
		Allocated: mdp.MilliCPU((now.Totals.Allocated - d.mark.Totals.Allocated) / 60 * 1000),
		Usage:     make([]mdp.MilliCPU, len(d.usage)),
	}
	known := true
	for i, u := range d.usage {
		if u.n == 0 {
			known = false
			break
		}
		m.Usage[i] = u.sum / mdp.MilliCPU(u.n)
	}
	if known {
		m.Observed |= mdp.SetOf(mdp.CPUUsage)
	}
	if l, ok := d.world.Overall(d.mark, d.slo.Percentile); ok {
		// A guard below 1 keeps the latency below the SLO: the reported
		// latency is above the measured one.
		m.Observed |= mdp.SetOf(mdp.Latency)
		m.Latency = time.Duration(float64(l) / d.guard)
	}
	d.mark = now
	clear(d.usage)
	if err := d.tower.Observe(m); err != nil && !unknown(err) {
		return err
	}
	d.retarget()
	return nil
}

// retarget gives the tower's targets to the captains.
func (d *driver) retarget() {
	for i, t := range d.tower.Targets() {
		d.captains[i].Retarget(t)
	}
}
