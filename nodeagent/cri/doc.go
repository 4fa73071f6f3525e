// Package cri talks to the node's container runtime: it finds a container's cgroup,
// and changes its limits.
//
// [Client] is the connection to the runtime's socket. It never asks for
// ListContainerStats, which takes 163 ms for 100 containers: package cgroup reads
// the usage. [Limiter] stands before every change, for two reasons. A blocked
// UpdateContainerResources can stall containerd's ListContainers, and then the node
// becomes NotReady. And each change costs about 7 ms of CPU, because the runtime
// forks runc. The package does not decide on changes, and does not remember them.
package cri
