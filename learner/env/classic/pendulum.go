package classic

import (
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
)

// The pendulum is a rod on a hinge.
const (
	rodGravity = 10.0 // m/s²
	rodMass    = 1.0  // kg
	rodLength  = 1.0  // m
	rodTorque  = 2.0  // N m, at most
	rodSpeed   = 8.0  // rad/s, at most
	rodStep    = 0.05 // s
)

// pendulum is Pendulum-v1. The state is the angle from upright (rad, not
// wrapped) and its velocity (rad/s); the observation is the angle's cosine and
// sine, and the velocity. The action is a torque, clipped to ±2 N m. A step
// costs
//
//	angle² + 0.1 velocity² + 0.001 torque²
//
// of the angle (wrapped to ±π) and the velocity before the step. It never
// terminates.
func pendulum() kind {
	return kind{
		name: "Pendulum-v1", states: 2, limit: 200, model: pendulumModel{},
		observation: env.Box(1, 1, rodSpeed),
		action:      env.Box(rodTorque),
	}
}

type pendulumModel struct{}

func (pendulumModel) begin(r *rand.Rand, s []float64) {
	s[0] = uniform(r, -math.Pi, math.Pi)
	s[1] = uniform(r, -1, 1)
}

func (pendulumModel) step(_ *rand.Rand, s, action []float64) (float64, bool) {
	angle, speed := s[0], s[1]
	torque := clip(action[0], -rodTorque, rodTorque)
	lean := wrapped(angle)
	cost := lean*lean + 0.1*speed*speed + 0.001*torque*torque

	speed += (3*rodGravity/(2*rodLength)*math.Sin(angle) + 3/(rodMass*rodLength*rodLength)*torque) * rodStep
	speed = clip(speed, -rodSpeed, rodSpeed)
	s[0], s[1] = angle+speed*rodStep, speed // semi-implicit Euler: the angle moves by the new velocity
	return -cost, false
}

func (pendulumModel) observe(s, obs []float64) {
	obs[1], obs[0] = math.Sincos(s[0])
	obs[2] = s[1]
}

func (pendulumModel) possible(s []float64) bool { return math.Abs(s[1]) <= rodSpeed }

// wrapped is the angle in [-π, π).
func wrapped(angle float64) float64 {
	turn := math.Mod(angle+math.Pi, 2*math.Pi)
	if turn < 0 {
		turn += 2 * math.Pi
	}
	return turn - math.Pi
}
