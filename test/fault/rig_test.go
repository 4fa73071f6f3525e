package fault

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/agent"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/cri/critest"
	"awarescale.dev/aware/nodeagent/restore"
	"github.com/prometheus/client_golang/prometheus"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// web is the size of the containers that the API gives, unless a test says another.
var web = mdp.Size{CPU: 1000, Memory: 256 * mdp.MiB}

// apiServer is what the agent sees of the API server. It may lag behind the kubelet,
// and it may be away.
type apiServer struct {
	mu      sync.Mutex
	pods    []agent.Pod
	hidden  []agent.Pod // opted out: not watched
	isAway  bool
	finds   int                 // how often it was asked for a pod
	ahead   map[string]mdp.Size // limits, by container, of which the watch has not heard
	changed chan struct{}
}

func (s *apiServer) Snapshot() []agent.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAway {
		return nil
	}
	return clone(s.pods)
}

func clone(pods []agent.Pod) []agent.Pod {
	all := make([]agent.Pod, len(pods))
	for i, p := range pods {
		p.Containers = append([]agent.Container(nil), p.Containers...)
		all[i] = p
	}
	return all
}

func (s *apiServer) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.isAway
}

func (s *apiServer) Changed() <-chan struct{} { return s.changed }

func (s *apiServer) Find(_ context.Context, ref api.ContainerRef) (agent.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds++
	if s.isAway {
		return agent.Pod{}, errors.New("dial tcp: connection refused")
	}
	for _, p := range append(clone(s.pods), s.hidden...) {
		if p.UID == ref.PodUID {
			for i, c := range p.Containers {
				if l, is := s.ahead[c.ID]; is {
					p.Containers[i].Limits = l
				}
			}
			return p, nil
		}
	}
	return agent.Pod{}, agent.ErrNoPod
}

// knows makes the API server say a container's limits to who asks, of which the watch has not heard.
func (s *apiServer) knows(id string, l mdp.Size) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead[id] = l
}

func (s *apiServer) away(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isAway = is
}

// says makes the API server say a container's limits.
func (s *apiServer) says(name string, l mdp.Size, pending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.pods {
		for j := range s.pods[i].Containers {
			if c := &s.pods[i].Containers[j]; c.ID == name {
				c.Limits = l
				c.ResizePending = pending
			}
		}
	}
}

// node is a node in virtual time with one pod. On this machine's own control groups the
// containers hold memory and use no CPU.
type node struct {
	t       *testing.T
	host    *cgrouptest.Host
	server  *critest.Server
	client  *cri.Client
	api     *apiServer
	runtime cri.Runtime         // what the agent calls; nil is the client
	sizes   map[string]mdp.Size // that the kubelet has set
	dir     string
	journal *restore.Journal
	agent   *agent.Agent
	now     time.Time
	demand  map[string]mdp.MilliCPU
	memory  map[string]mdp.Bytes
	workers map[string]*cgrouptest.Worker
	peak    map[string]mdp.Size // the largest limits in force since they were forgotten
}

func (n *node) podPath() string { return n.host.Parent + "/burstable/podu0" }

func (n *node) path(id string) string { return n.podPath() + "/" + id }

// newNode makes a node whose pod has these containers; the pod's group has the sum of
// their limits, as the kubelet makes it. A container without a CPU limit leaves the pod
// without one.
func newNode(t *testing.T, host *cgrouptest.Host, sizes map[string]mdp.Size) *node {
	t.Helper()
	return newNodeOn(t, host, t.TempDir(), sizes)
}

