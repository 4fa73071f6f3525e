package live

import (
	"errors"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestParseReadsNamespaceKindAndName(t *testing.T) {
	if got, err := Parse("prod/deploy/shop"); err != nil || got.String() != "prod/Deployment/shop" {
		t.Errorf("%v, %v", got, err)
	}
	for _, wrong := range []string{"", "shop", "deployment/shop", "prod/deployment/", "prod/daemonset/shop",
		"a/b/c/d"} {
		if _, err := Parse(wrong); err == nil || !strings.Contains(err.Error(), `"`+wrong+`"`) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// shop is a workload in an API server in memory.
func shop(t *testing.T, change func(*v1alpha1.MultidimPodAutoscaler), others ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	clientgoscheme.AddToScheme(scheme)
	v1alpha1.AddToScheme(scheme)
	size := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("400m"),
		corev1.ResourceMemory: resource.MustParse("128Mi"),
	}
	labels := map[string]string{"app": "shop", v1alpha1.ManagedLabel: "true"}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "helper"}, {
		Name:      "web",
		Resources: corev1.ResourceRequirements{Limits: size},
	}}}
	m := &v1alpha1.MultidimPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "shop"},
		Spec: v1alpha1.MultidimPodAutoscalerSpec{
			Mode:      "observe",
			TargetRef: v1alpha1.TargetRef{Kind: "Deployment", Name: "shop"},
		},
	}
	if change != nil {
		change(m)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(others, m,
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "shop"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       spec,
				},
			},
		},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "shop-1", Labels: labels},
			Spec:       spec,
			Status: corev1.PodStatus{
				Phase:      corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		})...).Build()
}

var target = Target{Namespace: "prod", Kind: "Deployment", Name: "shop"}

func TestOpenRefusesAWorkloadThatOthersMove(t *testing.T) {
	mode := func(mode string) func(*v1alpha1.MultidimPodAutoscaler) {
		return func(m *v1alpha1.MultidimPodAutoscaler) { m.Spec.Mode = mode }
	}
	for name, c := range map[string]struct {
		client client.Client
		target Target
		says   string
	}{
		"auto":   {shop(t, mode("auto")), target, "mode is auto, so central moves it"},
		"canary": {shop(t, mode("canary")), target, "mode is canary"},
		"off":    {shop(t, mode("off")), target, "central does not observe it"},
		"paused": {shop(t, func(m *v1alpha1.MultidimPodAutoscaler) { m.Spec.Paused = true }), target,
			"paused"},
		"another HPA": {shop(t, nil, &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "old"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "shop"},
			},
		}), target, "HorizontalPodAutoscaler old moves it"},
		"not opted in": {shop(t, nil), Target{
			Namespace: "prod",
			Kind:      "Deployment",
			Name:      "bank",
		}, "prod/Deployment/bank: it has no MultidimPodAutoscaler"},
		"nothing to move": {shop(t, nil), Target{
			Namespace: "prod",
			Kind:      "Deployment",
			Name:      "shop",
			Container: "helper",
		}, "nothing to move"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), c.client, c.target, time.Second, guard.Central)
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("err = %v; want a refusal that says %q", err, c.says)
			}
		})
	}
	for _, harmless := range []string{"observe", "recommend"} {
		if env, err := Open(t.Context(), shop(t, mode(harmless)), target, time.Second,
			guard.Central); err != nil || env.Spaces().Service != "web" {
			t.Errorf("mode %s: %v", harmless, err)
		}
	}
	var unknown *workload.NotFoundError
	if _, err := Open(t.Context(), shop(t, nil), Target{
		Namespace: "prod",
		Kind:      "Deployment",
		Name:      "shop",
		Container: "cache",
	}, time.Second, guard.Central); !errors.As(err, &unknown) {
		t.Errorf("an unknown container: %v", err)
	}
}

func TestEachDecisionOfCentralIsReadOnce(t *testing.T) {
	now := time.Now()
	web := recommender.Signals(mdp.State{
		Observed: mdp.SetOf(mdp.Replicas, mdp.CPUUsage, mdp.MemoryUsage, mdp.Latency, mdp.Throughput,
			mdp.CPUPressure),
		Replicas:   9,
		Usage:      mdp.Size{CPU: 180, Memory: 40 * mdp.MiB},
		Latency:    12340 * time.Microsecond,
		Throughput: 9.5,
	})
	helper := recommender.Signals(mdp.State{Observed: mdp.SetOf(mdp.CPUUsage), Usage: mdp.Size{CPU: 1}})
	c := shop(t, func(m *v1alpha1.MultidimPodAutoscaler) {
		m.Status.Decisions = []v1alpha1.DecisionStatus{
			{Time: metav1.NewTime(now), Container: "helper", Signals: helper},
			{Time: metav1.NewTime(now), Container: "web", Signals: web},
		}
	})
	env, err := Open(t.Context(), c, target, time.Second, guard.Central)
	if err != nil {
		t.Fatal(err)
	}
	s, err := env.Reset(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	api := mdp.SetOf(mdp.Replicas, mdp.CPUReservation, mdp.CPUCeiling, mdp.MemoryLimit) // what the API says
	want := api | mdp.SetOf(mdp.CPUUsage, mdp.MemoryUsage, mdp.Latency, mdp.Throughput, mdp.CPUPressure)
	if s.Observed != want || s.Usage != (mdp.Size{CPU: 180, Memory: 40 * mdp.MiB}) ||
		s.Latency != 12340*time.Microsecond || s.Throughput != 9.5 {
		t.Errorf("the first state is %+v: want central's figures of web", s)
	}
	if s.Replicas != 1 || s.Reservation != 400 || s.Ceiling != 400 || s.Limit.Memory != 128*mdp.MiB {
		t.Errorf("the first state is %+v: want what the API says of the pods", s)
	}
	if s, err = env.Reset(t.Context(), 0); err != nil || s.Observed != api {
		t.Errorf("with no new decision: %+v, %v; want what the API says alone", s, err)
	}
}
