package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/cri/critest"
	"awarescale.dev/aware/nodeagent/restore"
	"github.com/prometheus/client_golang/prometheus"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// stage is the pods of a node, which a test changes.
type stage struct {
	mu   sync.Mutex
	pods []Pod
	ch   chan struct{}

	optedOut []Pod // that are not watched
	gone     bool  // the API server does not answer
}

func (s *stage) Snapshot() []Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Pod, len(s.pods))
	for i, p := range s.pods {
		p.Containers = append([]Container(nil), p.Containers...)
		all[i] = p
	}
	return all
}

// away makes the API server not answer.
func (s *stage) away(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = is
}

func (s *stage) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.gone
}

func (s *stage) Find(_ context.Context, ref api.ContainerRef) (Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return Pod{}, errors.New("connection refused")
	}
	for _, p := range append(s.pods, s.optedOut...) {
		if p.UID == ref.PodUID {
			return p, nil
		}
	}
	return Pod{}, ErrNoPod
}

func (s *stage) Changed() <-chan struct{} { return s.ch }

// change lets the test change the container of a pod.
func (s *stage) change(i int, f func(*Pod, *Container)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.pods[i], &s.pods[i].Containers[0])
}

// rig is a node in virtual time: a directory tree in which a small CFS runs, an
// honest runtime on a real socket, and an agent on top. On this machine's own control
// groups the containers hold memory and use no CPU.
type rig struct {
	t       testing.TB
	host    *cgrouptest.Host
	server  *critest.Server
	client  *cri.Client
	stage   *stage
	dir     string
	agent   *Agent
	now     time.Time
	policy  func(api.ContainerRef) mdp.Policy
	runtime cri.Runtime          // nil: the client
	demand  []mdp.MilliCPU       // of each pod's container
	memory  []mdp.Bytes          // in use
	workers []*cgrouptest.Worker // of each pod's container
	each    func()               // after each tenth of a second
	free    *mdp.Bytes           // memory that the node has; nil: not known
}

// MemoryAvailable implements [Memory].
func (g *rig) MemoryAvailable() (mdp.Bytes, error) {
	if g.free == nil {
		return 0, errors.New("nobody knows")
	}
	return *g.free, nil
}

// web is the API size of the rig's containers.
var web = mdp.Size{CPU: 1000, Memory: 256 * mdp.MiB}

func limitsOf(s mdp.Size) cgroup.Limits {
	return cgroup.Limits{Quota: cgroup.Quota(s.CPU, 100000), Period: 100000, Memory: s.Memory}
}

func newRig(t testing.TB, version cgroup.Version, n int) *rig {
	t.Helper()
	return newRigOn(t, cgrouptest.Fixture(t, version), n)
}

// newRigOn makes a rig with n pods of one container.
func newRigOn(t testing.TB, host *cgrouptest.Host, n int) *rig {
	t.Helper()
	g := newStage(t, host, t.TempDir())
	for i := range n {
		g.add(i, "c"+fmt.Sprint(i), web)
		g.enter(i)
	}
	g.boot()
	return g
}

// newStage makes a rig without pods and without an agent, whose journal is in a folder.
func newStage(t testing.TB, host *cgrouptest.Host, dir string) *rig {
	t.Helper()
	g := &rig{t: t, host: host, stage: &stage{ch: make(chan struct{}, 1)}, dir: dir, now: noon}
	g.server = critest.Start(t, g.host.Tree)
	client, err := cri.Dial(t.Context(), g.server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	g.client = client
	return g
}

// enter makes the API server know the next pod, whose container is there.
func (g *rig) enter(i int) {
	g.stage.pods = append(g.stage.pods, Pod{
		Namespace: "shop",
		Name:      fmt.Sprintf("web-%d", i),
		UID:       fmt.Sprintf("u%d", i),
		QoS:       "Burstable",
		Containers: []Container{{
			Name:     "app",
			ID:       "c" + fmt.Sprint(i),
			Running:  true,
			Limits:   web,
			Requests: mdp.Size{CPU: 100},
		}},
	})
	g.demand, g.memory = append(g.demand, 200), append(g.memory, 64*mdp.MiB)
	g.workers = append(g.workers, new(cgrouptest.Worker))
}

func (g *rig) pathOf(i int, id string) string {
	return fmt.Sprintf("%s/burstable/podu%d/%s", g.host.Parent, i, id)
}

// add makes a container: its group, and its entry in the runtime.
func (g *rig) add(i int, id string, size mdp.Size) {
	g.t.Helper()
	g.host.Add(g.t, g.pathOf(i, id), limitsOf(size))
	g.server.Add(id, "/"+g.pathOf(i, id), limitsOf(size))
	if g.host.IsReal() {
		g.host.Start(g.t, g.pathOf(i, id), cgrouptest.Hold)
	}
}

// config is the default, with a runtime that a busy test machine may slow down.
func config() Config {
	c := Default()
	c.Node, c.Version = "node-1", "test"
	c.Runtime.Slow, c.Runtime.Deadline = 10*time.Second, 10*time.Second
	return c
}

// boot starts an agent. When there was one, it is a restart.
func (g *rig) boot() {
	g.t.Helper()
	if g.agent != nil {
		g.agent.journal.Close() // what the kernel does for a dead process
	}
	j, err := restore.Open(g.dir)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { j.Close() })
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(g.t.Output(), nil))
	}
	var runtime cri.Runtime = g.client
	if g.runtime != nil {
		runtime = g.runtime
	}
	g.agent, err = New(config(), Deps{Tree: g.host.Tree, Runtime: runtime, Journal: j, Pods: g.stage,
		Metrics: prometheus.NewRegistry(), Log: log, Policy: g.policy, Memory: g})
	if err != nil {
		g.t.Fatal(err)
	}
	g.agent.Start(g.t.Context(), g.now)
}

