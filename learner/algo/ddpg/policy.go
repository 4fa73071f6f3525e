package ddpg

import (
	"math/rand/v2"

	"awarescale.dev/aware/learner/nn"
)

// Policy is everything that an update changes.
type Policy struct {
	Actor   *nn.Network
	Critics []*nn.Network
	Updates int // of the critics that were made
}

// NewPolicy initialises the networks: uniform weights, small ones in the last
// layers. The targets are exact copies.
func NewPolicy(c Config, r *rand.Rand) *Policy {
	const last = 3e-3 // Lillicrap et al., section 7
	p := &Policy{Actor: nn.NewNetwork(c.Actor(), c.ActorLearningRate, last, true, r)}
	for range c.critics() {
		critic := nn.NewNetwork(c.Critic(), c.CriticLearningRate, last, true, r)
		critic.Adam.Decay = c.Decay
		p.Critics = append(p.Critics, critic)
	}
	return p
}
