// Package bench judges policies: each drives the same application under the same load in the simulated world, and is
// scored by the CPU it held and the objective it kept.
//
// A [Cell] is an application under a trace; [Cells] are the twelve of Autothrottle's evaluation. A [Choice] is a policy with
// its settings, which is what a policy file holds. [Run] lets one drive the other and gives a [Score]. [Tune] finds each
// baseline's settings for a cell on the warm-up trace; [Anchors] runs every baseline, tuned, in every cell and over several
// seeds.
//
// The score of a run is its mean of allocated cores, and counts only when the p99 over the whole hour meets the objective;
// otherwise the run "violates" (Autothrottle, NSDI 2024, §5).
package bench
