package workload

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
	simulated "awarescale.dev/aware/learner/sim/workload"
)

// Prefix is what the names of simulated environments begin with:
// sim:APPLICATION/TRACE, or sim:APPLICATION/TRACE/SERVICE.
const Prefix = "sim:"

// Central's loop: a decision every 10 s, episodes of 100 steps (AWARE, section 2.2).
const (
	Step   = 10 * time.Second
	Length = 100
)

// Make makes the environment of a name such as sim:social-network/bursty, with
// actions of a kind: discrete choices, or a box. It has the load of the bench's
// cell of that name, started at a random second of the trace in each episode.
// It acts on the service that is named, or on the entry service, behind
// central's guards; the other services keep their sizes.
func Make(name string, box bool) (Encoded, error) {
	fail := func(err error) (Encoded, error) { return nil, fmt.Errorf("make environment %q: %w", name, err) }
	parts := strings.Split(strings.TrimPrefix(name, Prefix), "/")
	if !strings.HasPrefix(name, Prefix) || len(parts) < 2 || len(parts) > 3 {
		return fail(fmt.Errorf("it must be %sAPPLICATION/TRACE or %sAPPLICATION/TRACE/SERVICE", Prefix, Prefix))
	}
	app, err := simulated.NamedApp(parts[0])
	if err != nil {
		return fail(err)
	}
	load, err := simulated.Cell(parts[0], parts[1])
	if err != nil {
		return fail(err)
	}
	o := Options{Alpha: 0.5, Step: Step, Guards: guard.Central}
	if len(parts) == 3 {
		o.Service = parts[2]
	}
	world, err := OfWorld(func(seed uint64) (sim.Config, error) {
		return sim.Config{App: app, Cluster: simulated.Machines, Load: Anywhere(load, seed), Seed: seed}, nil
	}, o)
	if err != nil {
		return fail(err)
	}
	form := encode.Discrete(mdp.LimitKnobs)
	if box {
		form = encode.Box(mdp.LimitKnobs)
	}
	return Encode(name, world, form, Length)
}

// later is a load that starts somewhere within a trace.
type later struct {
	load  simulated.Trace
	start time.Duration
}

// Rate implements [sim.Load]. What is before the trace's begin is its end.
func (l later) Rate(at time.Duration) mdp.Rate {
	at += l.start
	if length := l.load.Length(); at < 0 && length > 0 {
		at = at%length + length
	}
	return l.load.Rate(at)
}

// Anywhere is a load that starts a trace at a second that the seed determines, so
// that an agent cannot learn the trace by heart. The trace repeats.
func Anywhere(t simulated.Trace, seed uint64) sim.Load {
	seconds := int64(t.Length() / time.Second)
	r := rand.New(rand.NewPCG(seed, env.Stream))
	return later{t, time.Duration(r.Int64N(max(1, seconds))) * time.Second}
}
