// Package calibrate compares the simulated world and its formulas with
// measurements that others have published.
//
// # The story
//
// It reads four public data sets ([Data]). For each, it fits constants to one
// part of the data, and predicts the other part. [Validate] computes the errors
// and the constants ([Result]); [Fit] the constants of an application. The
// report plots predicted against measured values and writes the pages of "aware
// bench validate". docs/validation.md says what the figures mean.
//
//   - World: the p99 and the completed rate of an application in [sim.World],
//     from the offered load and the allocations of its services, as in Cilantro
//     (OSDI 2023), with Cilantro's client. Held out: each policy in turn.
//     Beside it stand a constant, nearest neighbours and the formula of the
//     fit.
//   - Regression: the p99 of the same windows from the completed rate. Held
//     out: a random fifth, five times (random), and each policy in turn
//     (by_policy).
//   - Time: the duration of a function from its CPU and memory limits, as in
//     ChunkFunc and on AWS Lambda. Held out: a fifth of a function's sizes,
//     five times, including the smallest and the largest; and, separately, each
//     CPU limit.
//   - Interference: the slowdown of a workload with an iBench kernel as its
//     neighbour, as several teams have measured it. Held out: each team in
//     turn. The prediction uses the team's own runs without interference, and
//     no other runs of this team.
//
// # Rules
//
// A held-out measurement never affects the fit that predicts it. Tests change
// all held-out values and check that the predictions stay the same. The world
// sees the offered load and the allocation, nothing that came out of the window.
// The regression sees the completed rate, and is no prediction of what an
// allocation does. The prediction of a row does not use earlier rows. The code
// contains no name of a policy, service, function or team; only the client is
// Cilantro's. Dropped rows are counted and reported.
//
// # Limits of the results
//
// The form of the models and the constants of the method were chosen with
// knowledge of these data sets; only the coefficients are independent of the
// held-out part. The windows of a policy are a time series, so a random fifth
// has neighbours with the same allocation in the fitted part, which the local
// correction uses. Therefore random is the easier test, and by_policy is the
// more realistic one. In some saturated windows the p99 is far below the mean
// of the same window; no allocation or load explains these. The results of the
// closed loop are medians and ranks, which do not show the size of the errors
// in these windows.
//
// # What this package leaves to others
//
// Package perfmodel contains the formulas. Package sim simulates, and package
// workload has the applications. This package does not depend on Kubernetes.
package calibrate
