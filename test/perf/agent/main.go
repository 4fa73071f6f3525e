// Command agent measures the node agent on a real cluster with 110 pods of two containers, and
// the agents' reading of their latencies: what the agent costs in its own pod, how fast it
// relieves a container that is throttled, on a quiet machine and beside hogs, what one sampling
// loop allocates, and a resize through the agent beside the bare call to the container runtime.
//
// Progress is on standard error. The last line on standard output is JSON, with what was
// measured, how many samples that was, how busy the machine was, and which bars were missed.
// With --json it is the only line, and otherwise a table comes before it.
//
// Compare runs on one machine only, and the two kinds of resize only with each other. They
// alternate in one run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/test/cluster/images"
	"awarescale.dev/aware/test/cluster/lab"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The pods of pods.yaml.
const (
	pods       = 110
	containers = 2 // of each pod
	ceiling    = 200
)

// settings are the flags.
type settings struct {
	json    bool
	measure time.Duration // of CPU and memory
	bursts  int           // on the quiet machine, and as many beside hogs
	rounds  int           // of resizes
}

func main() {
	var s settings
	flag.BoolVar(&s.json, "json", false, "print nothing but JSON on standard output")
	flag.DurationVar(&s.measure, "for", 5*time.Minute, "how long CPU and memory are measured")
	flag.IntVar(&s.bursts, "bursts", 250, "bursts on the quiet machine, and as many beside hogs")
	flag.IntVar(&s.rounds, "rounds", 60, "resizes through the agent, and as many by the bare runtime")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-agent:", err)
		os.Exit(1)
	}
}

// check names a wrong flag.
func (s *settings) check() error {
	switch {
	case s.measure < 30*time.Second:
		return fmt.Errorf("flag --for: %v: it must be 30s or more, or no trend can be seen", s.measure)
	case s.bursts < 1:
		return fmt.Errorf("flag --bursts: %d: it must be 1 or more", s.bursts)
	case s.rounds < 1:
		return fmt.Errorf("flag --rounds: %d: it must be 1 or more", s.rounds)
	}
	return nil
}

func (s *settings) run(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := lab.Preflight(ctx, true); err != nil {
		return err
	}
	r, err := s.bench(ctx)
	if err != nil {
		return err
	}
	r.judge()
	if !s.json {
		r.table(os.Stdout)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if len(r.Missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(r.Missed, "; "))
	}
	return nil
}

// stage is the cluster that is measured.
type stage struct {
	settings *settings
	cluster  *lab.Cluster
	client   kubernetes.Interface
	tree     *cgroup.Tree
	token    string // of a user who may read the agent's metrics
	schedule schedule
}

// bench runs all measurements.
func (s *settings) bench(ctx context.Context) (*result, error) {
	// The kubelet takes AWARE's own pods, and hogs, beside those that are measured.
	cluster, err := lab.Up(ctx, lab.Config{Name: "perf", BindParent: true, MaxPods: pods + 30, Log: os.Stderr})
	if err != nil {
		return nil, err
	}
	defer cluster.Down(context.WithoutCancel(ctx))
	st := &stage{settings: s, cluster: cluster, schedule: s.schedule()}
	if st.tree, err = cgroup.Open("/sys/fs/cgroup"); err != nil {
		return nil, err
	}
	if st.client, err = kubernetes.NewForConfig(cluster.REST()); err != nil {
		return nil, err
	}
	r := &result{
		Pods:       pods,
		Containers: pods * containers,
		Cgroup:     st.tree.Version().String(),
		Host:       describeHost(),
	}
	for _, step := range []struct {
		name string
		do   func(context.Context, *result) error
	}{
		{"installing AWARE and the pods", st.install},
		{"waiting until all has settled", st.settle},
		{"measuring what the agent costs", st.cost},
		{"relief on a quiet machine", st.quiet},
		{"relief beside hogs", st.hogs},
		{"uninstalling AWARE", st.uninstall},
		{"allocations and resizes in this process", st.inProcess},
	} {
		st.schedule.begin(step.name)
		err := step.do(ctx, r)
		switch {
		case err == nil:
		case r.MeasuredS == 0 || ctx.Err() != nil: // nothing is measured yet, or no more
			return nil, fmt.Errorf("%s: %w", step.name, err)
		default:
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %v", step.name, err))
			say("%s: %v", step.name, err)
		}
	}
	return r, nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (st *stage) kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := st.cluster.Kubectl(ctx, args...)
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// install loads the images, and installs AWARE and the pods.
func (st *stage) install(ctx context.Context, _ *result) error {
	bin, err := os.MkdirTemp("", "aware-perf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	built := []images.Image{images.Agent, images.Central, images.Service}
	if err := images.Build(ctx, bin, say, images.Programs(built...)...); err != nil {
		return err
	}
	if err := images.Load(ctx, st.cluster, bin, built...); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "-k", "manifests/default"}, {"apply", "-f", "test/perf/agent/reader.yaml"},
		{"-n", "aware-system", "rollout", "status", "deployment/aware-scheduler", "--timeout=90s"},
		{"-n", "aware-system", "rollout", "status", "deployment/aware-autoscaler", "--timeout=90s"},
		{"-n", "aware-system", "rollout", "status", "daemonset/aware-agent", "--timeout=90s"},
		{"apply", "-f", "test/perf/agent/pods.yaml"},
		{"rollout", "status", "deployment/crowd", "--timeout=480s"},
	} {
		if _, err := st.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	st.token, err = st.kubectl(ctx, "create", "token", "metrics-reader", "-n", "aware-system", "--duration=2h")
	return err
}

// uninstall removes AWARE: only one agent may act on a node, and the next measurement has one
// in this process.
func (st *stage) uninstall(ctx context.Context, _ *result) error {
	_, err := st.kubectl(ctx, "delete", "-k", "manifests/default", "--timeout=120s")
	return err
}

// crowd is the pods of pods.yaml.
func (st *stage) crowd(ctx context.Context) ([]corev1.Pod, error) {
	list, err := st.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=crowd"})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != pods {
		return nil, fmt.Errorf("%d pods, want %d", len(list.Items), pods)
	}
	for _, p := range list.Items {
		if len(p.Status.ContainerStatuses) != containers || p.Status.PodIP == "" {
			return nil, fmt.Errorf("pod %s: %d containers, address %q: want %d and an address", p.Name,
				len(p.Status.ContainerStatuses), p.Status.PodIP, containers)
		}
	}
	return list.Items, nil
}

// agentPod is the pod of the installed agent.
func (st *stage) agentPod(ctx context.Context) (*corev1.Pod, error) {
	list, err := st.client.CoreV1().Pods("aware-system").List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=aware-agent"})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%d agents, want one", len(list.Items))
	}
	return &list.Items[0], nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
