package fault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
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
	"awarescale.dev/aware/nodeagent/restore/disktest"
)

// A soak is random faults, one after the other and several at once, on a node in virtual
// time. SOAK is how long it goes on (10m), SEED is its seed; without them one episode runs. The log
// of a run that fails says everything that happened in its last episode, and the same seed gives the
// same faults.
func TestRandomFaultsEndWithLegalLimits(t *testing.T) {
	length, err := time.ParseDuration(orElse(os.Getenv("SOAK"), "0s"))
	if err != nil {
		t.Fatalf("SOAK: %v", err)
	}
	seeds := []uint64{1}
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEED: %v", err)
		}
		seeds = []uint64{seed}
	}
	eachFixture(t, func(t *testing.T, host *cgrouptest.Host) {
		for _, seed := range seeds {
			s := newSoak(t, host, seed)
			begun := time.Now()
			for episodes := 0; episodes == 0 || time.Since(begun) < length/2; episodes++ { // half for each version
				s.episode()
			}
			s.end()
			t.Logf("seed %d: %v of virtual time, %d faults: %v", seed, s.now.Sub(noon), s.faults(), s.done)
		}
	})
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// episodes have so many seconds of faults, and then as many of rest as every clock of the
// agent needs: late calls, the breaker, backoffs, grants.
const (
	troubled = 90
	rested   = 6 * time.Minute
)

// killed is what a write panics with when the agent is killed there.
var killed = errors.New("the agent is killed")

// soak is a node whose world goes wrong.
type soak struct {
	t       *testing.T
	rng     *rand.Rand
	host    *cgrouptest.Host
	server  *critest.Server
	client  *cri.Client
	api     *apiServer
	dir     string
	disk    *disktest.Disk // with dir; nil where the test may not make one
	isFull  bool           // the disk
	journal *restore.Journal
	agent   *agent.Agent
	now     time.Time
	pods    map[string]*victim // by UID
	next    int                // number of the next pod or container
	news    []later            // of the API server, and late calls
	runtime string             // what the container runtime does: ok, fails, hangs, is away
	killIn  int                // calls of the runtime until the agent is killed; 0 is never
	after   bool               // it is killed after the call, and not before it
	central bool               // it is there
	policy  string             // what the policies do: follow, oscillate, nan, panic
	done    map[string]int     // faults, by name
	log     []string           // of this episode
}

// victim is a pod with one container.
type victim struct {
	uid     string
	id      string // of the container's instance
	size    mdp.Size
	known   mdp.Size // to the API server's watchers
	foreign mdp.Size // that another writer has set last; 0 is none
	mode    api.Mode
	demand  mdp.MilliCPU
	memory  mdp.Bytes
	worker  *cgrouptest.Worker
	since   time.Time // it has had more than it may; zero: it has not
	rest    func()    // of a resize that the kubelet has begun; nil: there is none
}

// later is something that happens at a time.
type later struct {
	at time.Time
	do func()
}

func newSoak(t *testing.T, host *cgrouptest.Host, seed uint64) *soak {
	t.Helper()
	s := &soak{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), host: host, dir: t.TempDir(), now: noon,
		api:  &apiServer{changed: make(chan struct{}, 1), ahead: map[string]mdp.Size{}},
		pods: map[string]*victim{}, done: map[string]int{},
		runtime: "ok", central: true, policy: "follow",
	}
	if os.Getuid() == 0 {
		s.disk = disktest.New(t, 16)
		s.dir = s.disk.Dir
	}
	s.server = critest.Start(t, host.Tree)
	client, err := cri.Dial(t.Context(), s.server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	s.client = client
	for range 4 {
		s.create()
	}
	s.boot()
	return s
}

// Container implements [cri.Runtime].
func (s *soak) Container(ctx context.Context, id string) (cri.Container, error) {
	switch s.runtime {
	case "ok":
	case "is away":
		return cri.Container{}, cri.ErrUnavailable
	default:
		return cri.Container{}, context.DeadlineExceeded
	}
	return s.client.Container(ctx, id)
}

