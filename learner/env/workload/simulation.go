package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
)

// Seen is what a simulated world's sensor can observe.
const Seen = mdp.LimitKnobs | 1<<mdp.CPUUsage | 1<<mdp.MemoryUsage | 1<<mdp.CPUPeak | 1<<mdp.CPUDeviation | 1<<mdp.Throttled |
	1<<mdp.Latency | 1<<mdp.Throughput | 1<<mdp.LoadChange | 1<<mdp.OOMKills | 1<<mdp.Arrivals | 1<<mdp.Missed |
	1<<mdp.Lost | 1<<mdp.BackgroundLate | 1<<mdp.LoadPeak

// Reserved is what can be observed where actions set reservations: what central knows. Its readings of a workload are latency,
// throughput, and the share of requests that took longer than the SLO's latency.
const Reserved = Seen&^(1<<mdp.Arrivals|1<<mdp.Lost|1<<mdp.BackgroundLate) | 1<<mdp.CPUReservation |
	1<<mdp.CPUCeiling | 1<<mdp.CPUBurst

// Options of a simulated environment.
type Options struct {
	// Service is acted upon; empty is the entry service, which serves the first
	// endpoint. An Application has none: it acts on all.
	Service string
	Alpha   mdp.Ratio     // weight of the SLO against efficiency, in [0, 1]
	Step    time.Duration // a multiple of sim.Slice
	Guards  guard.Settings
	Beneath Beneath // nil: what actions set is in force. With it the step is of whole seconds, and nothing can be saved.
	// Reserved lets actions set what central decides: replicas, the CPU reservation and the memory limit. The ceiling is the
	// upper bound all the time, the policy beneath decides on the limit in force, and what is judged is the reservation. What
	// central does not know is not seen and not judged, such as which share of the requests was lost. What missed the SLO counts as
	// central counts it ([mdp.SLO.Counted]).
	Reserved bool
	Hidden   mdp.Set // signals that are neither seen nor judged by, of those with Reserved
}

// Application is a [Joint] of every service of a simulated application, in a new
// world for each episode.
type Application struct {
	world   func(seed uint64) (sim.Config, error)
	options Options
	parts   []*episode // of the services, in the application's order
	running bool
	seed    uint64     // of the episode
	now     *sim.World // of the episode
}

// Simulation is an Environment of one service of a simulated application. The
// other services keep their sizes.
type Simulation struct{ app *Application }

// OfWorld makes an Environment of the worlds that a factory configures. The
// objective is the application's.
func OfWorld(world func(seed uint64) (sim.Config, error), o Options) (*Simulation, error) {
	a, err := newApplication(world, o, func(app sim.App, _ []string) []string {
		if o.Service == "" {
			return []string{entry(app)}
		}
		return []string{o.Service}
	})
	if err != nil {
		return nil, err
	}
	return &Simulation{a}, nil
}

// OfApplication makes a Joint of all services in the worlds that a factory
// configures. The objective of each service is the application's.
func OfApplication(world func(seed uint64) (sim.Config, error), o Options) (*Application, error) {
	if o.Service != "" {
		return nil, fmt.Errorf("service %q: an environment of all services must name none", o.Service)
	}
	return newApplication(world, o, func(_ sim.App, all []string) []string { return all })
}

// newApplication makes an Application of the services that are chosen from all.
func newApplication(
	world func(seed uint64) (sim.Config, error), o Options, choose func(app sim.App, all []string) []string,
) (*Application, error) {
	if o.Step < sim.Slice || o.Step%sim.Slice != 0 {
		return nil, fmt.Errorf("step %v of a simulated world: it must be a multiple of %v", o.Step, sim.Slice)
	}
	if o.Beneath != nil && o.Step%beneathEvery != 0 {
		return nil, fmt.Errorf("step %v of a world with a policy beneath: it must be a multiple of %v", o.Step, beneathEvery)
	}
	if o.Reserved {
		if o.Beneath == nil {
			return nil, fmt.Errorf("a world in which reservations are set, and no policy beneath: there must be one")
		}
		world = atTheBound(world)
	}
	c, err := world(0)
	if err != nil {
		return nil, err
	}
	w, err := sim.New(c)
	if err != nil {
		return nil, err
	}
	a := &Application{world: world, options: o}
	all := services(w)
	for _, name := range choose(c.App, all) {
		h, err := w.Service(name)
		if err != nil {
			return nil, &NotFoundError{Key: "service", Value: name, Known: all}
		}
		spaces := Spaces{
			World: Simulated, Workload: c.App.Name, Service: name, Knobs: mdp.LimitKnobs, Bounds: h.Bounds(),
			Signals: Seen, Step: o.Step, SLO: c.App.SLO, Guards: o.Guards,
		}
		if o.Reserved {
			spaces.Knobs, spaces.Signals = mdp.ReservedKnobs, Reserved.Without(o.Hidden)
			spaces.Bounds.Reservation = spaces.Bounds.CPU
		}
		if err := spaces.Check(); err != nil {
			return nil, err
		}
		a.parts = append(a.parts, &episode{spaces: spaces})
	}
	return a, nil
}

