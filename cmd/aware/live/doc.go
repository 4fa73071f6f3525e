// Package live is one opted-in workload of a cluster, seen and moved with a user's rights through the API server, as an
// environment of learner/gym.
//
// It sees what the API server has: replicas and limits from the workload's pods, and the figures of the nodes' agents as
// far as central tells them in the MultidimPodAutoscaler's status with each of its decisions: CPU and memory in use, the peak of
// CPU, throttling, latency and throughput. Each decision's figures are taken once; a step in which central decided nothing new
// knows only replicas and limits. They are as old as the decision, so with a step as long as central's (10 s) they are partly of
// the time before the action. Pressure, I/O, deviations and OOM kills are not in the status and stay unknown.
//
// It moves the workload as central does, by plugins/autoscaling/updater: pods/resize and /scale. Two must not move one
// workload, so its mode must be observe or recommend, nothing else may autoscale it, and both are looked at before every
// action. Mode off will not do either: then central reads nothing. At the end sizes are the template's again, and replicas what
// they were at the beginning.
package live
