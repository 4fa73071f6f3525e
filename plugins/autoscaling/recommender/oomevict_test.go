package recommender

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inLoop is a cluster whose pod web-1 is in an OOM loop at 128Mi, of 512Mi that its
// owner allows. No agent reports anything.
func inLoop(t *testing.T, mode api.Mode, evict bool) *cluster {
	t.Helper()
	c := newCluster(t, mode)
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
		most := resource.MustParse("512Mi")
		m.Spec.OOMEvict = evict
		m.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "*", Max: &v1alpha1.Size{Memory: &most}}}
	})
	c.kill("web-1")
	return c
}

// startBlind starts central with a policy that decides nothing without reports.
func (c *cluster) startBlind() {
	c.start()
	c.r.config.Policies = func(PolicyRequest) (mdp.Policy, string, error) {
		return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
			return mdp.Action{}, s.Require("blind", mdp.CPUUsage)
		}), "blind/1", nil
	}
}

// kill lets a pod's container be killed a second ago, and wait for its next start. Its
// node does not carry out any resize.
func (c *cluster) kill(name string) {
	c.t.Helper()
	s := waiting("CrashLoopBackOff", ended("OOMKilled", c.now.Add(-time.Second)))
	s.AllocatedResources = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
	c.setStatus(name, s)
}

func (c *cluster) setStatus(name string, s corev1.ContainerStatus) {
	c.t.Helper()
	var p corev1.Pod
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &p); err != nil {
		c.t.Fatal(err)
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	if err := c.client.Status().Update(c.t.Context(), &p); err != nil {
		c.t.Fatal(err)
	}
}

// wait lets steps be made for a time, 10 s apart, and returns the object after the last.
func (c *cluster) wait(d time.Duration) *v1alpha1.MultidimPodAutoscaler {
	c.t.Helper()
	var mpa *v1alpha1.MultidimPodAutoscaler
	for end := c.now.Add(d); c.now.Before(end); {
		c.now = c.now.Add(10 * time.Second)
		mpa = c.reconcile("web")
	}
	return mpa
}

// replace makes a pod of the template, as a ReplicaSet does after an eviction.
func (c *cluster) replace(name string, uid types.UID) {
	c.t.Helper()
	var d appsv1.Deployment
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &d); err != nil {
		c.t.Fatal(err)
	}
	p := pod(name, "node")
	p.UID = uid
	p.Labels = d.Spec.Template.Labels
	p.Spec = *d.Spec.Template.Spec.DeepCopy()
	p.Status.Phase = corev1.PodRunning
	p.OwnerReferences = ownedBy("ReplicaSet", "web-rs")
	if err := c.client.Create(c.t.Context(), &p); err != nil {
		c.t.Fatal(err)
	}
}

// memory is a pod's memory limit in the API.
func (c *cluster) memory(name string) string {
	c.t.Helper()
	var p corev1.Pod
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &p); err != nil {
		c.t.Fatal(err)
	}
	return p.Spec.Containers[0].Resources.Limits.Memory().String()
}

// oom is the object's condition OOMLoop.
func oom(t *testing.T, mpa *v1alpha1.MultidimPodAutoscaler, status metav1.ConditionStatus, says ...string) {
	t.Helper()
	c := meta.FindStatusCondition(mpa.Status.Conditions, v1alpha1.OOMLoop)
	if c == nil || c.Status != status {
		t.Fatalf("condition %+v, want it %s", c, status)
	}
	for _, part := range says {
		if !strings.Contains(c.Message, part) {
			t.Errorf("the condition %q does not say %q", c.Message, part)
		}
	}
}

// said is the events so far of that reason.
func (c *cluster) said(reason string) (found []string) {
	for recorder := c.r.config.Events.(*events.FakeRecorder); ; {
		select {
		case e := <-recorder.Events:
			if strings.Contains(e, " "+reason+" ") {
				found = append(found, e)
			}
		default:
			return found
		}
	}
}

// errBudget is what the API server answers when a PodDisruptionBudget allows nothing.
var errBudget = apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)

