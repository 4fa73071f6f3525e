package gym

import (
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

// Seen is what a simulated world's sensor can observe.
const Seen = mdp.Knobs | 1<<mdp.CPUUsage | 1<<mdp.MemoryUsage | 1<<mdp.CPUPeak | 1<<mdp.CPUDeviation | 1<<mdp.Throttled |
	1<<mdp.Latency | 1<<mdp.Throughput | 1<<mdp.LoadChange | 1<<mdp.OOMKills

// Simulation is an Environment of simulated worlds, a new one for each episode.
type Simulation struct {
	world   func(seed uint64) (sim.Config, error)
	service string
	alpha   mdp.Ratio
	step    time.Duration
	spaces  Spaces

	pair      Pair
	objective mdp.Objective
}

// OfWorld makes an Environment of the worlds that a factory configures. It acts on the named service, or on the entry
// service when the name is empty: the one that serves the first endpoint. The others keep their sizes. The objective is
// the application's, weighed by alpha.
func OfWorld(world func(seed uint64) (sim.Config, error), service string, alpha mdp.Ratio, step time.Duration) (*Simulation, error) {
	if step < sim.Slice || step%sim.Slice != 0 {
		return nil, fmt.Errorf("step %v of a simulated world: it must be a multiple of %v", step, sim.Slice)
	}
	c, err := world(0)
	if err != nil {
		return nil, err
	}
	w, err := sim.New(c)
	if err != nil {
		return nil, err
	}
	if service == "" {
		service = entry(c.App)
	}
	h, err := w.Service(service)
	if err != nil {
		return nil, &NotFoundError{Key: "service", Value: service, Known: services(w)}
	}
	s := &Simulation{world: world, service: service, alpha: alpha, step: step}
	s.spaces = Spaces{World: Simulated, Workload: c.App.Name, Service: service, Knobs: mdp.Knobs, Bounds: h.Bounds(), Signals: Seen, Step: step}
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

// Reset makes a new world, lets one step pass in it, and looks.
func (s *Simulation) Reset(ctx context.Context, seed uint64) (mdp.State, error) {
	c, err := s.world(seed)
	if err != nil {
		return mdp.State{}, err
	}
	w, err := sim.New(c)
	if err != nil {
		return mdp.State{}, err
	}
	h, err := w.Service(s.service)
	if err != nil {
		return mdp.State{}, err
	}
	s.objective = mdp.Objective{SLO: c.App.SLO, Alpha: s.alpha}
	s.pair = Pair{Sensor: h.Sensor(), Actuator: h.Actuator(sim.L2), Now: w.Now,
		Wait: func(_ context.Context, d time.Duration) error { w.Advance(d); return nil }}
	w.Advance(s.step)
	return s.pair.Sensor.Sense(context.WithoutCancel(ctx), w.Now())
}

// Step is over at once. It is done wholly or, when ctx is done before, not at all.
func (s *Simulation) Step(ctx context.Context, a mdp.Action) (Outcome, error) {
	if s.pair.Sensor == nil {
		return Outcome{Effect: mdp.Refused}, errNotReset
	}
	if err := ctx.Err(); err != nil {
		return Outcome{Effect: mdp.Refused}, err
	}
	return stepped(context.WithoutCancel(ctx), s.pair, s.objective, s.step, a)
}
