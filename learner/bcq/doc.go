// Package bcq learns continuous actions from fixed data, without interaction, by batch-constrained deep Q-learning (Fujimoto, Meger
// and Precup 2019, "Off-Policy Deep Reinforcement Learning without Exploration", arXiv:1812.02900).
//
// # The story
//
// A critic that has never seen an action says anything of it, and a learner that may choose any action chooses the one of which it
// says the most: extrapolation error (section 3). Without interaction nobody ever tells it better. So actions are only those that the
// data's own policy could have taken in that state. A [Policy] has four networks for it, three of them with targets:
//
//	generative model  a variational autoencoder: an encoder of (s, a) to a normal distribution of latent numbers z, and a decoder
//	                  of (s, z) to an action; from z ~ N(0, 1), cut at 0.5, it makes actions like the data's
//	perturbation      moves such an action by at most Phi, towards more value
//	critics           two, which say what s and a are worth
//
// [Updater.Update] improves a Policy by one batch:
//
//	generative model  mean (decoder(s, mean + deviation * noise) - a)^2 + Divergence * KL       section 4.1, appendix D.1
//	y               = r + bootstrap * max over Candidates of                                    equation 13
//	                  Lambda * min_i Q'_i(s', a') + (1 - Lambda) * max_i Q'_i(s', a'),
//	                  a' = clip(a + Phi * xi'(s', a)) for each generated a at s'
//	critics           mean (Q_i(s, a) - y)^2
//	perturbation      mean -Q_1(s, clip(a + Phi * xi(s, a))) for a generated a at s             equation 11
//	targets           of critics and perturbation follow by Tau
//
// and what decides ([Agent.Act], [Decider]) is the best of Choices generated and perturbed actions by the first critic (equation 12).
//
// Actions are in [-1, 1] in every network and in the data ([Config.Inward]); decisions are stretched to the environment's bounds.
// The discount is the data's own. Package discrete is the same idea for discrete actions, package clone the baseline that learns
// nothing of rewards, and package proof shows that it works: on data of an expert and a random policy, better than clone, and than
// ddpg by far.
//
// # Departures from the paper and from the authors' code (sfujim/BCQ, continuous_BCQ)
//
//  1. Networks are 64-64 by default instead of 400-300 and 750-750: two cores of a CPU. The widths are settings, and the generative
//     model's is the one that pays: proof has 200-200 there.
//  2. Lambda is 0.75, the KL term has half the weight of the mean square, both are means over numbers and not sums, log deviations
//     are cut at -4 and 15, latent numbers at 0.5, Candidates 10, Choices 100: as in the code, some of which the paper does not say.
//  3. Next actions are drawn by the generative model as it is after this batch's step, as in the code.
//  4. Adam's step is 1e-3 for all networks, as in both, with PyTorch's beginnings of weights drawn from a source of our own.
//
// # What it cannot do
//
// When more than seven in ten of the data's actions in a state are a bad policy's, the
// better ones are beyond the cut of 0.5 in the latent numbers (a share of 0.31 is), and are not generated: data should hold at least
// as much of what is to be learned.
package bcq
