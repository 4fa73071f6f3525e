// Package workload provides applications and request traces for simulated
// worlds.
//
// There are two kinds of applications. Three are modelled on public
// microservice benchmarks: hotel-reservation, social-network and train-ticket.
// They are YAML files in the folder apps, which [NamedApp] and [Read] convert
// to a [sim.App]. A thousand are AWARE's synthetic applications (dissertation
// §5.5.1): an entry service whose requests call one to three of 16 [Segment]s in
// sequence, each a service. [Compositions] returns the published applications, [Generate]
// creates others in the same way, [Split] divides them into a part for
// pretraining and an unseen part, and an [Update] changes an application as its
// developers would (§2.3 of the paper, Insight 5.2 of the dissertation).
//
// A [Trace] is a request rate over time. [Named] and [Azure] return real traces
// that are compiled in, [Open] reads a trace from a file, and the generators
// ([Diurnal], [Bursty] and others) create one from a seed.
//
// Comments next to the values state whether they are measured, derived or
// chosen. Package sim simulates the applications.
package workload