// Update implements [cri.Runtime].
func (s *soak) Update(ctx context.Context, id string, c cri.Change) error {
	if left := unnoted(s.t, s.dir, id, c); left != (cgroup.Limits{}) {
		s.fail("a call for %s with %+v, which the journal on disk does not know: %+v", id, left, onDisk(s.t, s.dir)[id])
	}
	for _, v := range s.pods {
		if v.id == id {
			v.goOn()
		}
	}
	if s.killIn > 0 {
		if s.killIn--; s.killIn == 0 {
			if s.after {
				_ = s.client.Update(ctx, id, c) // it is carried out, and nobody hears of it
			}
			panic(killed)
		}
	}
	switch s.runtime {
	case "fails":
		return errors.New("the runtime fails")
	case "is away":
		return cri.ErrUnavailable
	case "hangs":
		s.later(30, func() { _ = s.client.Update(context.WithoutCancel(s.t.Context()), id, c) }) // its container may be gone
		return context.DeadlineExceeded
	}
	return s.client.Update(ctx, id, c)
}

// later does something within so many seconds.
func (s *soak) later(seconds int, do func()) {
	s.news = append(s.news, later{s.now.Add(time.Duration(s.rng.IntN(seconds*10)) * 100 * time.Millisecond), do})
}

func (s *soak) say(format string, args ...any) {
	s.log = append(s.log, s.now.Format("15:04:05.0 ")+fmt.Sprintf(format, args...))
}

func (s *soak) fail(format string, args ...any) {
	s.t.Helper()
	for _, line := range s.log {
		s.t.Log(line)
	}
	s.t.Fatalf(s.now.Format("15:04:05.0 ")+format, args...)
}

// boot starts an agent; the one before was killed.
func (s *soak) boot() {
	s.t.Helper()
	if s.journal != nil {
		s.journal.Close()
		s.known()
	}
	var err error
	if s.journal, err = restore.Open(s.dir); err != nil {
		s.fail("opening the journal: %v", err)
	}
	c := agent.Default()
	c.Node, c.Version = "node-1", "soak"
	c.Runtime.Slow, c.Runtime.Deadline = 10*time.Second, 10*time.Second
	s.agent, err = agent.New(c, agent.Deps{
		Tree: s.host.Tree, Runtime: s, Journal: s.journal, Pods: s.api, Policy: s.policyOf, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.fail("%v", err)
	}
	s.guarded(func() { s.agent.Start(s.t.Context(), s.now) })
	s.grant()
}

// known fails when a limit is in force that an agent that starts now could not know of.
func (s *soak) known() {
	entries := onDisk(s.t, s.dir)
	for _, v := range s.pods {
		l := s.host.Limits(s.t, s.path(v))
		if left := unknown(l, entries[v.id], v.size, v.foreign); left != (cgroup.Limits{}) {
			s.fail("%s has %+v in force, of which the journal does not know %+v: %+v", v.uid, l, left, entries[v.id])
		}
	}
}

// full makes the disk full, or gives it space again.
func (s *soak) full(is bool) {
	if s.disk == nil || is == s.isFull {
		return
	}
	if s.isFull = is; is {
		s.disk.Fill(s.rng.IntN(2))
	} else {
		s.disk.Free()
	}
}

// visit makes pods that are gone again after some seconds.
func (s *soak) visit() {
	for range 10 {
		s.create()
		v := s.pods[fmt.Sprintf("u%d", s.next-1)]
		s.later(20, func() {
			if s.pods[v.uid] == v {
				s.remove(v)
			}
		})
	}
}

// remove deletes a pod.
func (s *soak) remove(v *victim) {
	s.stop(v)
	delete(s.pods, v.uid)
	s.tell()
	s.say("%s is deleted", v.uid)
}

// guarded runs the agent until it is killed; then there is another one.
func (s *soak) guarded(do func()) {
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, killed) {
				panic(r)
			}
			s.say("killed in a call")
			s.boot()
		}
	}()
	do()
}

