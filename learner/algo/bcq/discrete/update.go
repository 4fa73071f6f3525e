package discrete

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Policy is everything that an update changes.
type Policy struct {
	Values    *nn.Network
	Behaviour *nn.Network // has no target
}

// NewPolicy initialises the networks with uniform weights. The target is an
// exact copy.
func NewPolicy(c Config, r *rand.Rand) *Policy {
	return &Policy{
		Values:    nn.NewNetwork(c.Network(), c.LearningRate, 0, true, r),
		Behaviour: nn.NewNetwork(c.Network(), c.LearningRate, 0, false, r),
	}
}

// Stats are figures of an update.
type Stats struct {
	Values    float64 // loss
	Behaviour float64 // loss
	Target    float64 // mean y
}

// Updater improves policies of one shape, by batches of one size. One goroutine
// uses it at a time.
type Updater struct {
	c         Config
	gradients Gradients
	online    *kernel.Tape[float64]
	target    *kernel.Tape[float64]
	behaviour *kernel.Tape[float64]
	y         []float64
	values    []float64
	likely    []float64
}

// NewUpdater is an Updater over what computes its gradients.
func NewUpdater(c Config, g Gradients) *Updater {
	m := c.Network()
	tape := func() *kernel.Tape[float64] { return kernel.NewTape[float64](m, c.Batch) }
	return &Updater{
		c: c, gradients: g, online: tape(), target: tape(), behaviour: tape(),
		y: make([]float64, c.Batch), values: make([]float64, m.Params()), likely: make([]float64, m.Params()),
	}
}

// Update improves a policy by a batch of finite numbers, whose actions are
// indices. A loss or gradient that is not finite is not applied: on an error
// the policy is unchanged.
func (u *Updater) Update(p *Policy, b *replay.Batch) (Stats, error) {
	var s Stats
	if err := u.c.shape().Batch(b, u.c.Batch); err != nil {
		return s, err
	}
	u.targets(p, b)
	for _, y := range u.y {
		s.Target += y / float64(len(u.y))
	}
	var err error
	s.Values, err = u.gradients.Values(p.Values.Theta, b.State, b.Action, u.y, u.values)
	if err := nn.CheckGradient(s.Values, u.values, err); err != nil {
		return s, fmt.Errorf("values: %w", err)
	}
	s.Behaviour, err = u.gradients.Behaviour(p.Behaviour.Theta, b.State, b.Action, u.likely)
	if err := nn.CheckGradient(s.Behaviour, u.likely, err); err != nil {
		return s, fmt.Errorf("behaviour: %w", err)
	}
	p.Values.Adam.Update(p.Values.Theta, u.values)
	p.Behaviour.Adam.Update(p.Behaviour.Theta, u.likely)
	nn.SoftUpdate(p.Values.Target, p.Values.Theta, u.c.Tau)
	return s, nil
}

// targets computes y: the online network chooses among what is allowed, the
// target says what that is worth.
func (u *Updater) targets(p *Policy, b *replay.Batch) {
	n := u.c.NumActions
	q := u.online.Forward(p.Values.Theta, b.Next, u.c.Batch)
	logits := u.behaviour.Forward(p.Behaviour.Theta, b.Next, u.c.Batch)
	worth := u.target.Forward(p.Values.Target, b.Next, u.c.Batch)
	for i := range u.y {
		a := u.c.Choose(q[i*n:][:n], logits[i*n:][:n], nn.RowOf(b.NextLegal, i, n))
		u.y[i] = b.Reward[i] + b.Bootstrap[i]*worth[i*n+a]
	}
}
