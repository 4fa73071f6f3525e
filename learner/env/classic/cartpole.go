package classic

import (
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
)

// The cart and its pole, in SI units (Barto, Sutton and Anderson 1983, without
// friction; equations as corrected by Florian 2007, "Correct equations for the
// dynamics of the cart-pole system", eqs. 23 and 24).
const (
	cartGravity  = 9.8
	cartMass     = 1.0
	poleMass     = 0.1
	poleHalf     = 0.5                    // half the pole's length
	cartForce    = 10.0                   // N; to the left or to the right
	cartTau      = 0.02                   // s a step
	cartFar      = 2.4                    // m; the episode ends beyond it
	poleFar      = 12 * 2 * math.Pi / 360 // rad; the episode ends beyond it
	poleMoment   = poleMass * poleHalf    // kg m
	cartPoleMass = cartMass + poleMass    // kg
	cartSmall    = 0.05                   // every number of the initial state is within this of 0
)

// cartPole is CartPole-v1. State and observation are position (m), velocity
// (m/s), angle of the pole from upright (rad) and its velocity (rad/s). Action
// 0 pushes to the left, 1 to the right. Each step earns 1, the last one too.
func cartPole() kind {
	return kind{
		name: "CartPole-v1", states: 4, limit: 500, model: cartPoleModel{},
		observation: env.Box(2*cartFar, math.Inf(1), 2*poleFar, math.Inf(1)),
		action:      env.Discrete(2),
	}
}

type cartPoleModel struct{}

func (cartPoleModel) begin(r *rand.Rand, s []float64) {
	for i := range s {
		s[i] = uniform(r, -cartSmall, cartSmall)
	}
}

func (cartPoleModel) step(_ *rand.Rand, s, action []float64) (float64, bool) {
	x := s[0]
	v := s[1]
	angle := s[2]
	spin := s[3]
	force := -cartForce
	if action[0] == 1 {
		force = cartForce
	}
	sin, cos := math.Sincos(angle)
	push := (force + poleMoment*spin*spin*sin) / cartPoleMass
	spinUp := (cartGravity*sin - cos*push) / (poleHalf * (4.0/3 - poleMass*cos*cos/cartPoleMass))
	speedUp := push - poleMoment*spinUp*cos/cartPoleMass

	// Explicit Euler: positions move by the velocities from before the step.
	s[0], s[1] = x+cartTau*v, v+cartTau*speedUp
	s[2], s[3] = angle+cartTau*spin, spin+cartTau*spinUp
	return 1, math.Abs(s[0]) > cartFar || math.Abs(s[2]) > poleFar
}

func (cartPoleModel) observe(s, obs []float64) { copy(obs, s) }

func (cartPoleModel) possible([]float64) bool { return true }
