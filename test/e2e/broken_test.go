package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/restore"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// These tests break the node of the workload, with everything installed: -args -faults.
// Each ends with a node that is Ready, with limits that are legal, and with a journal that knows
// all that is in force; and no container of the workload was restarted.

// breaks begins a test that breaks the node.
func breaks(t *testing.T) {
	t.Helper()
	if !*faults {
		t.Skip("it breaks the node: -args -faults, as make node-faults has it")
	}
	checkInvariants(t)
}

// notReady is why the workload's node is not Ready, as its kubelet has said since a time.
func notReady(ctx context.Context, since time.Time) error {
	name := where().Name()
	var lease coordinationv1.Lease
	if err := kube.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}, &lease); err != nil {
		return err
	}
	if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(since) {
		return fmt.Errorf("its kubelet has not been heard of since %v", since.Format(time.TimeOnly))
	}
	var node corev1.Node
	if err := kube.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node conditions %+v", node.Status.Conditions)
}

// journal is what an agent that starts now on the workload's node would find.
func journal(t *testing.T) (map[string]restore.Entry, error) {
	t.Helper()
	b, err := where().Command(t.Context(), "cat", "/run/aware-agent/journal").Output()
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "journal"), string(b))
	j, err := restore.Open(dir)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	if damage := j.Damage(); damage != "" { // a line was being written
		return nil, errors.New(damage)
	}
	return j.Entries(), nil
}

// consistent is why the journal does not know what is in force on the workload's node.
func consistent(t *testing.T) error {
	t.Helper()
	pods, err := shop(t.Context())
	if err != nil || len(pods) == 0 {
		return errors.Join(errors.New("no pods"), err)
	}
	entries, err := journal(t)
	if err != nil {
		return err
	}
	for i := range pods {
		p := &pods[i]
		_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
		e, known := entries[id]
		delete(entries, id)
		force, err := inForce(p)
		if err != nil {
			return err
		}
		given := limits(p)
		l := cgroup.Limits{Quota: cgroup.Quota(force.CPU, 100000), Period: 100000, Memory: force.Memory}
		if force.CPU == given.CPU {
			l.Quota, l.Period = 0, 0
		}
		if force.Memory == given.Memory {
			l.Memory = 0
		}
		if !e.Wrote.Covers(l) {
			return fmt.Errorf("%s has %v in force, %v in the API, and in the journal %+v", p.Name, force, given, e)
		}
		if known && e.API.Size() != given {
			return fmt.Errorf("%s is to get back %v, and has %v in the API", p.Name, e.API.Size(), given)
		}
	}
	if len(entries) > 0 {
		return fmt.Errorf("the journal has containers that are not there: %+v", entries)
	}
	return nil
}

// recovered waits until all is well on the workload's node: it is Ready, the agent is, and
// what is in force is legal and known.
func recovered(t *testing.T) {
	t.Helper()
	began := time.Now()
	eventually(t, 5*time.Minute, "the node is Ready", func() (bool, string) {
		err := notReady(t.Context(), began)
		return err == nil, fmt.Sprint(err)
	})
	eventually(t, 5*time.Minute, "the agent is ready", func() (bool, string) {
		p, err := podOf(t.Context(), "aware-agent")
		if err != nil {
			return false, err.Error()
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue, fmt.Sprintf("%+v", c)
			}
		}
		return false, "no condition"
	})
	eventually(t, patience, "the journal knows all that is in force", func() (bool, string) {
		err := consistent(t)
		return err == nil, fmt.Sprint(err)
	})
	belowAgain(t)
	t.Logf("recovered within %v", time.Since(began).Round(time.Second))
}

// belowAgain waits until the agent holds a container below its API limit again. An open breaker
// holds that back for a minute, and an emulated one longer.
func belowAgain(t *testing.T) {
	t.Helper()
	eventually(t, 6*time.Minute, "the agent shrinks again", func() (bool, string) {
		pods, err := shop(t.Context())
		if err != nil {
			return false, err.Error()
		}
		seen := ""
		for i := range pods {
			force, err := inForce(&pods[i])
			if spec := limits(&pods[i]); err == nil && 3*force.CPU <= 2*spec.CPU {
				return true, ""
			}
			seen += fmt.Sprintf("%s: %v of %v (%v); ", pods[i].Name, force, limits(&pods[i]), err)
		}
		return false, seen
	})
}

