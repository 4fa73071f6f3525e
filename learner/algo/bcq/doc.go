// Package bcq learns continuous actions from fixed data, without interaction, by batch-constrained deep Q-learning (Fujimoto, Meger
// and Precup 2019, "Off-Policy Deep Reinforcement Learning without Exploration", arXiv:1812.02900).
//
// # The story
//
// A critic that has never seen an action says anything of it, and a learner that may choose any action chooses the one of which it
// says the most: extrapolation error. Without interaction nobody ever tells it better. So actions are only those that the
// data's own policy could have taken in that state. A [Policy] has four networks for it, three of them with targets:
//
//	generative model  a variational autoencoder: an encoder of (s, a) to a normal distribution of latent numbers z, and a decoder
//	                  of (s, z) to an action; from z ~ N(0, 1), cut at 0.5, it makes actions like the data's
//	perturbation      moves such an action by at most Phi, towards more value
//	critics           two, which say what s and a are worth
//
// [Updater.Update] improves a Policy by one batch, as algorithm 1 of the paper does:
//
//	generative model  mean (decoder(s, mean + deviation * noise) - a)^2 + Divergence * KL
//	y               = r + bootstrap * max over Candidates of
//	                  Lambda * min_i Q'_i(s', a') + (1 - Lambda) * max_i Q'_i(s', a'),
//	                  a' = clip(a + Phi * xi'(s', a)) for each generated a at s'
//	critics           mean (Q_i(s, a) - y)^2
//	perturbation      mean -Q_1(s, clip(a + Phi * xi(s, a))) for a generated a at s
//	targets           of critics and perturbation follow by Tau
//
// and what decides ([Agent.Act], [Decider]) is the best of Choices generated and perturbed actions by the first critic.
//
// Actions are in [-1, 1] in every network and in the data ([Config.Inward]); decisions are stretched to the environment's bounds.
// The discount is the data's own. Package discrete is the same idea for discrete actions, package clone the baseline that learns
// nothing of rewards, and package proof shows that it works: on data of an expert and a random policy, better than clone, and than
// ddpg by far.
//
// # Departures from the paper and from the authors' code (sfujim/BCQ, continuous_BCQ)
//
//  1. Networks are 64-64 by default instead of 400-300 and 750-750: two cores of a CPU. The widths are settings, and the generative
//     model's is the one that pays: proof has 128-128 there.
//  2. Lambda is 0.75, the KL term has half the weight of the mean square, both are means over numbers and not sums, log deviations
//     are cut at -4 and 15, latent numbers at 0.5, Candidates 10, Choices 100: as in the code.
//  3. Next actions are drawn by the generative model as it is after this batch's step, as in the code.
//  4. Adam's step is 1e-3 for all networks, as in both, with PyTorch's beginnings of weights drawn from a source of our own.
//
// # What it cannot do
//
// When more than seven in ten of the data's actions in a state are a bad policy's, the better ones can lie beyond the cut in the latent
// numbers (where one of these tells the two apart, 0.5 leaves 31 in 100 beyond it), and are not generated then.
package bcq
