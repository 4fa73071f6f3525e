// Package agent is the agent of one node. It decides which containers are managed,
// what is observed of them, what is done, and how often.
//
// Ten times a second a [Sampler] takes the CPU usage of each container; it reads those
// whose pods have run (idle.go). Once a second the State of each container is made from
// the last samples, a local policy decides, and an mdp.Loop carries out the decision
// through the container runtime: within the container's envelope, and as package cri's Limiter allows. Central
// grants what may be done with which container ([Agent.Apply]), and gets a report of
// the results ([Agent.Report]).
//
// A burst does not wait for a decision: the Sampler raises the CPU limit of a container
// that is throttled to its ceiling, in the sample that shows it (relief.go), as far as the step
// has allowed it (lane.go, armed.go), and the limit then comes down slowly (settling.go).
//
// What the limits come to in sum is reported, and is within the node's permit, as far as
// memory goes (permit.go).
//
// Every touched container is in the journal. It gets the API's values back when the
// agent ends, when central no longer grants it, when central has been silent for
// longer than its grants hold, and when a policy gives an illegal action. The
// kubelet always wins: the agent does not fight with anyone who changes a limit.
//
// The package knows no API server: pods come as [Pods], and the caller talks to
// central. [Agent.Run] owns the goroutines and the clock. It calls [Agent.Start],
// [Agent.Sample], [Agent.Step] and [Agent.Restore], which take the time as an
// argument.
//
// A step is in parts: order.go (what the grants come to for a container), step.go
// (decide), act.go, container.go (what is in force, and who set it) and report.go.
// claim.go sets and restores limits; what of them is ours is package restore's
// Ownership. orphans.go restores containers that are not managed, and pod.go says
// what a container's pod has room for.
package agent
