// Package train lets a learner learn in environments: steps, evaluations, checkpoints, a curve.
//
// # The story
//
// A [Run] joins a [Learner] with a vector of environments. [Run.Go] takes steps until there are enough: the learner explores,
// the environments answer, the learner learns. Now and then the actor as it is, without exploration, is evaluated on episodes
// of its own, and the best one so far is kept ([Config].Evaluate); a checkpoint is written ([Run.Save]), from which another Run
// goes on as if the first had never stopped, bit for bit ([Run.Restore]).
//
// The figure of a run is the mean return of 100 episodes that nobody has seen, by the actor that was kept, without
// exploration ([Run.Final]).
//
// # What it leaves to others
//
// What is learned and how: the algorithms. Time, files and progress: the caller's.
package train
