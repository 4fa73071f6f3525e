// Package cgroup reads and writes the control groups of containers, in cgroup
// v1 and v2.
//
// A [Tree] is a mounted hierarchy. Its root is a parameter, so it can be a
// directory of plain files. It turns the cgroupsPath that the container runtime
// knows into a path below the root. A [Group] is one container's group with its
// files open: a reading is a pread into a buffer that is reused, and a parse
// that allocates nothing. An agent reads every container of its node ten times
// a second. (CRI's ListContainerStats takes 163 ms for 100 containers; open
// descriptors take 0.8 ms for 220.)
//
// What the kernel does not have is not observed ([Figures]); it is never zero. A group
// that was removed is [ErrGone].
//
// The package writes limits only for tests, for restores when the container
// runtime does not answer, and for the opt-in direct path ([Tree.Write]). The
// runtime does not know of such a write, and reverts it with its next update.
// Other packages decide which containers, how often and how far.
package cgroup
