package dqn

import (
	"errors"
	"fmt"

	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/replay"
)

// ErrNotFinite says that an update came to what is no number. The values are as they were.
var ErrNotFinite = errors.New("not a finite number")

// Values is everything that updates change: the network, its target, its optimiser.
type Values struct {
	Theta, Target []float64
	Adam          *nn.Adam
}

// Updater improves values of one shape. One goroutine uses it at a time.
type Updater struct {
	Errors    []float64 // Q(s, a) - y of the last batch
	c         Config
	gradients Gradients
	tape      *kernel.Tape[float64]
	best      []int
	y, grad   []float64
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
func (u *Updater) Update(v *Values, b *replay.Batch) (loss float64, err error) {
	if b.Size() != u.c.Batch {
		return 0, fmt.Errorf("updating dqn: a batch of %d: it must be of %d", b.Size(), u.c.Batch)
	}
	for _, part := range [][]float64{b.State, b.Action, b.Reward, b.Next, b.Bootstrap, b.Weight} {
		if !nn.Finite(part) {
			return 0, fmt.Errorf("updating dqn: the batch: %w", ErrNotFinite)
		}
	}
	for i, a := range b.Action {
		if a < 0 || int(a) >= u.c.Choices || a != float64(int(a)) {
			return 0, fmt.Errorf("updating dqn: action %v of row %d: it must be a choice from 0 to %d", a, i, u.c.Choices-1)
		}
	}
	n := u.c.Choices
	if u.c.Double {
		argmax(u.tape.Forward(v.Theta, b.Next, u.c.Batch), n, u.best)
	}
	q := u.tape.Forward(v.Target, b.Next, u.c.Batch)
	if !u.c.Double {
		argmax(q, n, u.best)
	}
	for i := range u.y {
		u.y[i] = b.Reward[i] + b.Bootstrap[i]*q[i*n+u.best[i]]
	}
	loss, err = u.gradients.Gradient(v.Theta, b.State, b.Action, u.y, b.Weight, u.grad, u.Errors)
	if err != nil {
		return 0, fmt.Errorf("updating dqn: %w", err)
	}
	if !nn.Finite(u.grad) || !nn.Finite([]float64{loss}) {
		return 0, fmt.Errorf("updating dqn: the gradient: %w", ErrNotFinite)
	}
	nn.Clip(u.c.MaxNorm, u.grad)
	v.Adam.Update(v.Theta, u.grad)
	return loss, nil
}

// argmax is the best column of each row; of equal ones the first.
func argmax(q []float64, columns int, best []int) {
	for i := range best {
		row := q[i*columns:][:columns]
		best[i] = 0
		for j, v := range row {
			if v > row[best[i]] {
				best[i] = j
			}
		}
	}
}
