// Package e2e installs AWARE on a real cluster as users do, with images of a registry and
// kubectl apply -k, and checks invariants that hold for every
// decision:
//
//   - in every sample, a container's limits in force are not above the limits that
//     its node has allocated;
//   - the CPU time of the pods is the CPU time of the node's pods' group;
//   - after a part of AWARE was killed or removed, containers get their API values
//     back;
//   - AWARE never restarts a container.
//
// The tests run one after another on one cluster and one workload. A watchdog
// samples the limits in force during all of them.
//
// With -args -second the workload runs on a second node: a virtual machine with cgroup v2.
// Tests that have nothing to do with the node are skipped then.
//
// With -args -faults the node of the workload is also broken, in one way after the other.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/test/apps/load"
	"awarescale.dev/aware/test/apps/traces"
	"awarescale.dev/aware/test/cluster/images"
	"awarescale.dev/aware/test/cluster/lab"
	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shared by the tests.
var (
	cluster *lab.Cluster
	kube    client.Client
	watch   *watchdog // of the limits in force
	bin     string    // folder of AWARE's binaries
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	var err error
	if bin, err = os.MkdirTemp("", "aware-e2e-"); err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(bin)
	return lab.RunTestsOn(m, labConfig(), func(ctx context.Context, c *lab.Cluster) (func(int), error) {
		cluster = c
		watch = newWatchdog()
		watching, stop := context.WithCancel(ctx)
		done := func(code int) {
			stop()
			if code != 0 {
				diagnose(ctx)
			}
		}
		began := time.Now()
		if err := install(ctx); err != nil {
			return done, fmt.Errorf("installing AWARE: %w", err)
		}
		fmt.Printf("installed after %v\n", time.Since(began).Round(time.Second))
		go watch.run(watching)
		return done, nil
	})
}

// install builds the images, and installs AWARE and the workload.
func install(ctx context.Context) error {
	built := []images.Image{images.Agent, images.Central, images.Service}
	if err := images.Build(ctx, bin, nil, append(images.Programs(built...), "./cmd/aware")...); err != nil {
		return err
	}
	began := time.Now()
	if err := loadImages(ctx); err != nil {
		return err
	}
	fmt.Printf("the nodes have their images after %v\n", time.Since(began).Round(time.Second))
	scheme := runtime.NewScheme()
	clientgoscheme.AddToScheme(scheme)
	v1alpha1.AddToScheme(scheme)
	var err error
	if kube, err = client.New(cluster.REST(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := openPlaces(ctx); err != nil {
		return err
	}
	aware := "../../manifests/default"
	if *onSecond {
		if err := reserve(ctx, where().Node); err != nil {
			return err
		}
	} else if aware, err = push(ctx); err != nil {
		return err
	}
	var slow []string
	if *onSecond { // an emulated runtime takes 0.5 to 3 s for a call, where others take 7 ms
		slow = []string{"-n", "aware-system", "patch", "daemonset/aware-agent", "--type=json",
			`-p=[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--runtime-slow=4s"}]`}
	}
	for _, args := range [][]string{
		{"apply", "-k", aware},
		slow,
		// The tests read statuses as they are now; otherwise they are written about once a minute.
		{"-n", "aware-system", "patch", "deployment/aware-autoscaler", "--type=json",
			`-p=[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--status-every=1s"}]`},
		{"-n", "aware-system", "rollout", "status", "deployment/aware-scheduler", "--timeout=180s"},
		{"-n", "aware-system", "rollout", "status", "deployment/aware-autoscaler", "--timeout=180s"},
		{"-n", "aware-system", "rollout", "status", "daemonset/aware-agent", "--timeout=180s"},
		{"apply", "-k", emulated("testdata/second", "testdata/shop")},
		{"rollout", "status", "deployment/shop", "--timeout=180s"},
	} {
		if args == nil {
			continue
		}
		if out, err := kubectl(ctx, args...); err != nil {
			return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

func kubectl(ctx context.Context, args ...string) (string, error) {
	path, err := cluster.Binary("kubectl")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path,
		append([]string{"--kubeconfig", cluster.Kubeconfig()}, args...)...).CombinedOutput()
	return string(out), err
}

// must runs kubectl, and fails the test when it fails.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubectl(t.Context(), args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// diagnose prints the state of the cluster after a failure.
func diagnose(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "pods,mpa", "-A", "-o", "wide"}, {"describe", "mpa", "-A"},
		{"-n", "aware-system", "logs", "daemonset/aware-agent", "--tail=60"},
		{"-n", "aware-system", "logs", "deployment/aware-scheduler", "--tail=60"},
		{"-n", "aware-system", "logs", "deployment/aware-autoscaler", "--tail=60"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
	} {
		out, _ := kubectl(ctx, args...)
		fmt.Printf("--- kubectl %s\n%s\n", strings.Join(args, " "), out)
	}
}

// shop is the running pods of the workload, by name.
func shop(ctx context.Context) ([]corev1.Pod, error) {
	var all corev1.PodList
	if err := kube.List(ctx, &all, client.InNamespace("default"),
		client.MatchingLabels{"app": "shop"}); err != nil {
		return nil, err
	}
	var running []corev1.Pod
	for _, p := range all.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			running = append(running, p)
		}
	}
	return running, nil
}

// play sends load to the workload in the background, for about the given time.
// wait returns its result.
func play(t *testing.T, seconds int, rps float64) (wait func() answers) {
	t.Helper()
	if *onSecond { // a tenth of it keeps an emulated processor as busy
		rps /= 10
	}
	before := processors(t)
	var service corev1.Service
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "shop"}, &service); err != nil {
		t.Fatal(err)
	}
	trace := traces.Bursty20s()
	trace, err := trace.Scale(float64(seconds)/trace.Duration().Seconds(), rps/trace.Mean())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan load.Result, 1)
	go func() {
		r, err := load.Run(t.Context(), load.Config{
			Targets:         []string{"http://" + service.Spec.ClusterIP + "/"},
			Trace:           trace,
			Arrivals:        "poisson",
			Timeout:         2 * time.Second,
			MaxInFlight:     500,
			SLO:             500 * time.Millisecond,
			ConnMaxRequests: 20,
		}, nil)
		if err != nil {
			t.Errorf("load: %v", err)
		}
		done <- r
	}()
	return func() answers {
		r := <-done
		after := processors(t)
		return answers{r, (after.others - before.others) / (after.all - before.all)}
	}
}

