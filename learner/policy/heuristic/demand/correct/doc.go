// Package correct corrects the demand policy: its margin, the application's level and the number of replicas, in discrete
// steps within bounds (encode.Corrections). Who chooses the steps is a network, in [Serve], or the caller, as a learner's
// environment is; the code beneath is the same.
//
// The demand policy decides each second, or each period. Once an interval, [Interval] says what was seen in it, and one choice is
// made: a step of one correction, or none. Corrections are added to margin and level:
//
//	z = exp(margin + level + LevelStep * Correction.Level + MarginStep * Correction.Margin)
//
// Without a correction the policy is the demand policy, bit by bit. A correction of the level is one of all services of an
// application: the caller gives [Policy.Shift] to the others.
package correct