func TestALoopThatNoAgentReportsGetsMoreMemoryAndIsSaidOnce(t *testing.T) {
	c := inLoop(t, api.Auto, false)
	c.startBlind()
	mpa := c.reconcile("web")
	if got := c.memory("web-1"); got != "228Mi" {
		t.Errorf("memory limit %s, want 228Mi", got)
	}
	oom(t, mpa, metav1.ConditionTrue, "pod web-1", "container web", "128Mi", "once in 10 minutes", "228Mi is asked for",
		"awarescale.dev/oom-evict")
	c.wait(time.Minute)
	if e := c.said("OOMLoop"); len(e) != 1 {
		t.Errorf("events %q, want one", e)
	}
	c.setStatus("web-1", running(ended("OOMKilled", noon)))
	oom(t, c.wait(time.Minute), metav1.ConditionTrue, "runs again")
	oom(t, c.wait(10*time.Minute), metav1.ConditionFalse)
	c.kill("web-1")
	oom(t, c.wait(10*time.Second), metav1.ConditionTrue)
	if e := c.said("OOMLoop"); len(e) != 1 {
		t.Errorf("events %q of another loop, want one", e)
	}
}

func TestARestartOfCentralNeitherRaisesMemoryAgainNorSaysTheLoopAgain(t *testing.T) {
	c := inLoop(t, api.Auto, false)
	c.wait(20 * time.Second)
	if got, said := c.memory("web-1"), c.said("OOMLoop"); got != "228Mi" || len(said) != 1 {
		t.Fatalf("memory limit %s and events %q, want 228Mi and one", got, said)
	}
	c.startBlind()
	oom(t, c.wait(30*time.Second), metav1.ConditionTrue, "128Mi")
	if got, said := c.memory("web-1"), c.said("OOMLoop"); got != "228Mi" || len(said) != 0 {
		t.Errorf("memory limit %s and events %q after the restart, want 228Mi and none", got, said)
	}
}

func TestMemoryIsNotTakenFromAContainerInALoop(t *testing.T) {
	c := inLoop(t, api.Auto, false)
	c.r.config.Policies = func(PolicyRequest) (mdp.Policy, string, error) {
		small := func(mdp.State) (mdp.Action, error) { return mdp.Action{}.WithMemory(130 * mdp.MiB), nil }
		return mdp.PolicyFunc(small), "small/1", nil
	}
	c.reconcile("web")
	if got := c.memory("web-1"); got != "228Mi" {
		t.Errorf("memory limit %s, want 228Mi", got)
	}
	c.wait(5 * time.Minute)
	if got := c.memory("web-1"); got != "228Mi" {
		t.Errorf("memory limit %s after 5 minutes of the loop, want 228Mi", got)
	}
	c.setStatus("web-1", running(ended("OOMKilled", noon)))
	c.wait(10 * time.Minute)
	if got := c.memory("web-1"); got != "130Mi" {
		t.Errorf("memory limit %s after the loop, want the policy's 130Mi", got)
	}
}

func TestPoliciesSeeAKillThatNoAgentReportsOnceAlsoAfterARestart(t *testing.T) {
	c := inLoop(t, api.Auto, false)
	var states []mdp.State
	policies := func(PolicyRequest) (mdp.Policy, string, error) {
		return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
			states = append(states, s)
			return mdp.Action{}, nil
		}), "watching/1", nil
	}
	c.r.config.Policies = policies
	c.setStatus("web-1", running(nil))
	c.reconcile("web")
	c.setStatus("web-1", terminated(ended("OOMKilled", c.now.Add(5*time.Second)), nil))
	c.wait(20 * time.Second)
	c.start()
	c.r.config.Policies = policies
	c.wait(10 * time.Second)
	for i, want := range []int{0, 1, 0, 0} {
		if s := states[i]; s.OOMKills != want || s.Knows(mdp.OOMKills, mdp.MemoryUsage) != (want > 0) {
			t.Errorf("step %d: %s, want %d kills", i, Inputs(s), want)
		}
	}
	if s := states[1]; s.Usage.Memory != 128*mdp.MiB {
		t.Errorf("%v of memory were used at the kill, want the limit", s.Usage.Memory)
	}
}

func TestNoPodIsEvictedWithoutItsOwnersWordOrWhereAWAREMayNotAct(t *testing.T) {
	for name, prepare := range map[string]func() *cluster{
		"no word":   func() *cluster { return inLoop(t, api.Auto, false) },
		"recommend": func() *cluster { return inLoop(t, api.Recommend, true) },
		"canary":    func() *cluster { return inLoop(t, api.Canary, true) },
		"paused": func() *cluster {
			c := inLoop(t, api.Auto, true)
			change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) { m.Spec.Paused = true })
			return c
		},
		"no larger size is allowed": func() *cluster {
			c := inLoop(t, api.Auto, true)
			change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
				m.Spec.Constraints.Containers = nil
			})
			return c
		},
		"nothing would replace it": func() *cluster {
			c := inLoop(t, api.Auto, true)
			change(c, &corev1.Pod{}, "web-1", func(p *corev1.Pod) { p.OwnerReferences = nil })
			return c
		},
		"it runs again": func() *cluster {
			c := inLoop(t, api.Auto, true)
			c.wait(10 * time.Second)
			c.setStatus("web-1", running(ended("OOMKilled", noon)))
			return c
		},
	} {
		c := prepare()
		oom(t, c.wait(100*time.Second), metav1.ConditionTrue)
		if len(c.evicted) != 0 {
			t.Errorf("%s: %v is evicted", name, c.evicted)
		}
	}
}

