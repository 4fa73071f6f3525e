package dqn

import (
	"fmt"

	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Updater improves networks of one shape. One goroutine uses it at a time.
type Updater struct {
	Errors    []float64 // Q(s, a) - y of the last batch
	c         Config
	gradients Gradients
	tape      *kernel.Tape[float64]
	best      []int
	y         []float64 // targets
	grad      []float64
}

// NewUpdater is an Updater over what computes its gradients.
func NewUpdater(c Config, g Gradients) *Updater {
	m := c.Network()
	return &Updater{
		Errors: make([]float64, c.Batch), c: c, gradients: g, tape: kernel.NewTape[float64](m, c.Batch),
		best: make([]int, c.Batch), y: make([]float64, c.Batch), grad: make([]float64, m.Params()),
	}
}

// Update takes a step of Adam on a batch. On an error nothing has changed.
func (u *Updater) Update(v *nn.Network, b *replay.Batch) (loss float64, err error) {
	if err := u.c.shape().Batch(b, u.c.Batch); err != nil {
		return 0, err
	}
	n := u.c.NumActions
	if u.c.Double {
		argmax(u.tape.Forward(v.Theta, b.Next, u.c.Batch), b.NextLegal, n, u.best)
	}
	q := u.tape.Forward(v.Target, b.Next, u.c.Batch)
	if !u.c.Double {
		argmax(q, b.NextLegal, n, u.best)
	}
	for i := range u.y {
		u.y[i] = b.Reward[i] + b.Bootstrap[i]*q[i*n+u.best[i]]
	}
	loss, err = u.gradients.Gradient(v.Theta, b.State, b.Action, u.y, b.Weight, u.grad, u.Errors)
	if err := nn.CheckGradient(loss, u.grad, err); err != nil {
		return 0, fmt.Errorf("updating dqn: %w", err)
	}
	nn.Clip(u.c.MaxGradNorm, u.grad)
	v.Adam.Update(v.Theta, u.grad)
	return loss, nil
}

// argmax is the best legal column of each row.
func argmax(q []float64, legal []bool, columns int, best []int) {
	for i := range best {
		best[i] = nn.Best(q[i*columns:][:columns], nn.RowOf(legal, i, columns))
	}
}
