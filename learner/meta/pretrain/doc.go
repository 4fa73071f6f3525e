// Package pretrain trains a meta-learner and a base-learner together over many workloads (AWARE §3.2, "Meta-learner
// training"): the loss of the base-learner is differentiated through the embedding, and the sum over the workloads of a
// batch moves the meta-learner. A workload's embedding is made of its own episodes only; nothing of another one is left in
// the recurrent layers (the hidden state is reset at a switch of workload).
//
// In its first episodes a workload is played by its guide ([Task]), since actions at random lead to nothing that a policy has to
// know; while those are most of what there is the actor imitates them, too (Config.Imitation). What a policy does in all
// workloads is learned from many of them in each update (Config.Spread), what tells them apart from a few (Config.Tasks), for the
// gradient through the recurrent layers takes as long as dozens of the other updates.
//
// The result is the mean of the parameters over the last rounds (Config.Averaged); the training goes on with its own. A mean of
// meta-learners makes other embeddings than each of them. So the last rounds can be the base-learner's alone (Config.Settled):
// there the meta-learner is the mean, and the policy learns what these embeddings say.
//
// The base-learner is DDPG or TD3 (package ddpg), in environments conditioned by [meta.Condition]; its own update is used
// as it is. Only the gradient of the critic's loss goes on into the meta-learner, as in PEARL (Rakelly et al. 2019): what a
// workload is worth is learned sooner and with less noise than what to do there. The paper feeds the embedding to the actor,
// and does not say which of the losses trains it. Whether a workload is known or not cannot be taught by leaving embeddings out:
// the actions in the data are those of policies that knew it, so that any action looks good to who does not.
package pretrain
