// Package replay keeps a learner's experience in memory and gives it back in
// batches.
//
// # The story
//
// A [Transition] is one step: the observation, the action, the reward and the
// next observation. Off-policy learners learn from random ones of the last many
// transitions, so that a batch is varied and experience is used more than once
// (Mnih et al. 2015). [Uniform] keeps the last Capacity transitions and draws
// all with the same chance. [Prioritised] draws those more often whose error
// was large (Schaul et al. 2016). Both fill a [Batch] that the caller owns.
// Their memory grows with use up to Capacity; Sample does not allocate.
//
// A learner's target is, for every row of a Batch,
//
//	y = Reward + Bootstrap * V(Next)
//
// Bootstrap is 0 where the task itself ended (terminated), and Discount
// otherwise, also where the episode was cut off from outside (truncated),
// because rewards would have followed. Next is the true final observation,
// never the first one of the next episode. NextLegal is the mask of Next, for a
// maximum over legal choices only; it takes memory only when it is used.
//
// [NStep] stands between one environment and a buffer and joins up to n steps
// into one: Reward is the discounted sum of up to n rewards, Discount the
// product of their discounts, gamma^k, and Next is k steps later (Sutton 1988;
// Hessel et al. 2018, "multi-step learning"). A Transition has its own
// Discount, so a learner need not know the number of steps.
//
// MarshalBinary saves all state, the random source included; a restored buffer
// continues as if it had never stopped.
//
// # Schaul et al. 2016 (arXiv:1511.05952), proportional variant: our readings and departures
//
//  1. The priority of new transitions (algorithm 1, line 6) is the largest
//     of all priorities so far, also when that transition has been
//     overwritten. It is 1 at first, and so at least 1.
//  2. Importance weights are divided by the largest in the batch, as in
//     dqn_zoo, and not by the largest possible one of the buffer: one row of
//     tiny priority would make all updates small.
//  3. An index given by Sample names a place. When Add overwrites that
//     place before Update, the new transition gets the priority, until it is
//     sampled itself.
//
// # What this package leaves to others
//
// When to learn, with which loss, how beta grows, and how observations are
// normalised is the learner's. Trajectories that must outlive the process
// belong to the trajectory store. It imports the standard library only.
package replay
