// Package cri speaks with the node's container runtime: where a container's cgroup is, and to change its limits.
//
// [Client] is the runtime's socket. It never asks for ListContainerStats (163 ms for 100 containers): figures are
// package cgroup's. [Discipline] stands before every change, because a blocked UpdateContainerResources can stall
// containerd's ListContainers and turn the node NotReady, and because each change costs some 7 ms of CPU (the runtime
// forks runc). What a change should be is for others to say; so is remembering it.
package cri
