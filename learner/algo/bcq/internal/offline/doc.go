// Package offline is what learners from fixed data have in common: networks
// with their targets and optimisers, batches from a buffer to which nothing is
// added, counts of skipped updates, and saving all of it.
//
// The update itself is the caller's, in [Config].Update. [Learner.Learn] draws
// a batch, gives it to Update together with the learner's own random numbers,
// and counts. What a Learner saves is enough for another one to continue as if
// the first had never stopped, bit for bit: parameters, targets, Adam's means,
// the data with its random source, and two random sources.
//
// One random source is for learning and one for acting. So it makes no
// difference for what is learned how often an action is asked for in between.
package offline
