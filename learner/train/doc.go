// Package train trains a learner in environments: steps, evaluations,
// checkpoints, a learning curve.
//
// # The story
//
// A [Run] joins a [Learner] with a vector of environments, which a factory
// makes. [Run.Train] takes steps: the learner explores, the environments
// answer, the learner learns. At intervals ([Config].Evaluate) the actor is
// evaluated without exploration, on episodes of their own, and the best one so
// far is kept. [Run.Save] is a checkpoint from which another Run continues as
// if the first had never stopped, bit for bit ([Run.Restore]). [Run.Stats] says
// what could not be learned from, and the present learning rate.
//
// The result of a run is the mean return of 100 episodes that neither training
// nor evaluation has used, by the best actor, without exploration
// ([Run.Final]).
//
// # What it leaves to others
//
// What is learned and how belongs to the algorithms; time, files and progress
// to the caller.
package train
