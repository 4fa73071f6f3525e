package bcq

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/bcq/internal/offline"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
)

// Stats are figures of an update.
type Stats struct {
	VAE          float64 // loss
	Critic       float64 // loss, mean of both critics
	Perturbation float64 // loss
	Target       float64 // mean y
}

// Updater improves policies of one shape, by batches of one size. One goroutine
// uses it at a time.
type Updater struct {
	c         Config
	gradients Gradients
	here      *proposals // for the batch's states
	next      *proposals // for Candidates actions in each of the batch's next states
	noise     []float64
	y         []float64
	first     []float64 // value by the first critic, of each candidate
	vae       []float64 // gradient of the generative model
	move      []float64 // gradient of the perturbation
	critics   [2][]float64
}

// NewUpdater is an Updater over what computes its gradients.
func NewUpdater(c Config, g Gradients) *Updater {
	return &Updater{
		c:         c,
		gradients: g,
		here:      newProposals(c, c.Batch),
		next:      newProposals(c, c.Batch*c.Candidates),
		noise:     make([]float64, c.Batch*c.Latent),
		y:         make([]float64, c.Batch),
		first:     make([]float64, c.Batch*c.Candidates),
		vae:       make([]float64, c.encoder()+c.Decoder().Params()),
		move:      make([]float64, c.Perturbation().Params()),
		critics:   [2][]float64{make([]float64, c.Critic().Params()), make([]float64, c.Critic().Params())},
	}
}

// Update improves a policy by a batch of finite numbers, whose actions are in
// [-1, 1]; random numbers come from r. A loss or gradient that is not finite is
// not applied. On an error every network is unchanged, or has taken a valid
// step.
func (u *Updater) Update(p *Policy, b *replay.Batch, r *rand.Rand) (Stats, error) {
	var s Stats
	c := u.c
	if err := offline.Units(b.Action); err != nil {
		return s, err
	}

	// The generative model first: what it generates from here on is by its
	// newest parameters.
	for i := range u.noise {
		u.noise[i] = r.NormFloat64()
	}
	var err error
	s.VAE, err = u.gradients.VAE(p.VAE.Theta, b.State, b.Action, u.noise, u.vae)
	if err := nn.CheckGradient(s.VAE, u.vae, err); err != nil {
		return s, fmt.Errorf("generative model: %w", err)
	}
	p.VAE.Adam.Update(p.VAE.Theta, u.vae)

	// Both critics' gradients, then their steps: an error must not update one
	// critic without the other.
	u.targets(p, b, r)
	for i, critic := range p.Critics {
		loss, err := u.gradients.Critic(critic.Theta, b.State, b.Action, u.y, u.critics[i])
		if err := nn.CheckGradient(loss, u.critics[i], err); err != nil {
			return s, fmt.Errorf("critic %d: %w", i, err)
		}
		s.Critic += loss / 2
	}
	for i, critic := range p.Critics {
		critic.Adam.Update(critic.Theta, u.critics[i])
	}
	for _, y := range u.y {
		s.Target += y / float64(c.Batch)
	}

	u.here.of(b.State, 1)
	generated := u.here.generate(p.VAE.Theta, r)
	s.Perturbation, err = u.gradients.Perturbation(p.Perturbation.Theta, p.Critics[0].Theta, b.State,
		generated, u.move)
	if err := nn.CheckGradient(s.Perturbation, u.move, err); err != nil {
		return s, fmt.Errorf("perturbation: %w", err)
	}
	p.Perturbation.Adam.Update(p.Perturbation.Theta, u.move)
	for _, n := range []*nn.Network{p.Critics[0], p.Critics[1], p.Perturbation} {
		nn.SoftUpdate(n.Target, n.Theta, c.Tau)
	}
	return s, nil
}

// targets computes y (algorithm 1): the largest over the candidates for the
// next state of a mixture of both target critics.
func (u *Updater) targets(p *Policy, b *replay.Batch, r *rand.Rand) {
	c := u.c
	u.next.of(b.Next, c.Candidates)
	u.next.perturb(p.Perturbation.Target, u.next.generate(p.VAE.Theta, r))
	first := u.first
	copy(first, u.next.value(p.Critics[0].Target))
	second := u.next.value(p.Critics[1].Target)
	mixed := func(k int) float64 {
		return c.Lambda*min(first[k], second[k]) + (1-c.Lambda)*max(first[k], second[k])
	}
	for i := range u.y {
		best := mixed(i * c.Candidates)
		for k := i*c.Candidates + 1; k < (i+1)*c.Candidates; k++ {
			best = max(best, mixed(k))
		}
		u.y[i] = b.Reward[i] + b.Bootstrap[i]*best
	}
}
