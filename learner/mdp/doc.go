// Package mdp is AWARE's vocabulary: the autoscaling of a workload as a Markov
// decision process, in the words of Kubernetes.
//
// # The story
//
// A workload has replicas, and each replica has a [Size]: a CPU limit and a
// memory limit. Every few seconds a [Sensor] looks at the workload and gives a [State]:
// what the workload may use, what it uses, how fast it answers. Not everything
// can be measured every time, so a State carries a [Set] of the signals that
// were observed. A signal outside of the set is unknown; it is never zero.
//
// An [Objective] says what the owner of the workload wants: a service-level
// objective ([SLO]), and its weight against efficiency. It gives a State its [Reward].
//
// A [Policy] turns a State into an [Action]: how many replicas, of which size.
// Like a State, an Action knows which of its fields it sets. Bounds and guards
// clip it and keep the reason ([Clips]). An [Actuator] carries it out and says
// what it set and with which [Effect].
//
// State, executed Action, Reward and next State make a [Transition]; an episode
// of them is a [Trajectory]. Learners learn from these. Autoscaling never ends
// by itself, so an [EpisodeClock] cuts the process into episodes: they are
// truncated, never terminated.
//
// [Loop] joins the parts: sense, judge, decide, act. The same Loop drives a
// container through its cgroup, a Deployment through an API server, and a
// simulated cluster. Each of these worlds is a pair of a Sensor and an
// Actuator.
//
// # The tables
//
// Signals and knobs are rows of two tables ([Signals], [Knobs]): name, unit,
// how to get and set them, how replicas merge, how to compare and clip. The
// wire, the stores, the encoders, the guards, the gym, the status and the
// conformance suites walk over the tables. A new signal is a constant, a field,
// and a row in signal.go, and whoever measures it.
//
// # Glossary
//
// These terms are used in all packages, with one meaning.
//
//	action         what a policy wants: absolute values of knobs
//	bounds         the interval of each knob that is allowed: an owner's constraints, or a container's envelope
//	ceiling        CPU that a replica may burst to at once: its limit in the API
//	central        the aware-central binary: scheduler plugins, autoscaling controllers, learners
//	effect         what an actuator did with an action
//	encoding       how states and actions become numbers for a network
//	envelope       the bounds of one container on its node
//	episode        a fixed number of steps of a workload, cut by time
//	executed       the action that took force, after guards and actuator
//	fallback       the rule that decides when the policy cannot
//	grant          what central lets a node do with one container, for a time to live
//	guard          a check between a policy and an actuator
//	knob           a signal that an action can set: replicas, CPU limit, memory limit, CPU reservation
//	legal          a choice or an action that can be carried out and changes something
//	limit          what the kernel enforces on a container: the limit in force, beneath the ceiling
//	observed       measured in this step; the opposite is unknown
//	policy         decides: a rule (heuristic) or a network (learned)
//	reservation    CPU that scheduling keeps for a replica: its request in the API
//	restore        bring a container back to its API values
//	reward         what a state is worth to its owner
//	signal         one measured value of a workload
//	SLO            service-level objective: a latency percentile, a throughput
//	snapshot       a network as it is served
//	step           one pass of the loop: 10 s on central, 1 s on a node
//	world          a sensor and an actuator: simulated cluster, cgroup tree, API server
//
// # What this package leaves to others
//
// It has no clock, no goroutine, no randomness and no file: time is an
// argument. It imports the standard library only, and everything above it
// imports it.
//
// The process follows AWARE (ATC'23, section 2.2). Where FIRM (OSDI'20) and
// SIMPPO (SoCC'22) differ, the comment at the type says so.
package mdp
