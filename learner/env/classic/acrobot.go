package classic

import (
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
)

// Two links of length 1 m and mass 1 kg, with a motor in the joint between them.
const (
	linkLength  = 1.0 // m, of the upper link
	linkMass    = 1.0 // kg, of each
	linkCentre  = 0.5 // m from its joint to its centre of mass
	linkInertia = 1.0 // kg m², of each
	linkGravity = 9.8 // m/s²
	linkStep    = 0.2 // s
	upperSpeed  = 4 * math.Pi
	lowerSpeed  = 9 * math.Pi
)

// acrobot is Acrobot-v1. The state is the upper link's angle from hanging
// (rad), the lower one's from the upper, and their velocities (rad/s); the
// observation is cosine and sine of the one, of the other, and the velocities.
// Actions 0, 1 and 2 are torques of -1, 0 and +1 N m at the joint. Each step
// costs 1 until the tip is a link's length above the hinge: that step costs
// nothing and terminates.
func acrobot() kind {
	return kind{
		name: "Acrobot-v1", states: 4, limit: 500, model: acrobotModel{},
		observation: env.Box(1, 1, 1, 1, upperSpeed, lowerSpeed),
		action:      env.Discrete(3),
	}
}

type acrobotModel struct{}

func (acrobotModel) begin(r *rand.Rand, s []float64) {
	for i := range s {
		s[i] = uniform(r, -0.1, 0.1)
	}
}

func (acrobotModel) step(_ *rand.Rand, s, action []float64) (float64, bool) {
	n := rungeKutta([4]float64(s), action[0]-1)
	s[0], s[1] = folded(n[0]), folded(n[1])
	s[2], s[3] = clip(n[2], -upperSpeed, upperSpeed), clip(n[3], -lowerSpeed, lowerSpeed)
	if -math.Cos(s[0])-math.Cos(s[0]+s[1]) > 1 {
		return 0, true
	}
	return -1, false
}

func (acrobotModel) observe(s, obs []float64) {
	obs[1], obs[0] = math.Sincos(s[0])
	obs[3], obs[2] = math.Sincos(s[1])
	obs[4], obs[5] = s[2], s[3]
}

func (acrobotModel) possible(s []float64) bool {
	return math.Abs(s[2]) <= upperSpeed && math.Abs(s[3]) <= lowerSpeed
}

// rungeKutta is one classical fourth-order step of linkStep seconds under a
// constant torque.
func rungeKutta(s [4]float64, torque float64) [4]float64 {
	k1 := swing(s, torque)
	k2 := swing(along(s, linkStep/2, k1), torque)
	k3 := swing(along(s, linkStep/2, k2), torque)
	k4 := swing(along(s, linkStep, k3), torque)
	for i := range s {
		s[i] += linkStep / 6 * (k1[i] + 2*k2[i] + 2*k3[i] + k4[i])
	}
	return s
}

// along is s + dt·k.
func along(s [4]float64, dt float64, k [4]float64) [4]float64 {
	for i := range s {
		s[i] += dt * k[i]
	}
	return s
}

// swing is the time derivative of the state (Sutton and Barto 1998, section
// 11.3, figure 11.6: "the book's" equations. Those of Sutton 1996 lack the term
// with the square of the upper link's velocity in the lower one's
// acceleration).
func swing(s [4]float64, torque float64) [4]float64 {
	upper := s[0]
	lower := s[1]
	upperV := s[2]
	lowerV := s[3]
	sin, cos := math.Sincos(lower)
	const own = linkMass*linkCentre*linkCentre + linkInertia // of a link about its joint
	const cross = linkMass * linkLength * linkCentre

	d1 := own + linkMass*(linkLength*linkLength+linkCentre*linkCentre+2*linkLength*linkCentre*cos) + linkInertia
	d2 := own + cross*cos
	phi2 := linkMass * linkCentre * linkGravity * math.Cos(upper+lower-math.Pi/2)
	phi1 := -cross*lowerV*lowerV*sin - 2*cross*lowerV*upperV*sin +
		(linkMass*linkCentre+linkMass*linkLength)*linkGravity*math.Cos(upper-math.Pi/2) + phi2
	lowerA := (torque + d2/d1*phi1 - cross*upperV*upperV*sin - phi2) / (own - d2*d2/d1)
	upperA := -(d2*lowerA + phi1) / d1
	return [4]float64{upperV, lowerV, upperA, lowerA}
}

// folded is the angle in [-π, π].
func folded(angle float64) float64 {
	if math.Abs(angle) <= math.Pi {
		return angle
	}
	return wrapped(angle)
}
