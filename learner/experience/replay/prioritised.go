package replay

import (
	"fmt"
	"math"
)

// PrioritisedConfig is the settings of a Prioritised. The defaults of the paper
// for the proportional variant are alpha 0.6, beta from 0.4 to 1 over the
// training (Schaul et al. 2016).
type PrioritisedConfig struct {
	Config
	Alpha   float64 // from 0, where all have the same chance, to 1, where the chance is proportional to the error
	Beta    float64 // from 0, no correction, to 1, full correction of what uneven drawing does to the gradient
	Epsilon float64 // above 0; added to every error, so that every transition can be drawn again; 1e-6 is usual
}

// Check is nil for a PrioritisedConfig that a buffer can be made of.
func (c PrioritisedConfig) Check() error {
	if err := c.Config.Check(); err != nil {
		return err
	}
	switch {
	case !(c.Alpha >= 0 && c.Alpha <= 1):
		return fmt.Errorf("prioritised replay buffer: alpha %v: it must be from 0 to 1", c.Alpha)
	case !(c.Epsilon > 0 && c.Epsilon <= 1):
		return fmt.Errorf("prioritised replay buffer: epsilon %v: it must be above 0 and at most 1", c.Epsilon)
	}
	return checkBeta(c.Beta)
}

func checkBeta(beta float64) error {
	if !(beta >= 0 && beta <= 1) {
		return fmt.Errorf("prioritised replay buffer: beta %v: it must be from 0 to 1", beta)
	}
	return nil
}

// Prioritised is a buffer from which transitions are drawn in proportion to
//
//	(|error| + epsilon)^alpha
//
// of the last error that Update gave for them (Schaul et al. 2016, section
// 3.3). One goroutine uses it at a time.
type Prioritised struct {
	ring
	settings PrioritisedConfig
	beta     float64
	tree     sumTree
	largest  float64 // of all priorities that there were; that of new transitions
}

// NewPrioritised makes an empty buffer.
func NewPrioritised(c PrioritisedConfig) (*Prioritised, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	p := &Prioritised{settings: c, beta: c.Beta, tree: newSumTree(1), largest: 1}
	p.init(c.Config)
	return p, nil
}

// Add keeps a copy of t, in the place of the oldest when the buffer is full. It
// gets the largest priority that there was, so that it is drawn soon. On an
// error nothing is kept.
func (p *Prioritised) Add(t Transition) error {
	i, err := p.add(&t)
	if err != nil {
		return err
	}
	if p.tree.leaves < p.rows {
		p.tree = p.tree.grown(p.rows)
	}
	p.tree.set(i, p.largest)
	return nil
}

// SetBeta changes how much of the uneven drawing the weights correct. It grows
// to 1 towards the end of the training (section 3.4).
func (p *Prioritised) SetBeta(beta float64) error {
	if err := checkBeta(beta); err != nil {
		return err
	}
	p.beta = beta
	return nil
}

// Reset empties the buffer and gives its memory back. New transitions get a
// priority of 1 again.
func (p *Prioritised) Reset() {
	p.ring.Reset()
	p.tree = newSumTree(1)
	p.largest = 1
}

// Beta is how much of the uneven drawing the weights correct now.
func (p *Prioritised) Beta() float64 { return p.beta }

// Sample fills b with transitions. The sum of priorities is cut into as many
// equal parts as b has rows, and one place is drawn in each (appendix B.2.1),
// so a row's chance is exact and a batch is spread evenly. Weight is
//
//	(1 / (Len * P(i)))^beta
//
// divided by the largest in b. From an empty buffer it is ErrEmpty.
func (p *Prioritised) Sample(b *Batch) error {
	if err := p.ready(b); err != nil {
		return err
	}
	part := p.tree.sum() / float64(b.Size())
	rarest := math.Inf(1)
	for row := range b.Index {
		i := p.tree.find((float64(row) + p.random.Float64()) * part)
		p.fetch(b, row, i)
		rarest = min(rarest, p.tree.at(i))
	}
	for row, i := range b.Index {
		b.Weight[row] = math.Pow(rarest/p.tree.at(i), p.beta) // Len and the sum cancel in the quotient
	}
	return nil
}

// loud is a bound on errors: a sum of errors of that size is still finite.
const loud = 1e100

// Update gives the buffer the learner's errors (y - V, of any sign) of rows
// that Sample gave. When an index comes twice the last one counts. On an error
// nothing has changed.
func (p *Prioritised) Update(index []int, errors []float64) error {
	if len(index) != len(errors) {
		return fmt.Errorf("update priorities: %d indices and %d errors: there must be as many of both",
			len(index), len(errors))
	}
	for row, i := range index {
		if i < 0 || i >= p.held {
			return fmt.Errorf("update priorities: index[%d] = %d: it must be from 0 to %d", row, i, p.held-1)
		}
		if !(math.Abs(errors[row]) <= loud) {
			return fmt.Errorf("update priorities: errors[%d] = %v: it must be within ±%v", row, errors[row],
				float64(loud))
		}
	}
	for row, i := range index {
		priority := math.Pow(math.Abs(errors[row])+p.settings.Epsilon, p.settings.Alpha)
		p.tree.set(i, priority)
		p.largest = max(p.largest, priority)
	}
	return nil
}

const prioritisedHeader = "aware prioritised replay 2\n"

// MarshalBinary saves all state.
func (p *Prioritised) MarshalBinary() ([]byte, error) {
	b := newWriter(prioritisedHeader, p.size()+8*(4+p.held))
	b.number(p.settings.Alpha)
	b.number(p.settings.Epsilon)
	b.number(p.beta)
	b.number(p.largest)
	if err := p.save(b); err != nil {
		return nil, fmt.Errorf("save prioritised replay buffer: %w", err)
	}
	for i := range p.held {
		b.number(p.tree.at(i))
	}
	return b.seal(), nil
}

// UnmarshalBinary restores what was saved of a buffer of the same sizes, alpha
// and epsilon. On an error nothing has changed.
func (p *Prioritised) UnmarshalBinary(data []byte) error {
	b := newReader(prioritisedHeader, data)
	alpha := b.number()
	epsilon := b.number()
	beta := b.number()
	largest := b.number()
	b.must(alpha == p.settings.Alpha && epsilon == p.settings.Epsilon,
		"alpha %v, epsilon %v: it must be %v and %v", alpha, epsilon, p.settings.Alpha, p.settings.Epsilon)
	b.must(beta >= 0 && beta <= 1, "beta %v: it must be from 0 to 1", beta)
	b.must(largest >= 1 && largest <= 2*loud, "largest priority %v: it must be from 1 to %v", largest, 2*loud)
	loaded := p.load(b)
	loaded.mustBeFilled(b)
	tree := newSumTree(max(1, loaded.rows))
	for i := 0; i < loaded.held && b.err == nil; i++ {
		priority := b.number()
		b.must(priority > 0 && priority <= largest, "priority[%d] = %v: it must be above 0 and at most %v",
			i, priority, largest)
		tree.set(i, priority)
	}
	if err := b.end(); err != nil {
		return fmt.Errorf("restore prioritised replay buffer from %d bytes: %w", len(data), err)
	}
	p.take(loaded)
	p.beta = beta
	p.largest = largest
	p.tree = tree
	return nil
}
