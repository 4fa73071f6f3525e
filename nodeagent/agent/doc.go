// Package agent is the loop of one node: which containers, what is seen of them, what is done, how often.
//
// Ten times a second a [Sampler] reads what each container uses of the processor; once a second every container's
// State is made of the last samples, a local policy decides, and an mdp.Loop carries it out through the container
// runtime, within the container's envelope and under package cri's discipline. Central says what may be done with
// which container ([Agent.Apply]) and is told what came of it ([Agent.Report]).
//
// Everything that was touched is in the journal, and goes back to its API values when the agent ends, when a
// container is no longer central's to give, when central has been silent for longer than its word holds, or when a
// policy gives what is no action. The kubelet always wins: whoever else changes a limit is not fought with.
//
// The package knows no API server: pods come as [Pods], and who speaks with central is the caller. [Agent.Run] owns the
// goroutines and the clock; [Agent.Start], [Agent.Sample], [Agent.Step] and [Agent.PutBack] take the time as an
// argument, and are what Run calls.
package agent
