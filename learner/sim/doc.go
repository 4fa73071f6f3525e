// Package sim is the simulated world: an application of services on the nodes
// of a cluster, in virtual time. It implements Sensor and Actuator, as the
// cgroup and the API server do. The production Loop, guards and policies run in
// it unchanged, and it simulates thousands of hours of autoscaling in minutes.
//
// # The story
//
// An [App] is a call graph. Clients call endpoints, endpoints are operations of
// services, and operations call other operations: in sequence, in parallel, or
// in the background. A [World] places the services on a [Cluster] as replicas
// with a CPU limit, a memory limit, threads and processors. A [Load] gives the
// request rate. A [Handle] gives access to the sensor and the actuators of a
// service.
//
// The world reproduces what real measurements show:
//
//   - Service time is a constant part plus CPU work divided by the CPUs that
//     the work can use.
//   - CFS stops a container when the quota of a period of 100 ms is used up.
//     This is the main cause of high tail latency.
//   - Work that is not done in one period waits for the next period.
//   - Replicas need time to start, actions need time to take effect, and
//     metrics are delayed.
//   - A container above its memory limit is killed.
//   - Nodes can be full.
//   - Neighbours share caches, memory bandwidth, disk and network.
//   - FIRM's seven anomalies can be injected.
//
// # Two levels
//
// [Requests] simulates every request. [Fluid] simulates amounts of work in
// slices of 100 ms, and estimates latencies from 256 sample requests of each
// operation and window. It is 8 times as fast in social-network and train-ticket
// and 70 times in hotel-reservation, which has more requests. Tests compare both
// levels on random services and graphs, and make bench-sim does so under the
// bench's rules. They share all code except the path of requests through replicas.
//
// # A world is saved and restored
//
// [World.Save] returns all state of a world, [Restore] makes the same world of
// it, and both go on alike, bit for bit. A state of another Config is refused.
// Each struct lists its fields once, in a method state that writes and reads
// them.
//
// # What it leaves to others
//
// Package workload provides applications and loads. Package calibrate compares
// the world with measurements, and fits what these determine. Policies and
// learners decide. Package sim has no clock, no goroutine and no file. The same
// Config and the same calls give the same result, bit for bit.
//
// # Departures from a real cluster
//
//  1. Requests that wait for a processor get it in order of arrival. They keep
//     it until their work is done or the quota is used up. A request's work is
//     about as long as one scheduling slice of the kernel (3 ms).
//  2. The CFS periods of all containers start at the same time.
//  3. Calls between services use no CPU time of a service mesh. Their network
//     time is part of the Wait of an operation.
//  4. Retries are not simulated. A request that fails counts with a latency
//     equal to the timeout.
package sim
