package recommender

import (
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
)

// replica is a report of a container that has used a core in one second of ten, and a tenth in the others.
func replica(busy int) api.Summary {
	s := api.Summary{
		State:  mdp.State{Observed: mdp.SetOf(mdp.CPUBurst), CPUBurst: 1000},
		Course: api.Course{Until: 1000},
	}
	for i := range api.MaxHalves {
		used := mdp.MilliCPU(100)
		if i/2 == busy {
			used = 1000
		}
		s.Course.Use = append(s.Course.Use, used)
	}
	return s
}

// What a single replica would have to carry is what two have used in the same second. Where that is not known, and of more
// replicas, the mean of the bursts stays.
func TestTheBurstOfTwoIsOfTheSameSecond(t *testing.T) {
	old, unknown, brief := replica(6), replica(6), replica(0)
	old.Course = api.Course{}
	unknown.State.Observed = 0
	brief.State.CPUBurst = 1800 // between two halves
	for name, c := range map[string]struct {
		of   []api.Summary
		want mdp.MilliCPU
		ok   bool
	}{
		"together":              {[]api.Summary{replica(8), replica(8)}, 1000, true},
		"one after the other":   {[]api.Summary{replica(8), replica(6)}, 550, true},
		"at least what one did": {[]api.Summary{replica(8), brief}, 900, true},
		"an older agent":        {[]api.Summary{replica(8), old}, 0, false},
		"not known":             {[]api.Summary{replica(8), unknown}, 0, false},
		"one":                   {[]api.Summary{replica(8)}, 0, false},
		"three":                 {[]api.Summary{replica(8), replica(8), replica(8)}, 0, false},
	} {
		if got, ok := ofTwo(c.of); got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
}
