package lab

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/test/cluster/images"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The container of the test takes 100 MiB at once. It has tooLittle until it is in an
// OOM loop, and gets enough then.
const (
	tooLittle = 32 * mdp.MiB
	enough    = 256 * mdp.MiB
	// lives is how long the container must run to be said to have recovered.
	lives = 15 * time.Second
)

// What a kubelet does with a resize of a pod whose only container is in an OOM loop: is the
// limit of the pod's group lifted, and does the container run? Either answer passes. AWARE
// has to know which it is (kubernetes issue 138760, seen on 1.34).
func TestWhatKubeletDoesWithAPodInAnOOMLoop(t *testing.T) {
	pod := hungry()
	if err := kube.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.Kubectl(context.Background(), "delete", "pod", pod.Name, "--now", "--wait=false") })
	within(t, 3*time.Minute, "the container was killed twice, and waits for its next start", func() (bool, string) {
		s := container(t, pod)
		return looping(s), seen(s)
	})
	before := podMemory(t, pod)
	if before != tooLittle {
		t.Fatalf("the pod's group is limited to %v before the resize, want %v", before, tooLittle)
	}
	resources := fmt.Sprintf(`{"requests":{"memory":"%d"},"limits":{"memory":"%d"}}`, enough, enough)
	body := fmt.Sprintf(`{"spec":{"containers":[{"name":"hungry","resources":%s}]}}`, resources)
	change := client.RawPatch(types.StrategicMergePatchType, []byte(body))
	if err := kube.SubResource("resize").Patch(t.Context(), pod.DeepCopy(), change); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	restarts := container(t, pod).RestartCount
	lifted, recovered := time.Duration(-1), time.Duration(-1)
	for time.Since(began) < 3*time.Minute && (lifted < 0 || recovered < 0) {
		if lifted < 0 && podMemory(t, pod) >= enough {
			lifted = time.Since(began)
		}
		if up := container(t, pod).State.Running; recovered < 0 && up != nil && time.Since(up.StartedAt.Time) > lives {
			recovered = time.Since(began)
		}
		time.Sleep(time.Second)
	}
	if got := limitInAPI(t, pod); got != enough {
		t.Fatalf("the API says a limit of %v, want the resize to %v", got, enough)
	}
	s := container(t, pod)
	t.Logf("kubelet %s: after a resize from %v to %v of a pod in an OOM loop, the limit of the pod's group (%v) %s; "+
		"the container %s; restarts since: %d; at the end: %s; resize conditions: %s", kubelet(t), tooLittle, enough, podMemory(t, pod),
		after(lifted, "was lifted after %v", "was not lifted within %v", began),
		after(recovered, "ran for good after %v", "did not run for good within %v", began), s.RestartCount-restarts, seen(s),
		resizes(t, pod))
}

// looping reports whether a container was killed twice for want of memory and is down.
// Since 1.37 the state is that of its end while it waits, and not CrashLoopBackOff.
func looping(s corev1.ContainerStatus) bool {
	last := s.LastTerminationState.Terminated
	return s.State.Running == nil && s.RestartCount >= 2 && last != nil && last.Reason == "OOMKilled"
}

// hungry is a pod whose container takes more memory than it may have.
func hungry() *corev1.Pod {
	memory := corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(int64(tooLittle), resource.BinarySI)}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hungry"},
		Spec: corev1.PodSpec{
			NodeName:                     cluster.Node(),
			AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name:            "hungry",
				Image:           images.Service.Ref,
				ImagePullPolicy: corev1.PullNever,
				Args:            []string{"--memory=100Mi"},
				Resources:       corev1.ResourceRequirements{Requests: memory, Limits: memory},
			}},
		},
	}
}

// fresh is the pod as the API server has it.
func fresh(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

// container is the status of the pod's container; empty before there is one.
func container(t *testing.T, pod *corev1.Pod) corev1.ContainerStatus {
	t.Helper()
	all := fresh(t, pod).Status.ContainerStatuses
	if len(all) == 0 {
		return corev1.ContainerStatus{}
	}
	return all[0]
}

// limitInAPI is the memory limit that the API server has of the pod's container.
func limitInAPI(t *testing.T, pod *corev1.Pod) mdp.Bytes {
	t.Helper()
	return mdp.Bytes(fresh(t, pod).Spec.Containers[0].Resources.Limits.Memory().Value())
}

// podMemory is the memory limit of the pod's own group.
func podMemory(t *testing.T, pod *corev1.Pod) mdp.Bytes {
	t.Helper()
	p := fresh(t, pod)
	group := path.Join(cluster.CgroupParent(), "kubepods", strings.ToLower(string(p.Status.QOSClass)), "pod"+string(p.UID))
	l, err := tree.Limits(group)
	if err != nil {
		t.Fatal(err)
	}
	return l.Memory
}

// resizes is what the pod says of its resize.
func resizes(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	var found []string
	for _, c := range fresh(t, pod).Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			found = append(found, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		}
	}
	if len(found) == 0 {
		return "none"
	}
	return strings.Join(found, ", ")
}

// kubelet is the kubelet's version.
func kubelet(t *testing.T) string {
	t.Helper()
	var node corev1.Node
	if err := kube.Get(t.Context(), client.ObjectKey{Name: cluster.Node()}, &node); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v")
}

// seen is a container's state in words.
func seen(s corev1.ContainerStatus) string {
	switch {
	case s.State.Running != nil:
		return "running"
	case s.State.Waiting != nil:
		return "waiting, " + s.State.Waiting.Reason
	case s.State.Terminated != nil:
		return "terminated, " + s.State.Terminated.Reason
	}
	return "unknown"
}

// after is one of two texts: with how long it took, or with how long it was waited for.
func after(took time.Duration, did, not string, began time.Time) string {
	if took < 0 {
		return fmt.Sprintf(not, time.Since(began).Round(time.Second))
	}
	return fmt.Sprintf(did, took.Round(time.Second))
}

// within waits for a condition.
func within(t *testing.T, most time.Duration, what string, is func() (bool, string)) {
	t.Helper()
	last := ""
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		ok, seen := is()
		if ok {
			return
		}
		last = seen
	}
	t.Fatalf("not within %v: %s; last seen: %s", most, what, last)
}
