package link

import "awarescale.dev/aware/learner/mdp"

// RoundTrip is a report as it arrives.
func RoundTrip(r mdp.Report) (mdp.Report, error) { return reportFromWire(reportToWire(r)) }
