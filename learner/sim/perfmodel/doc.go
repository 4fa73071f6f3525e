// Package perfmodel holds the formulas that the simulator and its calibration share: how long work takes on so many CPUs, how
// much slower it is beside a noisy neighbour, and how fast a closed loop of clients is answered.
//
// # The story
//
// A run needs some CPU work and some waiting. [Work.Duration] says how long it takes under a CPU limit: the waiting (the
// floor) stays, the work is divided by the CPUs that it can use, and below its memory need the run fails ([ErrMemory]).
// Its neighbours press on what the cores of a node share; [Slowdown] says what that costs it. Those who ask are clients
// that wait for their answer before they ask again; [Loop] says how many requests a second they get done, and
// [Response] how long each of them waits for it (the interactive response-time law).
//
// # What this package leaves to others
//
// Every function is pure and knows no measured value: package calibrate fits the constants, the simulator uses them.
// Times are in seconds, CPUs in cores, rates in requests per second. It imports the standard library only.
package perfmodel