// policyOf is a policy that is sometimes wrong.
func (s *soak) policyOf(api.ContainerRef) mdp.Policy {
	return mdp.PolicyFunc(func(state mdp.State) (mdp.Action, error) {
		if err := state.Require("soak", mdp.CPULimit, mdp.CPUPeak); err != nil {
			return mdp.Action{}, err
		}
		a := mdp.Action{}.WithCPU(max(10, state.CPUPeak*3/2))
		if state.Knows(mdp.MemoryLimit, mdp.MemoryUsage) {
			a = a.WithMemory(max(1, state.Usage.Memory*3/2))
		}
		switch s.policy {
		case "oscillate":
			a = a.WithCPU([]mdp.MilliCPU{1, math.MaxInt64}[s.rng.IntN(2)])
		case "nan":
			a = a.WithCPU(-5)
		case "panic":
			panic("a policy that panics")
		}
		return a, nil
	})
}

func (s *soak) podPath(v *victim) string { return s.host.Parent + "/burstable/pod" + v.uid }
func (s *soak) path(v *victim) string    { return s.podPath(v) + "/" + v.id }

func (s *soak) random() mdp.Size {
	return mdp.Size{CPU: mdp.MilliCPU(200 + 50*s.rng.IntN(37)), Memory: mdp.Bytes(128+32*s.rng.IntN(13)) * mdp.MiB}
}

// create makes a pod.
func (s *soak) create() {
	s.next++
	v := &victim{uid: fmt.Sprintf("u%d", s.next), size: s.random(), mode: api.Auto, demand: 100, memory: 40 * mdp.MiB}
	v.known = v.size
	s.pods[v.uid] = v
	s.run(v)
	s.say("%s is made with %v", v.uid, v.size)
}

// run starts an instance of a pod's container, with what the API gives it.
func (s *soak) run(v *victim) {
	s.next++
	v.id, v.worker, v.foreign, v.since = fmt.Sprintf("c%d", s.next), new(cgrouptest.Worker), mdp.Size{}, time.Time{}
	s.host.Add(s.t, s.podPath(v), limits(v.size))
	s.host.Add(s.t, s.path(v), limits(v.size))
	s.server.Add(v.id, "/"+s.path(v), limits(v.size))
	s.tell()
}

// stop ends an instance.
func (s *soak) stop(v *victim) {
	s.host.Remove(s.t, s.path(v))
	s.server.Remove(v.id)
}

// tell brings what the API server says up to date, but for limits, whose news may be late.
func (s *soak) tell() {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	s.api.pods = nil
	for _, v := range s.pods {
		s.api.pods = append(s.api.pods, agent.Pod{
			Namespace: "shop", Name: "web-" + v.uid, UID: v.uid, QoS: "Burstable",
			Containers: []agent.Container{{
				Name: "app", ID: v.id, Running: true, Limits: v.known, Requests: mdp.Size{CPU: 100},
			}},
		})
	}
	select {
	case s.api.changed <- struct{}{}:
	default:
	}
}

// pick is one of the pods; nil when there is none.
func (s *soak) pick() *victim {
	n := s.rng.IntN(max(1, len(s.pods)))
	for i := 0; i <= s.next; i++ { // in an order that does not change
		if v := s.pods[fmt.Sprintf("u%d", i)]; v != nil {
			if n == 0 {
				return v
			}
			n--
		}
	}
	return nil
}

// kubelet carries out a resize as the real one does: first memory, and then CPU, in two calls of the runtime. The second
// one comes within a second, or while the agent is about to make a call for the container. Its news are late.
func (s *soak) kubelet(v *victim, size mdp.Size) {
	v.goOn()
	s.host.Add(s.t, s.podPath(v), limits(mdp.Size{CPU: max(size.CPU, v.size.CPU), Memory: max(size.Memory, v.size.Memory)}))
	s.say("the kubelet gives %s %v instead of %v", v.uid, size, v.size)
	id := v.id
	s.api.knows(id, size) // it gives nothing that the API server does not have
	give := func(size mdp.Size) {
		l := limits(size)
		if err := s.client.Update(s.t.Context(), id, cri.Change{Quota: l.Quota, Period: l.Period, Memory: l.Memory}); err != nil {
			s.fail("the kubelet's resize: %v", err)
		}
		v.size = size
	}
	give(mdp.Size{CPU: v.size.CPU, Memory: size.Memory})
	v.foreign = mdp.Size{}
	v.rest = func() {
		if v.rest = nil; v.id == id && s.pods[v.uid] == v {
			give(size)
			s.host.Add(s.t, s.podPath(v), limits(size))
			s.say("the kubelet has given %s %v", v.uid, size)
		}
		s.later(5, func() {
			v.known = v.size
			s.tell()
		})
	}
	s.later(1, v.goOn)
}