func TestAPodThatAResizeDoesNotHelpIsEvictedOnce(t *testing.T) {
	c := inLoop(t, api.Auto, true)
	oom(t, c.wait(50*time.Second), metav1.ConditionTrue, "is killed again, or does not start within 6 minutes, the pod is evicted")
	if len(c.evicted) != 0 {
		t.Fatalf("%v is evicted before the resize had its time", c.evicted)
	}
	mpa := c.wait(20 * time.Second)
	if !slices.Equal(c.evicted, []string{"web-1"}) {
		t.Fatalf("evicted %v, want web-1", c.evicted)
	}
	last := mpa.Status.LastOOMEviction
	if last == nil || last.Pod != "web-1" || last.MemoryLimit.String() != "128Mi" || last.Wanted.String() != "228Mi" {
		t.Errorf("the status says %+v", last)
	}
	oom(t, mpa, metav1.ConditionTrue, "is evicted", "starts with the template's 128Mi")
	if e := c.said("OOMEvicted"); len(e) != 1 {
		t.Errorf("events %q, want one", e)
	}
	c.replace("web-3", "uid-3")
	oom(t, c.wait(10*time.Second), metav1.ConditionFalse)
	if got := c.memory("web-3"); got != "228Mi" {
		t.Errorf("the replacement has a memory limit of %s, want 228Mi", got)
	}
	c.kill("web-3")
	oom(t, c.wait(5*time.Minute), metav1.ConditionTrue, "one pod is evicted in that time")
	oom(t, c.wait(6*time.Minute), metav1.ConditionTrue, "did not help", "the template's 128Mi")
	if len(c.evicted) != 1 {
		t.Errorf("evicted %v, want one", c.evicted)
	}
}

// A pod that we made smaller than its template comes back larger: it may be evicted
// again, though not within ten minutes.
func TestAPodThatWeMadeTooSmallIsEvictedAgainAfterTenMinutes(t *testing.T) {
	c := newCluster(t, api.Auto)
	small := true
	c.r.config.Policies = func(PolicyRequest) (mdp.Policy, string, error) {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
			if small {
				return mdp.Action{}.WithMemory(40 * mdp.MiB), nil
			}
			return mdp.Action{}, nil
		}), "small/1", nil
	}
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
		least := resource.MustParse("40Mi")
		m.Spec.OOMEvict = true
		m.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "*", Min: &v1alpha1.Size{Memory: &least}}}
	})
	c.setStatus("web-1", running(nil))
	c.wait(20 * time.Second)
	c.kill("web-1")
	c.wait(2 * time.Minute)
	if !slices.Equal(c.evicted, []string{"web-1"}) {
		t.Fatalf("evicted %v, want web-1", c.evicted)
	}
	c.replace("web-3", "uid-3")
	c.setStatus("web-3", running(nil))
	c.wait(11 * time.Minute)
	if got := c.memory("web-3"); got != "40Mi" {
		t.Fatalf("memory limit %s, want the policy's 40Mi again", got)
	}
	c.kill("web-3")
	c.wait(2 * time.Minute)
	if !slices.Equal(c.evicted, []string{"web-1", "web-3"}) {
		t.Errorf("evicted %v, want web-3 as well", c.evicted)
	}
}

func TestADisruptionBudgetThatRefusesIsSaidAndAskedAgainLater(t *testing.T) {
	c := inLoop(t, api.Auto, true)
	c.refuse = errBudget
	mpa := c.wait(80 * time.Second)
	oom(t, mpa, metav1.ConditionTrue, "a PodDisruptionBudget does not allow", "disruption budget", "tried again in 30s")
	if len(c.evicted) != 1 || mpa.Status.LastOOMEviction != nil {
		t.Fatalf("%d attempts, status %+v, want one attempt and no eviction", len(c.evicted), mpa.Status.LastOOMEviction)
	}
	c.wait(20 * time.Minute)
	if n := len(c.evicted); n < 5 || n > 8 { // after 30 s, 1, 2, 4, 5, 5 min
		t.Errorf("%d attempts in 20 minutes, want them less and less often", n)
	}
	c.refuse = nil
	mpa = c.wait(5 * time.Minute)
	if mpa.Status.LastOOMEviction == nil {
		t.Error("it was not evicted once the budget allowed it")
	}
	c.refuse = errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
	c.kill("web-2")
	n := len(c.evicted)
	if c.wait(5 * time.Minute); len(c.evicted) != n {
		t.Errorf("%d evictions of another pod within ten minutes", len(c.evicted)-n)
	}
}

