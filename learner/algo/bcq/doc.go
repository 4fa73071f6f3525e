// Package bcq learns continuous actions from fixed data, without interaction,
// by batch-constrained deep Q-learning (Fujimoto, Meger and Precup 2019,
// "Off-Policy Deep Reinforcement Learning without Exploration",
// arXiv:1812.02900).
//
// # The story
//
// The value that a critic gives to an action outside of its data is arbitrary.
// A learner that may choose any action chooses the one whose value is too high:
// this is the extrapolation error, and without interaction nothing corrects it.
// So a [Policy] considers only actions that the data's own policy could have
// taken in that state. It has four networks, three of them with targets:
//
//	generative model  a variational autoencoder: an encoder of (s, a) to a normal distribution of latent numbers z, and a decoder
//	                  of (s, z) to an action; from z ~ N(0, 1), clipped at 0.5, it makes actions like the data's
//	perturbation      moves such an action by at most Phi, towards more value
//	critics           two, which give the value of s and a
//
// [Updater.Update] improves a Policy by one batch, as algorithm 1 of the paper
// does:
//
//	generative model  mean (decoder(s, mean + deviation * noise) - a)^2 + Divergence * KL
//	y               = r + bootstrap * max over Candidates of
//	                  Lambda * min_i Q'_i(s', a') + (1 - Lambda) * max_i Q'_i(s', a'),
//	                  a' = clip(a + Phi * xi'(s', a)) for each generated a at s'
//	critics           mean (Q_i(s, a) - y)^2
//	perturbation      mean -Q_1(s, clip(a + Phi * xi(s, a))) for a generated a at s
//	targets           of critics and perturbation: soft update by Tau
//
// The decision ([Agent.Act], [Decider]) is the best of SampledActions generated
// and perturbed actions by the first critic.
//
// Actions are in [-1, 1] in every network and in the data ([Config.Inward]);
// decisions are scaled to the environment's bounds. The discount is the data's
// own. Package discrete has the same idea for discrete actions. Package clone
// is the baseline that learns nothing from rewards. Package evaluation shows
// that it works: on data of an expert and a random policy it is better than
// clone, and much better than ddpg.
//
// # Departures from the paper and from the authors' code (sfujim/BCQ, continuous_BCQ)
//
//  1. Networks are 64-64 by default instead of 400-300 and 750-750, for two
//     cores of a CPU. The widths are settings. The generative model's widths
//     matter most: evaluation has 128-128 there.
//  2. As in the code: Lambda is 0.75, the KL term has half the weight of
//     the mean square, both are means over numbers and not sums, logarithms of
//     deviations are clipped at -4 and 15, latent numbers at 0.5, Candidates
//     is 10 and SampledActions 100.
//  3. Next actions are drawn by the generative model as it is after this
//     batch's step, as in the code.
//  4. Adam's step is 1e-3 for all networks, as in both, with PyTorch's
//     initialisation from our own random source.
//
// # What it cannot do
//
// When more than seven in ten of the data's actions in a state are a bad
// policy's, the better ones can lie beyond the bound of the latent numbers, and
// are not generated then. Where one latent number separates the two, a bound of
// 0.5 leaves 31 in 100 of the actions outside.
package bcq
