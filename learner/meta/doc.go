// Package meta is AWARE's meta-learner (§3.2 of the paper; chapter 5 and appendix A.1 of the dissertation): it makes of the
// best episodes of a workload, and of its last ones, an embedding, a short vector that says what kind of workload it is. A
// base-learner that was trained on many workloads reads it beside the state, and so begins on a new workload as on a similar one
// that it knows.
//
// A [Config] is the shape: two bidirectional layers of gated recurrent units over the steps of an episode, the mean over
// the steps and over the episodes of a bundle (so their order does not matter), and two dense layers. A [Learner] is a
// network whose parameters are fixed, as they are while a base-learner adapts to a workload. Package pretrain trains one.
//
// A [Memory] is what is known of one workload: some of its episodes ([Kept]), and their embedding. [Condition] puts the embedding
// into the observations of an environment, so that any algorithm can be the base-learner; its actor and its critic both
// read it (the paper's feeds the actor). The embedding changes between episodes only.
//
// [Similarity] compares embeddings, and [Familiar] says whether a workload is like any of those that the meta-learner was
// trained on. If it is not, what is transferred to it is worth little.
//
// Departures from the paper. It embeds the M best episodes, of which none has the bursts that decide what a workload needs: half
// of them are the last ones here (FLASH takes the worst, which stay those of a policy that knew nothing). The mean is over the
// steps of an episode, where the paper takes the last output: a long episode then counts from its begin to its end, and padding
// of shorter ones is never read. The last layer is tanh, where the paper has a rectifier: what a base-learner reads is then
// bounded also for a workload that is unlike all others.
package meta
