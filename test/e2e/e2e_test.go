package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/link"
	"awarescale.dev/aware/nodeagent/restore"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/test/cluster/groups"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func object(t *testing.T) (*v1alpha1.MultidimPodAutoscaler, error) {
	var m v1alpha1.MultidimPodAutoscaler
	err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "shop"}, &m)
	return &m, err
}

// acting waits for a decision of AWARE that is made after the call, and until it
// acts. An older status proves nothing: it stays when its writer is gone.
func acting(t *testing.T) {
	t.Helper()
	began := time.Now()
	eventually(t, patience, "AWARE acts on the workload", func() (bool, string) {
		m, err := object(t)
		if err != nil || len(m.Status.Decisions) == 0 {
			return false, fmt.Sprint("no decision: ", err)
		}
		return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.Active) &&
			m.Status.Decisions[0].Time.After(began), fmt.Sprintf("%+v", m.Status.Conditions)
	})
}

// belowAPI waits until some pod's limits in force are below the API's, so that
// there is something to restore.
func belowAPI(t *testing.T) {
	t.Helper()
	eventually(t, patience, "the agent holds a container below its API limit", func() (bool, string) {
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

// atAPI waits until every container has its API values, and keeps them for 3 s. One
// sample is not enough: limits may pass the API's values on their way.
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

// checkInvariants checks the watchdog's counts at the end of a test.
func checkInvariants(t *testing.T) {
	t.Cleanup(func() {
		samples, moved, violations, restarts := watch.verdict()
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

func Test01TheWorkloadIsScheduledByAWAREAndResized(t *testing.T) {
	checkInvariants(t)
	pods, err := shop(t.Context())
	if err != nil || len(pods) == 0 || len(pods) > 1 && !*faults { // what was broken before may have asked for a second one
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	for _, p := range pods {
		if p.Spec.SchedulerName != "aware-scheduler" || p.Spec.NodeName == "" {
			t.Fatalf("pod %s of scheduler %q is on node %q", p.Name, p.Spec.SchedulerName, p.Spec.NodeName)
		}
	}
	acting(t)
	wait := play(t, 40, 40)
	eventually(t, patience, "resizes of both levels", func() (bool, string) {
		m, err := object(t)
		if err != nil {
			return false, err.Error()
		}
		return m.Status.Resizes.API > 0 && m.Status.Resizes.Node > 0 &&
				(*onSecond || m.Status.SLOPreservation != "unknown"), // an emulated pod may be too slow to be asked

			fmt.Sprintf("%+v", m.Status)
	})
	checkCPUTime(t)
	r := wait()
	checkAnswers(t, r)
	// After the load, limits no longer change.
	eventually(t, patience, "the object reports the limits in force", func() (bool, string) {
		return reportsLimitsInForce(t)
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

// checkCPUTime checks over some seconds that the pods' CPU time is that of the
// node's group of pods.
func checkCPUTime(t *testing.T) {
	t.Helper()
	at := where()
	kubepods := at.PodsGroup()
	begun := time.Now()
	before, err := at.used(kubepods)
	if err != nil {
		t.Fatal(err)
	}
	podsBefore := usedByPods(t, at)
	time.Sleep(8 * time.Second)
	pods := usedByPods(t, at) - podsBefore
	after, err := at.used(kubepods)
	if err != nil {
		t.Fatal(err)
	}
	node := after - before
	if off := math.Abs(float64(pods-node)) / float64(node); off > 0.05 {
		t.Errorf("over 8 s the pods used %v and the node's group of pods %v: %.0f %% apart", pods, node, 100*off)
	}
	t.Logf("pods %v, node %v, in %v", pods, node, time.Since(begun))
}

// usedByPods is the CPU time of all pods of a node since their cgroups were created.
func usedByPods(t *testing.T, at place) time.Duration {
	t.Helper()
	var all corev1.PodList
	if err := kube.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var total time.Duration
	for i := range all.Items {
		p := &all.Items[i]
		if p.Spec.NodeName != at.Name() {
			continue
		}
		if u, err := at.used(at.PodGroup(p)); err == nil {
			total += u
		}
	}
	return total
}

// reportsLimitsInForce reports whether the object's CPU limit in force is the mean
// of the limits in the pods' cgroups.
func reportsLimitsInForce(t *testing.T) (bool, string) {
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
	reported := mdp.MilliCPU(m.Status.Effective.CPU.MilliValue())
	return max(reported-mean, mean-reported) <= 2,
		fmt.Sprintf("the object reports %v, the cgroups %v", reported, mean)
}

// The container runtime is stopped, so that it can change nothing: what raises the limit then is the
// agent's own write.
func Test01bABurstIsRelievedByADirectWrite(t *testing.T) {
	checkInvariants(t)
	token := readerToken(t, "relief-reader")
	acting(t)
	before := counted(t, reliefs, token)
	held, was := stopped(t)
	began := time.Now()
	stop := burst(t, held)
	var now groups.Reading
	var err error
	eventually(t, 20*time.Second, "the kernel has the API's limit while the runtime does nothing", func() (bool, string) {
		now, err = read(held)
		return err == nil && now.Limits.CPU == limits(held).CPU, fmt.Sprintf("%+v, %v", now, err)
	})
	took := time.Since(began)
	signalRuntime(t, "CONT")
	eventually(t, patience, "the agent counts the relief", func() (bool, string) {
		after := counted(t, reliefs, token)
		return after > before, fmt.Sprintf("%v, then %v", before, after)
	})
	stop()
	t.Logf("%s: from %v to %v within %v of the burst's begin, after %d throttled periods; reliefs %v, then %v",
		held.Name, was.Limits.CPU, now.Limits.CPU, took.Round(time.Millisecond), now.Throttled-was.Throttled,
		before, counted(t, reliefs, token))
	heldCPU(t) // it settles again, by the runtime
}

// The memory limit in force comes down from the template's to what the workload uses, by either
// level. The API's limit stays what the owner gave.
func Test01cMemoryComesDownToWhatIsUsed(t *testing.T) {
	checkInvariants(t)
	acting(t)
	p := heldMemory(t)
	force, err := inForce(p)
	t.Logf("%s: %v in force, %v in the API, %v", p.Name, force, limits(p), err)
}

// systemd writes what it knows of every group again when it reads its units anew. It knows what the
// runtime told it: so what the agent holds stays, and nobody else has changed anything. (A CPU limit
// may be raised meanwhile, because a container is throttled. Where the kubelet resizes the pod meanwhile, it
// sets the API's memory too: that reload says nothing, and there is another one.)
func Test01dWhatIsHeldSurvivesAReloadOfSystemd(t *testing.T) {
	if !*onSecond || *driver != "systemd" {
		t.Skip("systemd does not make this node's control groups")
	}
	checkInvariants(t)
	token := readerToken(t, "reload-reader")
	acting(t)
	before := counted(t, conflicts, token)
	for reloads, tries := 0, 0; reloads < 3; tries++ {
		if tries == 20 {
			t.Fatalf("the kubelet resized the pod beside %d of %d reloads", tries-reloads, tries)
		}
		held := heldMemory(t)
		was, err := read(held)
		if err != nil {
			t.Fatal(err)
		}
		out, err := where().Command(t.Context(), "systemctl", "daemon-reload").CombinedOutput()
		if err != nil {
			t.Fatalf("systemctl daemon-reload: %v\n%s", err, out)
		}
		now, err := read(held)
		time.Sleep(3 * time.Second) // three steps of the agent
		if err == nil && kubeletResized(t, held) {
			continue
		}
		if reloads++; err != nil || now.Limits.Memory > was.Limits.Memory {
			t.Errorf("before a reload %v was in force, and then %v, %v", was.Limits, now.Limits, err)
		}
	}
	if after := counted(t, conflicts, token); after != before {
		t.Errorf("the agent has seen %v changes by others, and before the reloads %v", after, before)
	}
}

// kubeletResized reports whether a pod was being resized when it was read, or was resized since.
func kubeletResized(t *testing.T, since *corev1.Pod) bool {
	t.Helper()
	var now corev1.Pod
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(since), &now); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*corev1.Pod{since, &now} {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodResizeInProgress && c.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return now.Generation != since.Generation || since.Status.ObservedGeneration != since.Generation
}

func Test02AKilledAgentRestoresLimitsWhenItStarts(t *testing.T) {
	checkInvariants(t)
	acting(t)
	belowAPI(t)
	must(t, "-n", "aware-system", "scale", "deployment/aware-autoscaler", "--replicas=0")
	must(t, "-n", "aware-system", "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=aware-autoscaler",
		"--timeout=180s")
	belowAPI(t) // central is gone, and its grants still hold
	_, agent := process(t, "aware-agent")
	kill(t, agent)
	// The new agent has no grant, because central is gone. It restores the limits and
	// changes nothing.
	within := time.Minute
	if *faults { // the kubelet waits before it starts again what was killed several times
		within = 5 * time.Minute
	}
	atAPI(t, within)
	must(t, "-n", "aware-system", "scale", "deployment/aware-autoscaler", "--replicas=1")
	must(t, "-n", "aware-system", "rollout", "status", "deployment/aware-autoscaler", "--timeout=180s")
	belowAPI(t)
}

func Test03TheAgentWorksOnForAMinuteWithoutCentral(t *testing.T) {
	checkInvariants(t)
	acting(t)
	before := must(t, "get", "deployment", "shop", "-o", "jsonpath={.spec.replicas}")
	must(t, "-n", "aware-system", "scale", "deployment/aware-autoscaler", "--replicas=0")
	must(t, "-n", "aware-system", "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=aware-autoscaler",
		"--timeout=180s")
	placed(t, "without-autoscaler") // scheduling goes on
	samples, moved, _, _ := watch.verdict()
	wait := play(t, 60, 30)
	r := wait()
	more, movedMore, _, _ := watch.verdict()
	if more-samples < 100 || movedMore <= moved {
		t.Errorf("%d samples, %d of them below the API's limits: the agent does not continue without central",
			more-samples, movedMore-moved)
	}
	checkAnswers(t, r)
	if after := must(t, "get", "deployment", "shop", "-o", "jsonpath={.spec.replicas}"); after != before {
		t.Errorf("replicas changed from %s to %s without central", before, after)
	}
	must(t, "-n", "aware-system", "scale", "deployment/aware-autoscaler", "--replicas=1")
	must(t, "-n", "aware-system", "rollout", "status", "deployment/aware-autoscaler", "--timeout=180s")
	acting(t)
}

// When a flag is wrong, the agent's error names the flag, its value and the rule.
func Test04AnAgentNamesTheFlagThatIsWrong(t *testing.T) {
	firstOnly(t)
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
		flag  string
		value string
		says  []string // parts of the error
	}{
		"a CRI socket that is not there": {"--cri-socket", "/run/nowhere.sock",
			[]string{"--cri-socket", "/run/nowhere.sock"}},
		"a CRI socket that is a file": {"--cri-socket", "/etc/hostname",
			[]string{"--cri-socket", "/etc/hostname", "socket"}},
		"a cgroup root that is not one": {"--cgroup-root", "/etc", []string{"--cgroup-root", "/etc"}},
		"the state folder of the running agent": {"--state-dir", "/run/aware-agent",
			[]string{"--state-dir", "/run/aware-agent", "agent"}},
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
					t.Errorf("the output does not contain %q:\n%s", part, out)
				}
			}
		})
	}
}

// node is the agent's side of the link. It reports no containers, and says when it
// has got grants.
type node struct {
	name    string
	granted chan struct{}
}

func (n *node) Report(now time.Time) api.Report { return api.Report{Node: n.name, At: now} }
func (*node) Renew(time.Time, api.Permit)       {}
func (*node) Urgent() <-chan struct{}           { return nil }
func (n *node) Apply(time.Time, api.Grants) {
	select {
	case n.granted <- struct{}{}:
	default:
	}
}

func Test05ATokenIsValidForItsOwnNodeOnly(t *testing.T) {
	firstOnly(t)
	checkInvariants(t)
	acting(t)
	agent, _ := process(t, "aware-agent")
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, tokenOf(t, agent.Name, string(agent.UID)))
	unbound := filepath.Join(t.TempDir(), "token")
	write(t, unbound, must(t, "-n", "aware-system", "create", "token", "aware-agent",
		"--audience=aware-central"))
	url, ca := central(t)
	for name, c := range map[string]struct{ token, node, says string }{
		"its own node":            {token, cluster.Node(), ""},
		"another node":            {token, "elsewhere", `bound to node "` + cluster.Node() + `"`},
		"a token bound to no pod": {unbound, cluster.Node(), "not bound to a pod"},
	} {
		t.Run(name, func(t *testing.T) {
			problem := make(chan error, 10)
			n := &node{c.node, make(chan struct{}, 1)}
			l := &link.Client{
				Node:  n,
				URL:   url,
				Name:  "aware-central.aware-system.svc",
				Token: c.token,
				Every: 100 * time.Millisecond,
				Now:   time.Now,
				CA:    func(context.Context) ([]byte, error) { return ca, nil },
				Log: func(err error, _ string, _ ...any) {
					select {
					case problem <- err:
					default:
					}
				},
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			go l.Run(ctx)
			// With its own node's token it takes the place of the agent, which then dials again.
			select {
			case <-n.granted:
				if c.says == "" {
					return
				}
				// Grants go out before the first report is read.
				err := <-problem
				if !strings.Contains(err.Error(), c.says) || !link.Refused(err) {
					t.Errorf("central answered %v, want %q", err, c.says)
				}
			case err := <-problem:
				if c.says == "" || !strings.Contains(err.Error(), c.says) || !link.Refused(err) {
					t.Errorf("central answered %v, want %q", err, c.says)
				}
			case <-ctx.Done():
				t.Error("central has not answered within a minute")
			}
		})
	}
}

// Two nodes are compromised: the workload's, and another one. They say of their own
// containers what cannot be, and of each other's what is not so, as fast as central reads.
// Others do not notice, and the real agent's next report is what central has.
func Test05bHostileNodesStopNobody(t *testing.T) {
	firstOnly(t)
	checkInvariants(t)
	acting(t)
	autoscaler, pid := process(t, "aware-autoscaler")
	limit := uint64(autoscaler.Spec.Containers[0].Resources.Limits.Memory().Value())
	ofLab, ofFake, stop := attackers(t)
	eventually(t, patience, "both agents report", func() (bool, string) {
		one, ended, _, _ := ofLab.counts()
		two, others, _, _ := ofFake.counts()
		return one > 0 && two > 0, fmt.Sprintf("%d and %d reports; streams ended %v, %v", one, two, ended, others)
	})
	began := time.Now()
	for _, scheduler := range []string{"aware-scheduler", corev1.DefaultSchedulerName} {
		p := idle("default", "placed-by-"+scheduler)
		p.Spec.SchedulerName = scheduler
		create(t, p)
		eventually(t, patience, scheduler+" places a pod", func() (bool, string) {
			err := kube.Get(t.Context(), client.ObjectKeyFromObject(p), p)
			return err == nil && p.Spec.NodeName != "", fmt.Sprintf("%v, %+v", err, p.Status.Conditions)
		})
	}
	most := uint64(0)
	eventually(t, patience, "20 s of it, and every lie of another node is refused", func() (bool, string) {
		checkShopStays(t)
		if most = max(most, resident(t, pid)); most > limit {
			t.Fatalf("the autoscaler has %d bytes of memory, and its limit is %d", most, limit)
		}
		is, seen := refused(ofLab, ofFake)
		stay, grants := grantsStay(t, ofLab, ofFake)
		return is && stay && time.Since(began) > 20*time.Second, seen + grants
	})
	stop()
	_, seen := refused(ofLab, ofFake)
	t.Logf("the autoscaler had up to %d MiB in %v: %s", most>>20, time.Since(began).Round(time.Second), seen)
	acting(t)
	eventually(t, patience, "the object reports the limits in force again", func() (bool, string) {
		return reportsLimitsInForce(t)
	})
	after, same := process(t, "aware-autoscaler")
	if same != pid || after.UID != autoscaler.UID || restarts(after) != restarts(autoscaler) {
		t.Errorf("the autoscaler was replaced: process %d, then %d; %d restarts", pid, same, restarts(after))
	}
}

// A new pod would start at the size that the running one has. It is not made (dry run), so
// that it takes no load from the workload.
func Test05cANewPodStartsAtThePresentSize(t *testing.T) {
	checkInvariants(t)
	acting(t)
	eventually(t, patience, "a new pod has the size of the running one", func() (bool, string) {
		pods, err := shop(t.Context())
		var d appsv1.Deployment
		err2 := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "shop"}, &d)
		if err = errors.Join(err, err2); err != nil || len(pods) == 0 {
			return false, fmt.Sprint(err)
		}
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", GenerateName: "try-", Labels: pods[0].Labels, OwnerReferences: pods[0].OwnerReferences,
			},
			Spec: d.Spec.Template.Spec,
		}
		if err := kube.Create(t.Context(), p, client.DryRunAll); err != nil {
			return false, err.Error()
		}
		is, want := p.Spec.Containers[0].Resources, pods[0].Spec.Containers[0].Resources
		return !updater.Equal(is, d.Spec.Template.Spec.Containers[0].Resources) && updater.Equal(is, want) &&
				limits(p).CPU == emulated[mdp.MilliCPU](300, 700), // the owner's max-cpu is the ceiling
			fmt.Sprintf("%v, and the running pod has %v", is, want)
	})
}

// Learners of their own are ready once the autoscaler has answered them over the link: with their token, and none of them has
// another right. (There is no lesson yet. A workload needs more than an hour for its first one.)
func Test05dLearnersOfTheirOwnReachTheAutoscaler(t *testing.T) {
	firstOnly(t)
	checkInvariants(t)
	must(t, "apply", "-k", learners)
	t.Cleanup(func() { kubectl(context.Background(), "delete", "-k", learners, "--wait=false") })
	must(t, "-n", "aware-system", "scale", "deployment/aware-learner", "--replicas=2")
	must(t, "-n", "aware-system", "rollout", "status", "deployment/aware-learner", "--timeout=180s")
}

// The deployment is paused, so that removing the label from its template does not
// replace its pods. Their sizes are restored while they run.
func Test06OptingOutRestoresTheTemplatesSizes(t *testing.T) {
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
		if got, want := limits(&pods[i]), (mdp.Size{CPU: emulated[mdp.MilliCPU](250, 500), Memory: 192 * mdp.MiB}); got != want {
			t.Errorf("pod %s has %v in the API, want the template's %v", pods[i].Name, got, want)
		}
	}
	if _, err := object(t); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the object still exists: %v", err)
	}
	must(t, "patch", "deployment", "shop", "--type=json",
		"-p", `[{"op":"add","path":"/spec/template/metadata/labels/awarescale.dev~1managed","value":"true"}]`)
	must(t, "rollout", "resume", "deployment/shop")
	acting(t)
	belowAPI(t)
}