// signalNode sends a signal to a program of the workload's node, and waits for there to be one.
func signalNode(t *testing.T, signal, program string) {
	t.Helper()
	eventually(t, patience, program+" gets SIG"+signal, func() (bool, string) {
		out, err := where().Command(context.Background(), "sh", "-c",
			`kill -s "$0" $(pgrep -x "$1")`, signal, program).CombinedOutput()
		return err == nil, string(out)
	})
}

const failed = "aware_agent_restore_failures_total" // calls of the runtime

// gauge is a gauge of the agent of the workload's node.
func gauge(t *testing.T, name, token string) (value float64) {
	t.Helper()
	eventually(t, patience, "the agent says "+name, func() (bool, string) {
		all, err := families(t.Context(), "aware-agent", token)
		if err != nil || all[name] == nil {
			return false, fmt.Sprint("no such metric: ", err)
		}
		value = all[name].Metric[0].GetGauge().GetValue()
		return true, ""
	})
	return value
}

// problems are what the workload's object says of what is not as it should be.
func problems(t *testing.T) (all []string) {
	t.Helper()
	m, err := object(t)
	if err != nil {
		return []string{err.Error()}
	}
	for _, c := range m.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
	}
	return all
}

// failing keeps the workload changing until a call of the runtime has failed.
func failing(t *testing.T, token string, before float64) {
	t.Helper()
	eventually(t, 5*time.Minute, "a call of the runtime fails", func() (bool, string) {
		pods, err := shop(t.Context())
		if err != nil || len(pods) == 0 {
			return false, fmt.Sprint(err)
		}
		stop := burst(t, &pods[0])
		time.Sleep(emulated[time.Duration](6, 2) * time.Second)
		stop()
		now := counted(t, failed, token)
		force, err := inForce(&pods[0])
		return now > before, fmt.Sprintf("%v, then %v; %v of %v in force (%v); breaker %v; %v changes by others; %v", before, now,
			force, limits(&pods[0]), err, gauge(t, "aware_agent_breaker_open", token), counted(t, conflicts, token), problems(t))
	})
}

// The runtime hangs while a limit is changed: the call misses its deadline, and lands when the runtime
// goes on. It is the agent's own, and no conflict.
func TestFault1TheRuntimeHangsDuringAnUpdate(t *testing.T) {
	breaks(t)
	token := readerToken(t, "hang-reader")
	acting(t)
	before, fights := counted(t, failed, token), counted(t, conflicts, token)
	stopped(t)
	failing(t, token, before)
	signalRuntime(t, "CONT")
	recovered(t)
	if after := counted(t, conflicts, token); after != fights {
		t.Errorf("the agent has seen %v changes by others, and before %v: a late call of its own is taken for one", after, fights)
	}
}

// The runtime is killed again and again, under load.
func TestFault2TheRuntimeIsKilledAgainAndAgain(t *testing.T) {
	breaks(t)
	acting(t)
	belowAgain(t)
	wait := play(t, 40, 30)
	for range 5 {
		signalNode(t, "KILL", "containerd")
		time.Sleep(4 * time.Second)
	}
	wait()
	recovered(t)
}

// The kubelet is killed again and again, and hangs while the API's limits change.
func TestFault3TheKubeletIsKilledAndHangsWhileLimitsMove(t *testing.T) {
	breaks(t)
	acting(t)
	belowAgain(t)
	wait := play(t, 40, 30)
	for range 3 {
		signalNode(t, "KILL", "kubelet")
		time.Sleep(6 * time.Second)
	}
	wait()
	t.Cleanup(func() { signalNode(t, "CONT", "kubelet") })
	signalNode(t, "STOP", "kubelet")
	for _, cpu := range []mdp.MilliCPU{emulated[mdp.MilliCPU](200, 400), emulated[mdp.MilliCPU](280, 650)} {
		resize(t, cpu)
		time.Sleep(5 * time.Second)
	}
	signalNode(t, "CONT", "kubelet")
	recovered(t)
}