// goOn lets the kubelet end a resize that it has begun.
func (v *victim) goOn() {
	if v.rest != nil {
		v.rest()
	}
}

// grant is central's message, when it is there.
func (s *soak) grant() {
	if !s.central || s.agent == nil {
		return
	}
	m := api.Grants{TTL: 30 * time.Second}
	for _, v := range s.pods {
		if v.mode == api.Off {
			continue
		}
		m.All = append(m.All, api.Grant{
			Container: api.ContainerRef{Namespace: "shop", Pod: "web-" + v.uid, PodUID: v.uid, Container: "app"},
			Mode:      v.mode, Throttle: 0.02,
			Bounds: mdp.Bounds{
				CPU:    mdp.Range[mdp.MilliCPU]{Min: 50, Max: 100000},
				Memory: mdp.Range[mdp.Bytes]{Min: 16 * mdp.MiB, Max: 1 << 50},
			},
		})
	}
	s.agent.Apply(s.now, m)
}

// trouble is one fault.
func (s *soak) trouble() {
	v := s.pick()
	all := []struct {
		name string
		do   func()
	}{
		{"agent killed", s.boot},
		{"agent killed in a call", func() { s.killIn, s.after = 1+s.rng.IntN(4), s.rng.IntN(2) == 0 }},
		{"runtime fails", func() { s.runtime = "fails" }},
		{"runtime hangs", func() { s.runtime = "hangs" }},
		{"runtime restarted", func() {
			s.runtime = "is away"
			s.later(10, func() {
				if s.runtime == "is away" {
					s.runtime = "ok"
				}
			})
		}},
		{"disk full", func() { s.full(true) }},
		{"disk has space", func() { s.full(false) }},
		{"a crowd comes and goes", s.visit},
		{"runtime is well", func() { s.runtime = "ok" }},
		{"API server away", func() { s.api.away(true) }},
		{"API server back", func() { s.api.away(false) }},
		{"central away", func() { s.central = false }},
		{"central back", func() { s.central = true; s.grant() }},
		{"policy", func() { s.policy = []string{"follow", "oscillate", "nan", "panic"}[s.rng.IntN(4)] }},
		{"clock jumps", func() { s.now = s.now.Add(time.Duration(s.rng.IntN(100)) * time.Second) }},
		{"pod made", func() {
			if len(s.pods) < 10 {
				s.create()
			}
		}},
	}
	if v != nil {
		all = append(all, []struct {
			name string
			do   func()
		}{
			{"resize", func() {
				size := s.random()
				size.Memory = max(size.Memory, v.memory*3/2)
				s.kubelet(v, size)
			}},
			{"another writer", func() {
				to := mdp.Size{
					CPU:    mdp.MilliCPU(50 + 10*s.rng.IntN(int(v.size.CPU)/10-4)),
					Memory: max(v.memory*3/2, v.size.Memory/2),
				}
				if err := s.host.Tree.Write(s.path(v), limits(to)); err != nil {
					s.fail("another writer: %v", err)
				}
				v.foreign = to
				s.say("another writer gives %s %v", v.uid, to)
			}},
			{"container restarted", func() { s.stop(v); s.run(v); s.say("%s is %s now", v.uid, v.id) }},
			{"pod deleted", func() { s.remove(v) }},
			{"mode", func() { v.mode = []api.Mode{api.Auto, api.Observe, api.Off, api.Recommend}[s.rng.IntN(4)]; s.grant() }},
			{"burst", func() { v.demand = mdp.MilliCPU(s.rng.IntN(3000)) }},
			{"memory", func() { v.memory = min(mdp.Bytes(20+s.rng.IntN(100))*mdp.MiB, v.size.Memory*2/3) }},
		}...)
	}
	one := all[s.rng.IntN(len(all))]
	s.done[one.name]++
	s.say("%s", one.name)
	one.do()
}

func (s *soak) faults() (n int) {
	for _, times := range s.done {
		n += times
	}
	return n
}

