package bench

import (
	"errors"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// A queue fills the memory of a container whose CPU is short. The limit rises with it, a fourth above what is in use, and does
// not sink again: what the next crowd's queue needs is not in use before.
func TestMemoryRisesWithAQueue(t *testing.T) {
	const mi = 1 << 20
	cpu := mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		if !s.Knows(mdp.CPULimit) {
			return mdp.Action{}, errors.New("nothing is known")
		}
		return mdp.Action{}.WithCPU(700), nil
	})
	p := withMemory(cpu)
	second := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	known := mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.MemoryUsage)
	for name, one := range map[string]struct {
		at       time.Duration
		observed mdp.Set
		usage    mdp.Bytes // of a limit of 400 Mi
		want     mdp.Bytes // 0: it stays
	}{
		"little is in use":          {0, known, 100 * mi, 0},
		"four fifths are":           {0, known, 320 * mi, 0},
		"more":                      {0, known, 360 * mi, 450 * mi},
		"more, but within a second": {500 * time.Millisecond, known, 360 * mi, 0},
		"what is in use is unknown": {0, mdp.SetOf(mdp.CPULimit), 360 * mi, 0},
	} {
		a, err := p.Decide(mdp.State{At: second.Add(one.at), Observed: one.observed,
			Limit: mdp.Size{CPU: 500, Memory: 400 * mi}, Usage: mdp.Size{CPU: 500, Memory: one.usage}})
		if err != nil || a.Limit.CPU != 700 || a.Sets.Has(mdp.MemoryLimit) != (one.want > 0) || a.Limit.Memory != one.want {
			t.Errorf("%s: %v, %v; want the CPU's 700m and %v bytes of memory", name, a, err, one.want)
		}
	}
	if _, err := p.Decide(mdp.State{At: second}); err == nil {
		t.Error("a State of which nothing is known is decided on")
	}
}

// The first spike of a cluster fills hotel-reservation's front end. AWARE's rows have more memory in time, and lose hardly a
// request; static limits stay as they are.
func TestAwareHasMemoryForTheQueueOfASpike(t *testing.T) {
	cells, err := Spiky()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(cells, func(c Cell) bool {
		return c.Application == "hotel-reservation" && c.Trace.Name == "clusters"
	})
	run := func(row string) Score {
		choice, err := Named(row)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Run(t.Context(), cells[at], choice, Options{Seed: 4, Length: 3 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	static, own := run("static"), run(Aware)
	if own.MemoryGiB <= static.MemoryGiB || own.OOMKills > 0 || own.LostRatio > 0.001 {
		t.Errorf("%.2f GiB, %.2f of static; %d containers were killed, %.4f of the requests lost",
			own.MemoryGiB, static.MemoryGiB, own.OOMKills, own.LostRatio)
	}
	for _, row := range []string{"demand", "demand-1s"} {
		if s := run(row); s.MemoryGiB <= static.MemoryGiB {
			t.Errorf("%s: %.2f GiB", row, s.MemoryGiB)
		}
	}
}
