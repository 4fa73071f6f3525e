package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/link"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func object(t *testing.T) (*v1alpha1.MultidimPodAutoscaler, error) {
	var m v1alpha1.MultidimPodAutoscaler
	err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "shop"}, &m)
	return &m, err
}

// acting waits until AWARE decides, from now on, and acts: a status outlives who wrote it.
func acting(t *testing.T) {
	t.Helper()
	began := time.Now()
	eventually(t, time.Minute, "AWARE acts on the workload", func() (bool, string) {
		m, err := object(t)
		if err != nil || len(m.Status.Decisions) == 0 {
			return false, fmt.Sprint("no decision: ", err)
		}
		return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.Active) &&
			m.Status.Decisions[0].Time.After(began), fmt.Sprintf("%+v", m.Status.Conditions)
	})
}

// belowAPI waits until some pod's limits in force are below the API's: there is something to put back.
func belowAPI(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "the agent holds a container below its API limit", func() (bool, string) {
		pods, err := shop(t.Context())
		if err != nil {
			return false, err.Error()
		}
		seen := ""
		for i := range pods {
			force, err := inForce(&pods[i])
			spec := limits(&pods[i])
			if err == nil && (force.CPU < spec.CPU || force.Memory < spec.Memory) {
				return true, ""
			}
			seen += fmt.Sprintf("%s: %v of %v; ", pods[i].Name, force, spec)
		}
		return false, seen
	})
}

// atAPI waits until every container has its API values and keeps them: while a grant is taken away one may have them
// in passing.
func atAPI(t *testing.T, within time.Duration) {
	t.Helper()
	same := func() (bool, string) {
		pods, err := shop(context.Background())
		if err != nil {
			return false, err.Error()
		}
		for i := range pods {
			force, err := inForce(&pods[i])
			if spec := limits(&pods[i]); err != nil || force != spec {
				return false, fmt.Sprintf("%s: %v in force, %v in the API (%v)", pods[i].Name, force, spec, err)
			}
		}
		return len(pods) > 0, "no pods"
	}
	stable := 0
	eventually(t, within, "every container has its API values, and keeps them for 3 s", func() (bool, string) {
		ok, seen := same()
		if stable++; !ok {
			stable = 0
		}
		return stable >= 15, seen
	})
}

// chapter checks the laws that hold throughout, at the end of a test.
func checkInvariants(t *testing.T) {
	t.Cleanup(func() {
		samples, moved, violations, restarts := law.verdict()
		t.Logf("so far: %d samples, in %d of them limits in force below the API's, %d restarts",
			samples, moved, restarts)
		if len(violations) > 0 {
			t.Errorf("limits in force above the allocated ones in %d of %d samples, first: %s",
				len(violations), samples, violations[0])
		}
		if restarts != 0 {
			t.Errorf("%d restarts of the workload's containers", restarts)
		}
	})
}

