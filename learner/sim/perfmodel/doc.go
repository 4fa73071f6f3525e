// Package perfmodel contains the formulas that the simulator and its
// calibration share: the duration of work under a CPU limit, the slowdown by a
// noisy neighbour, and the throughput and latency of a closed loop of clients.
//
// # The story
//
// A run consists of CPU work and waiting. [Work.Duration] is its duration under
// a CPU limit: the waiting time (the floor) is constant, and the work is
// divided by the CPUs that it can use. With less memory than it needs the run
// fails ([ErrMemory]). Neighbours use the shared resources of a node;
// [Slowdown] is the effect on the run. Each client waits for its answer before
// it sends the next request; [Loop] computes the throughput, and [Response] the
// mean latency (the interactive response-time law).
//
// # What this package leaves to others
//
// Every function is pure and contains no measured value. Package calibrate fits
// the constants, and the simulator uses them. Times are in seconds, CPUs in
// cores, rates in requests per second. It imports the standard library only.
package perfmodel
