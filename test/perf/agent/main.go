// Command agent measures the cost of the node agent on a real cluster with
// thirty real pods: its CPU and memory in its own pod at 10 Hz, the allocations
// of one sampling loop, and the time of a resize through the agent and of the
// bare call to the container runtime. Both kinds of resize alternate in the
// same run.
//
// The last line is JSON. Compare runs on one machine only, and the two latencies only
// with each other.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/agent"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/restore"
	"awarescale.dev/aware/test/cluster/images"
	"awarescale.dev/aware/test/cluster/lab"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	pods    = 30
	settle  = 30 * time.Second // until the agent's first shrinks are done
	measure = 30 * time.Second // of CPU and memory
	rounds  = 40               // of resizes
)

// result is the last line.
type result struct {
	Pods          int     `json:"pods"`
	CPUMillicores float64 `json:"cpu_millicores"`
	RSSMiB        float64 `json:"rss_mib"`
	AllocsPerLoop float64 `json:"allocs_per_loop"`
	L1P50MS       float64 `json:"l1_p50_ms"`
	BareCRIP50MS  float64 `json:"bare_cri_p50_ms"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if err := lab.Preflight(ctx, true); err != nil {
		return err
	}
	cluster, err := lab.Up(ctx, lab.Config{Name: "perf", BindParent: true, Log: os.Stderr})
	if err != nil {
		return err
	}
	defer cluster.Down(context.WithoutCancel(ctx))
	if err := install(ctx, cluster); err != nil {
		return err
	}
	tree, err := cgroup.Open("/sys/fs/cgroup")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cluster.REST())
	if err != nil {
		return err
	}
	r := result{Pods: pods}
	if r.CPUMillicores, r.RSSMiB, err = cost(ctx, client, cluster, tree); err != nil {
		return fmt.Errorf("measuring the agent: %w", err)
	}
	say("the agent uses %.1f millicores and %.1f MiB", r.CPUMillicores, r.RSSMiB)
	// Only one agent may act on a node, so the installed one is removed before one
	// runs in this process.
	if out, err := cluster.Kubectl(ctx, "delete", "-k", "manifests/default", "--timeout=90s"); err != nil {
		return fmt.Errorf("uninstalling: %w: %s", err, out)
	}
	if err := r.inProcess(ctx, client, cluster, tree); err != nil {
		return fmt.Errorf("measuring in this process: %w", err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// install loads the images, and installs AWARE and the pods.
func install(ctx context.Context, cluster *lab.Cluster) error {
	bin, err := os.MkdirTemp("", "aware-perf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	built := []images.Image{images.Agent, images.Central, images.Service}
	if err := images.Build(ctx, bin, say, images.Programs(built...)...); err != nil {
		return err
	}
	if err := images.Load(ctx, cluster, bin, built...); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "-k", "manifests/default"}, {"apply", "-f", "test/perf/agent/pods.yaml"},
		{"-n", "aware-system", "rollout", "status", "deployment/aware-scheduler", "--timeout=90s"},
		{"-n", "aware-system", "rollout", "status", "deployment/aware-autoscaler", "--timeout=90s"},
		{"-n", "aware-system", "rollout", "status", "daemonset/aware-agent", "--timeout=90s"},
		{"rollout", "status", "deployment/crowd", "--timeout=180s"},
	} {
		if out, err := cluster.Kubectl(ctx, args...); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// group is a container's cgroup.
func group(cluster *lab.Cluster, p *corev1.Pod) string {
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	return path.Join(cluster.CgroupParent(), "kubepods", strings.ToLower(string(p.Status.QOSClass)),
		"pod"+string(p.UID), id)
}

// cost is the CPU and the resident memory of the installed agent.
func cost(ctx context.Context, client kubernetes.Interface, cluster *lab.Cluster,
	tree *cgroup.Tree) (millicores, mib float64, err error) {
	list, err := client.CoreV1().Pods("aware-system").List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=aware-agent"})
	if err != nil || len(list.Items) != 1 {
		return 0, 0, fmt.Errorf("%d agents: %w", len(list.Items), err)
	}
	g, err := tree.Group(group(cluster, &list.Items[0]))
	if err != nil {
		return 0, 0, err
	}
	defer g.Close()
	say("settling for %v", settle)
	if err := pause(ctx, settle); err != nil {
		return 0, 0, err
	}
	var before, after cgroup.CPU
	if err := g.ReadCPU(&before); err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	say("measuring for %v", measure)
	if err := pause(ctx, measure); err != nil {
		return 0, 0, err
	}
	if err := g.ReadCPU(&after); err != nil {
		return 0, 0, err
	}
	millicores = float64(after.Usage-before.Usage) / float64(time.Since(begun)) * 1000
	mib, err = resident(tree, group(cluster, &list.Items[0]))
	return millicores, mib, err
}

// resident is the resident memory of a cgroup's first process, in MiB.
func resident(tree *cgroup.Tree, group string) (float64, error) {
	hierarchy := tree.Root()
	if tree.Version() == cgroup.V1 {
		hierarchy = filepath.Join(hierarchy, "memory")
	}
	procs, err := os.ReadFile(filepath.Join(hierarchy, group, "cgroup.procs"))
	if err != nil {
		return 0, err
	}
	pids := strings.Fields(string(procs))
	if len(pids) == 0 {
		return 0, fmt.Errorf("no process in %s", group)
	}
	status, err := os.ReadFile("/proc/" + pids[0] + "/status")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(status), "\n") {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kib); n == 1 {
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("process %s has no VmRSS", pids[0])
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// podsOf is the pods as the agent's list of pods.
func podsOf(list *corev1.PodList) agent.Fixed {
	var crowd agent.Fixed
	for i := range list.Items {
		p := &list.Items[i]
		_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
		l := p.Spec.Containers[0].Resources.Limits
		crowd = append(crowd, agent.Pod{
			Namespace: p.Namespace,
			Name:      p.Name,
			UID:       string(p.UID),
			QoS:       string(p.Status.QOSClass),
			Containers: []agent.Container{{
				Name:    "crowd",
				ID:      id,
				Running: true,
				Limits: mdp.Size{
					CPU:    mdp.MilliCPU(l.Cpu().MilliValue()),
					Memory: mdp.Bytes(l.Memory().Value()),
				},
			}},
		})
	}
	return crowd
}

// inProcess runs the agent's loop in this process on the same containers.
func (r *result) inProcess(ctx context.Context, client kubernetes.Interface, cluster *lab.Cluster,
	tree *cgroup.Tree) error {
	list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=crowd"})
	if err != nil {
		return err
	}
	crowd := podsOf(list)
	if len(crowd) != pods {
		return fmt.Errorf("%d pods, want %d", len(crowd), pods)
	}
	runtime, err := cri.Dial(ctx, cluster.CRISocket())
	if err != nil {
		return err
	}
	defer runtime.Close()
	dir, err := os.MkdirTemp("", "aware-perf-journal-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	journal, err := restore.Open(dir)
	if err != nil {
		return err
	}
	defer journal.Close()
	c := agent.Default()
	c.Node, c.Version = cluster.Node(), "bench"
	// The policy alternates between half and all of the smallest limit in the API.
	// AWARE may have shrunk the limits of the template before.
	ceiling := crowd[0].Containers[0].Limits.CPU
	for _, p := range crowd {
		ceiling = min(ceiling, p.Containers[0].Limits.CPU)
	}
	limit := ceiling
	a, err := agent.New(c, agent.Deps{
		Tree:    tree,
		Runtime: runtime,
		Journal: journal,
		Pods:    crowd,
		Policy: func(api.ContainerRef) mdp.Policy {
			return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
				return mdp.Action{}.WithCPU(limit), nil
			})
		},
	})
	if err != nil {
		return err
	}
	now := time.Now()
	a.Start(ctx, now)
	a.Step(ctx, now)
	r.AllocsPerLoop = testing.AllocsPerRun(200, func() {
		now = now.Add(100 * time.Millisecond)
		a.Sample(now)
	})
	return r.resizes(ctx, a, runtime, crowd, &limit, now)
}

// resizes resizes one container through the agent and another one by the bare
// runtime, alternately. limit is what the agent's policy sets; now it is the
// ceiling. The agent's time is an argument, so that it never waits for its
// budget. The time of a step without a resize is subtracted.
func (r *result) resizes(ctx context.Context, a *agent.Agent, runtime *cri.Client, crowd agent.Fixed,
	limit *mdp.MilliCPU, now time.Time) error {
	ceiling := *limit
	ref := api.ContainerRef{
		Namespace: crowd[0].Namespace,
		Pod:       crowd[0].Name,
		PodUID:    crowd[0].UID,
		Container: "crowd",
	}
	grant := api.Grants{
		TTL: time.Hour,
		All: []api.Grant{{
			Container: ref,
			Mode:      api.Auto,
			Bounds: mdp.Bounds{
				CPU:    mdp.Range[mdp.MilliCPU]{Min: 10, Max: ceiling},
				Memory: mdp.Range[mdp.Bytes]{Min: 16 * mdp.MiB, Max: 64 * mdp.MiB},
			},
		}},
	}
	var through, idle, bare []time.Duration
	step := func() time.Duration {
		now = now.Add(10 * time.Second)
		a.Apply(now, grant)
		begun := time.Now()
		a.Step(ctx, now)
		return time.Since(begun)
	}
	for i := range rounds {
		*limit = ceiling / mdp.MilliCPU(2-i%2)
		through = append(through, step())
		idle = append(idle, step())
		quota := int64(*limit) * 100
		begun := time.Now()
		if err := runtime.Update(ctx, crowd[1].Containers[0].ID,
			cri.Change{Quota: quota, Period: 100000}); err != nil {
			return err
		}
		bare = append(bare, time.Since(begun))
	}
	for _, s := range a.Report(now).Containers {
		if s.Container == ref && s.Resizes < rounds {
			return fmt.Errorf("only %d of %d resizes were made: %s", s.Resizes, rounds, s.Problem)
		}
	}
	if err := a.Restore(ctx, now); err != nil {
		return err
	}
	r.L1P50MS = ms(median(through) - median(idle))
	r.BareCRIP50MS = ms(median(bare))
	return nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func ms(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / 1e6 }
