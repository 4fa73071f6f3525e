package headroom

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/fleet"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-scheduler/framework"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func pod(uid, limit string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU:    resource.MustParse("100m"),
					corev1.ResourceMemory: resource.MustParse("64Mi"),
				},
				Limits: corev1.ResourceList{
					corev1.ResourceCPU:    resource.MustParse(limit),
					corev1.ResourceMemory: resource.MustParse("128Mi"),
				},
			},
		}}},
	}
}

// node is the part of a scheduler's node that the plugin reads.
type node struct {
	framework.NodeInfo
	object *corev1.Node
	pods   []framework.PodInfo
}

func (n node) Node() *corev1.Node                 { return n.object }
func (n node) GetPods() []framework.PodInfo       { return n.pods }
func (n node) GetAllocatable() framework.Resource { return allocatable{} }

type podInfo struct {
	framework.PodInfo
	pod *corev1.Pod
}

func (p podInfo) GetPod() *corev1.Pod { return p.pod }

// allocatable is 4 cores and 8 GiB.
type allocatable struct{ framework.Resource }

func (allocatable) GetMilliCPU() int64 { return 4000 }
func (allocatable) GetMemory() int64   { return 8 << 30 }

func score(t *testing.T, h *Headroom, name string, pods ...*corev1.Pod) int64 {
	t.Helper()
	n := node{object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	for _, p := range pods {
		n.pods = append(n.pods, podInfo{pod: p})
	}
	s, status := h.Score(t.Context(), nil, pod("new", "500m"), n)
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	return s
}

func TestScorePrefersTheNodeWithMoreRoomToGrow(t *testing.T) {
	h := &Headroom{reports: fleet.New(time.Minute), now: func() time.Time { return noon }}
	crowded, roomy := score(t, h, "crowded", pod("a", "2"), pod("b", "1")), score(t, h, "roomy", pod("c", "500m"), pod("d", "500m"))
	if crowded != 12 || roomy != 62 {
		t.Errorf("scores %d and %d, want 12 (0.5 of 4 left) and 62 (2.5 of 4 left)", crowded, roomy)
	}
	if full := score(t, h, "full", pod("e", "4"), pod("f", "4")); full != 0 {
		t.Errorf("an oversubscribed node scores %d", full)
	}
}

// No owner and no agent can give a node a score that is none: the scheduler
// would fail every pod.
func TestScoresStayInRange(t *testing.T) {
	f := fleet.New(time.Minute)
	h := &Headroom{reports: f, now: func() time.Time { return noon }}
	huge := pod("a", "9000000000000000")
	huge.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("7Ei")
	huge.Spec.Containers = append(huge.Spec.Containers, huge.Spec.Containers[0])
	if got := score(t, h, "one", huge, pod("b", "1")); got != 0 {
		t.Errorf("two limits of 7 EiB: score %d, want 0", got)
	}
	var s api.Summary
	s.Container = api.ContainerRef{PodUID: "c", Container: "web"}
	s.Bounds.CPU.Max, s.Bounds.Memory.Max = -5_000_000, -1<<40
	f.Accept(noon, api.Report{Node: "one", Full: true, Containers: []api.Summary{s}})
	if got := score(t, h, "one", pod("c", "1")); got < 0 || got > 100 {
		t.Errorf("a negative bound: score %d", got)
	}
}

func TestScorePrefersReportsToTheAPI(t *testing.T) {
	f := fleet.New(time.Minute)
	s := api.Summary{Container: api.ContainerRef{PodUID: "a", Container: "web"}}
	s.Bounds.CPU.Max, s.Bounds.Memory.Max = 250, 128*mdp.MiB
	f.Accept(noon, api.Report{Node: "one", Full: true, Containers: []api.Summary{s}})
	at := noon
	h := &Headroom{reports: f, now: func() time.Time { return at }}
	if got := score(t, h, "one", pod("a", "2")); got != 81 {
		t.Errorf("score %d, want 81: the envelope of 250m and the new 500m of 4", got)
	}
	at = noon.Add(time.Hour)
	if got := score(t, h, "one", pod("a", "2")); got != 37 {
		t.Errorf("score %d, want 37: a report that is an hour old does not count, the limit of 2 does", got)
	}
}

// What central has promised of a node counts instead of the ceilings of the pods that it is
// for. A pod that the node has not reported yet is not among them.
func TestScoreCountsWhatIsPromised(t *testing.T) {
	f := fleet.New(time.Minute)
	f.Open()
	at := noon
	h := &Headroom{reports: f, now: func() time.Time { return at }}
	report := func(holds api.PermitID) {
		r := api.Report{Node: "one", Full: true}
		for _, uid := range []string{"a", "b"} {
			s := api.Summary{Container: api.ContainerRef{PodUID: uid, Container: "web"}}
			s.Bounds.CPU.Max, s.Bounds.Memory.Max = 1500, 3<<30
			r.Containers = append(r.Containers, s)
		}
		r.Account = &api.Account{InForce: mdp.Size{CPU: 500, Memory: 1 << 30}, Asked: mdp.Size{CPU: 750, Memory: 2 << 30}, Holds: holds}
		f.Accept(at, r)
	}
	wants := func(when string, want int64, pods ...*corev1.Pod) {
		t.Helper()
		if got := score(t, h, "one", pods...); got != want {
			t.Errorf("%s: score %d, want %d", when, got, want)
		}
	}
	a, b, c := pod("a", "1500m"), pod("b", "1500m"), pod("c", "1")
	report(api.PermitID{})
	wants("without a permit: ceilings of 3 and 0.5 of 4 cores, and 6 of 8 GiB", 12, a, b)
	p := f.Permit(at, "one")
	wants("a permit that was not taken in", 12, a, b)
	report(p.ID)
	wants("0.75 are promised, and the new 0.5 of 4", 68, a, b)
	wants("a pod that was not reported: 1 more", 43, a, b, c)
	wants("a pod that has ended, of which the node does not know yet", 68, a)
	at = noon.Add(31 * time.Second)
	wants("an old report: the limits in the API", 12, a, b)
}
