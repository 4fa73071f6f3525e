// Command link measures what a large cluster costs central: simulated agents, in a
// process of their own, keep their streams over TLS with the real client, and central
// takes their reports in with the real server and fleet. Central's pods and token
// reviews are not real: the API server is not what is measured.
//
// The last line is JSON. The processors are shared with the simulated agents, which
// do more work than central.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/link"
	"awarescale.dev/aware/plugins/fleet"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// name is the name in central's certificate.
const name = "aware-central.aware-system.svc"

// settings are the flags.
type settings struct {
	nodes, containers int
	changed           float64
	every             time.Duration
	warm, measure     time.Duration
	role, at, ca      string // of the processes that the command starts
}

// result is the last line.
type result struct {
	Nodes          int     `json:"nodes"`
	Containers     int     `json:"containers_per_node"`
	Every          float64 `json:"report_every_s"`
	Connected      int     `json:"connected"`
	ReportsPerS    float64 `json:"reports_per_s"`
	SummariesPerS  float64 `json:"summaries_per_s"`
	Cores          float64 `json:"central_cores"`
	RSSMiB         float64 `json:"central_rss_mib"`
	SnapshotP50MS  float64 `json:"report_to_snapshot_p50_ms"`
	SnapshotP99MS  float64 `json:"report_to_snapshot_p99_ms"`
	ScoreReadP99US float64 `json:"score_read_p99_us"`
}

func main() {
	var s settings
	flag.IntVar(&s.nodes, "nodes", 5000, "simulated nodes")
	flag.IntVar(&s.containers, "containers", 110, "containers of each")
	flag.Float64Var(&s.changed, "changed", 0.1, "share of the containers that have news in each report")
	flag.DurationVar(&s.every, "every", api.ReportEvery, "time between two reports of a node")
	flag.DurationVar(&s.warm, "warm", time.Minute, "time until all are connected, at most")
	flag.DurationVar(&s.measure, "for", time.Minute, "time that is measured")
	flag.StringVar(&s.role, "role", "", "used by the command itself")
	flag.StringVar(&s.at, "at", "", "used by the command itself")
	flag.StringVar(&s.ca, "ca", "", "used by the command itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := map[string]func(context.Context) error{"": s.run, "central": s.central, "agents": s.agents}[s.role]
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-link:", err)
		os.Exit(1)
	}
}

// run starts central and the agents, and prints what central says at its end.
func (s *settings) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-link")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	central := s.child(ctx, "central", "-ca", filepath.Join(dir, "ca.crt"))
	out, err := central.StdoutPipe()
	if err != nil {
		return err
	}
	if err := central.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return fmt.Errorf("central did not start: %w", central.Wait())
	}
	agents := s.child(ctx, "agents", "-at", lines.Text(), "-ca", filepath.Join(dir, "ca.crt"))
	if err := agents.Start(); err != nil {
		return err
	}
	defer func() { cancel(); agents.Wait() }()
	if !lines.Scan() {
		return fmt.Errorf("central ended: %w", central.Wait())
	}
	fmt.Println(lines.Text())
	return central.Wait()
}

// child is a process of this command in another role.
func (s *settings) child(ctx context.Context, role string, more ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0], append(slices.Clone(os.Args[1:]), append([]string{"-role", role}, more...)...)...)
	c.Stderr = os.Stderr
	c.Env = append(os.Environ(), "GOGC=50") // as manifests/base sets it
	return c
}

// node is the name of a simulated node, and podUID that of one of its pods.
func node(i int) string                { return "node-" + strconv.Itoa(i) }
func podUID(node string, k int) string { return node + "/" + strconv.Itoa(k) }

// cluster has placed every pod on the node that its UID begins with.
type cluster struct{}

func (cluster) Runs(node string, c api.ContainerRef) bool {
	of, _, _ := strings.Cut(c.PodUID, "/")
	return of == node
}
func (cluster) Capacity(string) (mdp.Size, bool) {
	return mdp.Size{CPU: 64000, Memory: 256 << 30}, true
}
func (c cluster) Room(node string) (mdp.Size, bool) { return c.Capacity(node) }

// reviews takes every token, which is the name of its node.
type reviews struct{}

func (reviews) Review(_ context.Context, _, token string) (fleet.Identity, error) {
	return fleet.Identity{Node: token}, nil
}

// measured is the fleet, with a note of how long each report took to arrive in the
// snapshot that the scheduler reads.
type measured struct {
	*fleet.Fleet
	reports, summaries atomic.Int64

	mu   sync.Mutex
	took []time.Duration
}

func (m *measured) Accept(now time.Time, r api.Report) {
	m.Fleet.Accept(now, r)
	took := time.Since(r.At)
	m.reports.Add(1)
	m.summaries.Add(int64(len(r.Containers)))
	m.mu.Lock()
	m.took = append(m.took, took)
	m.mu.Unlock()
}

