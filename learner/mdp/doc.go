// Package mdp is AWARE's vocabulary: a workload's autoscaling written as a Markov decision
// process, in the words of Kubernetes.
//
// # The story
//
// A workload has replicas, and each replica has a [Size]: a CPU limit and a memory limit. Every
// few seconds somebody looks at it and writes down a [State]: what it is given, what it uses,
// how fast it answers. Not everything can be seen every time, so a State carries a [Set] of the
// signals that were really observed; a signal outside the set is unknown, never zero.
//
// An [Objective] says what its owner wants: a service-level objective ([SLO]) and how much it
// weighs against efficiency. With it a State is worth a [Reward].
//
// A [Policy] turns a State into an [Action]: so many replicas, of such a size. An Action, like
// a State, knows which of its fields it sets. Bounds and guards clip it and keep the reason
// ([Clips]). An [Actuator] carries it out and tells what came of it ([Effect]).
//
// State, Action, Reward and next State make a [Transition]; an episode of them is a
// [Trajectory], which is what learners learn from. Autoscaling never ends by itself, so an
// episode is truncated by time and never terminated.
//
// [Loop] joins the parts: sense, judge, decide, act. The same Loop drives a container through its
// cgroup, a Deployment through an API server, and a simulated cluster: each of these worlds is a
// pair of a [Sensor] and an [Actuator].
//
// # What this package leaves to others
//
// It has no clock, no goroutine, no randomness and no file: time is an argument. It imports the
// standard library only, and everything above it imports it.
//
// The process follows AWARE (ATC'23, §2.2); where FIRM (OSDI'20) and SIMPPO (SoCC'22) differ the
// comment at the type says so.
package mdp
