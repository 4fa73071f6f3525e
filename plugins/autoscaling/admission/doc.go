// Package admission gives new pods the size that their workload's running pods have. It
// is a mutating admission webhook: the API server asks it about each new pod with the
// label awarescale.dev/managed=true, and it answers with a patch of the containers'
// resources, or with none.
//
// [Judge] decides, and is pure: a pod and what is known of its workload in, a [Verdict]
// out. It computes what the updater would write to pods/resize for the last decision
// ([updater.Wanted]). [Facts] come from the informers' cache ([Source]), so that every
// instance of central can answer, and no answer asks the API server. [Handler] is the HTTP
// part, and [Registration] tells the API server which certificate authority to trust.
//
// It is the third controller of AWARE's framework (ATC'23, section 4.1), beside the recommender
// and the updater: it takes what was decided from the object. We depart from the paper in that
// it sizes pods only where the updater moves the running ones (mode auto).
//
// It never denies a pod. A pod about which it is not sure starts with its template's size,
// and is resized by central's next step, as if there were no webhook.
//
// A pod that was sized says so in its managed fields, as one that was resized does
// (decision records 14 and 17). So it is restored when its workload opts out.
package admission
