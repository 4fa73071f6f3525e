// Package workload makes environments of a workload's decision process,
// simulated or real.
//
// There are two levels. An [Environment] speaks the words of mdp: State in,
// Action out. A [Joint] is several services that step together; [OfApplication]
// makes one of a whole simulated application. The gym serves both to
// researchers. An [Encoded] is an Environment
// in numbers, an env.Env: states become vectors and choices become Actions by
// package encode, so that any learner can be trained in it (`aware train --env
// sim:social-network/bursty`).
//
// A step is: the proposed Action passes the guards, the actuator carries out
// what is left of it, time passes, the sensor looks, and the objective judges.
// The guards are guard.Standard, the chain that central and the node agent use,
// with one of its named settings. What took force may differ from what was
// proposed; an Encoded says both what it was (as the nearest choice) and with
// which Effect.
//
// Episodes end by time only: they are truncated and never terminated. With the
// load of [Anywhere], as in [Make] and in the gym, an episode begins at a random
// second of its trace. No State says at which: time counts from sim.Epoch in each
// episode. A simulated episode is saved and restored exactly.
package workload