// resize changes the CPU limit of the workload's pods in the API, beside AWARE. It is not below
// what they request.
func resize(t *testing.T, cpu mdp.MilliCPU) {
	t.Helper()
	pods, err := shop(t.Context())
	if err != nil || len(pods) == 0 {
		t.Fatalf("no pods: %v", err)
	}
	for i := range pods {
		requested := mdp.MilliCPU(pods[i].Spec.Containers[0].Resources.Requests.Cpu().MilliValue())
		requested = requested / restore.CPUStep * restore.CPUStep // systemd would round it up
		const body = `{"spec":{"containers":[{"name":"shop","resources":{"limits":{"cpu":"%dm"}}}]}}`
		patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, body, max(cpu, requested+50)))
		err := kube.SubResource("resize").Patch(t.Context(), &pods[i], patch)
		if client.IgnoreNotFound(err) != nil {
			t.Fatalf("resizing %s to %v: %v", pods[i].Name, cpu, err)
		}
	}
}

// runc takes so long that each call misses its deadline. Relief needs no runtime.
func TestFault4RuncIsSlow(t *testing.T) {
	breaks(t)
	token := readerToken(t, "slow-reader")
	acting(t)
	belowAgain(t)
	before := counted(t, failed, token)
	// Over runc, in the lab's own mounts.
	runc := "/lab/bin/runc"
	if !*onSecond {
		var err error
		if runc, err = cluster.Binary("runc"); err != nil {
			t.Fatal(err)
		}
	}
	on := func(ctx context.Context, script string, args ...string) error {
		out, err := where().Command(ctx, "sh", append([]string{"-c", script}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	t.Cleanup(func() {
		err := on(context.Background(), `umount -l "$0" 2>/dev/null
rm -f /run/slow-runc /run/slow-runc-real`, runc)
		if err != nil {
			t.Error(err)
		}
	})
	err := on(t.Context(), `cp "$0" /run/slow-runc-real &&
printf '#!/bin/sh\nsleep %s\nexec /run/slow-runc-real "$@"\n' "$1" > /run/slow-runc &&
chmod 755 /run/slow-runc && mount --bind /run/slow-runc "$0"`, runc, emulated("20", "3"))
	if err != nil {
		t.Fatal(err)
	}
	failing(t, token, before)
	pods, err := shop(t.Context())
	if err != nil || len(pods) == 0 {
		t.Fatalf("no pods: %v", err)
	}
	stop := burst(t, &pods[0])
	eventually(t, time.Minute, "who bursts has all that the API gives, while runc is slow", func() (bool, string) {
		force, err := inForce(&pods[0])
		return err == nil && force.CPU == limits(&pods[0]).CPU, fmt.Sprintf("%v of %v in force, %v", force, limits(&pods[0]), err)
	})
	stop()
	if err := on(t.Context(), `umount -l "$0"`, runc); err != nil { // one that still sleeps keeps it busy
		t.Fatal(err)
	}
	recovered(t)
}

// Somebody resizes the pods in the API again and again, while they burst and the lane raises them.
func TestFault5PodsAreResizedWhileTheLaneRaises(t *testing.T) {
	breaks(t)
	acting(t)
	pods, err := shop(t.Context())
	if err != nil || len(pods) == 0 {
		t.Fatalf("no pods: %v", err)
	}
	for i := range emulated(5, 15) {
		stop := burst(t, &pods[0])
		resize(t, emulated[mdp.MilliCPU](180, 350)+mdp.MilliCPU(20*i))
		time.Sleep(emulated[time.Duration](8, 2) * time.Second)
		stop()
		resize(t, emulated[mdp.MilliCPU](280, 600)-mdp.MilliCPU(15*i))
		time.Sleep(emulated[time.Duration](8, 2) * time.Second)
	}
	recovered(t)
}

// Containers come and go, as many as the machine carries. Nothing of them is left in the agent.
func TestFault6ContainersComeAndGo(t *testing.T) {
	breaks(t)
	token := readerToken(t, "crowd-reader")
	acting(t)
	recovered(t)
	names := []string{"aware_agent_containers", "process_open_fds", "go_goroutines"}
	before := map[string]float64{}
	for _, name := range names {
		before[name] = gauge(t, name, token)
	}
	perPod := emulated(3, 10)
	d := crowd(emulated[int32](1, 3), perPod)
	if err := kube.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kubectl(context.Background(), "delete", "deployment", d.Name, "--wait=false") })
	began, came := time.Now(), 0
	for time.Since(began) < emulated[time.Duration](2, 1)*time.Minute {
		eventually(t, 5*time.Minute, "a crowd runs", func() (bool, string) {
			var all corev1.PodList
			err := kube.List(t.Context(), &all, client.InNamespace("default"), client.MatchingLabels{"app": d.Name})
			running := int32(0)
			for _, p := range all.Items {
				if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
					running++
				}
			}
			return err == nil && running == *d.Spec.Replicas, fmt.Sprintf("%d run, %v", running, err)
		})
		came += int(*d.Spec.Replicas) * perPod
		must(t, "delete", "pods", "-l", "app="+d.Name, "--wait=false", "--grace-period=1")
	}
	took := time.Since(began)
	must(t, "delete", "deployment", d.Name, "--timeout=5m")
	eventually(t, 5*time.Minute, "the crowd is gone", func() (bool, string) {
		var all corev1.PodList
		err := kube.List(t.Context(), &all, client.InNamespace("default"), client.MatchingLabels{"app": d.Name})
		return err == nil && len(all.Items) == 0, fmt.Sprintf("%d pods, %v", len(all.Items), err)
	})
	now := map[string]float64{}
	eventually(t, patience, "the agent keeps nothing of them", func() (bool, string) {
		for _, name := range names {
			now[name] = gauge(t, name, token)
		}
		// The autoscaler may have added a replica of the workload: a container has some ten descriptors.
		more := now[names[0]] - before[names[0]]
		return more <= 1 && now[names[1]] <= before[names[1]]+20*max(0, more)+6 && now[names[2]] <= before[names[2]]+10,
			fmt.Sprintf("%v, before %v", now, before)
	})
	t.Logf("%d containers came and went in %v; the agent has %v, before %v", came, took.Round(time.Second), now, before)
	recovered(t)
}

