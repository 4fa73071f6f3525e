// Package dqn learns discrete actions by deep Q-networks (Mnih et al. 2015).
// Double Q-learning (van Hasselt et al. 2016), returns of n steps and
// prioritised replay are options. [Table] is Q-learning without a network.
//
// # The story
//
// One network gives the value of every choice in a state. [Updater.Update]
// moves the values of what was done towards
//
//	y = R + bootstrap * Q'(s', argmax_a Q(s', a))      double; otherwise max_a Q'(s', a)
//
// by Huber's loss. The maximum is over the choices that are legal in s'. Q' is
// the target network, a copy of Q that is renewed every TargetUpdateEvery
// steps. An [Agent] takes a random legal choice with probability epsilon, which
// decreases at the start of training, and the best legal one otherwise. Tests
// compare the [Table] with value iteration.
//
// The replay buffer holds the choice that took force, which may differ from the
// proposed one. Steps whose reward is not known are not stored, and a return of
// n steps ends before them.
//
// # Departures from Mnih et al. 2015
//
//  1. Adam, and gradients clipped to a norm of 10, instead of RMSProp
//     (stable-baselines3).
//  2. Huber's loss of the whole difference, where the paper clips the
//     derivative: both have the same gradient.
//  3. Updates can come in rounds (Every, Updates), as in
//     stable-baselines3's zoo for CartPole.
package dqn