func (s *settings) central(ctx context.Context) error {
	kube := fake.NewClientset()
	cert := &fleet.Certificate{Client: kube, Namespace: "aware-system", Name: name, Now: time.Now}
	if err := cert.Ensure(ctx); err != nil {
		return err
	}
	m, err := kube.CoreV1().ConfigMaps("aware-system").Get(ctx, api.CAConfigMap, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.ca, []byte(m.Data[api.CAKey]), 0o600); err != nil {
		return err
	}
	known := &measured{Fleet: fleet.New(10 * time.Minute)}
	for i := range s.nodes {
		var grants []api.Grant
		for k := range s.containers {
			grants = append(grants, api.Grant{Container: ref(node(i), k), Mode: api.Auto})
		}
		known.Grant(node(i), map[string][]api.Grant{node(i): grants})
	}
	known.Open()
	server := &fleet.Server{
		Central: known, Cluster: cluster{}, Reviewer: reviews{}, Now: time.Now, Serving: func() bool { return true },
		Log: func(err error, message string, _ ...any) { fmt.Fprintln(os.Stderr, message, err) },
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: server.Handler(), TLSConfig: cert.Config(), ReadHeaderTimeout: 10 * time.Second}
	go web.ServeTLS(l, "", "")
	defer web.Close()
	fmt.Println(l.Addr())

	for begin := time.Now(); known.Nodes(time.Now(), time.Minute) < s.nodes && time.Since(begin) < s.warm && ctx.Err() == nil; {
		time.Sleep(time.Second)
		fmt.Fprintf(os.Stderr, "%d of %d nodes are connected\n", known.Nodes(time.Now(), time.Minute), s.nodes)
	}
	time.Sleep(2 * s.every)
	known.mu.Lock()
	known.took = nil
	known.mu.Unlock()
	reports, summaries, cpu, begin := known.reports.Load(), known.summaries.Load(), used(), time.Now()
	var reads []time.Duration
	for time.Since(begin) < s.measure && ctx.Err() == nil {
		at := time.Now()
		known.Upper(node(rand.IntN(s.nodes)), at, time.Minute)
		reads = append(reads, time.Since(at))
		time.Sleep(20 * time.Millisecond) // so that measuring costs little
	}
	took := time.Since(begin).Seconds()
	r := result{
		Nodes: s.nodes, Containers: s.containers, Every: s.every.Seconds(),
		Connected:     known.Nodes(time.Now(), 3*s.every+time.Second),
		ReportsPerS:   float64(known.reports.Load()-reports) / took,
		SummariesPerS: float64(known.summaries.Load()-summaries) / took,
		Cores:         (used() - cpu).Seconds() / took,
		RSSMiB:        resident(),
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	r.SnapshotP50MS = percentile(known.took, 0.5).Seconds() * 1e3
	r.SnapshotP99MS = percentile(known.took, 0.99).Seconds() * 1e3
	r.ScoreReadP99US = percentile(reads, 0.99).Seconds() * 1e6
	return json.NewEncoder(os.Stdout).Encode(r)
}

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no reason to
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the most memory that this process had, in MiB.
func resident() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no reason to
	}
	return float64(u.Maxrss) / 1024
}

func percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(p*float64(len(all)-1))]
}

func ref(node string, k int) api.ContainerRef {
	return api.ContainerRef{Namespace: "shop", Pod: "web-" + strconv.Itoa(k), PodUID: podUID(node, k), Container: "web"}
}

// simulated is a node whose containers have news now and then.
type simulated struct {
	name    string
	changed float64
	mu      sync.Mutex
	all     []api.Summary
	permit  api.Permit
}

func (n *simulated) Report(now time.Time) api.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range int(float64(len(n.all)) * n.changed) {
		one := &n.all[rand.IntN(len(n.all))]
		one.State.Usage.CPU = mdp.MilliCPU(100 + rand.IntN(900))
		one.State.CPUPeak = one.State.Usage.CPU + 50
		one.State.At = now
	}
	account := api.Account{
		InForce: mdp.Size{CPU: 20000, Memory: 64 << 30},
		Asked:   mdp.Size{CPU: 30000, Memory: 96 << 30},
		Holds:   n.permit.ID,
	}
	return api.Report{Node: n.name, Agent: "bench", At: now, Full: true, Containers: slices.Clone(n.all), Account: &account}
}
func (n *simulated) Apply(now time.Time, m api.Grants) { n.Renew(now, m.Permit) }
func (n *simulated) Renew(_ time.Time, p api.Permit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.permit = n.permit.Then(p)
}
func (*simulated) Urgent() <-chan struct{} { return nil }

func (s *settings) agents(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-link-agents")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var running sync.WaitGroup
	for i := range s.nodes {
		n := &simulated{name: node(i), changed: s.changed}
		for k := range s.containers {
			one := api.Summary{Container: ref(n.name, k), Mode: api.Auto, Effect: mdp.Applied}
			one.State.Observed = mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.CPUUsage, mdp.MemoryUsage, mdp.CPUPeak,
				mdp.CPUDeviation, mdp.Throttled, mdp.CPUPressure, mdp.MemoryPressure, mdp.IOPressure, mdp.OOMKills)
			one.State.Limit = mdp.Size{CPU: 1000, Memory: 256 * mdp.MiB}
			one.State.Usage = mdp.Size{CPU: 300, Memory: 100 * mdp.MiB}
			one.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: 50, Max: 1000}
			one.Bounds.Memory = mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 256 * mdp.MiB}
			n.all = append(n.all, one)
		}
		token := filepath.Join(dir, n.name)
		if err := os.WriteFile(token, []byte(n.name), 0o600); err != nil {
			return err
		}
		l := &link.Client{
			Node: n, URL: "https://" + s.at, Name: name, Token: token, Every: s.every, Now: time.Now,
			CA:  func(context.Context) ([]byte, error) { return os.ReadFile(s.ca) },
			Log: func(error, string, ...any) {},
		}
		running.Go(func() {
			// They do not start at the same instant.
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(s.warm / 2)):
			}
			l.Run(ctx)
		})
	}
	running.Wait()
	return nil
}
