package correct

import (
	"fmt"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
	"awarescale.dev/aware/learner/policy/learned"
)

// Policy is the demand policy of one service with corrections. One goroutine uses it at a time.
type Policy struct {
	law       *demand.Policy
	corrector *encode.Corrector
	steps     encode.Corrections
	network   *network // nil: the caller chooses

	at       encode.Standing
	interval Interval
	state    mdp.State // of the last interval
	began    time.Time // of the interval; zero before the first State
	based    bool      // at.Base is known
	ask      bool      // replicas are to be set
	scaled   bool      // replicas were ever corrected
}

// network makes the choices of a policy that is served.
type network struct {
	server  kernel.Server
	scratch kernel.Scratch
	head    kernel.Head
	step    time.Duration // between two choices
	obs     []float64
	legal   []bool
	action  []float64
}

// New puts corrections over a demand policy, at first none. The caller ends intervals and chooses.
func New(law *demand.Policy, form encode.Form, place encode.Place) (*Policy, error) {
	c, err := encode.NewCorrector(form, place)
	if err != nil {
		return nil, fmt.Errorf("corrected demand policy: %w", err)
	}
	return &Policy{law: law, corrector: c, steps: *form.Corrections}, nil
}

// Serve puts a learned policy's corrections over a demand policy. A policy of another form is refused.
func Serve(law *demand.Policy, f learned.File, place encode.Place) (*Policy, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	p, err := New(law, f.Form, place)
	if err != nil {
		return nil, err
	}
	p.network = &network{
		head: f.Snapshot.Head, step: f.Step, obs: make([]float64, f.Form.Dim()), legal: make([]bool, f.Form.NumActions()),
		action: make([]float64, 1),
	}
	return p, p.network.server.Publish(f.Snapshot)
}

// SetLevel sets the application's level, which the error budget gives; corrections are added to it.
func (p *Policy) SetLevel(level float64) {
	p.at.Level, p.at.LevelKnown = level, true
	p.apply()
}

// SetLateWindows says how many late windows the application had so far, as [demand.Policy.SetLateWindows].
func (p *Policy) SetLateWindows(n uint32) { p.law.SetLateWindows(n) }

// Shift is what the correction of the level adds for all services of the application.
func (p *Policy) Shift() float64 { return p.steps.LevelStep * float64(p.at.Correction.Level) }

// Correction is where the corrections stand.
func (p *Policy) Correction() encode.Correction { return p.at.Correction }

// apply gives the level, with its corrections, to the demand policy.
func (p *Policy) apply() {
	p.law.SetLevel(p.at.Level + p.Shift() + p.steps.MarginStep*float64(p.at.Margin))
}

// Decide implements [mdp.Policy]: the demand policy decides, and a correction of replicas is carried out. At the end of an
// interval the network chooses; the choice counts from the next State on.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	if p.began.IsZero() || s.At.Before(p.began) {
		p.began = s.At
	}
	if !p.based && s.Knows(mdp.Replicas) {
		p.at.Base, p.based = s.Replicas, true
	}
	a, err := p.law.Decide(s)
	if err != nil {
		return a, err
	}
	p.interval.Add(s)
	if p.ask {
		p.ask = false
		a = a.WithReplicas(p.at.Base + p.at.Replicas)
	}
	if p.network != nil && due(p.began, s.At, p.network.step) {
		p.began = s.At
		p.End()
		p.choose()
	}
	return a, nil
}

// End ends the interval. The caller calls it before it observes and chooses.
func (p *Policy) End() {
	p.state = p.interval.End()
	// What was asked for and is not there is asked for again.
	p.ask = p.scaled && p.state.Knows(mdp.Replicas) && p.state.Replicas != p.at.Base+p.at.Replicas
}

// Observe writes what was seen in the last interval, and what stands corrected, into obs.
func (p *Policy) Observe(obs []float64) error { return p.corrector.Observe(p.state, p.at, obs) }

// Legal writes which choices are legal now.
func (p *Policy) Legal(legal []bool) { p.corrector.Legal(p.state, p.at, legal) }

// Choose takes a choice. One that is not legal is an error, and changes nothing.
func (p *Policy) Choose(choice int) error {
	to, err := p.corrector.Correct(p.state, p.at, choice)
	if err != nil {
		return fmt.Errorf("corrected demand policy: %w", err)
	}
	if to.Replicas != p.at.Replicas {
		p.ask, p.scaled = true, true
		if to.Replicas < p.at.Replicas {
			p.at.Removed = p.state.At
		}
	}
	same := to == p.at.Correction
	if p.at.Correction = to; !same {
		p.apply()
	}
	return nil
}

// choose lets the network choose. Where it cannot, what stands corrected stays: the demand policy needs no network.
func (p *Policy) choose() {
	n := p.network
	if p.Observe(n.obs) != nil {
		return
	}
	out, _, ok := n.server.Decide(n.obs, 1, &n.scratch)
	if !ok {
		return
	}
	p.Legal(n.legal)
	n.head.Action(out, n.legal, n.action)
	_ = p.Choose(int(n.action[0])) // the mask has left no other than a legal one
}