// answers are the outcome of a load.
type answers struct {
	load.Result
	others float64 // share of the machine's processors that programs took which are not ours
}

// processorTime is what the machine's processors have spent so far, in seconds.
type processorTime struct {
	all    float64
	others float64 // on programs that are neither the cluster nor this test, and on other machines
}

func processors(t *testing.T) processorTime {
	t.Helper()
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	stat, err := fs.Stat()
	if err != nil {
		t.Fatal(err)
	}
	lab, err := places[cluster.Node()].used(cluster.CgroupParent())
	if err != nil {
		t.Fatal(err)
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		t.Fatal(err)
	}
	ours := lab + time.Duration(self.Utime.Nano()+self.Stime.Nano())
	c := stat.CPUTotal // guests' time is in User and Nice already
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	return processorTime{busy + c.Idle + c.Iowait, busy - ours.Seconds()}
}

// checkAnswers checks that at most one request of a hundred went wrong. On a
// machine so busy that the load generator itself is late, or that other programs take
// a quarter of its processors, requests that took too long say nothing about AWARE:
// then they are logged, and only the answers that were errors count. What the cluster
// uses, AWARE included, is no excuse. How long an emulated processor takes is not judged.
func checkAnswers(t *testing.T, r answers) {
	t.Helper()
	slow := r.Timeouts + r.Dropped
	t.Logf("other programs took %.0f %% of the machine's processors", 100*r.others)
	if r.SenderLagP99MS > r.SLOMS/10 || r.others > 0.25 || *onSecond {
		t.Logf("the machine is busy, or emulated: the load generator was %.0f ms late at its 99th percentile; "+
			"of %d requests %d timed out and %d were dropped, which is not judged",
			r.SenderLagP99MS, r.Requests, r.Timeouts, r.Dropped)
		slow = 0
	}
	if r.Errors+slow > r.Requests/100 {
		t.Errorf("of %d requests %d failed, %d timed out, %d were dropped",
			r.Requests, r.Errors, r.Timeouts, r.Dropped)
	}
}

// patience is how long a busy machine may take for what a quiet one does in seconds.
const patience = 3 * time.Minute

// eventually waits until is reports true, and fails the test after the given time.
func eventually(t *testing.T, within time.Duration, what string, is func() (bool, string)) {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		ok, seen := is()
		if ok {
			return
		}
		last = seen
	}
	t.Fatalf("not within %v: %s; last seen: %s", within, what, last)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