// tick is a tenth of a second.
func (s *soak) tick() {
	s.now = s.now.Add(100 * time.Millisecond)
	var rest []later
	due := s.news
	s.news = nil
	for _, n := range due {
		if n.at.After(s.now) {
			rest = append(rest, n)
		} else {
			n.do()
		}
	}
	s.news = append(s.news, rest...)
	for _, v := range s.pods {
		// What is over the limit is reclaimed, or the kernel kills: not our subject here.
		memory := min(v.memory, s.limit(v).Memory*95/100)
		v.worker.Demand, v.worker.Memory = v.demand, memory
		v.worker.Work(s.t, s.host, s.path(v))
	}
	s.guarded(func() { s.agent.Sample(s.now) })
	if s.now.Nanosecond() == 0 {
		s.guarded(func() { s.agent.Step(s.t.Context(), s.now) })
		if s.now.Second()%5 == 0 {
			s.grant()
		}
	}
	s.look()
}

func (s *soak) limit(v *victim) mdp.Size { return s.host.Limits(s.t, s.path(v)).Size() }

// patience is how long a container may have more than the kubelet has given it, after a
// late call has landed, while all is well.
const patience = 70 * time.Second

// look fails when a limit in force is not legal, or a value of ours that the journal does not know. More than
// the API gives is legal for a moment only: a late call of a runtime that hung may bring it back.
func (s *soak) look() {
	for _, v := range s.pods {
		inForce := s.host.Limits(s.t, s.path(v))
		l := inForce.Size()
		if e, _ := s.journal.Get(v.id); unknown(inForce, e, v.size, v.foreign) != (cgroup.Limits{}) {
			s.fail("%s has %+v in force, of which the journal does not know: %+v", v.uid, inForce, e)
		}
		if l.CPU < 10 || l.Memory < 4*mdp.MiB {
			s.fail("%s has %v in force, below the floor", v.uid, l)
		}
		legal := mdp.Size{CPU: max(v.size.CPU, v.foreign.CPU), Memory: max(v.size.Memory, v.foreign.Memory)}
		switch {
		case l.CPU <= legal.CPU && l.Memory <= legal.Memory:
			v.since = time.Time{}
		case v.since.IsZero() || s.runtime != "ok":
			v.since = s.now
		case s.now.Sub(v.since) > patience:
			s.fail("%s has %v in force for %v, and may have %v", v.uid, l, s.now.Sub(v.since), legal)
		}
	}
}

// episode is some minutes of faults, and rest. Then everything is as it should be.
func (s *soak) episode() {
	s.t.Helper()
	s.log = nil
	for range troubled {
		if s.rng.IntN(3) == 0 {
			s.trouble()
		}
		for range 10 {
			s.tick()
		}
	}
	s.say("rest")
	s.runtime, s.central, s.policy, s.killIn = "ok", true, "follow", 0
	s.full(false)
	s.api.away(false)
	for _, v := range s.pods {
		v.mode, v.demand = api.Auto, 100
	}
	s.tell()
	s.grant()
	s.rest(rested)
	moved := 0
	for _, v := range s.pods {
		if s.limit(v).CPU < v.size.CPU {
			moved++
		}
	}
	if moved == 0 && len(s.pods) > 0 {
		s.fail("after the faults no container of %d is moved: %+v", len(s.pods), s.agent.Report(s.now).Containers)
	}
}

func (s *soak) rest(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.tick()
	}
}

// end opts everything out: then every container has what the API gives, and nothing is left in
// the journal.
func (s *soak) end() {
	s.t.Helper()
	for _, v := range s.pods {
		v.mode = api.Off
	}
	s.grant()
	s.rest(3 * time.Minute)
	for _, v := range s.pods {
		l := s.limit(v)
		above := l.CPU > v.size.CPU || l.Memory > v.size.Memory
		if l != v.size && l != v.foreign && (v.foreign == mdp.Size{} || above) {
			s.fail("in the end %s has %v, and the API gives %v (another writer %v)", v.uid, l, v.size, v.foreign)
		}
	}
	if e := s.journal.Entries(); len(e) > 0 {
		s.fail("in the end there is in the journal: %+v", e)
	}
	for _, v := range s.pods {
		s.stop(v)
	}
	s.journal.Close()
}
