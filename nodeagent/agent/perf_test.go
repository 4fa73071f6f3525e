package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/restore"
)

// registry is a runtime that only knows where containers are. The benchmarks move
// nothing.
type registry struct{ parent string }

func (r registry) Container(_ context.Context, id string) (cri.Container, error) {
	return cri.Container{ID: id, CgroupsPath: "/" + r.parent + "/" + id}, nil
}

func (registry) Update(context.Context, string, cri.Change) error { return nil }

// thirty is an agent with thirty containers on this host's cgroups, or on a fixture.
func thirty(tb testing.TB, host *cgrouptest.Host) *Agent {
	tb.Helper()
	pods := make(Fixed, 30)
	m := api.Grants{TTL: time.Hour}
	for i := range pods {
		id := fmt.Sprintf("c%d", i)
		host.Add(tb, host.Parent+"/"+id, limitsOf(web))
		pods[i] = Pod{
			Namespace:  "shop",
			Name:       id,
			UID:        id,
			QoS:        "Burstable",
			Containers: []Container{{Name: "app", ID: id, Running: true, Limits: web}},
		}
		m.All = append(m.All, api.Grant{
			Container: api.ContainerRef{Namespace: "shop", Pod: id, PodUID: id, Container: "app"},
			Mode:      api.Recommend,
		})
	}
	j, err := restore.Open(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	a, err := New(config(), Deps{Tree: host.Tree, Runtime: registry{host.Parent}, Journal: j, Pods: pods})
	if err != nil {
		tb.Fatal(err)
	}
	a.Apply(noon, m)
	a.Step(tb.Context(), noon)
	if n := a.sampler.Len(); n != 30 {
		tb.Fatalf("%d containers are sampled: %+v", n, a.Report(noon))
	}
	tb.Cleanup(func() {
		for _, r := range a.containers {
			a.sampler.Remove(r.track)
		}
		j.Close()
	})
	return a
}

func TestSamplingThirtyContainersAllocatesNothing(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		a := thirty(t, host)
		now := noon
		if n := testing.AllocsPerRun(100, func() {
			now = now.Add(100 * time.Millisecond)
			a.Sample(now)
		}); n != 0 {
			t.Errorf("%v allocations for one loop over 30 containers", n)
		}
		// Reading a container in a step allocates nothing either. Reporting does.
		for _, r := range a.containers {
			if n := testing.AllocsPerRun(20, func() {
				now = now.Add(time.Second)
				if _, _, _, err := a.sampler.Look(r.track, now); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations for one look", n)
			}
			break
		}
	})
}

// BenchmarkSample30 is the work of one tenth of a second: go test -bench 30
// -count 6 ./nodeagent/agent | benchstat -
func BenchmarkSample30(b *testing.B) {
	a := thirty(b, cgrouptest.Real(b))
	now := noon
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(100 * time.Millisecond)
		a.Sample(now)
	}
}

// BenchmarkLoop30 is the work of one second: ten samples, and a step in which every
// container is read, decided on and reported. Nothing is moved: a move costs what
// the container runtime costs.
func BenchmarkLoop30(b *testing.B) {
	a := thirty(b, cgrouptest.Real(b))
	now := noon
	b.ReportAllocs()
	for b.Loop() {
		for range 10 {
			now = now.Add(100 * time.Millisecond)
			a.Sample(now)
		}
		a.Step(b.Context(), now)
	}
}
