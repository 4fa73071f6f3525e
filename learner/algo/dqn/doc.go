// Package dqn learns discrete actions by deep Q-networks (Mnih et al. 2015), double (van Hasselt et al. 2016), with steps of
// n and prioritised replay as options; and, as its dumb twin, by a table.
//
// # The story
//
// One network gives the value of every choice in a state. [Updater.Update] brings the values of what was done nearer to
//
//	y = R + bootstrap * Q'(s', argmax_a Q(s', a))      double; otherwise max_a Q'(s', a)
//
// by Huber's loss, Q' being a copy that is renewed now and then. An [Agent] chooses at random with probability epsilon, which
// falls in the beginning, and the best choice otherwise. A [Table] does the same without a network; tests hold it to value
// iteration.
//
// # Departures from Mnih et al. 2015
//
//  1. Adam, and gradients clipped to a norm of 10, instead of RMSProp (stable-baselines3).
//  2. Huber's loss of the whole difference, where the paper cuts the derivative: the same thing.
//  3. Updates can come in rounds (Every, Updates), as stable-baselines3's zoo has them for CartPole.
package dqn
