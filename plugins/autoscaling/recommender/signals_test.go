package recommender

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

func TestInputsLeaveOutWhatWasNotObserved(t *testing.T) {
	if got := Inputs(mdp.State{Observed: mdp.SetOf(mdp.Replicas), Replicas: 2, Latency: time.Second}); got != "replicas=2" {
		t.Errorf("inputs %q", got)
	}
	if got := Inputs(mdp.State{}); got != "nothing observed" {
		t.Errorf("inputs %q", got)
	}
}
