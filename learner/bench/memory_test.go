package bench

import (
	"errors"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
)

// A queue fills the memory of a container whose CPU is short. The limit rises with it, a fourth above what is in use, and goes
// back when the queue is gone, to what the owner has set: what the next crowd's queue needs is not in use before.
func TestMemoryRisesWithAQueueAndGoesBack(t *testing.T) {
	cpu := mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		if !s.Knows(mdp.CPULimit) {
			return mdp.Action{}, errors.New("nothing is known")
		}
		return mdp.Action{}.WithCPU(700), nil
	})
	second := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	known := mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.MemoryUsage)
	for name, one := range map[string]struct {
		at       time.Duration
		observed mdp.Set
		usage    mdp.Bytes // of a limit of 400 Mi
		least    mdp.Bytes
		want     mdp.Bytes // 0: it stays
	}{
		"little is in use, of the owner's limit": {0, known, 100 * mdp.MiB, 400 * mdp.MiB, 0},
		"or of one that is below the least":      {0, known, 100 * mdp.MiB, 500 * mdp.MiB, 0},
		"little is in use, of what was raised":   {0, known, 100 * mdp.MiB, 300 * mdp.MiB, 300 * mdp.MiB},
		"more than the least is in use":          {0, known, 200 * mdp.MiB, 100 * mdp.MiB, 250 * mdp.MiB},
		"and hardly less than the limit is for":  {0, known, 300 * mdp.MiB, 100 * mdp.MiB, 0},
		"four fifths are":                        {0, known, 320 * mdp.MiB, 400 * mdp.MiB, 0},
		"more":                                   {0, known, 360 * mdp.MiB, 400 * mdp.MiB, 450 * mdp.MiB},
		"more, and the least is above that":      {0, known, 360 * mdp.MiB, 500 * mdp.MiB, 450 * mdp.MiB},
		"more, but within a second":              {500 * time.Millisecond, known, 360 * mdp.MiB, 400 * mdp.MiB, 0},
		"what is in use is unknown":              {0, mdp.SetOf(mdp.CPULimit), 360 * mdp.MiB, 400 * mdp.MiB, 0},
	} {
		a, err := withMemory(cpu, one.least).Decide(mdp.State{At: second.Add(one.at), Observed: one.observed,
			Limit: mdp.Size{CPU: 500, Memory: 400 * mdp.MiB}, Usage: mdp.Size{CPU: 500, Memory: one.usage}})
		if err != nil || a.Limit.CPU != 700 || a.Sets.Has(mdp.MemoryLimit) != (one.want > 0) || a.Limit.Memory != one.want {
			t.Errorf("%s: %v, %v; want the CPU's 700m and %v bytes of memory", name, a, err, one.want)
		}
	}
	if _, err := withMemory(cpu, 0).Decide(mdp.State{At: second}); err == nil {
		t.Error("a State of which nothing is known is decided on")
	}
}

// What a queue needed for a tenth of a second is needed again: for ten minutes the limit stays above it.
func TestMemoryThatWasNeededStaysForTenMinutes(t *testing.T) {
	content := mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}, nil })
	bounds := mdp.Bounds{Memory: mdp.Range[mdp.Bytes]{Min: 1, Max: 1000 * mdp.MiB}}
	p := guard.Standard(withMemory(content, 0), memoryGuards(), guard.Place{Bounds: func() mdp.Bounds { return bounds }})
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, one := range []struct {
		at          time.Duration
		usage, want mdp.Bytes // of a limit of 400 Mi; 0: it stays
	}{
		{-100 * time.Millisecond, 240 * mdp.MiB, 0},
		{0, 100 * mdp.MiB, 300 * mdp.MiB}, // a fourth above the 240
		{9 * time.Minute, 100 * mdp.MiB, 300 * mdp.MiB},
		{10 * time.Minute, 100 * mdp.MiB, 200 * mdp.MiB}, // half at once is the most
	} {
		a, err := p.Decide(mdp.State{At: noon.Add(one.at), Observed: mdp.SetOf(mdp.MemoryLimit, mdp.MemoryUsage),
			Limit: mdp.Size{Memory: 400 * mdp.MiB}, Usage: mdp.Size{Memory: one.usage}})
		if err != nil || a.Limit.Memory != one.want {
			t.Errorf("after %v: %v, %v; want %v bytes", one.at, a, err, one.want)
		}
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
	run := func(row string, settings map[string]float64) Score {
		choice, err := Named(row)
		if err != nil {
			t.Fatal(err)
		}
		choice.Settings = settings
		s, err := Run(t.Context(), cells[at], choice, Options{Seed: 4, Length: 3 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	static, own := run("static", nil), run(Aware, nil)
	if own.MemoryGiB <= static.MemoryGiB || own.OOMKills > 0 || own.LostRatio > 0.001 {
		t.Errorf("%.2f GiB, %.2f of static; %d containers were killed, %.4f of the requests lost",
			own.MemoryGiB, static.MemoryGiB, own.OOMKills, own.LostRatio)
	}
	for _, row := range []string{"demand", "demand-1s"} {
		if s := run(row, nil); s.MemoryGiB <= static.MemoryGiB {
			t.Errorf("%s: %.2f GiB", row, s.MemoryGiB)
		}
	}
	half := run(Aware, map[string]float64{minMemory: 0.5})
	if share := half.MemoryGiB / static.MemoryGiB; share < 0.5 || share > 0.75 {
		t.Errorf("an owner who lets memory sink to half has %.2f of static's", share)
	}
}
