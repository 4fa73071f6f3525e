package ddpg

import (
	"fmt"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Stats are figures of an update.
type Stats struct {
	Critic     float64 // loss, mean of all critics
	Actor      float64 // loss; meaningful when ActorMoved
	ActorMoved bool
	Q          float64 // mean value of the batch's states and actions
	Target     float64 // mean y
}

// Updater improves policies of one shape, by batches of one size. One goroutine
// uses it at a time.
type Updater struct {
	c         Config
	gradients Gradients
	actor     *kernel.Tape[float64]
	critic    *kernel.Tape[float64]
	sa        []float64 // states and actions, [batch][State+Action]
	y         []float64 // targets
	q         []float64 // values by the first critic
	agrad     []float64 // gradient of the actor
	cgrad     []float64 // gradient of a critic
	Errors    []float64 // Q(s, a) - y of the last batch, by the first critic: the errors for a prioritised buffer
	smallest  []float64 // smallest value of the target critics
	next      []float64 // target actions, [batch][Action]
	more      []float64 // gradient of what the actor's loss has beside the value

	Imitation float64 // see [Config]; of the Agent whose turn it is
}

// NewUpdater is an Updater over what computes its gradients.
func NewUpdater(c Config, g Gradients) *Updater {
	actor, critic := c.Actor(), c.Critic()
	return &Updater{
		c:         c,
		gradients: g,
		actor:     kernel.NewTape[float64](actor, c.Batch),
		critic:    kernel.NewTape[float64](critic, c.Batch),
		sa:        make([]float64, c.Batch*(c.State+c.Action)),
		y:         make([]float64, c.Batch),
		q:         make([]float64, c.Batch),
		agrad:     make([]float64, actor.Params()),
		cgrad:     make([]float64, critic.Params()),
		Errors:    make([]float64, c.Batch),
		smallest:  make([]float64, c.Batch),
		next:      make([]float64, c.Batch*c.Action),
		more:      make([]float64, actor.Params()),
		Imitation: c.Imitation,
	}
}

// Update improves a policy by a batch, whose actions are in [-1, 1]. Target
// noise comes from r. A gradient that is not finite is not applied. On an error
// every network is unchanged, or has taken a valid step (the critics, when the
// actor fails).
func (u *Updater) Update(p *Policy, b *replay.Batch, r *rand.Rand) (Stats, error) {
	var s Stats
	c := u.c
	if err := c.shape().Batch(b, c.Batch); err != nil {
		return s, err
	}
	u.targets(p, b, r)
	join(u.sa, b.State, b.Action, c.State, c.Action)
	// All critics' gradients first, then their steps: an error must not update
	// one critic without the other.
	grads := make([][]float64, len(p.Critics))
	for i := range p.Critics {
		loss, err := u.gradients.Critic(p.Critics[i].Theta, u.sa, u.y, b.Weight, u.cgrad)
		if err := nn.CheckGradient(loss, u.cgrad, err); err != nil {
			return s, fmt.Errorf("updating ddpg: critic: %w", err)
		}
		s.Critic += loss / float64(len(p.Critics))
		grads[i] = u.cgrad
		if len(p.Critics) > 1 {
			grads[i] = append([]float64(nil), u.cgrad...)
		}
	}
	copy(u.q, u.critic.Forward(p.Critics[0].Theta, u.sa, c.Batch))
	for i, q := range u.q {
		u.Errors[i] = q - u.y[i]
		s.Q += q / float64(c.Batch)
		s.Target += u.y[i] / float64(c.Batch)
	}
	for i := range p.Critics {
		p.Critics[i].Adam.Update(p.Critics[i].Theta, grads[i])
	}
	p.Updates++
	if p.Updates%c.Delay != 0 {
		return s, nil
	}
	loss, err := u.gradients.Actor(p.Actor.Theta, p.Critics[0].Theta, b.State, u.agrad)
	if u.Imitation > 0 && err == nil {
		loss += u.imitate(p.Actor.Theta, b)
	}
	if c.Inward > 0 && err == nil {
		loss += u.inward(p.Actor.Theta, b)
	}
	if err := nn.CheckGradient(loss, u.agrad, err); err != nil {
		return s, fmt.Errorf("updating ddpg: actor: %w", err)
	}
	s.Actor, s.ActorMoved = loss, true
	p.Actor.Adam.Update(p.Actor.Theta, u.agrad)
	nn.SoftUpdate(p.Actor.Target, p.Actor.Theta, c.Tau)
	for i := range p.Critics {
		nn.SoftUpdate(p.Critics[i].Target, p.Critics[i].Theta, c.Tau)
	}
	return s, nil
}

// imitate adds the gradient of the weighted distance to the data's actions to the actor's, and returns the distance. The
// weight is against the mean size of the batch's values, as in equation 5 of TD3+BC.
func (u *Updater) imitate(theta []float64, b *replay.Batch) (loss float64) {
	size := 0.0
	for _, q := range u.q {
		size += math.Abs(q) / float64(len(u.q))
	}
	a := u.actor.Forward(theta, b.State, u.c.Batch)
	weight := u.Imitation * size / float64(len(a))
	da := u.actor.Out()
	for i, v := range a {
		d := v - b.Action[i]
		loss += weight * d * d
		da[i] = 2 * weight * d
	}
	u.addActor(theta)
	return loss
}

// inward adds the gradient of the weighted squares of the outputs before tanh, and returns them.
func (u *Updater) inward(theta []float64, b *replay.Batch) (loss float64) {
	a := u.actor.Forward(theta, b.State, u.c.Batch)
	weight := u.c.Inward / float64(len(a))
	da := u.actor.Out()
	const most = 1 - 1e-9 // tanh of some 10.7: beyond it little but rounding is left
	for i, v := range a {
		v = max(-most, min(most, v))
		z := math.Atanh(v)
		loss += weight * z * z
		da[i] = 2 * weight * z / (1 - v*v)
	}
	u.addActor(theta)
	return loss
}

// addActor adds the gradient of what is at the actor's output to the actor's.
func (u *Updater) addActor(theta []float64) {
	u.actor.Backward(theta, u.more, nil)
	for i, g := range u.more {
		u.agrad[i] += g
	}
}

// targets computes y.
func (u *Updater) targets(p *Policy, b *replay.Batch, r *rand.Rand) {
	c := u.c
	copy(u.next, u.actor.Forward(p.Actor.Target, b.Next, c.Batch))
	if c.TargetNoise > 0 {
		for i, a := range u.next {
			noise := max(-c.TargetCut, min(c.TargetCut, c.TargetNoise*r.NormFloat64()))
			u.next[i] = max(-1, min(1, a+noise))
		}
	}
	join(u.sa, b.Next, u.next, c.State, c.Action)
	for i := range p.Critics {
		q := u.critic.Forward(p.Critics[i].Target, u.sa, c.Batch)
		if i == 0 {
			copy(u.smallest, q)
			continue
		}
		for k, v := range q {
			u.smallest[k] = min(u.smallest[k], v)
		}
	}
	for i := range u.y {
		u.y[i] = b.Reward[i] + b.Bootstrap[i]*u.smallest[i]
	}
}
