// Package classic has the environments on which learners are tested before they
// may control a workload: small, fast, and with known answers.
//
// # The story
//
// [Make] gives an environment (env.Env) by name. Reset starts an episode from a
// seed; Step carries an action out and says what it earned and whether the
// episode is over, and why. Terminated is an end that belongs to the task (the
// pole fell, the goal is reached); truncated is an end from outside (the time
// limit). The two stay apart, since a learner bootstraps after a truncation and
// not after a termination. Both can come in one step. An episode is determined
// by its seed and its actions: the same ones give the same bits.
//
//	CartPole-v1                balance a pole; 2 actions, 500 steps        Barto, Sutton, Anderson 1983
//	Pendulum-v1                swing up and hold; torque, 200 steps
//	MountainCar-v0             rock out of a valley; 3 actions, 200 steps  Moore 1990
//	MountainCarContinuous-v0   the same; force, 999 steps
//	Acrobot-v1                 swing up two links; 3 actions, 500 steps    Sutton 1996
//	IdentityDiscrete-v0        say what you see; 4 actions, 100 steps      stable-baselines3, tests/test_identity.py
//	IdentityContinuous-v0      the same; a number, 100 steps
//	Grid4x4-v0                 walk to a corner; 4 actions, 100 steps      Sutton and Barto 2018, example 4.1
//
// The identity tasks are the first thing that a learner must learn. The grid
// has an exact answer ([GridTable] and value iteration).
//
// # Gymnasium, and departures from it
//
// Equations, initial distributions, ends, time limits and rewards are those of
// Gymnasium 1 (Farama-Foundation/Gymnasium, gymnasium/envs/classic_control at
// 3f0476a8). With wrong physics, published learning curves could not be
// compared. Departures:
//
//  1. All numbers are float64. Gymnasium gives float32 observations, keeps
//     the state of MountainCarContinuous-v0 in float32, and draws the initial
//     state of Acrobot-v1 in float32.
//  2. The random numbers are math/rand/v2's PCG and not numpy's: a seed
//     gives another initial state of the same distribution. Reset always takes
//     a seed.
//  3. What Gymnasium leaves undefined or passes on is an error here: a Step
//     without a running episode, an action that is not in a discrete space, or
//     one that is not finite. Continuous actions beyond the bounds are
//     accepted and clipped exactly where Gymnasium clips them:
//     MountainCarContinuous-v0 charges for the action before clipping.
//
// # What this package leaves to others
//
// Normalisation, frame stacking and reward scaling are the learner's.
package classic
