package api

import (
	"fmt"
	"math"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// grown waits until the pod was resized above its template's 200m.
func (s *shop) grown(p *corev1.Pod) {
	s.t.Helper()
	s.eventually("pod "+p.Name+" is resized", func() (bool, string) {
		s.reports(395, nil, p)
		s.get(p, p.Name)
		return size(p).CPU > 200, size(p).String()
	})
}

func TestAutoResizesInPlaceAndKeepsTheQoSClass(t *testing.T) {
	s := open(t, "mode", "auto", "max-cpu", "900m")
	p := s.pod("one")
	s.grown(p)
	r := p.Spec.Containers[0].Resources
	if p.Status.QOSClass != corev1.PodQOSBurstable || r.Limits.Cpu().MilliValue() != 900 ||
		r.Limits.Memory().Value() != 128<<20 {
		t.Errorf("QoS %s, requests %v, limits %v; want the owner's ceiling of 900m, and no less memory than the template's 128Mi",
			p.Status.QOSClass, r.Requests, r.Limits)
	}
	if p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the container was restarted")
	}
	s.eventually("the resize is counted and the decision kept", func() (bool, string) {
		m, err := s.mpa()
		return err == nil && m.Status.Resizes.API > 0 && len(m.Status.Decisions) > 0,
			fmt.Sprintf("%+v", m.Status)
	})
}

func TestTheOtherModesChangeNothing(t *testing.T) {
	for mode, granted := range map[string]api.Mode{
		"observe":   api.Observe,
		"recommend": api.Recommend,
		"off":       "",
	} {
		t.Run(mode, func(t *testing.T) {
			s := open(t, "mode", mode, "max-cpu", "900m", "max-replicas", "3")
			p := s.pod("one")
			s.condition(v1alpha1.Active, metav1.ConditionFalse)
			s.never("the pod was resized", func() bool {
				s.reports(395, nil, p)
				s.get(p, "one")
				return !asTemplate(p)
			})
			if m, ok := s.grant(p); m.Mode != granted || ok != (granted != "") {
				t.Errorf("grant %q, %v; want %q", m.Mode, ok, granted)
			}
			if mode == "recommend" {
				s.eventually("more CPU is recommended", func() (bool, string) {
					s.reports(395, nil, p)
					m, _ := s.mpa()
					all := m.Status.Recommendation
					more := len(all) > 0 && all[0].Requests != nil && all[0].Requests.CPU.MilliValue() > 200
					return more, fmt.Sprintf("%+v", all)
				})
				s.get(p, "one")
				if !asTemplate(p) {
					t.Error("the pod was resized")
				}
			}
		})
	}
}

func TestACanaryIsOnePodAndIsRestoredWhenTheSLOIsViolated(t *testing.T) {
	s := open(t, "mode", "canary", "max-cpu", "900m", "slo-latency-p99", "50ms")
	one, two := s.pod("one"), s.pod("two")
	requests := uint64(0)
	served := func(upper float64) func(*api.Summary) { // adds a hundred requests, all at most that slow
		requests += 100
		return func(sum *api.Summary) {
			fast := requests
			if upper > 0.05 {
				fast = 0
			}
			sum.Latency = api.Histogram{
				Upper:  []float64{0.05, 1, math.Inf(1)},
				Counts: []uint64{fast, requests, requests},
			}
		}
	}
	s.eventually("the first pod by name is resized", func() (bool, string) {
		s.reports(395, served(0.01), one, two)
		s.get(one, "one")
		return size(one).CPU > 200, size(one).String()
	})
	s.eventually("the canary's grant is auto, the other's recommend", func() (bool, string) {
		m1, _ := s.grant(one)
		m2, _ := s.grant(two)
		s.reports(395, served(0.01), one, two) // asking for grants was an empty report
		return m1.Mode == api.Auto && m2.Mode == api.Recommend, fmt.Sprintf("%q and %q", m1.Mode, m2.Mode)
	})
	if s.get(two, "two"); !asTemplate(two) {
		t.Errorf("the other pod was resized to %v", size(two))
	}
	s.eventually("with a violated SLO the canary has the template's size again", func() (bool, string) {
		s.reports(395, served(1), one, two)
		s.get(one, "one")
		return asTemplate(one), size(one).String()
	})
	s.event("CanaryReverted", "SLO is violated")
}