// newNodeOn makes a node whose agent keeps its journal in a folder.
func newNodeOn(t *testing.T, host *cgrouptest.Host, dir string, sizes map[string]mdp.Size) *node {
	t.Helper()
	n := &node{
		t: t, host: host, dir: dir, now: noon, sizes: sizes,
		api:    &apiServer{changed: make(chan struct{}, 1)},
		demand: map[string]mdp.MilliCPU{}, memory: map[string]mdp.Bytes{},
		workers: map[string]*cgrouptest.Worker{}, peak: map[string]mdp.Size{},
	}
	n.server = critest.Start(t, n.host.Tree)
	client, err := cri.Dial(t.Context(), n.server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	n.client = client
	pod := agent.Pod{Namespace: "shop", Name: "web-0", UID: "u0", QoS: "Burstable"}
	for id, size := range sizes {
		n.host.Add(t, n.path(id), limits(size))
		n.server.Add(id, "/"+n.path(id), limits(size))
		if n.host.IsReal() {
			n.host.Start(t, n.path(id), cgrouptest.Hold)
		}
		pod.Containers = append(pod.Containers, agent.Container{
			Name: id, ID: id, Running: true, Limits: size, Requests: mdp.Size{CPU: 100},
		})
		n.demand[id], n.memory[id] = 100, 40*mdp.MiB
		n.workers[id] = new(cgrouptest.Worker)
	}
	n.api.pods = []agent.Pod{pod}
	n.pod(sizes)
	n.boot()
	return n
}

// pod gives the pod's group what the kubelet gives it for these containers.
func (n *node) pod(sizes map[string]mdp.Size) {
	n.t.Helper()
	var sum mdp.Size
	cpu, memory := true, true
	for _, s := range sizes {
		sum.CPU += s.CPU
		sum.Memory += s.Memory
		cpu = cpu && s.CPU > 0
		memory = memory && s.Memory > 0
	}
	if !cpu {
		sum.CPU = 0
	}
	if !memory {
		sum.Memory = 0
	}
	n.host.Add(n.t, n.podPath(), limits(sum))
}

func limits(s mdp.Size) cgroup.Limits {
	return cgroup.Limits{Quota: cgroup.Quota(s.CPU, 100000), Period: 100000, Memory: s.Memory}
}

// boot starts an agent. When there was one, it was killed.
func (n *node) boot() {
	n.t.Helper()
	if n.journal != nil {
		n.journal.Close() // what the kernel does for a dead process
	}
	var err error
	if n.journal, err = restore.Open(n.dir); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { n.journal.Close() })
	var runtime cri.Runtime = n.client
	if n.runtime != nil {
		runtime = n.runtime
	}
	runtime = noted{runtime, func(id string, c cri.Change) {
		if left := unnoted(n.t, n.dir, id, c); left != (cgroup.Limits{}) {
			n.t.Errorf("%s: a call with %+v, which the journal on disk does not know: %+v", id, left, onDisk(n.t, n.dir)[id])
		}
	}}
	c := agent.Default()
	c.Node, c.Version = "node-1", "test"
	c.Runtime.Slow, c.Runtime.Deadline = 10*time.Second, 10*time.Second // a busy machine is slow
	n.agent, err = agent.New(c, agent.Deps{Tree: n.host.Tree, Runtime: runtime, Journal: n.journal, Pods: n.api,
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(n.t.Output(), nil))})
	if err != nil {
		n.t.Fatal(err)
	}
	n.agent.Start(n.t.Context(), n.now)
}

// run lets time pass in tenths of a second, and remembers the largest limits.
func (n *node) run(d time.Duration) {
	n.t.Helper()
	for end := n.now.Add(d); n.now.Before(end); {
		n.now = n.now.Add(100 * time.Millisecond)
		for id := range n.demand {
			w := n.workers[id]
			w.Demand, w.Memory = n.demand[id], n.memory[id]
			w.Work(n.t, n.host, n.path(id))
		}
		n.agent.Sample(n.now)
		if n.now.Nanosecond() == 0 {
			n.agent.Step(n.t.Context(), n.now)
		}
		n.look()
	}
}

// look remembers the largest limits in force.
func (n *node) look() {
	for id := range n.demand {
		now, was := n.limit(id), n.peak[id]
		n.peak[id] = mdp.Size{CPU: max(now.CPU, was.CPU), Memory: max(now.Memory, was.Memory)}
	}
}

// forget begins to look for the largest limits again.
func (n *node) forget() { clear(n.peak) }

func (n *node) limit(id string) mdp.Size {
	n.t.Helper()
	return n.host.Limits(n.t, n.path(id)).Size()
}

func ref(id string) api.ContainerRef {
	return api.ContainerRef{Namespace: "shop", Pod: "web-0", PodUID: "u0", Container: id}
}

// grant is central's message, for ten minutes: all containers in this mode.
func (n *node) grant(mode api.Mode) {
	m := api.Grants{TTL: 10 * time.Minute}
	for id := range n.demand {
		m.All = append(m.All, api.Grant{Container: ref(id), Mode: mode, Throttle: 0.02, Bounds: mdp.Bounds{
			CPU:    mdp.Range[mdp.MilliCPU]{Min: 50, Max: 100000},
			Memory: mdp.Range[mdp.Bytes]{Min: 16 * mdp.MiB, Max: 1 << 50},
		}})
	}
	n.agent.Apply(n.now, m)
}

