package main

import (
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/agent"
	"awarescale.dev/aware/nodeagent/envelope"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCheckNamesTheBadFlag(t *testing.T) {
	for args, want := range map[string]string{
		"":                          "flag --node: it must name this node",
		"--selector=":               "every pod of the node",
		"--selector=a in":           `flag --selector: "a in"`,
		"--central=central:9443":    `flag --central: "central:9443": it must be a URL such as https://`,
		"--central=http://c.svc:80": "it must be a URL such as https://",
	} {
		t.Setenv("NODE_NAME", map[bool]string{true: "", false: "one"}[args == ""])
		s, flags := defaults(), pflag.NewFlagSet("", pflag.ContinueOnError)
		s.register(flags)
		if err := flags.Parse([]string{args}[:min(1, len(args))]); err != nil {
			t.Fatal(err)
		}
		if err := s.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: err = %v, want %q", args, err, want)
		}
	}
}

func pod() *corev1.Pod {
	killed := metav1.NewTime(time.Unix(100, 0))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Generation: 3},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first"}},
			Containers: []corev1.Container{{Name: "web", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
				Limits: corev1.ResourceList{
					corev1.ResourceCPU:    resource.MustParse("300m"),
					corev1.ResourceMemory: resource.MustParse("64Mi"),
				}}}}},
		Status: corev1.PodStatus{ObservedGeneration: 3, PodIP: "10.1.2.3", QOSClass: corev1.PodQOSBurstable,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", ContainerID: "containerd://abc",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					Reason:     "OOMKilled",
					FinishedAt: killed,
				}}}}},
	}
}

func TestPodOfConvertsAPod(t *testing.T) {
	host := pod()
	host.Spec.HostNetwork = true
	if !podOf(host).HostNetwork || podOf(pod()).HostNetwork {
		t.Error("a pod on the node's network is not told from others")
	}
	got := podOf(pod())
	if got.Namespace != "shop" || got.UID != "u" || got.IP != "10.1.2.3" || got.QoS != "Burstable" || len(got.Containers) != 2 {
		t.Fatalf("pod %+v", got)
	}
	c := got.Containers[0]
	if c.ID != "abc" || !c.Running || c.ResizePending || c.Limits != (mdp.Size{CPU: 300, Memory: 64 * mdp.MiB}) ||
		c.Requests.CPU != 100 || c.OOMKilled.Unix() != 100 {
		t.Errorf("container %+v", c)
	}
	if got.Containers[1].Kind != envelope.Init {
		t.Errorf("init container %+v", got.Containers[1])
	}
}

func TestARuntimeThatIsAlwaysSlowHasASetting(t *testing.T) {
	for value, good := range map[time.Duration]bool{
		250 * time.Millisecond: true, 5 * time.Second: true, 50 * time.Millisecond: true,
		49 * time.Millisecond: false, 5001 * time.Millisecond: false, 0: false, -time.Second: false,
	} {
		s := defaults()
		s.node, s.runtimeSlow = "n", value
		err := s.check()
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "--runtime-slow: "+value.String()) {
			t.Errorf("%v: %v", value, err)
		}
	}
	if s, own := defaults(), agent.Default().Runtime.Deadline; 4*s.runtimeSlow != own {
		t.Errorf("by default a call may take %v, and the agent's own default is %v", 4*s.runtimeSlow, own)
	}
}

// The spec's values count as in force only when the kubelet says so.
func TestAResizeIsPendingUntilTheKubeletHasCarriedItOut(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"not observed yet": func(p *corev1.Pod) { p.Generation = 4 },
		"deferred": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue}}
		},
		"in progress": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}}
		},
	} {
		p := pod()
		change(p)
		if !podOf(p).Containers[0].ResizePending {
			t.Errorf("%s: not pending", name)
		}
	}
}
