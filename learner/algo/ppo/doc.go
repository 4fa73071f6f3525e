// Package ppo learns by proximal policy optimisation (Schulman et al. 2017, clipped objective) with generalised advantage
// estimation (Schulman et al. 2016): discrete actions, with a mask of those that are legal, and continuous ones.
//
// # The story
//
// An [Agent] acts in several environments at once for Horizon steps ([Agent.Explore], [Agent.Learn]), computes what was better
// than expected ([Advantages]), and goes over that rollout Epochs times in minibatches, each a step of Adam down the gradient
// of [Loss]; then the rollout is forgotten.
//
//	ratio = exp(log pi(a|s) - log pi_old(a|s))
//	loss  = mean(max(-A ratio, -A clip(ratio, 1-Clip, 1+Clip))) + Value * 0.5 mean((V - R)^2) - Entropy * mean(H)
//
// Policy and value are two networks. A continuous policy is a normal distribution of a mean that depends on the state and a
// deviation that does not; actions are sampled unbounded and clipped only on their way to the environment.
//
// The gradient comes from gorgonia ([Gorgonia]), and by hand ([Hand]) in tests and benchmarks.
//
// # Departures from Schulman et al. 2017, all those of the reference implementations
//
//  1. Advantages are normalised in each minibatch; gradients are clipped to norm MaxNorm; Adam's epsilon is 1e-5; rate and clip
//     can go linearly to zero; orthogonal beginnings.
//  2. Networks share nothing.
//  3. An episode cut short is not an end: its last value counts (CleanRL takes it for one, and is biased).
//
// # What AWARE's released code gets wrong, and tests here would catch
//
// Its "calc_gae" is no GAE; it draws minibatches with replacement.
package ppo
