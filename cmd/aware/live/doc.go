// Package live is one opted-in workload of a cluster as an environment of
// learner/gym. It is observed and moved through the API server, with a user's
// rights.
//
// Replicas and limits are read from the pods. All other signals are read from
// central's decisions, which are in the status of the MultidimPodAutoscaler. Each
// decision is read once; a step without a new decision knows replicas and limits
// only. The signals are as old as the decision: with a step as long as central's
// (10 s) they are partly of the time before the action.
//
// It moves the workload as central does, by plugins/autoscaling/updater:
// pods/resize and /scale. Only one autoscaler may move a workload. So the mode must
// be observe or recommend, no other autoscaler may have the workload, and both are
// checked before every action. Mode off is not enough, because central observes
// nothing then. At the end it restores the template's sizes and the first
// number of replicas.
package live
