package workload

import (
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
)

// Seen is what a simulated world's sensor can observe.
const Seen = mdp.Knobs | 1<<mdp.CPUUsage | 1<<mdp.MemoryUsage | 1<<mdp.CPUPeak | 1<<mdp.CPUDeviation | 1<<mdp.Throttled |
	1<<mdp.Latency | 1<<mdp.Throughput | 1<<mdp.LoadChange | 1<<mdp.OOMKills

// Options of a simulated environment.
type Options struct {
	Service string        // that is acted upon; empty is the entry service, which serves the first endpoint
	Alpha   mdp.Ratio     // weight of the SLO against efficiency, in [0, 1]
	Step    time.Duration // a multiple of sim.Slice
	Guards  guard.Settings
}

// Simulation is an Environment of simulated worlds, a new one for each episode.
// The other services keep their sizes.
type Simulation struct {
	world   func(seed uint64) (sim.Config, error)
	options Options
	episode
	running bool
	seed    uint64     // of the episode
	now     *sim.World // of the episode
}

// OfWorld makes an Environment of the worlds that a factory configures. The
// objective is the application's.
func OfWorld(world func(seed uint64) (sim.Config, error), o Options) (*Simulation, error) {
	if o.Step < sim.Slice || o.Step%sim.Slice != 0 {
		return nil, fmt.Errorf("step %v of a simulated world: it must be a multiple of %v", o.Step, sim.Slice)
	}
	c, err := world(0)
	if err != nil {
		return nil, err
	}
	w, err := sim.New(c)
	if err != nil {
		return nil, err
	}
	if o.Service == "" {
		o.Service = entry(c.App)
	}
	h, err := w.Service(o.Service)
	if err != nil {
		return nil, &NotFoundError{Key: "service", Value: o.Service, Known: services(w)}
	}
	s := &Simulation{world: world, options: o}
	s.spaces = Spaces{
		World: Simulated, Workload: c.App.Name, Service: o.Service, Knobs: mdp.Knobs, Bounds: h.Bounds(),
		Signals: Seen, Step: o.Step, SLO: c.App.SLO, Guards: o.Guards,
	}
	return s, s.spaces.Check()
}

// entry is the service that the first endpoint asks; the App was checked.
func entry(a sim.App) string {
	for _, o := range a.Operations {
		if o.Name == a.Endpoints[0].Operation {
			return o.Service
		}
	}
	return a.Services[0].Name
}

func services(w *sim.World) []string {
	var names []string
	for _, h := range w.Services() {
		names = append(names, h.Name())
	}
	return names
}

// Spaces describes the service.
func (s *Simulation) Spaces() Spaces { return s.spaces }

// Reset makes a new world, lets one step pass in it, and looks. The world's time
// begins at sim.Epoch in every episode, wherever in a trace its load begins.
func (s *Simulation) Reset(ctx context.Context, seed uint64) (mdp.State, error) {
	c, err := s.world(seed)
	if err != nil {
		return mdp.State{}, err
	}
	w, err := sim.New(c)
	if err != nil {
		return mdp.State{}, err
	}
	pair, err := s.pairOf(w)
	if err != nil {
		return mdp.State{}, err
	}
	s.enter(seed, w, pair, c.App.SLO)
	w.Advance(s.options.Step)
	state, err := s.begin(context.WithoutCancel(ctx))
	s.running = err == nil
	return state, err
}

// pairOf is what looks and acts in a world.
func (s *Simulation) pairOf(w *sim.World) (Pair, error) {
	h, err := w.Service(s.options.Service)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Sensor: h.Sensor(), Actuator: h.Actuator(sim.L2), Now: w.Now,
		Wait: func(_ context.Context, d time.Duration) error { w.Advance(d); return nil },
	}, nil
}

// enter takes a world for the episode of a seed.
func (s *Simulation) enter(seed uint64, w *sim.World, p Pair, slo mdp.SLO) {
	s.seed = seed
	s.now = w
	s.pair = p
	s.objective = mdp.Objective{SLO: slo, Alpha: s.options.Alpha}
}

// Step is over at once. It is done wholly or, when ctx is over before, not at all.
func (s *Simulation) Step(ctx context.Context, a mdp.Action) (Outcome, error) {
	if !s.running {
		return Outcome{Effect: mdp.Failed}, env.ErrNotRunning
	}
	if err := ctx.Err(); err != nil {
		return Outcome{Effect: mdp.Failed}, err
	}
	return s.step(context.WithoutCancel(ctx), a)
}
