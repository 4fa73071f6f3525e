// Package workload owns what a simulated world is asked to run: applications, and the traces of requests that come to them.
//
// There are two kinds of applications. Three are drawn after public microservice benchmarks, as YAML in folder apps that
// [NamedApp] and [Read] turn into a [sim.App]: hotel-reservation, social-network and train-ticket. A thousand are those of
// AWARE (dissertation §5.5.1): a service whose request runs one to three of 16 [Segment]s in a row. [Compositions] are the
// ones that the paper's authors drew, [Generate] draws others in the same way, [Split] divides them into those to pretrain
// on and those never seen, and an [Update] changes one as its developers would (§2.3 of the paper, Insight 5.2 of the
// dissertation).
//
// A [Trace] is a rate of requests over time. [Named] and [Azure] have real ones that are compiled in, [Open] reads
// one from a file, and the generators ([Diurnal], [Bursty] and others) make one from a seed.
//
// What of this was measured, what was derived and what was chosen is said where the figure stands. The package leaves to
// package sim what an application does with its requests.
package workload
