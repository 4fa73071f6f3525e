// Package classic holds the environments on which learners are tested before they may touch a workload: small, fast, and with known
// answers.
//
// # The story
//
// An [Env] is a world in episodes, in the manner of Gymnasium. [Make] gives one by name. Reset begins an episode from a
// seed, Step carries an action out and says what it earned and whether the episode is over, and why: terminated is an end
// that belongs to the task (the pole fell, the goal is reached), truncated one that comes from outside (the time limit).
// The two stay apart, since a learner looks beyond a truncation and not beyond a termination, and both can come in one
// step (22-rl-checklist.md, items 1 and 2). An episode is its seed and its actions: the same ones give the same bits.
// All state, the random numbers too, is saved by MarshalBinary, and a restored Env goes on as if it had never stopped.
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
// The identity tasks are the first thing that a learner must learn; the grid has an exact answer ([GridTable] and value
// iteration). A [Vector] is several environments stepped together, each begun anew when its episode ends, as PPO wants it.
//
// # What is as in Gymnasium, and what is not
//
// Equations, initial distributions, ends, time limits and rewards are those of Gymnasium 1 (Farama-Foundation/Gymnasium,
// gymnasium/envs/classic_control at 3f0476a8). Wrong physics would make published learning curves meaningless (item 44).
// Departures:
//
//  1. All numbers are float64. Gymnasium gives float32 observations and keeps the state of MountainCarContinuous-v0 in
//     float32, and draws the initial state of Acrobot-v1 so.
//  2. The random numbers are math/rand/v2's PCG and not numpy's: a seed gives another initial state of the same
//     distribution. Reset always takes a seed.
//  3. What Gymnasium leaves undefined or passes on is an error here: a Step without a running episode, an action that is
//     not in a discrete space, or one that is not finite. Continuous actions beyond the bounds are accepted and clipped
//     just where Gymnasium clips them: MountainCarContinuous-v0 charges for the action before clipping.
//
// # What this package leaves to others
//
// Normalisation, frame stacking and reward scaling are the learner's. The simulated cluster is package sim, and acting on
// it, or on a real one, package gym. This package imports the standard library only.
package classic
