package bcq

import (
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/bcq/internal/offline"
	"awarescale.dev/aware/learner/nn"
)

// Policy is everything that an update changes.
type Policy struct {
	VAE          *nn.Network // parameters of the trunk, the means, the deviations, the decoder; no target
	Perturbation *nn.Network
	Critics      [2]*nn.Network
}

// NewPolicy initialises the networks with uniform weights. The targets are
// exact copies.
func NewPolicy(c Config, r *rand.Rand) *Policy {
	vae := append(c.Trunk(), c.Latents(), c.Latents())
	p := &Policy{
		VAE:          nn.NewNetwork(append(vae, c.Decoder()...), c.LearningRate, 0, false, r),
		Perturbation: nn.NewNetwork(c.Perturbation(), c.LearningRate, 0, true, r),
	}
	for i := range p.Critics {
		p.Critics[i] = nn.NewNetwork(c.Critic(), c.LearningRate, 0, true, r)
	}
	return p
}

// parts are the networks under the names that they are saved by.
func (p *Policy) parts() []offline.Part {
	return []offline.Part{
		{Name: "vae", Network: p.VAE}, {Name: "perturbation", Network: p.Perturbation},
		{Name: "critic0", Network: p.Critics[0]}, {Name: "critic1", Network: p.Critics[1]},
	}
}
