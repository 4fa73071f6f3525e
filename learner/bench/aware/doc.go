// Package aware repeats the experiments of AWARE's evaluation (§2.3 and §5 of the paper) in the simulated world: how soon a
// learned policy adapts to a workload that it has not seen (fig. 8), what it is worth while it serves and the workload changes
// (fig. 9), what bootstrapping saves at the begin (fig. 10), what learning costs (fig. 3, table 3), a whole life (fig. 1), and
// what embeddings foretell (fig. 6; dissertation §5.6).
//
// A [Workload] is one of the thousand published applications, as one Deployment, under the load of a function of the Azure
// trace. Its agent sets replicas, CPU limit and memory limit every 10 s within their bounds, and earns AWARE's reward.
//
// An [Arm] is a way to begin: from nothing, from another workload's weights (TL), from these with more features (TL+), or from
// what the meta-learner was pretrained on (AWARE). All have the same algorithm, the same seeds and traces, and a beginner's
// settings, but for AWARE's, which learns in small steps ([Fine]). [Convergence.Adapt] trains one in a workload until it has
// converged (fig. 8).
//
// A [Drive] is an arm that drives a workload for some episodes (fig. 1, 9 and 10): HPA and VPA, an agent, or an agent that lives
// by Algorithm 1 with HPA and VPA as its fallback ([Life]). Episode i is the same one for all arms.
package aware
