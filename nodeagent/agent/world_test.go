package agent

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/cri/critest"
	"awarescale.dev/aware/nodeagent/restore"
)

func TestAManagedContainerIsAWorld(t *testing.T) {
	for name, host := range map[string]func(*testing.T) *cgrouptest.Host{
		"v1 fixture": func(t *testing.T) *cgrouptest.Host { return cgrouptest.Fixture(t, cgroup.V1) },
		"v2 fixture": func(t *testing.T) *cgrouptest.Host { return cgrouptest.Fixture(t, cgroup.V2) },
		"this host":  func(t *testing.T) *cgrouptest.Host { return cgrouptest.Real(t) },
	} {
		t.Run(name, func(t *testing.T) {
			mdptest.World(t, func(t *testing.T) mdptest.Setup { return managed(t, host(t)) })
		})
	}
}

// managed is one container of an agent. The test sets the time.
func managed(t *testing.T, host *cgrouptest.Host) mdptest.Setup {
	path := host.Parent + "/podu0/c0"
	host.Add(t, host.Parent+"/podu0", cgroup.Limits{})
	host.Add(t, path, limitsOf(web))
	server := critest.Start(t, host.Tree)
	server.Add("c0", "/"+path, limitsOf(web))
	client, err := cri.Dial(t.Context(), server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	j, err := restore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); j.Close() })
	pods := Fixed{{
		Namespace: "shop", Name: "web-0", UID: "u0", QoS: "Burstable",
		Containers: []Container{{Name: "app", ID: "c0", Running: true, Limits: web}},
	}}
	a, err := New(config(), Deps{Tree: host.Tree, Runtime: client, Journal: j, Pods: pods})
	if err != nil {
		t.Fatal(err)
	}
	now := noon
	a.Start(t.Context(), now)
	a.Apply(now, api.Grants{TTL: time.Hour, All: nil})
	a.Sample(now)
	a.Step(t.Context(), now)
	for _, r := range a.containers {
		t.Cleanup(func() { a.sampler.Remove(r.track) })
		b := mdp.Bounds{
			CPU:    mdp.Range[mdp.MilliCPU]{Min: 100, Max: web.CPU},
			Memory: mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: web.Memory},
		}
		r.envelope.Bounds = b
		return mdptest.Setup{Sensor: r, Actuator: r, Bounds: b, Knobs: mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit),
			Now: func() time.Time { return now }, Advance: func(d time.Duration) { now = now.Add(d) }}
	}
	t.Fatalf("the container is not attached: %+v", a.Report(now))
	return mdptest.Setup{}
}
