package bcq

import (
	"math/rand/v2"

	"awarescale.dev/aware/learner/bcq/internal/offline"
)

// Policy is everything that an update changes.
type Policy struct {
	VAE          *offline.Network // parameters of the trunk, the means, the deviations, the decoder; no target
	Perturbation *offline.Network
	Critics      [2]*offline.Network
}

// NewPolicy begins: uniform weights, targets that are exact copies.
func NewPolicy(c Config, r *rand.Rand) *Policy {
	vae := append(c.Trunk(), c.Latents(), c.Latents())
	p := &Policy{
		VAE:          offline.NewNetwork(append(vae, c.Decoder()...), c.Rate, false, r),
		Perturbation: offline.NewNetwork(c.Perturbation(), c.Rate, true, r),
	}
	for i := range p.Critics {
		p.Critics[i] = offline.NewNetwork(c.Critic(), c.Rate, true, r)
	}
	return p
}

// parts are the networks as they are saved.
func (p *Policy) parts() []offline.Part {
	return []offline.Part{
		{Name: "vae", Network: p.VAE}, {Name: "perturbation", Network: p.Perturbation},
		{Name: "critic0", Network: p.Critics[0]}, {Name: "critic1", Network: p.Critics[1]},
	}
}
