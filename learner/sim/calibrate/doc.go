// Package calibrate asks whether the simulator's formulas agree with measurements that nobody here made.
//
// # The story
//
// Four public data sets are read ([Data]). For each, the constants of the formulas in package law are fitted to one part,
// and the part that was not fitted is predicted; [Validate] gives the errors and the constants ([Result]). [Report] draws
// predicted against measured and writes the pages that "aware bench validate" leaves behind.
//
//   - Closed loop: the p99 of an application from its load and its services' allocations, as in Cilantro (OSDI 2023). Held
//     out: a random fifth, five times over (random), and each policy in turn (by_policy).
//   - Time: how long a function runs from its CPU and memory limits, as in ChunkFunc and on AWS Lambda. Held out: a fifth of
//     a function's sizes, five times over, the smallest and the largest among them; and, asked separately, each CPU limit.
//   - Interference: how much slower a workload is beside an iBench kernel, as several teams measured it. Held out: each
//     team in turn. Its own runs without interference, and nothing else of it, are its base.
//
// # Rules
//
// A held-out measurement never touches the fit that predicts it; a test changes them all and sees the same predictions.
// A p99 is predicted from the load and the allocations alone: the measured mean latency is read in the fitting part only,
// to fit the number of clients. No row sees the rows before it. No name of a policy, service, function or team is known
// here. What is dropped is counted and said.
//
// # What the figures do not say
//
// The form of the models and the constants of the method were chosen with these data sets in view; only the coefficients
// are blind to what is held out. The windows of a policy are a time series, so a random fifth has neighbours with the same
// allocation among the fitted ones, which the local correction uses: random is the easier question, by_policy the honest
// one. Of some saturated windows the p99 is far below their own mean; no allocation or load explains those, and since the
// figures of the closed loop are medians and ranks they do not show how far off the predictions for them are.
//
// # What this package leaves to others
//
// The formulas are package law's. Simulating is package sim's, which takes its constants from here. Nothing here knows of
// Kubernetes.
package calibrate
