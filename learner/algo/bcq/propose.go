package bcq

import (
	"math/rand/v2"

	"awarescale.dev/aware/learner/nn/kernel"
)

// proposals are actions that the data's policy could have taken, for rows of
// states, and what critics value them at.
type proposals struct {
	c            Config
	rows         int
	begin        int // of the decoder's parameters in the generative model's
	decoder      *kernel.Tape[float64]
	perturbation *kernel.Tape[float64]
	critic       *kernel.Tape[float64]
	states       []float64 // [rows][State]
	sz           []float64 // [rows][State+Latent]
	sa           []float64 // [rows][State+Action]; the input of the critics
}

func newProposals(c Config, rows int) *proposals {
	tape := func(m kernel.MLP) *kernel.Tape[float64] { return kernel.NewTape[float64](m, rows) }
	return &proposals{
		c:            c,
		rows:         rows,
		begin:        c.encoder(),
		decoder:      tape(c.Decoder()),
		perturbation: tape(c.Perturbation()),
		critic:       tape(c.Critic()),
		states:       make([]float64, rows*c.State),
		sz:           make([]float64, rows*(c.State+c.Latent)),
		sa:           make([]float64, rows*(c.State+c.Action)),
	}
}

// of takes the states s, each of them repeated the given number of times.
func (p *proposals) of(s []float64, times int) {
	n := p.c.State
	for i := range p.rows {
		copy(p.states[i*n:][:n], s[i/times*n:])
	}
}

// generate decodes an action for every row, of latent numbers from N(0, 1) that
// are cut at 0.5 and -0.5 as in the authors' code. The result [rows][Action] is
// valid until the next call.
func (p *proposals) generate(vae []float64, r *rand.Rand) []float64 {
	s, z := p.c.State, p.c.Latent
	for i := range p.rows {
		row := p.sz[i*(s+z):][:s+z]
		copy(row, p.states[i*s:][:s])
		for k := range row[s:] {
			row[s+k] = max(-cut, min(cut, r.NormFloat64()))
		}
	}
	return p.decoder.Forward(vae[p.begin:], p.sz, p.rows)
}

// perturb moves generated actions by at most Phi: these are the actions that
// value takes.
func (p *proposals) perturb(theta, actions []float64) {
	s, a := p.c.State, p.c.Action
	join(p.sa, p.states, actions, s, a)
	for i, v := range p.perturbation.Forward(theta, p.sa, p.rows) {
		at := i/a*(s+a) + s + i%a
		p.sa[at] = clip(p.sa[at] + p.c.Phi*v)
	}
}

// value is a critic's value of the perturbed actions [rows]. It is valid until
// the next call.
func (p *proposals) value(theta []float64) []float64 { return p.critic.Forward(theta, p.sa, p.rows) }

// action is the perturbed one of a row.
func (p *proposals) action(row int) []float64 {
	s, a := p.c.State, p.c.Action
	return p.sa[row*(s+a)+s:][:a]
}
