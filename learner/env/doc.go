// Package env is the contract between a learner and an environment, in the
// manner of Gymnasium.
//
// An [Env] runs in episodes. Reset starts an episode from a seed. Step carries
// an action out and returns its [Outcome]: the reward, and whether the episode
// is over and why. Terminated is an end that belongs to the task (the pole
// fell); truncated is an end from outside (the time limit). The two stay apart,
// because a learner bootstraps from the last observation after a truncation and
// not after a termination.
//
// The decision process of a workload needs three things more. Its legal actions
// change (a [Masker] says which are legal now), another action than the proposed
// one may take force (an [Executor] says which did), and the reward of a step
// may be unknown (Outcome.RewardKnown).
//
// A [Vector] steps several environments together; each is reset when its
// episode ends. Its [Rows] are what a learner is given after each step.
//
// An episode is determined by its seed and its actions: the same ones give the
// same bits. MarshalBinary saves all state, the random source included, and a
// restored Env continues as if it had never stopped.
//
// [awarescale.dev/aware/learner/env/classic] has Gymnasium's small
// environments, whose answers are known;
// [awarescale.dev/aware/learner/env/workload] makes an environment of a
// workload's decision process.
//
// Normalisation, frame stacking and reward scaling are the learner's. This
// package imports learner/mdp and the standard library only.
package env