// resized reports whether the kubelet has given a container other limits than its entry in the journal
// has as the API's: then it ended a resize after the agent had.
func resized(t *testing.T, e restore.Entry) bool {
	t.Helper()
	pods, err := shop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		if _, id, _ := strings.Cut(pods[i].Status.ContainerStatuses[0].ContainerID, "://"); id == e.ID {
			return limits(&pods[i]) != e.API.Size()
		}
	}
	return false
}

func Test07UninstallingRestoresEveryContainer(t *testing.T) {
	checkInvariants(t)
	acting(t)
	belowAPI(t)
	must(t, "delete", "-k", "../../manifests/default", "--timeout=180s")
	atAPI(t, time.Minute)
	_, moved, _, _ := watch.verdict()
	if moved == 0 {
		t.Error("no limit was ever changed: nothing was tested")
	}
	entries, err := journal(t)
	if err != nil {
		t.Error(err)
	}
	// One may stay for a call that could still land late, which sets the API's values, or of a container that the kubelet went on
	// resizing for longer than the agent waits; it has the API's values by now.
	for _, e := range entries {
		if cgroup.Differ(e.Ours, e.API)&e.Ours.Sets() != 0 && !resized(t, e) {
			t.Errorf("the journal has what is to be restored: %+v", e)
		}
	}
	var pods corev1.PodList
	if err := kube.List(context.Background(), &pods, client.InNamespace("aware-system")); err != nil ||
		len(pods.Items) != 0 {
		t.Errorf("pods left in aware-system: %d, %v", len(pods.Items), err)
	}
	var hooks admissionregistrationv1.MutatingWebhookConfigurationList
	if err := kube.List(context.Background(), &hooks); err != nil || len(hooks.Items) != 0 {
		t.Errorf("webhooks left: %+v, %v", hooks.Items, err)
	}
	var evicted corev1.EventList
	if err := kube.List(context.Background(), &evicted); err != nil {
		t.Fatal(err)
	}
	for _, e := range evicted.Items {
		// Of a pod that was to be deleted while its node was away, and was not, it is said too.
		if strings.Contains(e.Reason, "Evict") && !strings.HasPrefix(e.Message, "Cancelling deletion") {
			t.Errorf("an eviction: %s %s", e.InvolvedObject.Name, e.Message)
		}
	}
}
