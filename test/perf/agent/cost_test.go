package main

import (
	"testing"
	"time"

	"awarescale.dev/aware/test/perf/pace"
)

// What the agent uses while the machine is fast is told apart from the rest. The time between two looks counts as a whole.
func TestTheAgentsCostOnAFastMachine(t *testing.T) {
	began := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	paces := func(took ...time.Duration) (all []pace.Sample) {
		for i, d := range took {
			all = append(all, pace.Sample{At: at(i), Took: d})
		}
		return all
	}
	// 20 millicores in the first two seconds, 40 in the next two.
	looks := []look{{at(0), time.Second}, {at(2), 1040 * time.Millisecond}, {at(4), 1120 * time.Millisecond}}
	for name, c := range map[string]struct {
		paces                         []pace.Sample
		slowdown, seconds, millicores float64
	}{
		"fast, then slow":   {paces(100, 100, 200, 200), 1.5, 2, 20},
		"slow, then fast":   {paces(200, 200, 100, 100), 1.5, 2, 40},
		"fast all the time": {paces(100, 100, 100, 100), 1, 4, 30},
		"one slow second":   {paces(100, 100, 100, 140), 1.1, 2, 20},
		"never fast":        {paces(100, 190, 100, 190), 1.45, 0, -1},
		"not known":         {nil, -1, 0, -1},
	} {
		slowdown, seconds, millicores := fast(looks, c.paces)
		said := func(v *float64) float64 {
			if v == nil {
				return -1
			}
			return *v
		}
		if said(slowdown) != c.slowdown || seconds != c.seconds || said(millicores) != c.millicores {
			t.Errorf("%s: %v times slower, %v millicores in %v s; want %v, %v, %v (-1: not known)", name, said(slowdown),
				said(millicores), seconds, c.slowdown, c.millicores, c.seconds)
		}
	}
}