func TestFromCanaryToAutoReplicasAreScaledAgain(t *testing.T) {
	s := open(t, "mode", "canary", "max-cpu", "400m", "max-replicas", "2")
	p := s.pod("one")
	throttled := func(sum *api.Summary) {
		sum.State.Throttled, sum.State.Observed = 0.5, sum.State.Observed|mdp.SetOf(mdp.Throttled)
	}
	s.condition(v1alpha1.Active, metav1.ConditionTrue)
	replicas := func() int32 {
		s.reports(395, throttled, p)
		var d appsv1.Deployment
		s.get(&d, "web")
		return *d.Spec.Replicas
	}
	s.never("a canary was scaled out", func() bool { return replicas() > 1 })
	s.annotate("mode", "auto")
	s.eventually("two replicas", func() (bool, string) { n := replicas(); return n == 2, fmt.Sprint(n) })
}

func TestPausedKeepsTheLimitsInForce(t *testing.T) {
	s := open(t, "mode", "auto", "max-cpu", "900m")
	p := s.pod("one")
	s.grown(p)
	s.annotate("paused", "true")
	s.condition(v1alpha1.Paused, metav1.ConditionTrue)
	s.condition(v1alpha1.Active, metav1.ConditionFalse)
	s.get(p, "one")
	before := size(p)
	s.never("the size was changed or restored", func() bool {
		s.reports(50, nil, p)
		s.get(p, "one")
		return size(p) != before
	})
	if m, ok := s.grant(p); !ok || !m.Paused {
		t.Errorf("grant %+v, %v; want a paused one", m, ok)
	}
}

func TestAResourceWhoseResizeRestartsTheContainerIsNotResized(t *testing.T) {
	s := open(t)
	s.change(func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{
			v1alpha1.ModeAnnotation:      "auto",
			v1alpha1.MaxCPUAnnotation:    "900m",
			v1alpha1.MaxMemoryAnnotation: "1Gi",
		}
		d.Spec.Template.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{
			ResourceName:  corev1.ResourceMemory,
			RestartPolicy: corev1.RestartContainer,
		}}
	})
	p := s.pod("one")
	s.grown(p) // its CPU is resized
	if got := size(p).Memory; got != 128*mdp.MiB {
		t.Errorf("memory became %v: that restarts the container", got)
	}
}

func TestAResizeDeferredForTooLongBecomesAScaleOut(t *testing.T) {
	s := open(t, "mode", "auto", "max-cpu", "900m", "max-replicas", "3")
	p := s.pod("one")
	s.grown(p)
	s.status(p, func(st *corev1.PodStatus) {
		st.Conditions = append(st.Conditions, corev1.PodCondition{
			Type:               corev1.PodResizePending,
			Status:             corev1.ConditionTrue,
			Reason:             corev1.PodReasonDeferred,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-10 * time.Second)),
		})
	})
	s.eventually("a second replica, and the first pod's size is restored", func() (bool, string) {
		s.reports(395, nil, p)
		var d appsv1.Deployment
		s.get(&d, "web")
		s.get(p, "one")
		return *d.Spec.Replicas >= 2 && size(p).CPU == 200,
			fmt.Sprintf("%d replicas, %v", *d.Spec.Replicas, size(p))
	})
	s.event("ResizeDeferred", "scaling out instead")
}

func TestAnInfeasibleResizeIsRevertedAndReported(t *testing.T) {
	s := open(t, "mode", "auto", "max-cpu", "900m")
	p := s.pod("one")
	s.grown(p)
	s.status(p, func(st *corev1.PodStatus) {
		st.Conditions = append(st.Conditions, corev1.PodCondition{
			Type:   corev1.PodResizePending,
			Status: corev1.ConditionTrue,
			Reason: corev1.PodReasonInfeasible,
		})
	})
	s.condition(v1alpha1.ResizeDeferred, metav1.ConditionTrue, "can never have room")
	s.eventually("the size is restored", func() (bool, string) {
		s.get(p, "one")
		return asTemplate(p), size(p).String()
	})
}

func TestAResizeThatFitsNoNodeIsReported(t *testing.T) {
	s := open(t, "mode", "auto", "max-memory", "64Gi")
	p := s.pod("one")
	s.eventually("the API server's refusal is reported", func() (bool, string) {
		s.reports(100, func(sum *api.Summary) { sum.State.Usage.Memory = 30 << 30 }, p)
		m, err := s.mpa()
		if err != nil || len(m.Status.Decisions) == 0 {
			return false, fmt.Sprint(err)
		}
		return m.Status.Decisions[0].Effect == "infeasible", m.Status.Decisions[0].Reason
	})
}

