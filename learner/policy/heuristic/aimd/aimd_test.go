package aimd_test

import (
	"errors"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/heuristic/aimd"
)

func config() aimd.Config {
	c := aimd.Default
	c.SLO = mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond}
	return c
}

func miad() aimd.Config {
	c := aimd.DefaultMIAD
	c.SLO = config().SLO
	return c
}

func withMemory() aimd.Config {
	c := config()
	c.StepMemory = 32 * mdp.MiB
	return c
}

func TestAIMDIsAPolicy(t *testing.T) {
	t.Run("cpu", func(t *testing.T) { mdptest.Policy(t, func() mdp.Policy { return aimd.New(config()) }) })
	t.Run("cpu and memory", func(t *testing.T) { mdptest.Policy(t, func() mdp.Policy { return aimd.New(withMemory()) }) })
	t.Run("miad", func(t *testing.T) { mdptest.Policy(t, func() mdp.Policy { return aimd.New(miad()) }) })
	t.Run("miad with memory", func(t *testing.T) {
		c := miad()
		c.StepMemory, c.Factor = 32*mdp.MiB, 1000
		mdptest.Policy(t, func() mdp.Policy { return aimd.New(c) })
	})
	t.Run("throughput", func(t *testing.T) {
		c := config()
		c.SLO.Throughput = 100
		mdptest.Policy(t, func() mdp.Policy { return aimd.New(c) })
	})
}

func state(limit mdp.MilliCPU, latency time.Duration) mdp.State {
	return mdp.State{At: time.Unix(0, 0), Observed: mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.Latency),
		Limit: mdp.Size{CPU: limit, Memory: 100 * mdp.MiB}, Latency: latency}
}

func TestIncreaseIsAdditiveAndDecreaseIsMultiplicative(t *testing.T) {
	for _, c := range []struct {
		name    string
		limit   mdp.MilliCPU
		latency time.Duration
		want    mdp.Action
	}{
		{"violated", 500, 101 * time.Millisecond, mdp.Action{}.WithCPU(600)},
		{"violated by far: the same step", 500, time.Minute, mdp.Action{}.WithCPU(600)},
		{"met, with room to spare", 500, 79 * time.Millisecond, mdp.Action{}.WithCPU(450)},
		{"met, just", 500, 90 * time.Millisecond, mdp.Action{}},
		{"met to the millisecond", 500, 100 * time.Millisecond, mdp.Action{}},
		{"room to spare near the floor", 11, time.Millisecond, mdp.Action{}.WithCPU(10)},
		{"room to spare below the floor", 5, time.Millisecond, mdp.Action{}},
	} {
		if a, err := aimd.New(config()).Decide(state(c.limit, c.latency)); err != nil || a != c.want {
			t.Errorf("%s: %v (%v), want %v", c.name, a, err, c.want)
		}
	}
}

func TestMIADIncreaseIsMultiplicativeAndDecreaseIsAdditive(t *testing.T) {
	for _, c := range []struct {
		name    string
		limit   mdp.MilliCPU
		latency time.Duration
		want    mdp.Action
	}{
		{"violated", 500, 101 * time.Millisecond, mdp.Action{}.WithCPU(750)},
		{"violated, a large limit: the same factor", 4000, time.Minute, mdp.Action{}.WithCPU(6000)},
		{"violated, the smallest limit", 1, time.Minute, mdp.Action{}.WithCPU(2)},
		{"met, with room to spare", 500, 79 * time.Millisecond, mdp.Action{}.WithCPU(480)},
		{"met, with room to spare, a large limit: the same step", 4000, time.Millisecond, mdp.Action{}.WithCPU(3980)},
		{"met, just", 500, 90 * time.Millisecond, mdp.Action{}},
		{"room to spare near the floor", 11, time.Millisecond, mdp.Action{}.WithCPU(10)},
		{"room to spare below the floor", 5, time.Millisecond, mdp.Action{}},
	} {
		if a, err := aimd.New(miad()).Decide(state(c.limit, c.latency)); err != nil || a != c.want {
			t.Errorf("%s: %v (%v), want %v", c.name, a, err, c.want)
		}
	}
	c := miad()
	c.StepMemory = 8 * mdp.MiB
	if a, _ := aimd.New(c).Decide(state(500, time.Second)); a != (mdp.Action{}.WithCPU(750).WithMemory(150 * mdp.MiB)) {
		t.Errorf("violated: %v", a)
	}
	if a, _ := aimd.New(c).Decide(state(500, time.Millisecond)); a != (mdp.Action{}.WithCPU(480).WithMemory(92 * mdp.MiB)) {
		t.Errorf("met: %v", a)
	}
}

