package classic

import (
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
)

// The identity tasks ask for what is seen, which is drawn again each step: what
// a learner that does not learn these has wrong is the learner
// (stable-baselines3, common/envs/identity_env.py). They never terminate; 100
// steps are an episode.
const (
	identities    = 4 // of the discrete task
	identitySteps = 100
)

// identityDiscrete is IdentityDiscrete-v0. The observation has a 1 at one of
// four places and 0 at the others; the action that names the place earns 1, the
// others 0.
func identityDiscrete() kind {
	return kind{
		name: "IdentityDiscrete-v0", states: 1, limit: identitySteps, model: identityIndex{},
		observation: env.Space{Low: make([]float64, identities), High: []float64{1, 1, 1, 1}},
		action:      env.Discrete(identities),
	}
}

type identityIndex struct{}

func (identityIndex) begin(r *rand.Rand, s []float64) { s[0] = float64(r.IntN(identities)) }

func (m identityIndex) step(r *rand.Rand, s, action []float64) (reward float64, terminated bool) {
	if action[0] == s[0] {
		reward = 1
	}
	m.begin(r, s)
	return reward, false
}

func (identityIndex) observe(s, obs []float64) {
	clear(obs)
	obs[int(s[0])] = 1
}

func (identityIndex) possible(s []float64) bool { return env.IsIndex(s[0], identities) }

// identityContinuous is IdentityContinuous-v0. The observation o is a number in
// [-1, 1), and the action a, which is not clipped, earns -(a-o)².
func identityContinuous() kind {
	return kind{
		name: "IdentityContinuous-v0", states: 1, limit: identitySteps, model: identityNumber{},
		observation: env.Box(1), action: env.Box(1),
	}
}

type identityNumber struct{}

func (identityNumber) begin(r *rand.Rand, s []float64) { s[0] = uniform(r, -1, 1) }

func (m identityNumber) step(r *rand.Rand, s, action []float64) (float64, bool) {
	miss := action[0] - s[0]
	m.begin(r, s)
	return -miss * miss, false
}

func (identityNumber) observe(s, obs []float64) { copy(obs, s) }

func (identityNumber) possible(s []float64) bool { return s[0] >= -1 && s[0] < 1 }
