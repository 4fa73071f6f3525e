package static_test

import (
	"errors"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/heuristic/static"
)

var three = static.Config{Replicas: 3, Size: mdp.Size{CPU: 500, Memory: 256 * mdp.MiB}}

func TestStaticIsAPolicy(t *testing.T) {
	for name, c := range map[string]static.Config{
		"all":      three,
		"replicas": {Replicas: 2},
		"cpu":      {Size: mdp.Size{CPU: 100}},
		"nothing":  {},
	} {
		t.Run(name, func(t *testing.T) { mdptest.Policy(t, func() mdp.Policy { return static.New(c) }) })
	}
}

func state(replicas int, cpu mdp.MilliCPU, memory mdp.Bytes) mdp.State {
	return mdp.State{At: time.Unix(0, 0), Observed: mdp.LimitKnobs, Replicas: replicas, Limit: mdp.Size{CPU: cpu, Memory: memory}}
}

func TestOnlyChangedKnobsAreReset(t *testing.T) {
	p := static.New(three)
	for _, c := range []struct {
		name string
		s    mdp.State
		want mdp.Action
	}{
		{"all is as it should be", state(3, 500, 256*mdp.MiB), mdp.Action{}},
		{"a replica is gone", state(2, 500, 256*mdp.MiB), mdp.Action{}.WithReplicas(3)},
		{"the CPU limit was lowered", state(3, 400, 256*mdp.MiB), mdp.Action{}.WithCPU(500)},
		{"the memory limit was raised", state(3, 500, 512*mdp.MiB), mdp.Action{}.WithMemory(256 * mdp.MiB)},
		{
			"the memory limit is unknown", state(2, 500, 0).Mask(mdp.SetOf(mdp.Replicas, mdp.CPULimit)),
			mdp.Action{}.WithReplicas(3),
		},
	} {
		if a, err := p.Decide(c.s); err != nil || a != c.want {
			t.Errorf("%s: %v (%v), want %v", c.name, a, err, c.want)
		}
	}
}

func TestUncontrolledKnobsAreNotSet(t *testing.T) {
	p := static.New(static.Config{Size: mdp.Size{CPU: 500}})
	if a, err := p.Decide(state(7, 100, mdp.MiB)); err != nil || a != (mdp.Action{}.WithCPU(500)) {
		t.Errorf("action = %v (%v), want the CPU limit alone", a, err)
	}
	var unknown *mdp.UnknownError
	if _, err := p.Decide(state(7, 100, mdp.MiB).Mask(mdp.SetOf(mdp.Replicas))); !errors.As(err, &unknown) {
		t.Errorf("without the CPU limit: err = %v, want an UnknownError", err)
	}
}

func TestErrorNamesTheWrongSetting(t *testing.T) {
	if err := (static.Config{Replicas: -1}).Check(); err == nil ||
		err.Error() != "static replicas -1: it must not be below zero" {
		t.Errorf("err = %v", err)
	}
	if err := (static.Config{}).Check(); err == nil {
		t.Error("a config that holds nothing passed")
	}
	if err := three.Check(); err != nil {
		t.Error(err)
	}
}