func Test01TheWorkloadIsPlacedByOurSchedulerAndMoved(t *testing.T) {
	checkInvariants(t)
	pods, err := shop(t.Context())
	if err != nil || len(pods) != 1 || pods[0].Spec.SchedulerName != "aware-scheduler" ||
		pods[0].Spec.NodeName == "" {
		t.Fatalf("pods %v, %v", pods, err)
	}
	acting(t)
	wait := play(t, 40, 40)
	var node, sum, before time.Duration
	begun := time.Now()
	eventually(t, time.Minute, "resizes of both levels", func() (bool, string) {
		m, err := object(t)
		if err != nil {
			return false, err.Error()
		}
		return m.Status.Resizes.API > 0 && m.Status.Resizes.Node > 0 && m.Status.SLOPreservation != "unknown",
			fmt.Sprintf("%+v", m.Status)
	})
	// What the pods use is what the node uses: over some seconds, by the kernel's own sums.
	kubepods := path.Join(cluster.CgroupParent(), "kubepods")
	before, err = used(kubepods)
	if err != nil {
		t.Fatal(err)
	}
	usage := func() (total time.Duration) {
		var all corev1.PodList
		if err := kube.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			p := &all.Items[i]
			group := podGroup(p)
			if p.Status.QOSClass == corev1.PodQOSGuaranteed {
				group = path.Join(kubepods, "pod"+string(p.UID))
			}
			if u, err := used(group); err == nil {
				total += u
			}
		}
		return total
	}
	pre := usage()
	time.Sleep(8 * time.Second)
	sum = usage() - pre
	after, err := used(kubepods)
	if err != nil {
		t.Fatal(err)
	}
	node = after - before
	if off := math.Abs(float64(sum-node)) / float64(node); off > 0.05 {
		t.Errorf("over 8 s the pods used %v and the node's pods' group %v: %.0f %% apart", sum, node, 100*off)
	}
	t.Logf("pods %v, node %v, after %v", sum, node, time.Since(begun))
	r := wait()
	if r.Errors+r.Timeouts+r.Dropped > r.Requests/100 {
		t.Errorf("of %d requests %d failed, %d timed out, %d were dropped",
			r.Requests, r.Errors, r.Timeouts, r.Dropped)
	}
	// What the agents say is in force is what the kernel has, once the load is over and limits
	// stand still for longer than the object takes to tell.
	eventually(t, 90*time.Second, "the object tells what is in force", func() (bool, string) {
		m, err := object(t)
		pods, err2 := shop(t.Context())
		if err != nil || err2 != nil || m.Status.Effective == nil || m.Status.Effective.CPU == nil {
			return false, fmt.Sprint(err, err2)
		}
		var mean mdp.MilliCPU
		for i := range pods {
			force, err := inForce(&pods[i])
			if err != nil {
				return false, err.Error()
			}
			mean += force.CPU / mdp.MilliCPU(len(pods))
		}
		said := mdp.MilliCPU(m.Status.Effective.CPU.MilliValue())
		return max(said-mean, mean-said) <= 2, fmt.Sprintf("the object says %v, the cgroups %v", said, mean)
	})
	out, err := exec.Command(filepath.Join(bin, "aware"), "status",
		"--kubeconfig", cluster.Kubeconfig()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Deployment/shop") {
		t.Errorf("aware status: %v\n%s", err, out)
	}
	out, err = exec.Command(filepath.Join(bin, "aware"), "explain", "shop",
		"--kubeconfig", cluster.Kubeconfig()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "hpavpa/1") {
		t.Errorf("aware explain: %v\n%s", err, out)
	}
}