// crowd is a workload whose pods have many containers that do nothing.
func crowd(replicas int32, containers int) *appsv1.Deployment {
	labels := map[string]string{"app": "crowd", "awarescale.dev/managed": "true"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "crowd"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					"awarescale.dev/mode":         "auto",
					"awarescale.dev/min-replicas": fmt.Sprint(replicas),
					"awarescale.dev/max-replicas": fmt.Sprint(replicas),
				}},
				Spec: corev1.PodSpec{
					NodeName:                     where().Name(),
					AutomountServiceAccountToken: new(false),
				},
			},
		},
	}
	amount := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for i := range containers {
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", i), Image: "awarescale.dev/lab-pause:1", ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Requests: amount("2m", "8Mi"), Limits: amount("100m", "32Mi")},
		})
	}
	return d
}

// The agent is killed again and again, as often as the kubelet starts it again without a long wait.
func TestFault7TheAgentIsKilledAgainAndAgain(t *testing.T) {
	breaks(t)
	acting(t)
	belowAgain(t)
	wait := play(t, 30, 30)
	for range 3 {
		_, pid := process(t, "aware-agent")
		kill(t, pid)
		eventually(t, patience, "there is another agent", func() (bool, string) {
			p, err := podOf(t.Context(), "aware-agent")
			if err != nil {
				return false, err.Error()
			}
			r, err := read(p)
			return err == nil && len(r.Processes) > 0 && r.Processes[0] != pid, fmt.Sprintf("%+v, %v", r.Processes, err)
		})
	}
	wait()
	recovered(t)
}