// atTheBound is worlds in which each service may burst to its upper bound.
func atTheBound(world func(seed uint64) (sim.Config, error)) func(seed uint64) (sim.Config, error) {
	return func(seed uint64) (sim.Config, error) {
		c, err := world(seed)
		if err != nil {
			return c, err
		}
		c.App.Services = slices.Clone(c.App.Services)
		for i := range c.App.Services {
			s := &c.App.Services[i]
			s.Ceiling.CPU = s.Bounds.CPU.Max
		}
		return c, nil
	}
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

// Spaces describes the services.
func (a *Application) Spaces() []Spaces {
	all := make([]Spaces, len(a.parts))
	for i := range a.parts {
		all[i] = a.parts[i].spaces
	}
	return all
}

// Reset makes a new world, lets one step pass in it, and looks. The world's time
// begins at sim.Epoch in every episode, wherever in a trace its load begins.
func (a *Application) Reset(ctx context.Context, seed uint64) ([]mdp.State, error) {
	c, err := a.world(seed)
	if err != nil {
		return nil, err
	}
	w, err := sim.New(c)
	if err != nil {
		return nil, err
	}
	pairs, err := a.pairsOf(w)
	if err != nil {
		return nil, err
	}
	a.enter(seed, w, pairs, c.App.SLO)
	a.running = false
	if err := a.beneath(seed, w, c.App); err != nil {
		return nil, err
	}
	if err := a.parts[0].pair.Wait(context.WithoutCancel(ctx), a.options.Step); err != nil {
		return nil, err
	}
	states := make([]mdp.State, len(a.parts))
	for i := range a.parts {
		if states[i], err = a.parts[i].begin(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
	}
	a.running = true
	return states, nil
}

// pairsOf is what looks and acts in a world, for each service.
func (a *Application) pairsOf(w *sim.World) ([]Pair, error) {
	var pairs []Pair
	for i := range a.parts {
		h, err := w.Service(a.parts[i].spaces.Service)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, Pair{
			Sensor: h.Sensor(), Actuator: h.Actuator(sim.L2), Now: w.Now,
			Wait: func(_ context.Context, d time.Duration) error { w.Advance(d); return nil },
		})
	}
	return pairs, nil
}

// beneath begins what the nodes do in a world, where there is a policy for it.
func (a *Application) beneath(seed uint64, w *sim.World, app sim.App) error {
	if a.options.Beneath == nil {
		return nil
	}
	var all []*node
	for _, part := range a.parts {
		name := part.spaces.Service
		p, err := a.options.Beneath(name, seed)
		if err != nil {
			return fmt.Errorf("service %s: the policy of its node: %w", name, err)
		}
		h, err := w.Service(name)
		if err != nil {
			return err
		}
		part.node = newNode(h, p, app.SLO)
		if a.options.Reserved {
			i := slices.IndexFunc(app.Services, func(s sim.Service) bool { return s.Name == name })
			part.reserved = app.Services[i].Size.CPU
		}
		all = append(all, part.node)
	}
	for _, part := range a.parts {
		part.pair.Wait = nodes(w, all)
	}
	return nil
}

// enter takes a world for the episode of a seed.
func (a *Application) enter(seed uint64, w *sim.World, pairs []Pair, slo mdp.SLO) {
	a.seed = seed
	a.now = w
	for i := range a.parts {
		a.parts[i].pair = pairs[i]
		a.parts[i].objective = mdp.Objective{SLO: slo, Alpha: a.options.Alpha, Reserved: a.options.Reserved}
	}
}

// Step is over at once. It is done wholly or, when ctx is over before or an
// Action is illegal, not at all.
func (a *Application) Step(ctx context.Context, actions []mdp.Action) ([]Outcome, error) {
	out := make([]Outcome, len(a.parts))
	for i := range out {
		out[i].Effect = mdp.Failed
	}
	if !a.running {
		return out, env.ErrNotRunning
	}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	if len(actions) != len(a.parts) {
		return out, fmt.Errorf("%d actions: there must be one for each of %d services", len(actions), len(a.parts))
	}
	for i, action := range actions {
		if err := action.Check(); err != nil {
			return out, fmt.Errorf("service %s: acting %v: %w", a.parts[i].spaces.Service, action, &guard.IllegalError{Err: err})
		}
	}
	return out, stepAll(context.WithoutCancel(ctx), a.parts, actions, out)
}

// Spaces describes the service.
func (s *Simulation) Spaces() Spaces { return s.app.parts[0].spaces }

// Reset makes a new world, as Application's does.
func (s *Simulation) Reset(ctx context.Context, seed uint64) (mdp.State, error) {
	states, err := s.app.Reset(ctx, seed)
	if err != nil {
		return mdp.State{}, err
	}
	return states[0], nil
}

// Step is over at once, as Application's is.
func (s *Simulation) Step(ctx context.Context, a mdp.Action) (Outcome, error) {
	out, err := s.app.Step(ctx, []mdp.Action{a})
	return out[0], err
}