// agentProcess is the agent's process, as the host sees it: the one in its container's cgroup, for other labs may run agents.
func agentProcess(t *testing.T) int {
	t.Helper()
	var pods corev1.PodList
	if err := kube.List(t.Context(), &pods, client.InNamespace("aware-system"),
		client.MatchingLabels{"app.kubernetes.io/name": "aware-agent"}); err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d agents, %v", len(pods.Items), err)
	}
	p := &pods.Items[0]
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	hierarchy := "/sys/fs/cgroup"
	if tree.Version() == cgroup.V1 {
		hierarchy = "/sys/fs/cgroup/cpu"
	}
	text, err := os.ReadFile(filepath.Join(hierarchy, podGroup(p), id, "cgroup.procs"))
	if err != nil {
		t.Fatalf("looking for the agent: %v", err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func Test02AnAgentThatIsKilledPutsBackWhenItStarts(t *testing.T) {
	checkInvariants(t)
	acting(t)
	belowAPI(t)
	must(t, "-n", "aware-system", "scale", "deployment/aware-central", "--replicas=0")
	must(t, "-n", "aware-system", "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=aware-central",
		"--timeout=60s")
	belowAPI(t) // central is away, and what it allowed still holds
	if err := exec.Command("kill", "-KILL", strconv.Itoa(agentProcess(t))).Run(); err != nil {
		t.Fatal(err)
	}
	// The new agent has no grant, for central is away: it puts back and moves nothing.
	atAPI(t, time.Minute)
	must(t, "-n", "aware-system", "scale", "deployment/aware-central", "--replicas=1")
	must(t, "-n", "aware-system", "rollout", "status", "deployment/aware-central", "--timeout=60s")
	belowAPI(t)
}

func Test03CentralAwayForAMinuteChangesNothingUnsafe(t *testing.T) {
	checkInvariants(t)
	acting(t)
	before := must(t, "get", "deployment", "shop", "-o", "jsonpath={.spec.replicas}")
	must(t, "-n", "aware-system", "scale", "deployment/aware-central", "--replicas=0")
	must(t, "-n", "aware-system", "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=aware-central",
		"--timeout=60s")
	samples, moved, _, _ := law.verdict()
	wait := play(t, 60, 30)
	r := wait()
	more, movedMore, _, _ := law.verdict()
	if more-samples < 100 || movedMore <= moved {
		t.Errorf("%d samples, %d of them below the API's limits: the agent does not work on without central",
			more-samples, movedMore-moved)
	}
	if r.Errors+r.Timeouts+r.Dropped > r.Requests/100 {
		t.Errorf("of %d requests %d failed, %d timed out, %d were dropped",
			r.Requests, r.Errors, r.Timeouts, r.Dropped)
	}
	if after := must(t, "get", "deployment", "shop", "-o", "jsonpath={.spec.replicas}"); after != before {
		t.Errorf("replicas went from %s to %s with central away", before, after)
	}
	must(t, "-n", "aware-system", "scale", "deployment/aware-central", "--replicas=1")
	must(t, "-n", "aware-system", "rollout", "status", "deployment/aware-central", "--timeout=60s")
	acting(t)
}

// Bad input: whoever starts an agent wrongly is told which flag, which value, and what is wrong with it.
func Test04AnAgentThatCannotWorkSaysWhy(t *testing.T) {
	checkInvariants(t)
	agent := filepath.Join(bin, "aware-agent")
	good := map[string]string{
		"--node":             cluster.Node(),
		"--cri-socket":       "/run/containerd/containerd.sock",
		"--cgroup-root":      "/sys/fs/cgroup",
		"--state-dir":        t.TempDir(),
		"--web-bind-address": "127.0.0.1:0",
	}
	for name, c := range map[string]struct {
		flag, value string
		says        []string
	}{
		"a CRI socket that is not there": {"--cri-socket", "/run/nowhere.sock",
			[]string{"--cri-socket", "/run/nowhere.sock"}},
		"a CRI socket that is a file": {"--cri-socket", "/etc/hostname",
			[]string{"--cri-socket", "/etc/hostname", "socket"}},
		"a cgroup root that is not one": {"--cgroup-root", "/etc", []string{"--cgroup-root", "/etc"}},
		"the state of the agent that runs": {"--state-dir", "/var/lib/aware-agent",
			[]string{"--state-dir", "/var/lib/aware-agent", "agent"}},
		"a selector that selects everything": {"--selector", "", []string{"--selector", "every pod"}},
		"a central that is not a URL of https": {"--central", "http://central",
			[]string{"--central", "http://central", "https"}},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for flag, value := range good {
				if flag != c.flag {
					args = append(args, flag+"="+value)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			cmd := cluster.Command(ctx, agent, append(args, c.flag+"="+c.value)...)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
				t.Fatalf("exit %v, want 1\n%s", err, out)
			}
			for _, part := range c.says {
				if !strings.Contains(string(out), part) {
					t.Errorf("it does not say %q:\n%s", part, out)
				}
			}
		})
	}
}

// node is an agent's side of the link that only sends.
type node string

func (n node) Report(now time.Time) api.Report { return api.Report{Node: string(n), At: now} }
func (node) Apply(time.Time, api.Grants)       {}

func Test05ATokenSpeaksForItsOwnNodeOnly(t *testing.T) {
	checkInvariants(t)
	acting(t)
	pod := strings.TrimSpace(must(t, "-n", "aware-system", "get", "pod",
		"-l", "app.kubernetes.io/name=aware-agent", "-o", "jsonpath={.items[0].metadata.name}"))
	uid := strings.TrimSpace(must(t, "-n", "aware-system", "get", "pod", pod, "-o", "jsonpath={.metadata.uid}"))
	token := filepath.Join(t.TempDir(), "token")
	text := must(t, "-n", "aware-system", "create", "token", "aware-agent", "--audience=aware-central",
		"--bound-object-kind=Pod", "--bound-object-name="+pod, "--bound-object-uid="+uid)
	write(t, token, text)
	unbound := filepath.Join(t.TempDir(), "token")
	write(t, unbound, must(t, "-n", "aware-system", "create", "token", "aware-agent",
		"--audience=aware-central"))
	address := must(t, "-n", "aware-system", "get", "service", "aware-central",
		"-o", "jsonpath={.spec.clusterIP}")
	ca := must(t, "-n", "aware-system", "get", "configmap", "aware-central-ca",
		"-o", "jsonpath={.data.ca\\.crt}")
	for name, c := range map[string]struct{ token, node, says string }{
		"its own node":            {token, cluster.Node(), ""},
		"another node":            {token, "elsewhere", `bound to node "` + cluster.Node() + `"`},
		"a token bound to no pod": {unbound, cluster.Node(), "not bound to a pod"},
	} {
		t.Run(name, func(t *testing.T) {
			problem := make(chan error, 10)
			l := &link.Client{
				Node:  node(c.node),
				URL:   "https://" + address + ":9443",
				Name:  "aware-central.aware-system.svc",
				Token: c.token,
				Every: 100 * time.Millisecond,
				Now:   time.Now,
				CA:    func(context.Context) ([]byte, error) { return []byte(ca), nil },
				Log: func(err error, _ string, _ ...any) {
					select {
					case problem <- err:
					default:
					}
				},
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			go l.Run(ctx)
			select {
			case err := <-problem:
				if c.says == "" || !strings.Contains(err.Error(), c.says) || !link.Refused(err) {
					t.Errorf("central said %v, want %q", err, c.says)
				}
			case <-ctx.Done():
				if c.says != "" {
					t.Error("central took the report")
				}
			}
		})
	}
}

// The deployment is paused, so that taking the label off its template does not replace its pods: they are put back as they run.
func Test06OptingOutPutsBack(t *testing.T) {
	checkInvariants(t)
	acting(t)
	belowAPI(t)
	must(t, "rollout", "pause", "deployment/shop")
	must(t, "patch", "deployment", "shop", "--type=json",
		"-p", `[{"op":"remove","path":"/spec/template/metadata/labels/awarescale.dev~1managed"}]`)
	atAPI(t, time.Minute)
	pods, err := shop(t.Context())
	if err != nil || len(pods) == 0 {
		t.Fatal(err)
	}
	for i := range pods {
		if got, want := limits(&pods[i]), (mdp.Size{CPU: 500, Memory: 192 * mdp.MiB}); got != want {
			t.Errorf("pod %s has %v in the API, want the template's %v", pods[i].Name, got, want)
		}
	}
	if _, err := object(t); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the object is still there: %v", err)
	}
	must(t, "patch", "deployment", "shop", "--type=json",
		"-p", `[{"op":"add","path":"/spec/template/metadata/labels/awarescale.dev~1managed","value":"true"}]`)
	must(t, "rollout", "resume", "deployment/shop")
	acting(t)
	belowAPI(t)
}

func Test07UninstallingPutsEveryContainerBack(t *testing.T) {
	checkInvariants(t)
	acting(t)
	belowAPI(t)
	must(t, "delete", "-k", "../../manifests/default", "--timeout=90s")
	atAPI(t, time.Minute)
	_, moved, _, _ := law.verdict()
	if moved == 0 {
		t.Error("no limit was ever moved: nothing was tested")
	}
	var pods corev1.PodList
	if err := kube.List(context.Background(), &pods, client.InNamespace("aware-system")); err != nil ||
		len(pods.Items) != 0 {
		t.Errorf("pods left in aware-system: %d, %v", len(pods.Items), err)
	}
	var evicted corev1.EventList
	if err := kube.List(context.Background(), &evicted); err != nil {
		t.Fatal(err)
	}
	for _, e := range evicted.Items {
		if strings.Contains(e.Reason, "Evict") {
			t.Errorf("an eviction: %s %s", e.InvolvedObject.Name, e.Message)
		}
	}
}