func TestCentralDoesNotEvictAgainAfterARestart(t *testing.T) {
	c := inLoop(t, api.Auto, true)
	mpa := c.wait(80 * time.Second)
	if len(c.evicted) != 1 {
		t.Fatalf("evicted %v, want one", c.evicted)
	}
	before := mpa.Status.LastOOMEviction.UID
	c.start()
	c.replace("web-3", "uid-3")
	c.kill("web-2")
	c.kill("web-3")
	mpa = c.wait(3 * time.Minute)
	if len(c.evicted) != 1 || mpa.Status.LastOOMEviction.UID != before {
		t.Errorf("evicted %v, status %+v: want nothing after the restart", c.evicted, mpa.Status.LastOOMEviction)
	}
}

// Central may die between the eviction and its next write: so the status says it before.
func TestAnEvictionIsWrittenDownBeforeItIsMade(t *testing.T) {
	c := inLoop(t, api.Auto, true)
	c.wait(50 * time.Second)
	c.noApply = true
	for range 3 {
		c.now = c.now.Add(10 * time.Second)
		c.step("web")
	}
	if len(c.evicted) != 0 {
		t.Errorf("%v is evicted though that could not be written down", c.evicted)
	}
	c.noApply = false
	c.wait(time.Minute)
	if len(c.evicted) != 1 {
		t.Errorf("evicted %v, want one once it could be written", c.evicted)
	}
}

func TestALoopOfAModeThatIsOffIsNotSaid(t *testing.T) {
	c := inLoop(t, api.Auto, false)
	oom(t, c.wait(10*time.Second), metav1.ConditionTrue)
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
		m.Spec.Mode = "off"
		m.Generation++
	})
	if mpa := c.wait(10 * time.Second); meta.FindStatusCondition(mpa.Status.Conditions, v1alpha1.OOMLoop) != nil {
		t.Error("the condition is still there")
	}
}

// settle lets the kubelet say that a pod has what the API gives it, in that state.
func (c *cluster) settle(name string, s corev1.ContainerStatus) {
	c.t.Helper()
	var p corev1.Pod
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &p); err != nil {
		c.t.Fatal(err)
	}
	s.AllocatedResources = p.Spec.Containers[0].Resources.Requests
	c.setStatus(name, s)
}

// A kubelet of 1.37 gives the pod its memory at once, and starts the container when its
// back-off ends: it is not evicted for waiting. When it is killed again, it is.
func TestAContainerThatGotItsMemoryIsGivenTimeToStart(t *testing.T) {
	for name, again := range map[string]bool{"it starts": false, "it is killed again": true} {
		t.Run(name, func(t *testing.T) {
			c := inLoop(t, api.Auto, true)
			c.startBlind()
			c.reconcile("web")
			c.settle("web-1", waiting("CrashLoopBackOff", ended("OOMKilled", noon.Add(-time.Second))))
			c.wait(4 * time.Minute)
			if len(c.evicted) != 0 {
				t.Fatalf("evicted %v while it waits for its next start", c.evicted)
			}
			if again {
				c.settle("web-1", waiting("CrashLoopBackOff", ended("OOMKilled", c.now)))
			} else {
				c.settle("web-1", running(ended("OOMKilled", noon)))
			}
			c.wait(2 * time.Minute)
			if evicted := len(c.evicted) > 0; evicted != again {
				t.Errorf("evicted: %v, want %v", evicted, again)
			}
		})
	}
}

func TestAContainerThatNeverStartsAgainIsEvictedInTheEnd(t *testing.T) {
	c := inLoop(t, api.Auto, true)
	c.startBlind()
	c.reconcile("web")
	c.settle("web-1", waiting("RunContainerError", ended("OOMKilled", noon.Add(-time.Second))))
	c.wait(5 * time.Minute)
	if len(c.evicted) != 0 {
		t.Fatalf("evicted %v within a back-off", c.evicted)
	}
	c.wait(2 * time.Minute)
	if len(c.evicted) != 1 {
		t.Errorf("evicted %v, want it once", c.evicted)
	}
}
