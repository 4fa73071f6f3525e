package workingset_test

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/heuristic/workingset"
)

func TestWorkingSetIsAPolicy(t *testing.T) {
	mdptest.Policy(t, func() mdp.Policy { return workingset.New(workingset.Default) })
}

func TestMemoryFollowsUseAndStaysAfterAnOOMKill(t *testing.T) {
	p := workingset.New(workingset.Default)
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	state := func(after time.Duration, use, limit mdp.Bytes, kills int) mdp.State {
		return mdp.State{At: noon.Add(after), Observed: mdp.SetOf(mdp.MemoryUsage, mdp.MemoryLimit, mdp.OOMKills),
			Usage: mdp.Size{Memory: use * mdp.MiB}, Limit: mdp.Size{Memory: limit * mdp.MiB}, OOMKills: kills}
	}
	for _, c := range []struct {
		why  string
		s    mdp.State
		want mdp.Bytes // MiB; 0 keeps
	}{
		{"well as it is", state(0, 100, 150, 0), 0},
		{"a little slack is not worth a resize", state(time.Second, 100, 170, 0), 0},
		{"far too much is given back", state(2*time.Second, 100, 400, 0), 150},
		{"use grew", state(3*time.Second, 200, 150, 0), 300},
		{"an OOM kill raises the limit by a fifth at least", state(4*time.Second, 100, 300, 1), 360},
		{"and nothing is lowered soon after", state(5*time.Minute, 100, 360, 0), 0},
		{"but in the end it is", state(11*time.Minute, 100, 360, 0), 150},
	} {
		a, err := p.Decide(c.s)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Limit.Memory / mdp.MiB; got != c.want {
			t.Errorf("%s: limit %dMi, want %dMi", c.why, got, c.want)
		}
	}
}
