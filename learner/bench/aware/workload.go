package aware

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
	simulated "awarescale.dev/aware/learner/sim/workload"
)

// Workload is an application under a load.
type Workload struct {
	App   simulated.Composition
	Trace simulated.Trace // its mean is the mean load
}

// Demand is the mean CPU demand of a workload, in cores: from a quarter to two.
const (
	leastDemand = 0.25
	mostDemand  = 2
)

// Of is the workload of an application of [simulated.Compositions], by its index. Which Azure function's load it has, and how
// much of it, follows from the index.
func Of(index int) (Workload, error) {
	all := simulated.Compositions()
	if index < 0 || index >= len(all) {
		return Workload{}, fmt.Errorf("application %d: it must be in [0, %d]", index, len(all)-1)
	}
	r := rand.New(rand.NewPCG(uint64(index), 0xa2))
	traces := simulated.Azure(nil)
	demand := leastDemand + (mostDemand-leastDemand)*r.Float64()
	return under(all[index], traces[r.IntN(len(traces))], demand)
}

// Some are n workloads of applications by their indexes, drawn by a seed.
func Some(indexes []int, n int, seed uint64) ([]Workload, error) {
	all := make([]Workload, n)
	for k, i := range rand.New(rand.NewPCG(seed, 0xc0)).Perm(len(indexes))[:n] {
		var err error
		if all[k], err = Of(indexes[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// under is an application under a trace's load, scaled so that the mean needs a number of cores.
func under(app simulated.Composition, trace simulated.Trace, cores float64) (Workload, error) {
	scaled, err := trace.Scaled(cores / app.Work().Seconds())
	if err != nil {
		return Workload{}, fmt.Errorf("application %v: %w", app, err)
	}
	return Workload{app, scaled}, nil
}

// Cell is the workload as the bench has it.
func (w Workload) Cell() (bench.Cell, error) {
	app, err := w.App.Deployment(mdp.Rate(w.Trace.Mean()))
	return bench.Cell{Application: w.Name(), App: app, Trace: w.Trace, Warm: w.Trace}, err
}

// Updated is the workload after one of AWARE's seven updates, under the same number of requests. Its SLO is that of the new
// requests. ok is false where the update changes nothing.
func (w Workload) Updated(u simulated.Update) (changed Workload, ok bool) {
	app, ok := u.Apply(w.App)
	return Workload{app, w.Trace}, ok
}

// Busier is the workload under the load of one of the busier Azure functions: twice the mean, and another shape.
func (w Workload) Busier(seed uint64) (Workload, error) {
	traces := simulated.Azure(simulated.Busy)
	scaled, err := traces[seed%uint64(len(traces))].Scaled(2 * w.Trace.Mean())
	return Workload{w.App, scaled}, err
}

// pulsing is the workload under a load that no Azure function has: as many requests, a second of each twenty with three to five
// times as many as the others.
func (w Workload) pulsing() (Workload, error) {
	pulses, err := simulated.Named("pulses")
	if err == nil {
		pulses, err = pulses.Scaled(w.Trace.Mean())
	}
	return Workload{w.App, pulses}, err
}

// Name is the application's, with the mean load.
func (w Workload) Name() string { return fmt.Sprintf("%v at %.0f/s", w.App, w.Trace.Mean()) }

// Setting is what the environments of an experiment have in common.
type Setting struct {
	Alpha  mdp.Ratio // weight of the SLO
	Length int       // steps of an episode
	// Demand lets the demand policy decide on the CPU limit in force each second, beneath the ceiling, which is what the arms then
	// set. Without it they set the limit in force, as in the paper.
	Demand bool `json:",omitempty"`
	// Central makes the worlds those of central: reservations, replicas and memory limits are set by choices, behind its guards,
	// and the demand policy decides on the CPU limit in force beneath the upper bound.
	Central bool `json:",omitempty"`

	taught bool // of a pretraining: see hidden
}

// hidden is what the worlds of a pretraining of central's choices do not show: late requests have no price there, and guards do
// not look back. Rewards of -19 hide all others, and what guards hold back hides what a choice leads to (ADR 37).
var hidden = mdp.SetOf(mdp.Missed)

// Shown is the signals that the worlds of a pretraining of central's choices show.
var Shown = workload.Reserved.Without(hidden)

// Published is the paper's setting, with the SLO and utilisation of equal weight.
var Published = Setting{Alpha: 0.5, Length: workload.Length}

// World is an environment of the workload: raw limits (with Demand, ceilings) and replicas as actions, bounded only.
func (s Setting) World(w Workload) (*workload.Simulation, error) {
	cell, err := w.Cell()
	if err != nil {
		return nil, err
	}
	o := workload.Options{Alpha: s.Alpha, Step: workload.Step, Guards: guard.Published}
	if s.Demand || s.Central {
		o.Beneath = newLaw
	}
	if s.Central {
		o.Guards, o.Reserved = central.Guards(), true
		own(&cell.App.Services[0], w.Name())
	}
	if s.Central && s.taught {
		o.Guards.MemoryPast, o.Guards.BurstPast, o.Guards.BurstShare = 0, 0, 0
		o.Hidden = hidden
	}
	return workload.OfWorld(func(seed uint64) (sim.Config, error) {
		return sim.Config{App: cell.App, Cluster: simulated.Machines, Load: workload.Anywhere(w.Trace, seed), Seed: seed}, nil
	}, o)
}

// Env is the same in numbers. What is seen in its steps is added to figures, where that is not nil.
func (s Setting) Env(w Workload, figures *Figures) (workload.Encoded, error) {
	world, err := s.World(w)
	if err != nil {
		return nil, err
	}
	return s.encoded(w, measured{Simulation: world, figures: figures})
}

func (s Setting) encoded(w Workload, world workload.Environment) (workload.Encoded, error) {
	return workload.Encode(w.Name(), world, s.form(), s.Length)
}

// form is how learners see and act.
func (s Setting) form() encode.Form {
	if s.Central {
		return central.Form()
	}
	return encode.Box(mdp.LimitKnobs)
}
