package api

import (
	"testing"

	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/test/rights"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// accountConfig is a configuration with an account's rights.
func accountConfig(name string) *rest.Config {
	config := cluster.REST()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + rights.Namespace + ":" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + rights.Namespace, "system:authenticated"},
	}
	return config
}

// as is a client with an account's rights.
func as(t *testing.T, name string) client.Client {
	t.Helper()
	c, err := client.New(accountConfig(name), client.Options{Scheme: kube.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// gone reports whether the API server has the pod no more, or lets it end.
func (s *shop) gone(p *corev1.Pod) bool {
	s.t.Helper()
	var now corev1.Pod
	err := kube.Get(s.t.Context(), client.ObjectKeyFromObject(p), &now)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return err != nil || now.UID != p.UID || now.DeletionTimestamp != nil
}

// The lab has no controller of disruption budgets, so that a budget allows nothing.
func TestTheAutoscalersAccountEvictsAPodAsFarAsItsBudgetAllows(t *testing.T) {
	installRights(t)
	s := open(t, "mode", "off")
	p := s.pod("web-1")
	if err := updater.Evict(t.Context(), as(t, rights.Scheduler), p); !apierrors.IsForbidden(err) {
		t.Errorf("the scheduler's account evicts: %v, want it forbidden", err)
	}
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "keep"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
	if err := kube.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	autoscaler := as(t, rights.Autoscaler)
	if err := updater.Evict(t.Context(), autoscaler, p); !apierrors.IsTooManyRequests(err) || s.gone(p) {
		t.Fatalf("within a budget that allows nothing: %v, want its refusal, and the pod left", err)
	}
	if err := kube.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	other := p.DeepCopy()
	other.UID = "another"
	if err := updater.Evict(t.Context(), autoscaler, other); err == nil || s.gone(p) {
		t.Fatalf("another pod of the same name: %v, want an error, and the pod left", err)
	}
	if err := updater.Evict(t.Context(), autoscaler, p); err != nil || !s.gone(p) {
		t.Errorf("%v, want the pod evicted", err)
	}
}
