package bench

import (
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
	"awarescale.dev/aware/learner/policy/heuristic/demand/correct"
	"awarescale.dev/aware/learner/policy/learned"
)

// leader is the service of an application that an agent acts on, while the demand policy drives the others.
type leader struct {
	service string
	form    *encode.Form  // of the corrections; nil: the service is left to the caller
	file    *learned.File // that chooses the corrections; nil: the caller chooses
}

// Law is the demand policy that corrections are of, for an application: AWARE's own row, asked once a second.
func Law(application string) Choice {
	c := Choice{Encoding: Encoding, Policy: "demand-1s", Settings: map[string]float64{"windows": fewWindows}}
	for service, margin := range ShippedMargins().Applications[application].Margins {
		c.Settings["margin."+service] = margin
	}
	return c
}

// Corrected is a demand policy with corrections of one service, and of the level of all, that the caller of a [Session] chooses.
func (c Choice) Corrected(service string, form encode.Form) Choice {
	c.lead = &leader{service: service, form: &form}
	return c
}

// CorrectedBy is the same with a learned policy that chooses.
func (c Choice) CorrectedBy(service string, f learned.File) Choice {
	c.lead = &leader{service: service, form: &f.Form, file: &f}
	return c
}

// Without is the choice for all services but one, which is left to the caller of a [Session].
func (c Choice) Without(service string) Choice {
	c.lead = &leader{service: service}
	return c
}

// over puts corrections over a policy, which must be the demand policy.
func (l leader) over(p mdp.Policy, place encode.Place) (mdp.Policy, error) {
	if l.form == nil {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}, nil }), nil
	}
	law, ok := p.(*demand.Policy)
	switch {
	case !ok:
		return nil, fmt.Errorf("corrections are of the demand policy")
	case l.file != nil:
		return correct.Serve(law, *l.file, place)
	}
	return correct.New(law, *l.form, place)
}

// guards are those of the node, and those of replicas that the corrections name.
func (l leader) guards(g guard.Settings) guard.Settings {
	if l.form != nil {
		g.ReplicasDwell = l.form.Corrections.Dwell
	}
	return g
}

// byKnob is an Actuator of a policy whose limits a node's agent sets, and whose replicas the API server does.
type byKnob struct{ node, api mdp.Actuator }

// Act implements [mdp.Actuator].
func (b byKnob) Act(ctx context.Context, now time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	replicas := mdp.SetOf(mdp.Replicas)
	if a.Sets&replicas == 0 {
		return b.node.Act(ctx, now, a)
	}
	scaled, effect, err := b.api.Act(ctx, now, a.Only(replicas))
	if a = a.Without(replicas); err != nil || a.Sets == 0 {
		return scaled, effect, err
	}
	executed, other, err := b.node.Act(ctx, now, a)
	if scaled.Sets.Has(mdp.Replicas) {
		executed = executed.WithReplicas(scaled.Replicas)
	}
	return executed, effect.Worse(other), err
}
