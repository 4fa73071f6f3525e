package ppo

import (
	"fmt"

	"awarescale.dev/aware/learner/nn"
)

// Updater improves parameters by minibatches. One goroutine uses it at a time.
type Updater struct {
	c         Config
	gradients Gradients
	grad      []float64
}

// NewUpdater is an Updater over what computes its gradients.
func NewUpdater(c Config, g Gradients) *Updater {
	return &Updater{c: c, gradients: g, grad: make([]float64, c.Params())}
}

// Update takes one step of Adam down the gradient of a minibatch. On an error
// nothing has changed.
func (u *Updater) Update(theta []float64, adam *nn.Adam, m *Minibatch) (Stats, error) {
	if !nn.Finite(m.State, m.Action, m.LogProb, m.Advantage, m.Return) {
		return Stats{}, fmt.Errorf("updating ppo: the minibatch: %w", nn.ErrNotFinite)
	}
	s, err := u.gradients.Gradient(theta, m, u.grad)
	if err := nn.CheckGradient(s.Loss, u.grad, err); err != nil {
		return s, fmt.Errorf("updating ppo: %w", err)
	}
	s.Norm = nn.Clip(u.c.MaxGradNorm, u.grad)
	adam.Update(theta, u.grad)
	return s, nil
}
