// Package sim is the simulated world: an application of services on the nodes of a cluster, in virtual time. It is a third
// pair of Sensor and Actuator beside the cgroup and the API server, so the production Loop, guards and policies run in it
// unchanged, and thousands of hours of autoscaling pass in minutes.
//
// # The story
//
// An [App] is a call graph: clients ask for endpoints, endpoints are operations of services, and operations call others, in
// stages, at once, or in the background. A [World] puts its services on a [Cluster] as replicas with a CPU limit, a memory
// limit, threads and processors, and lets a [Load] ask of them. Through a [Handle] one looks at a service and acts on it.
//
// What real measurements say that such a world must have, it has: service time is a floor and work over the CPUs that the
// work can use; CFS takes the CPU away when the quota of a period of 100 ms is used up, which is what hurts the tail; what
// is not done in one period waits for the next; replicas start cold; actions take their time, and metrics come late; memory
// beyond the limit kills; nodes are full at some time; neighbours share caches, memory bandwidth, disk and network; and
// FIRM's seven anomalies can be injected.
//
// # Two levels
//
// [Requests] follows every request. [Fluid] moves work in slices of 100 ms, some hundred times faster, and estimates the
// tail from a few sample requests; a test holds it to the other level on random services and graphs. Everything but the
// way of requests through replicas is the same code.
//
// # What it leaves to others
//
// Where applications and loads come from (package workload), how the constants were found and how far the world is from
// what was measured (package calibrate), and who decides (learner/heuristic and the learners). It has no clock, no
// goroutine and no file. With the same Config and calls a World does the same, bit for bit.
//
// # Departures from a real cluster
//
//  1. Requests that wait for a processor get it in order of arrival, and keep it until their work is done or the quota is
//     used up: a request's work is of the order of one scheduling slice of the kernel (3 ms).
//  2. CFS periods of all containers begin together.
//  3. Calls between services take no CPU time of a mesh and no network time but what an operation's Wait says.
//  4. A retry is not simulated; a request that is given up counts as one that took the timeout.
package sim