func TestReplicasFollowTheDecisionWithinTheirBounds(t *testing.T) {
	s := open(t, "mode", "auto", "max-cpu", "400m", "max-replicas", "2")
	p := s.pod("one")
	s.eventually("two replicas", func() (bool, string) {
		s.reports(395, func(sum *api.Summary) {
			sum.State.Throttled, sum.State.Observed = 0.5, sum.State.Observed|mdp.SetOf(mdp.Throttled)
		}, p)
		var d appsv1.Deployment
		s.get(&d, "web")
		return *d.Spec.Replicas == 2, fmt.Sprint(*d.Spec.Replicas)
	})
	s.never("more than max-replicas", func() bool {
		s.reports(395, nil, p)
		var d appsv1.Deployment
		s.get(&d, "web")
		return *d.Spec.Replicas > 2
	})
}

// A PodDisruptionBudget limits evictions, not /scale. AWARE respects it for scaling
// in, too.
func TestScalingInRespectsThePodDisruptionBudget(t *testing.T) {
	s := open(t, "mode", "auto", "max-cpu", "400m", "min-replicas", "1", "max-replicas", "3")
	three := int32(3)
	s.change(func(d *appsv1.Deployment) { d.Spec.Replicas = &three })
	pods := []*corev1.Pod{s.pod("one"), s.pod("two"), s.pod("three")}
	least := intstr.FromInt32(3)
	if err := kube.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "keep-three"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the budget is why nothing is scaled in", func() (bool, string) {
		s.reports(10, nil, pods...)
		m, err := s.mpa()
		if err != nil || len(m.Status.Decisions) == 0 {
			return false, fmt.Sprint(err)
		}
		return contains(m.Status.Decisions[0].Reason, []string{"PodDisruptionBudget keep-three allows 0"}),
			m.Status.Decisions[0].Reason
	})
	var d appsv1.Deployment
	s.get(&d, "web")
	if *d.Spec.Replicas != 3 {
		t.Errorf("replicas = %d", *d.Spec.Replicas)
	}
}

func TestAnUnreachableHistogramIsReported(t *testing.T) {
	s := open(t, "mode", "observe", "slo-latency-p99", "50ms")
	p := s.pod("one")
	const why = "reading http://10.1.2.3:9090/metrics: connection refused"
	s.eventually("the condition says why", func() (bool, string) {
		s.reports(100, func(sum *api.Summary) { sum.Problem = why }, p)
		m, err := s.mpa()
		if err != nil {
			return false, err.Error()
		}
		for _, c := range m.Status.Conditions {
			if c.Type == v1alpha1.SLOObserved {
				return c.Status == metav1.ConditionFalse && contains(c.Message, []string{"pod one", why}),
					c.Message
			}
		}
		return false, "no condition"
	})
	s.event("SLOUnreachable", why)
	if m, _ := s.mpa(); m.Status.SLOPreservation != "unknown" {
		t.Errorf("SLO preservation %q: a value that cannot be read is unknown", m.Status.SLOPreservation)
	}
}

func TestASecondObjectOnTheSameTargetIsRefused(t *testing.T) {
	s := open(t)
	s.condition(v1alpha1.Ready, metav1.ConditionTrue)
	mine := &v1alpha1.MultidimPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "mine"},
		Spec: v1alpha1.MultidimPodAutoscalerSpec{
			Mode:      "observe",
			TargetRef: v1alpha1.TargetRef{Kind: "Deployment", Name: "web"},
		},
	}
	if err := kube.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	s.eventually("the second object on the same target is refused", func() (bool, string) {
		s.get(mine, "mine")
		for _, c := range mine.Status.Conditions {
			if c.Type == v1alpha1.Ready {
				return c.Status == metav1.ConditionFalse && c.Reason == "TargetTaken", c.Message
			}
		}
		return false, ""
	})
}

func TestAMissingTargetIsReported(t *testing.T) {
	s := open(t)
	lost := &v1alpha1.MultidimPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "lost"},
		Spec: v1alpha1.MultidimPodAutoscalerSpec{
			Mode:      "auto",
			TargetRef: v1alpha1.TargetRef{Kind: "Deployment", Name: "nowhere"},
		},
	}
	if err := kube.Create(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	s.event("TargetNotFound", "nowhere")
}
