package guard_test

import (
	"errors"
	"testing"
	"testing/quick"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/guard"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func wants(a mdp.Action) mdp.Policy {
	return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return a, nil })
}

func at(cpu mdp.MilliCPU, memory mdp.Bytes) mdp.State {
	return mdp.State{At: noon, Observed: mdp.Knobs | mdp.SetOf(mdp.MemoryUsage, mdp.Latency),
		Replicas: 3, Limit: mdp.Size{CPU: cpu, Memory: memory}, Usage: mdp.Size{Memory: memory / 2}, Latency: 10 * time.Millisecond}
}

func TestEveryGuardIsAPolicy(t *testing.T) {
	follow := mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		if err := s.Require("follow", mdp.CPUUsage, mdp.MemoryUsage); err != nil || s.Usage.CPU <= 0 || s.Usage.Memory <= 0 {
			return mdp.Action{}, err
		}
		return mdp.Action{}.WithCPU(s.Usage.CPU).WithMemory(s.Usage.Memory), nil
	})
	bounds := mdp.Bounds{Replicas: mdp.Range[int]{Min: 1, Max: 3}, CPU: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 500},
		Memory: mdp.Range[mdp.Bytes]{Min: mdp.MiB, Max: 200 * mdp.MiB}}
	for name, make := range map[string]func() mdp.Policy{
		"Bound":             func() mdp.Policy { return guard.Bound(follow, func() mdp.Bounds { return bounds }) },
		"Pace":              func() mdp.Policy { return guard.Pace(follow, guard.DefaultSteps) },
		"HoldSLO":           func() mdp.Policy { return guard.HoldSLO(follow, mdp.SLO{Percentile: 99, Latency: time.Second}) },
		"HeadroomOverUsage": func() mdp.Policy { return guard.HeadroomOverUsage(follow, 1.25) },
		"Fallback":          func() mdp.Policy { return guard.Fallback(follow, wants(mdp.Action{})) },
	} {
		t.Run(name, func(t *testing.T) { mdptest.Policy(t, make) })
	}
}

func TestNoStepIsLargerThanAllowed(t *testing.T) {
	law := func(now, want uint16) bool {
		s := at(mdp.MilliCPU(now)+10, 100*mdp.MiB)
		a, err := guard.Pace(wants(mdp.Action{}.WithCPU(mdp.MilliCPU(want)+1)), guard.DefaultSteps).Decide(s)
		return err == nil && a.Limit.CPU <= 2*s.Limit.CPU && a.Limit.CPU >= s.Limit.CPU*8/10 &&
			(a.Limit.CPU != mdp.MilliCPU(want)+1) == (a.Clipped != 0)
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
}

func TestMemoryShrinksOnceAMinuteAndNeverNearItsUse(t *testing.T) {
	p := guard.HeadroomOverUsage(guard.Pace(wants(mdp.Action{}.WithMemory(1)), guard.DefaultSteps), 1.25)
	s := at(100, 200*mdp.MiB)
	s.Usage.Memory = 140 * mdp.MiB
	a, _ := p.Decide(s)
	if want := 175 * mdp.MiB; a.Limit.Memory != want {
		t.Errorf("first shrink to %v, want %v: use and a quarter", a.Limit.Memory, want)
	}
	s.At = noon.Add(30 * time.Second)
	if a, _ = p.Decide(s); a.Limit.Memory != 200*mdp.MiB || a.Clipped&mdp.ClippedDwell == 0 {
		t.Errorf("half a minute later: %v (%v), want no second shrink", a.Limit.Memory, a.Clipped)
	}
	s.At = noon.Add(61 * time.Second)
	if a, _ = p.Decide(s); a.Limit.Memory == 200*mdp.MiB {
		t.Error("after a minute it may shrink again")
	}
}

func TestReplicasGoOneByOne(t *testing.T) {
	p := guard.Pace(wants(mdp.Action{}.WithReplicas(1)), guard.DefaultSteps)
	s := at(100, 100*mdp.MiB)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 2}, {30 * time.Second, 3}, {61 * time.Second, 2}} {
		s.At = noon.Add(c.after)
		if a, _ := p.Decide(s); a.Replicas != c.want {
			t.Errorf("after %v: %d of 3 replicas, want %d", c.after, a.Replicas, c.want)
		}
	}
	if a, _ := guard.Pace(wants(mdp.Action{}.WithReplicas(9)), guard.DefaultSteps).Decide(s); a.Replicas != 9 {
		t.Errorf("up to %d, want 9 at once", a.Replicas)
	}
}

func TestNothingShrinksWhileTheSLOIsViolated(t *testing.T) {
	p := guard.HoldSLO(wants(mdp.Action{}.WithReplicas(1).WithCPU(50).WithMemory(10*mdp.MiB)), mdp.SLO{Percentile: 99, Latency: 5 * time.Millisecond})
	s := at(100, 100*mdp.MiB)
	a, _ := p.Decide(s)
	if a.Replicas != 3 || a.Limit != s.Limit || a.Clipped != mdp.ClippedSLO {
		t.Errorf("%v clipped by %v, want what is in force", a, a.Clipped)
	}
	s.Latency = time.Millisecond
	if a, _ = p.Decide(s); a.Replicas != 1 || a.Clipped != 0 {
		t.Errorf("with the SLO met: %v clipped by %v", a, a.Clipped)
	}
}

func TestAPolicyThatFailsIsReplacedByTheRule(t *testing.T) {
	rule := wants(mdp.Action{}.WithCPU(300))
	for name, bad := range map[string]mdp.Policy{
		"an error":          mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}, errors.New("no weights") }),
		"an illegal action": wants(mdp.Action{}.WithCPU(-7)),
	} {
		t.Run(name, func(t *testing.T) {
			a, err := guard.Fallback(bad, rule).Decide(at(100, mdp.MiB))
			if err != nil || a.Limit.CPU != 300 || a.Clipped != mdp.ClippedFallback {
				t.Errorf("%v (%v), err %v; want the rule's 300m", a, a.Clipped, err)
			}
		})
	}
}
