// Package ppo learns by proximal policy optimisation (Schulman et al. 2017,
// clipped objective) with generalised advantage estimation (Schulman et al.
// 2016). Actions are discrete, with a mask of the legal ones, or continuous.
//
// # The story
//
// An [Agent] acts in several environments at once for Horizon steps
// ([Agent.Explore], [Agent.Learn]). It computes how much better each action was
// than expected ([Advantages]), and passes over that rollout Epochs times in
// minibatches. Each minibatch is one step of Adam down the gradient of
// [Config.Loss]. Then the rollout is dropped.
//
//	ratio = exp(log pi(a|s) - log pi_old(a|s))
//	loss  = mean(max(-A ratio, -A clip(ratio, 1-Clip, 1+Clip))) + Value * 0.5 mean((V - R)^2) - Entropy * mean(H)
//
// Policy and value are two networks. A continuous policy is a normal
// distribution; its mean depends on the state and its deviation does not.
// Actions are sampled without bounds and are clipped only for the environment.
//
// A step in which another action took force than the sampled one is left out of
// the policy's loss. A step whose reward is not known is left out of both
// losses, and the sum of advantages ends in front of it.
//
// The gradient comes from gorgonia ([Gorgonia]), and from hand-written kernels
// ([Hand]) in tests and benchmarks.
//
// # Departures from Schulman et al. 2017, all as in the reference implementations
//
//  1. Advantages are normalised in each minibatch. Gradients are clipped to
//     a norm of MaxGradNorm. Adam's epsilon is 1e-5. Learning rate and clip
//     range can be annealed to zero. Initialisation is orthogonal.
//  2. The two networks share no layers.
//  3. A truncated episode is not a terminated one: the value of its last
//     observation counts. CleanRL treats both alike, which is biased.
//  4. A trial of [Recurrent] is cut off from outside, so the value of what
//     follows it counts, unless its last step terminated (Duan et al. 2016
//     count nothing after a trial).
//
// # Errors in AWARE's released code that tests here would find
//
// Its "calc_gae" is not generalised advantage estimation, and it draws
// minibatches with replacement.
package ppo