// kubelet carries out a resize. As in the real one the pod's group grows before the
// containers and shrinks after them: v1 refuses a container with more CPU than its pod.
// Whether the API server's news reach the agent is another matter.
func (n *node) kubelet(sizes map[string]mdp.Size) {
	n.t.Helper()
	n.pod(larger(n.sizes, sizes))
	for id, size := range sizes {
		l := limits(size)
		if err := n.client.Update(n.t.Context(), id, cri.Change{Quota: l.Quota, Period: l.Period, Memory: l.Memory}); err != nil {
			n.t.Fatal(err)
		}
	}
	n.pod(sizes)
	n.sizes = sizes
}

// larger is the larger size of each container. Zero is no limit, which is the largest.
func larger(a, b map[string]mdp.Size) map[string]mdp.Size {
	both := map[string]mdp.Size{}
	for id, x := range a {
		y := b[id]
		most := mdp.Size{CPU: max(x.CPU, y.CPU), Memory: max(x.Memory, y.Memory)}
		if min(x.CPU, y.CPU) == 0 {
			most.CPU = 0
		}
		if min(x.Memory, y.Memory) == 0 {
			most.Memory = 0
		}
		both[id] = most
	}
	return both
}

// problem is what the agent reports of a container.
func (n *node) problem(id string) string {
	for _, s := range n.agent.Report(n.now).Containers {
		if s.Container == ref(id) {
			return s.Problem
		}
	}
	return ""
}

// shrunk lets the agent shrink all containers.
func (n *node) shrunk() {
	n.t.Helper()
	n.grant(api.Auto)
	n.run(10 * time.Second)
	for id := range n.demand {
		if l := n.limit(id); l.CPU >= 1000 {
			n.t.Fatalf("%s still has %v: %s", id, l, n.problem(id))
		}
	}
}

// never fails when a limit in force was above one since the last forget.
func (n *node) never(id string, above mdp.Size) {
	n.t.Helper()
	if p := n.peak[id]; p.CPU > above.CPU || p.Memory > above.Memory {
		n.t.Errorf("%s had %v in force, above %v", id, p, above)
	}
}

// is fails when other limits are in force.
func (n *node) is(id string, want mdp.Size, when string) {
	n.t.Helper()
	if l := n.limit(id); l != want {
		n.t.Errorf("%s: %s has %v, want %v (%s)", when, id, l, want, n.problem(id))
	}
}

// forgotten fails when a container is still in the journal after a late call's time.
func (n *node) forgotten() {
	n.t.Helper()
	n.run(62 * time.Second)
	if e := n.journal.Entries(); len(e) > 0 {
		n.t.Errorf("still in the journal: %+v", e)
	}
}

// noted is a runtime that looks at each call before it is made.
type noted struct {
	cri.Runtime
	look func(id string, c cri.Change)
}

func (n noted) Update(ctx context.Context, id string, c cri.Change) error {
	n.look(id, c)
	return n.Runtime.Update(ctx, id, c)
}

// unnoted is what of a call the journal on disk does not know. Nothing must be: a call may land late, when somebody has
// set other limits, and the agent that made it is gone.
func unnoted(t *testing.T, dir, id string, c cri.Change) cgroup.Limits {
	t.Helper()
	l := cgroup.Limits{Memory: max(0, c.Memory)}
	if c.Quota > 0 {
		l.Quota, l.Period = c.Quota, c.Period
	}
	return unknown(l, onDisk(t, dir)[id])
}

// late is a runtime whose calls miss their deadline while hung, and land when the test
// says so.
type late struct {
	cri.Runtime
	mu    sync.Mutex
	hung  bool
	calls []func() error
}

func (l *late) Update(ctx context.Context, id string, c cri.Change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hung {
		return l.Runtime.Update(ctx, id, c)
	}
	l.calls = append(l.calls, func() error { return l.Runtime.Update(context.WithoutCancel(ctx), id, c) })
	return context.DeadlineExceeded
}

// hang makes the runtime hang, or answer again.
func (l *late) hang(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hung = is
}

// eachFixture runs a test in which containers use CPU on a fixture of each cgroup version.
func eachFixture(t *testing.T, run func(*testing.T, *cgrouptest.Host)) {
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(v.String(), func(t *testing.T) { run(t, cgrouptest.Fixture(t, v)) })
	}
}

// contains fails when a problem does not say something.
func contains(t *testing.T, problem, want string) {
	t.Helper()
	if !strings.Contains(problem, want) {
		t.Errorf("problem %q, want %q in it", problem, want)
	}
}