func TestMemoryIsControlledOnlyOnRequest(t *testing.T) {
	if a, _ := aimd.New(config()).Decide(state(500, time.Second)); a.Sets.Has(mdp.MemoryLimit) {
		t.Errorf("action = %v, want CPU alone", a)
	}
	p := aimd.New(withMemory())
	if a, _ := p.Decide(state(500, time.Second)); a != (mdp.Action{}.WithCPU(600).WithMemory(132 * mdp.MiB)) {
		t.Errorf("violated: %v", a)
	}
	if a, _ := p.Decide(state(500, time.Millisecond)); a != (mdp.Action{}.WithCPU(450).WithMemory(90 * mdp.MiB)) {
		t.Errorf("met: %v", a)
	}
	blind := state(500, time.Second).Mask(mdp.SetOf(mdp.CPULimit, mdp.Latency))
	if a, err := p.Decide(blind); err != nil || a != (mdp.Action{}.WithCPU(600)) {
		t.Errorf("without the memory limit: %v (%v), want CPU alone", a, err)
	}
}

func TestUnknownLatencyGivesNoAction(t *testing.T) {
	var unknown *mdp.UnknownError
	_, err := aimd.New(config()).Decide(state(500, 0).Mask(mdp.SetOf(mdp.CPULimit)))
	if !errors.As(err, &unknown) || unknown.Missing != mdp.SetOf(mdp.Latency) {
		t.Errorf("err = %v, want latency named as unknown", err)
	}
}

// A service whose latency falls with its limit: the limit ends in a band about
// the least that holds the SLO.
func TestLimitOscillatesAroundTheLowestThatMeetsTheSLO(t *testing.T) {
	p := aimd.New(config())
	limit := mdp.MilliCPU(3000)
	latency := func() time.Duration { return time.Duration(80000/int64(limit)) * time.Millisecond } // 100 ms at 800m
	for i := range 200 {
		a, err := p.Decide(state(limit, latency()))
		if err != nil {
			t.Fatal(err)
		}
		if a.Sets.Has(mdp.CPULimit) {
			limit = a.Limit.CPU
		}
		if i > 50 && (limit < 700 || limit > 1050) {
			t.Fatalf("step %d: limit = %v, want it about 800m", i, limit)
		}
	}
}

func TestErrorNamesTheWrongSetting(t *testing.T) {
	for want, change := range map[string]func(*aimd.Config){
		"aimd SLO latency 0s: it must be above zero": func(c *aimd.Config) { c.SLO = mdp.SLO{} },
		"aimd factor 1: it must be in (0, 1)":        func(c *aimd.Config) { c.Factor = 1 },
		"aimd headroom 1.5: it must be in (0, 1]":    func(c *aimd.Config) { c.Headroom = 1.5 },
	} {
		c := config()
		change(&c)
		if err := c.Check(); err == nil || err.Error() != want {
			t.Errorf("err = %v, want %s", err, want)
		}
	}
	for want, change := range map[string]func(*aimd.Config){
		"miad SLO latency 0s: it must be above zero": func(c *aimd.Config) { c.SLO = mdp.SLO{} },
		"miad factor 1: it must be in (1, 1000]":     func(c *aimd.Config) { c.Factor = 1 },
		"miad step 0m: it must be above zero":        func(c *aimd.Config) { c.Step = 0 },
		"aimd rule 2: it must be AIMD or MIAD":       func(c *aimd.Config) { c.Rule = 2 },
	} {
		c := miad()
		change(&c)
		if err := c.Check(); err == nil || err.Error() != want {
			t.Errorf("err = %v, want %s", err, want)
		}
	}
	if err := miad().Check(); err != nil {
		t.Error(err)
	}
	if err := withMemory().Check(); err != nil {
		t.Error(err)
	}
}
