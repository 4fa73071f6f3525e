// Package calibrate compares the simulator's formulas with measurements that
// others have published.
//
// # The story
//
// It reads four public data sets ([Data]). For each, it fits the constants of
// the formulas in package perfmodel to one part of the data, and predicts the
// other part. [Validate] computes the errors and the constants ([Result]). the
// report plots predicted against measured values and writes the pages of "aware
// bench validate".
//
//   - Closed loop: the p99 of an application from its load and the allocations
//     of its services, as in Cilantro (OSDI 2023). Held out: a random fifth,
//     five times (random), and each policy in turn (by_policy).
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
// A held-out measurement never affects the fit that predicts it. A test changes
// all held-out values and checks that the predictions stay the same. A p99 is
// predicted from the load and the allocations only. The measured mean latency
// is used only in the fitted part, to fit the number of clients. The prediction
// of a row does not use earlier rows. The code contains no name of a policy,
// service, function or team. Dropped rows are counted and reported.
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
// Package perfmodel contains the formulas. Package sim simulates, with
// constants from here. This package does not depend on Kubernetes.
package calibrate
