// Package discrete is batch-constrained Q-learning for discrete actions
// (Fujimoto, Conti, Ghavamzadeh and Pineau 2019, "Benchmarking Batch Deep
// Reinforcement Learning Algorithms", arXiv:1910.01708).
//
// # The story
//
// One network learns what the data's policy does, pi_b(a|s). Another one learns
// the value, Q(s, a), where only actions count that the first one finds likely
// enough:
//
//	allowed   = legal actions with pi_b(a|s) / max pi_b(.|s) > Threshold
//	y         = r + bootstrap * Q'(s', argmax over allowed at s' of Q(s', a))         double DQN under that restriction
//	values    : mean of Huber(Q(s, a) - y)                                   -> Adam, then a soft update of the target by Tau
//	behaviour : mean(-log pi_b(a|s)) + Flat * mean(logits^2)                 -> Adam
//
// [Agent.Act] takes the allowed action of largest value. [Agent.Snapshot] joins
// both networks into one, so that package kernel's Server serves an Agent like
// any other.
//
// # Departures from the paper
//
//  1. The two networks share no layers, as in the authors' code for states
//     that are not images.
//  2. The target has a soft update after every update instead of a copy
//     every 8000 (an option of the authors' code).
//  3. Acting is never random; the paper evaluates with epsilon 0.001.
package discrete
