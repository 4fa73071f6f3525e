// Package bench compares policies. Each policy controls the same application
// under the same load in the simulated world. Its score is the allocated CPU
// and whether it met the SLO.
//
// A [Cell] is an application with a trace; [Cells] returns the twelve cells of
// Autothrottle's evaluation. A [Choice] is a policy with its settings, which is
// the content of a policy file. [Run] runs a choice in a cell and returns a
// [Score]. [Tune] finds the settings of a baseline for a cell on the warm-up
// trace. A [Contest] runs every tuned baseline in every cell with several
// seeds. A [Joint] is a policy that decides for all services at once, such as
// one that another program serves; it is one more Choice by [Served].
//
// The main score of a run is the mean of the allocated cores. It counts only
// when the p99 over the whole hour meets the SLO; otherwise the run "violates"
// (Autothrottle, NSDI 2024, §5).
package bench
