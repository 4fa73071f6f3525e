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

// A container that stalls for memory gets more, as one that was killed does, and keeps it for a while. One that stalls as much as
// is usual does not.
func TestAStallForMemoryRaisesAndHolds(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		pressure mdp.Ratio
		known    bool
		want     mdp.Bytes // of 300 MiB, where 150 are enough for the use
	}{{workingset.Default.PressureThreshold + 0.01, true, 360}, {workingset.Default.PressureThreshold, true, 150}, {1, false, 150}} {
		p := workingset.New(workingset.Default)
		s := mdp.State{
			At: noon, Observed: mdp.SetOf(mdp.MemoryUsage, mdp.MemoryLimit), MemoryPressure: c.pressure,
			Usage: mdp.Size{Memory: 100 * mdp.MiB}, Limit: mdp.Size{Memory: 300 * mdp.MiB},
		}
		if c.known {
			s.Observed |= mdp.SetOf(mdp.MemoryPressure)
		}
		a, err := p.Decide(s)
		if err != nil || a.Limit.Memory != c.want*mdp.MiB {
			t.Errorf("pressure %v, known %v: %v, %v; want %d MiB", c.pressure, c.known, a, err, c.want)
		}
		if c.want < 300 {
			continue
		}
		s.MemoryPressure = 0
		hold := workingset.Default.AfterOOM
		for after, keeps := range map[time.Duration]bool{hold - time.Second: true, hold: false} {
			s.At = noon.Add(after)
			if a, err := p.Decide(s); err != nil || (a.Sets == 0) != keeps {
				t.Errorf("%v after a stall: %v, %v", after, a, err)
			}
		}
	}
}

func TestFiguresOfNoContainerAreRefused(t *testing.T) {
	for name, size := range map[string][2]mdp.Bytes{ // use, limit
		"no use": {0, mdp.MiB}, "a use below zero": {-1, mdp.MiB}, "no limit": {mdp.MiB, 0},
		"more than an exbibyte": {1<<60 + 1, mdp.MiB},
	} {
		a, err := workingset.New(workingset.Default).Decide(mdp.State{
			Observed: mdp.SetOf(mdp.MemoryUsage, mdp.MemoryLimit), Usage: mdp.Size{Memory: size[0]}, Limit: mdp.Size{Memory: size[1]},
		})
		if err == nil || a.Sets != 0 {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
}
