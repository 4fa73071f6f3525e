package central_test

import (
	"errors"
	"testing"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/policy/learned"
)

// likes is a learned policy of central's that likes one choice, whatever it sees.
func likes(t *testing.T, choice string) *learned.Policy {
	t.Helper()
	form := central.Form()
	mlp := kernel.NewMLP(kernel.ReLU, kernel.Linear, form.Dim(), 2, form.NumActions())
	theta := make([]float64, mlp.Params())
	for i, name := range form.Names() {
		if name == choice {
			theta[len(theta)-form.NumActions()+i] = 1
		}
	}
	p, err := central.Learned(learned.File{
		Form: form, Step: 10 * time.Second,
		Snapshot: kernel.Snapshot{Version: 1, MLP: mlp, Theta: theta, Head: kernel.Head{Kind: kernel.Argmax}},
	}, encode.Place{Bounds: mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 8}, CPU: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 4000},
		Memory:      mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 1024 * mdp.MiB},
		Reservation: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 4000},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A learned policy that wants nothing but less memory does not stop at the guards: what they hold back is not asked for in each
// step.
func TestALearnedPolicyMovesOnAtTheGuards(t *testing.T) {
	p := likes(t, "memory-limit x0.8")
	s := mdp.State{
		Observed: mdp.ReservedKnobs | mdp.SetOf(mdp.Throughput, mdp.LoadPeak), Replicas: 2, Reservation: 500, Ceiling: 1000,
		Limit: mdp.Size{Memory: 512 * mdp.MiB},
	}
	for step := range 4 {
		a, err := p.Decide(s)
		if err != nil {
			t.Fatal(err)
		}
		if a.Sets.Has(mdp.MemoryLimit) != (step%2 == 0) {
			t.Errorf("step %d: %v", step, a)
		}
	}
	known := s.Observed
	for _, one := range []mdp.Signal{mdp.LoadPeak, mdp.Throughput} { // of a new workload, and of new pods
		s.Observed = known.Without(mdp.SetOf(one))
		var unknown *mdp.UnknownError
		if a, err := p.Decide(s); !errors.As(err, &unknown) || unknown.Missing != mdp.SetOf(one) {
			t.Errorf("%v (%v): it does not know %v", a, err, one)
		}
	}
}

// Beside the rule it adds no replica in a burst that nine tenths of the ceilings carry.
func TestALearnedPolicyLeavesBurstsToTheirCeilings(t *testing.T) {
	p := likes(t, "replicas +1")
	s := mdp.State{
		Observed: mdp.ReservedKnobs | mdp.SetOf(mdp.Throughput, mdp.LoadPeak, mdp.CPUUsage, mdp.CPUCeiling, mdp.CPUBurst), Replicas: 2,
		Reservation: 280, Ceiling: 900, Limit: mdp.Size{Memory: 64 * mdp.MiB}, Usage: mdp.Size{CPU: 390}, CPUBurst: 810,
	}
	if a, err := p.Beside(s, mdp.Action{}); err != nil || a != (mdp.Action{}) {
		t.Errorf("%v (%v): the ceilings carry the burst", a, err)
	}
	s.CPUBurst = 811
	if a, err := p.Beside(s, mdp.Action{}); err != nil || a != (mdp.Action{}).WithReplicas(3) {
		t.Errorf("%v (%v): they do not", a, err)
	}
}
