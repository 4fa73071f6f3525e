package classic

import (
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
)

// The valley is sin(3x); the car's engine is weaker than gravity, so that it
// has to rock (Moore 1990).
const (
	valleyWall    = -1.2 // leftmost position; the wall stops the car
	valleyEnd     = 0.6  // rightmost position
	valleySpeed   = 0.07 // per step, at most
	valleyGravity = 0.0025
	valleyForce   = 0.001  // of the engine with three gears
	valleyPower   = 0.0015 // of the engine with a pedal
)

// mountainCar is MountainCar-v0. State and observation are position and
// velocity. Action 0 drives to the left, 2 to the right, and 1 not at all. Each
// step costs 1; at position 0.5 it terminates.
func mountainCar() kind {
	return kind{
		name: "MountainCar-v0", states: 2, limit: 200, model: geared{},
		observation: valley(), action: env.Discrete(3),
	}
}

// mountainCarContinuous is MountainCarContinuous-v0. The action is a force,
// clipped to ±1. A step costs 0.1 force², of the force before it is clipped, as
// in Gymnasium; at position 0.45 it terminates, and that step earns 100 more.
func mountainCarContinuous() kind {
	return kind{
		name: "MountainCarContinuous-v0", states: 2, limit: 999, model: pedalled{},
		observation: valley(), action: env.Box(1),
	}
}

func valley() env.Space {
	return env.Space{Low: []float64{valleyWall, -valleySpeed}, High: []float64{valleyEnd, valleySpeed}}
}

// car is what the two have in common.
type car struct{}

func (car) begin(r *rand.Rand, s []float64) { s[0], s[1] = uniform(r, -0.6, -0.4), 0 }

func (car) observe(s, obs []float64) { copy(obs, s) }

func (car) possible(s []float64) bool { return valley().Contains(s) }

// drive lets a step of time pass under an acceleration of the engine, and says
// whether the car is at the goal and does not roll back from it.
func drive(s []float64, engine, goal float64) bool {
	speed := clip(s[1]+(engine-valleyGravity*math.Cos(3*s[0])), -valleySpeed, valleySpeed)
	position := clip(s[0]+speed, valleyWall, valleyEnd)
	if position == valleyWall && speed < 0 {
		speed = 0
	}
	s[0], s[1] = position, speed
	return position >= goal && speed >= 0
}

type geared struct{ car }

func (geared) step(_ *rand.Rand, s, action []float64) (float64, bool) {
	return -1, drive(s, (action[0]-1)*valleyForce, 0.5)
}

type pedalled struct{ car }

func (pedalled) step(_ *rand.Rand, s, action []float64) (float64, bool) {
	terminated := drive(s, clip(action[0], -1, 1)*valleyPower, 0.45)
	reward := -0.1 * action[0] * action[0]
	if terminated {
		reward += 100
	}
	return reward, terminated
}
