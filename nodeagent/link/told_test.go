package link

import (
	"fmt"
	"math/rand"
	"testing"
	"testing/quick"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// container is a container that uses so much CPU.
func container(name string, cpu mdp.MilliCPU) api.Summary {
	s := api.Summary{Container: api.ContainerRef{Pod: name, PodUID: name, Container: "web"}}
	s.State.Observed = mdp.SetOf(mdp.CPUUsage)
	s.State.Usage.CPU = cpu
	return s
}

func TestOnlyNewsIsTold(t *testing.T) {
	var central told
	tell := func(after time.Duration, all ...api.Summary) api.Report {
		return central.news(noon.Add(after), api.Report{Full: true, Containers: all})
	}
	if r := tell(0, container("a", 1000), container("b", 1000)); !r.Full || len(r.Containers) != 2 {
		t.Errorf("first: %+v", r)
	}
	one := func(r api.Report, cpu mdp.MilliCPU) bool {
		return !r.Full && len(r.Containers) == 1 && r.Containers[0].State.Usage.CPU == cpu
	}
	if r := tell(time.Second, container("a", 1010), container("b", 1300)); !one(r, 1300) {
		t.Errorf("one uses 1 %% more, the other 30 %%: %+v", r)
	}
	// What is left out adds up to no more than 2 %.
	if r := tell(2*time.Second, container("a", 1025), container("b", 1300)); !one(r, 1025) {
		t.Errorf("one uses 2.5 %% more than was told: %+v", r)
	}
	if r := tell(3*time.Second, container("b", 1300), container("c", 0)); !one(r, 0) || len(r.Gone) != 1 || r.Gone[0].Pod != "a" {
		t.Errorf("one is gone, one is new: %+v", r)
	}
	if r := tell(61*time.Second, container("b", 1300), container("c", 0)); !r.Full || len(r.Containers) != 2 {
		t.Errorf("after a minute: %+v", r)
	}
}

// Whatever happens on a node, central has of each container what the node has, but
// for small changes.
func TestCentralHasWhatTheNodeHas(t *testing.T) {
	law := func(seed int64) bool {
		r := rand.New(rand.NewSource(seed))
		var central told
		has := map[api.ContainerRef]api.Summary{}
		for step := range 100 {
			node := map[api.ContainerRef]api.Summary{}
			full := api.Report{Full: true}
			for i := range 5 {
				if r.Intn(4) == 0 {
					continue
				}
				s := container(fmt.Sprint(i), mdp.MilliCPU(1000+r.Intn(60)))
				if r.Intn(10) == 0 {
					s.Problem = "a problem"
				}
				s.Latency = api.Histogram{Upper: []float64{1}, Counts: []uint64{uint64(r.Intn(2))}}
				node[s.Container] = s
				full.Containers = append(full.Containers, s)
			}
			news := central.news(noon.Add(time.Duration(step)*time.Second), full)
			if news.Full {
				clear(has)
			}
			for _, s := range news.Containers {
				has[s.Container] = s
			}
			for _, c := range news.Gone {
				delete(has, c)
			}
			if len(has) != len(node) {
				t.Logf("step %d: %d containers, want %d", step, len(has), len(node))
				return false
			}
			for c, s := range node {
				if !s.Near(has[c]) {
					t.Logf("step %d: %+v, want %+v", step, has[c], s)
					return false
				}
			}
		}
		return true
	}
	if err := quick.Check(law, &quick.Config{MaxCount: 50}); err != nil {
		t.Error(err)
	}
}
