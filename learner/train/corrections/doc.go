// Package corrections lets algorithms learn corrections of the demand policy (package correct) in random worlds, and compares
// what they learned with the demand policy alone.
//
// # The environment
//
// An episode is a random world of an application ([margins.Random]: its warm-up trace from a random place at a random rate,
// speed, noise, and services whose work differs). The demand policy drives all services once a second, with
// the margins that come with aware and its error budget. An agent acts on one service, the lead: each [Settings].Step it
// takes a choice, a step of the lead's margin, of the level of all services, of the lead's replicas, or none. What the mask
// forbids is never taken.
//
// The reward is the application's: the mean over the windows of ten seconds of ln(used cores / cores in force), less a
// price where the window breaks the SLO (late, lost, no answers, a kill for memory, background work). What is saved on one
// service and paid by the others earns nothing. mdp's reward is not it: a window over costs so much there that the best
// correction of a law with an error budget is a larger margin. DQN found that: 5 % more cores, and 0.5 points fewer
// windows over, with 3.5 allowed.
//
// With a box of raw limits in the place of corrections (DDPG, the form of AWARE's paper) the agent sets
// the limits and the replicas of the lead through the API, behind central's guards, and the demand policy drives the others.
//
// # Which worlds are for what
//
// A world is used for one purpose ([Worlds]): training, which also chooses the best actor on the way; validation, which decides
// whether what was learned is used at all; and held-out worlds, by which nothing is decided. None of them is one by which the
// margins that come with aware were learned or chosen (package margins): the demand policy is as new to them as its corrections.
// Nothing of a cell's scored trace is in any of them: all are made of the warm-up trace.
//
// # The comparison
//
// [Evaluate] lets players play the same worlds, an hour of each, and gives the differences from the demand policy alone
// with their standard errors. An episode of training is half an hour, in which the error budget can be overdrawn for
// nothing; in an hour it is paid back in part. A correction is [Better] where it needs fewer cores, and neither memory nor
// late requests nor windows over the SLO nor violated worlds are more, each by more than twice the standard error.
// [Lowered] is a constant correction: what it saves needs no learning.
//
// [Validate] is the gate of a training: where the verdict is not Better, no correction is the result.
//
// # Offline
//
// [Batch] is discrete BCQ as a learner of package train: the demand policy drives, with a random choice now and then, and BCQ
// learns of the growing data. It never drives itself before it is judged.
package corrections
