// Package env is the contract between a learner and an environment, in the manner of Gymnasium.
//
// An [Env] runs in episodes. Reset begins an episode from a seed. Step carries an action out and returns the reward and
// whether the episode is over, and why: terminated is an end that belongs to the task (the pole fell), truncated is an end
// from outside (the time limit). The two stay apart, because a learner bootstraps from the last observation after a
// truncation and not after a termination. A [Vector] is several environments stepped together; each is reset when its
// episode ends, as PPO wants it.
//
// An episode is its seed and its actions: the same ones give the same bits. All state, the random numbers too, is saved by
// MarshalBinary, and a restored Env continues as if it had never stopped.
//
// [awarescale.dev/aware/learner/env/classic] has Gymnasium's small environments, whose answers are known;
// [awarescale.dev/aware/learner/env/workload] makes an environment of a workload's decision process.
//
// Normalisation, frame stacking and reward scaling are the learner's. This package imports the standard library only.
package env
