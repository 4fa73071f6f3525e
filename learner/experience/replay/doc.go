// Package replay keeps a learner's experience in memory and gives it back in batches.
//
// # The story
//
// A [Transition] is one step: what was seen, what was done, what it earned, what was seen then. Off-policy learners do not
// learn from it once and at once, but from random ones of the last many, so that what they learn from is neither all alike
// nor forgotten (Mnih et al. 2015). [Uniform] keeps the last Capacity transitions and draws all alike; [Prioritised] draws
// those more often that surprised the learner (Schaul et al. 2016). Both fill a [Batch] that the caller owns, and neither
// Add nor Sample allocates.
//
// A learner's target is, for every row of a Batch,
//
//	y = Reward + Bootstrap * V(Next)
//
// Bootstrap is 0 where the task itself ended (terminated), and Discount otherwise, also where the episode was only cut short
// (truncated): the future that was not seen is worth something all the same (22-rl-checklist.md, items 1 to 3). Next is the
// true final observation, never that of the episode after.
//
// [NStep] stands between one environment and a buffer and makes of single steps longer ones: Reward is the discounted sum
// of up to n rewards, Discount the product of their discounts, gamma^k, and Next is k steps on (Sutton 1988; Hessel et al.
// 2018, "multi-step learning"). A Transition carries its Discount, so the learner does not care how long it is.
//
// All state, the random numbers too, is saved by MarshalBinary; a restored buffer goes on as if it had never stopped.
//
// # Schaul et al. 2016 (arXiv:1511.05952), proportional variant: our readings and departures
//
//  1. The priority of new transitions (algorithm 1, line 6) is the largest that any ever had, also after that one has been
//     overwritten. It is 1 at first, and so at least 1.
//  2. Importance weights are divided by the largest in the batch, as dqn_zoo does, and not by the largest that any
//     transition held could have: one row of tiny priority would make all updates small.
//  3. An index given by Sample names a place. When Add has overwritten it before Update, the newcomer gets the priority,
//     until it is sampled itself.
//
// # What this package leaves to others
//
// When to learn, with which loss, how beta grows, and how observations are normalised is the learner's. Trajectories that
// must outlive the process belong to the trajectory store. It imports the standard library only.
package replay