// run lets time pass. Each tenth of a second the containers use CPU, as far as
// their limits let them.
func (g *rig) run(d time.Duration) {
	g.t.Helper()
	for end := g.now.Add(d); g.now.Before(end); {
		g.now = g.now.Add(100 * time.Millisecond)
		for i, p := range g.stage.Snapshot() {
			id := p.Containers[0].ID
			if !g.host.Tree.Exists(g.pathOf(i, id)) {
				continue
			}
			w := g.workers[i]
			w.Demand, w.Memory = g.demand[i], g.memory[i]
			w.Work(g.t, g.host, g.pathOf(i, id))
		}
		g.agent.Sample(g.now)
		if g.each != nil {
			g.each()
		}
		if g.now.Nanosecond() == 0 {
			g.agent.Step(g.t.Context(), g.now)
		}
	}
}

// limit is what is in force for a pod's container.
func (g *rig) limit(i int) mdp.Size {
	g.t.Helper()
	return g.host.Limits(g.t, g.pathOf(i, g.stage.Snapshot()[i].Containers[0].ID)).Size()
}

func (g *rig) ref(i int) api.ContainerRef {
	p := g.stage.Snapshot()[i]
	return api.ContainerRef{Namespace: p.Namespace, Pod: p.Name, PodUID: p.UID, Container: p.Containers[0].Name}
}

// grant is a message of central: every container in this mode, for a minute.
func (g *rig) grant(mode api.Mode, change ...func(*api.Grant)) {
	m := api.Grants{TTL: time.Minute}
	for i := range g.stage.Snapshot() {
		one := api.Grant{Container: g.ref(i), Mode: mode, Throttle: 0.02,
			Bounds: mdp.Bounds{
				CPU:    mdp.Range[mdp.MilliCPU]{Min: 50, Max: 100000},
				Memory: mdp.Range[mdp.Bytes]{Min: 16 * mdp.MiB, Max: 1 << 50},
			}}
		for _, f := range change {
			f(&one)
		}
		m.All = append(m.All, one)
	}
	g.agent.Apply(g.now, m)
}

// summary is what is reported of a pod's container.
func (g *rig) summary(i int) api.Summary {
	g.t.Helper()
	ref := g.ref(i)
	for _, s := range g.agent.Report(g.now).Containers {
		if s.Container == ref {
			return s
		}
	}
	g.t.Fatalf("nothing is reported of %v", ref)
	return api.Summary{}
}

// shrunk lets the agent shrink an idle container, and fails when it does not.
func (g *rig) shrunk() mdp.Size {
	g.t.Helper()
	g.grant(api.Auto)
	g.run(10 * time.Second)
	l := g.limit(0)
	if l.CPU >= web.CPU || l.Memory >= web.Memory {
		g.t.Fatalf("with little to do the limits are still %v: %+v", l, g.summary(0))
	}
	return l
}

// isRestored fails unless the first container has the API's values, and the journal
// is empty.
func (g *rig) isRestored(why string) {
	g.t.Helper()
	want := g.stage.Snapshot()[0].Containers[0].Limits
	if l := g.limit(0); l != want {
		g.t.Errorf("%s: limits %v, want the API's %v", why, l, want)
	}
	if len(g.agent.journal.Entries()) > 0 {
		g.run(lateGrace + 2*time.Second) // a call may land late: it is waited for
	}
	if e := g.agent.journal.Entries(); len(e) != 0 {
		g.t.Errorf("%s: journal still has %+v", why, e)
	}
}
