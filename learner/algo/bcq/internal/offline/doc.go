// Package offline is what learners from fixed data have in common: networks with their targets and optimisers, batches that
// are drawn from a buffer nobody adds to, updates that are refused, and all of it at rest.
//
// What is learned is the caller's, in [Config].Update: [Learner.Learn] draws a batch, gives it to Update together with the
// learner's own random numbers, and counts. What a Learner saves is enough for another one to go on as if the first had
// never stopped, bit for bit: parameters, targets, Adam's means, the data with its random source, two random sources.
//
// One source is for learning and one for acting, so that it changes nothing in what is learned how often, or whether, somebody
// asks for an action in between.
package offline
