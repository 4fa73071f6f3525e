package meta

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Learner is a meta-learner with given parameters. One goroutine uses it at a time.
type Learner struct {
	Config Config
	Theta  []float64

	x       []float64
	lengths []int
	tapes   []*kernel.GRUTape[float64]
	outs    [][]float64 // of the recurrent layers
	mean    []float64
	head    *kernel.Tape[float64]
}

// New makes a meta-learner with given parameters, which it does not copy.
func New(c Config, theta []float64) (*Learner, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if len(theta) != c.Params() {
		return nil, fmt.Errorf("meta-learner: %d parameters: its shape has %d", len(theta), c.Params())
	}
	if !nn.Finite(theta) {
		return nil, fmt.Errorf("meta-learner: a parameter is %w", nn.ErrNotFinite)
	}
	l := &Learner{
		Config:  c,
		Theta:   theta,
		x:       make([]float64, c.Length*c.Bundle*c.Form.Width()),
		lengths: make([]int, c.Bundle),
		mean:    make([]float64, 2*c.Hidden),
		head:    kernel.NewTape[float64](c.Head(), 1),
	}
	for _, g := range c.Recurrent() {
		tape := kernel.NewGRUTape[float64](g, c.Length, c.Bundle)
		tape.Lengths = l.lengths
		l.tapes = append(l.tapes, tape)
		l.outs = append(l.outs, make([]float64, c.Length*c.Bundle*g.Out()))
	}
	return l, nil
}

// Initial is parameters before any training, by a seed.
func (c Config) Initial(r *rand.Rand) []float64 {
	theta := make([]float64, c.Params())
	rest := theta
	for _, g := range c.Recurrent() {
		nn.UniformGRU(g, rest, r)
		rest = rest[g.Params():]
	}
	nn.UniformMLP(c.Head(), rest, 0, r)
	return theta
}

// Embed writes the embedding of a bundle of episodes, of which it reads the first Config.Bundle. Without any episode the
// embedding is zero: nothing is known of the workload.
func (l *Learner) Embed(bundle []Episode, to []float64) {
	if len(bundle) == 0 {
		clear(to)
		return
	}
	c := l.Config
	c.Fill([][]Episode{bundle}, l.x, l.lengths)
	x, theta := l.x, l.Theta
	for i, g := range c.Recurrent() {
		l.tapes[i].Forward(theta[:g.Params()], x, l.outs[i])
		x, theta = l.outs[i], theta[g.Params():]
	}
	kernel.MeanOfBundles(x, 2*c.Hidden, c.Bundle, l.lengths, l.mean)
	copy(to, l.head.Forward(theta, l.mean, 1))
}
