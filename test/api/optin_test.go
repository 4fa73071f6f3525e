package api

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAnnotationsMakeAnObjectAndItFollowsThem(t *testing.T) {
	s := open(t, "mode", "observe", "slo-latency-p99", "50ms", "max-replicas", "3")
	s.condition(v1alpha1.Ready, metav1.ConditionTrue)
	m, err := s.mpa()
	if err != nil {
		t.Fatal(err)
	}
	if m.Spec.Mode != "observe" || m.Spec.SLO.Latency.Threshold.Duration.String() != "50ms" ||
		m.Spec.Constraints.Replicas.Max != 3 {
		t.Errorf("spec = %+v", m.Spec)
	}
	s.annotate("mode", "recommend")
	s.eventually("the object follows", func() (bool, string) {
		m, err := s.mpa()
		return err == nil && m.Spec.Mode == "recommend", fmt.Sprintf("%v %v", m.Spec.Mode, err)
	})
	s.event("OptedIn", "mode observe")
}

func TestEveryKindOfWorkloadCanOptIn(t *testing.T) {
	s := open(t)
	zero := int32(0)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for _, o := range []client.Object{
		&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
			Replicas:    &zero,
			Selector:    selector,
			Template:    template(),
			ServiceName: "x",
		}},
		&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{
			Replicas: &zero,
			Selector: selector,
			Template: template(),
		}},
	} {
		o.SetNamespace(s.namespace)
		o.SetName("other")
		if err := kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"web", "other-statefulset", "other-replicaset"} {
		s.eventually("an object named "+name, func() (bool, string) {
			var m v1alpha1.MultidimPodAutoscaler
			err := kube.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, &m)
			return err == nil, fmt.Sprint(err)
		})
	}
}

// An event and a condition name the key of a bad annotation, its value and the rule.
// The last good spec stays.
func TestABadAnnotationIsReportedAndTheLastGoodSpecStays(t *testing.T) {
	s := open(t, "mode", "observe", "max-cpu", "800m")
	s.condition(v1alpha1.Ready, metav1.ConditionTrue)
	for _, c := range []struct {
		key   string
		value string
		says  string // a part of the message
	}{
		{"max-cpu", "lots", "such as 250m"},
		{"min-cpu", "2", "min must not be above max"},
		{"colour", "blue", "unknown key"},
	} {
		s.annotate(c.key, c.value)
		s.condition(v1alpha1.Ready, metav1.ConditionFalse, v1alpha1.Prefix+c.key, c.value, c.says)
		s.event("InvalidAnnotation", v1alpha1.Prefix+c.key, c.value, c.says)
		if m, err := s.mpa(); err != nil || m.Spec.Constraints.Containers[0].Max.CPU.String() != "800m" {
			t.Errorf("the last good spec did not stay: %+v, %v", m.Spec.Constraints, err)
		}
		s.annotate("colour", "")
		s.annotate("min-cpu", "")
		s.annotate("max-cpu", "800m")
		s.condition(v1alpha1.Ready, metav1.ConditionTrue)
	}
}

func TestAWorkloadWhoseFirstAnnotationsAreBadIsReportedAndNotChanged(t *testing.T) {
	s := open(t, "mode", "auto", "slo-latency-p99", "50ms", "slo-port", "nowhere")
	s.condition(v1alpha1.Ready, metav1.ConditionFalse, "the SLO has no source", "nowhere")
	if m, err := s.mpa(); err != nil || m.Spec.Mode != "off" {
		t.Errorf("mode %v, %v; want off", m.Spec.Mode, err)
	}
}

func TestAnnotationsWithoutTheLabelAreReported(t *testing.T) {
	s := open(t)
	var d appsv1.Deployment
	s.get(&d, "web")
	d.Name = "unlabelled"
	d.ResourceVersion = ""
	d.UID = ""
	d.Spec.Selector.MatchLabels = map[string]string{"app": "unlabelled"}
	d.Spec.Template.Labels = map[string]string{"app": "unlabelled"}
	d.Spec.Template.Annotations = map[string]string{v1alpha1.ModeAnnotation: "auto"}
	if err := kube.Create(t.Context(), &d); err != nil {
		t.Fatal(err)
	}
	s.event("OptInIncomplete", "awarescale.dev/managed=true")
}

func TestOptingOutRemovesTheGrantsAndRestoresTheSizes(t *testing.T) {
	s := open(t, "mode", "auto", "max-cpu", "900m")
	p := s.pod("one")
	s.eventually("the pod is resized", func() (bool, string) {
		s.reports(395, nil, p)
		s.get(p, "one")
		return size(p).CPU != 200, size(p).String()
	})
	s.eventually("its grant is auto", func() (bool, string) {
		m, ok := s.grant(p)
		return ok && m.Mode == api.Auto, fmt.Sprintf("%+v", m)
	})
	s.change(func(d *appsv1.Deployment) { delete(d.Spec.Template.Labels, v1alpha1.ManagedLabel) })
	s.eventually("no object, no grant, the template's size", func() (bool, string) {
		_, err := s.mpa()
		_, granted := s.grant(p)
		s.get(p, "one")
		return apierrors.IsNotFound(err) && !granted && asTemplate(p),
			fmt.Sprint(err, granted, size(p))
	})
}

// size is what a pod reserves of CPU, and may use of memory.
func size(p *corev1.Pod) mdp.Size {
	r := p.Spec.Containers[0].Resources
	return mdp.Size{CPU: mdp.MilliCPU(r.Requests.Cpu().MilliValue()), Memory: mdp.Bytes(r.Limits.Memory().Value())}
}

// memory is what was decided of a pod's memory: twice what it requests, as in the template.
func memory(p *corev1.Pod) mdp.Bytes {
	return 2 * mdp.Bytes(p.Spec.Containers[0].Resources.Requests.Memory().Value())
}

// asTemplate reports whether a pod has the template's size and ceiling.
func asTemplate(p *corev1.Pod) bool {
	return size(p) == (mdp.Size{CPU: 200, Memory: 128 * mdp.MiB}) && ceiling(p) == 400
}

// ceiling is a pod's CPU limit.
func ceiling(p *corev1.Pod) mdp.MilliCPU {
	return mdp.MilliCPU(p.Spec.Containers[0].Resources.Limits.Cpu().MilliValue())
}

// The API server refuses an invalid object, and its error names the rule.
func TestTheAPIServerValidates(t *testing.T) {
	s := open(t)
	for name, c := range map[string]struct{ spec, want string }{
		"min cpu above max": {"constraints: {containers: [{name: web, min: {cpu: '2'}, max: {cpu: 500m}}]}",
			"min cpu must not be above max cpu"},
		"min memory above max": {
			"constraints: {containers: [{name: web, min: {memory: 1Gi}, max: {memory: 512Mi}}]}",
			"min memory must not be above max memory",
		},
		"min replicas above max": {"constraints: {replicas: {min: 5, max: 2}}", "min must not be above max"},
		"a scale-in window of two hours": {
			"constraints: {replicas: {max: 2, scaleInWindow: 2h}}", "scaleInWindow must be from 10s to 1h",
		},
		"unknown mode": {"mode: turbo", `Unsupported value: "turbo"`},
		"an slo of nothing": {"slo: {source: {type: pod}}",
			"an slo needs latency, throughput, or both"},
		"prometheus without server": {"slo: {latency: {threshold: 50ms}, source: {type: prometheus}}",
			"needs server"},
		"a threshold of zero":        {"slo: {latency: {threshold: 0s}}", "threshold must be above zero"},
		"alpha above one":            {"objective: {alpha: '1.5'}", "alpha must be between 0 and 1"},
		"a quantity that is not one": {"constraints: {containers: [{name: web, max: {cpu: much}}]}", "max.cpu"},
		"an unknown field":           {"modus: auto", `unknown field "spec.modus"`},
		"an unknown algorithm":       {"learner: {algorithm: sarsa}", `Unsupported value: "sarsa"`},
		"a handover above serving": {
			"learner: {thresholds: {online: 150, serving: 130, variance: 5}}", "online must not be above serving",
		},
		"no variance":         {"learner: {thresholds: {online: 110, serving: 130, variance: 0}}", "variance must be above 0"},
		"a reward beyond all": {"learner: {thresholds: {online: 110, serving: 250, variance: 5}}", "between -1000 and 200"},
		// Reading such a quantity would take hours of the API server's time, and of ours.
		"a throughput of a trillion digits": {"slo: {throughput: '07E1000000000000'}", "throughput must be above zero"},
		"a threshold of as many": {
			"learner: {thresholds: {online: 1, serving: '07E1000000000000', variance: 1}}", "between -1000 and 200",
		},
		"an alpha of as many": {"objective: {alpha: '1E-99999999'}", "alpha must be between 0 and 1"},
		"a maximum of as many": {
			"constraints: {containers: [{name: web, min: {cpu: '1', memory: '07E1000000000000'}, max: {cpu: '1E99999999', memory: 1Gi}}]}",
			"the exponent must have at most two characters",
		},
	} {
		t.Run(name, func(t *testing.T) {
			yaml := "apiVersion: autoscaling.awarescale.dev/v1alpha1\n" +
				"kind: MultidimPodAutoscaler\n" +
				"metadata: {name: bad, namespace: " + s.namespace + "}\n" +
				"spec:\n  targetRef: {kind: Deployment, name: other}\n  " + c.spec + "\n"
			file := filepath.Join(t.TempDir(), "mpa.yaml")
			os.WriteFile(file, []byte(yaml), 0o600)
			out, err := kubectl(t, "apply", "--validate=strict", "-f", file)
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("kubectl printed %q (%v), want %q", out, err, c.want)
			}
		})
	}
}

func TestKubectlExplainsAndShowsTheColumns(t *testing.T) {
	s := open(t, "slo-latency-p99", "50ms")
	s.condition(v1alpha1.Ready, metav1.ConditionTrue)
	if out, err := kubectl(t, "explain", "mpa.spec.slo"); err != nil ||
		!strings.Contains(out, "service-level objective") || !strings.Contains(out, "latency") {
		t.Errorf("kubectl explain mpa.spec.slo: %v\n%s", err, out)
	}
	out, err := kubectl(t, "get", "mpa", "-n", s.namespace)
	if err != nil || !contains(out,
		[]string{"NAME", "TARGET", "MODE", "STAGE", "REPLICAS", "CPU", "MEM", "SLO", "REWARD", "AGE",
			"Deployment/web", "observe"}) {
		t.Errorf("kubectl get mpa: %v\n%s", err, out)
	}
}

// The number of replicas is two bounds, and a scale is one number: there is none to set.
func TestTheObjectHasNoScale(t *testing.T) {
	s := open(t, "mode", "observe", "max-replicas", "4")
	s.condition(v1alpha1.Ready, metav1.ConditionTrue)
	if out, err := kubectl(t, "scale", "mpa", "web", "-n", s.namespace, "--replicas=2"); err == nil {
		t.Fatalf("it was scaled: %s", out)
	}
}

func peer(namespace, kind, group, version string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	u.SetNamespace(namespace)
	u.SetName("rival")
	return u
}

func TestAnotherAutoscalerOnTheSameWorkloadDegradesToRecommend(t *testing.T) {
	target := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
	for name, rival := range map[string]func(namespace string) client.Object{
		"HorizontalPodAutoscaler": func(namespace string) client.Object {
			return peer(namespace, "HorizontalPodAutoscaler", "autoscaling", "v2", map[string]any{
				"scaleTargetRef": target,
				"maxReplicas":    int64(3),
			})
		},
		"VerticalPodAutoscaler": func(namespace string) client.Object {
			return peer(namespace, "VerticalPodAutoscaler", "autoscaling.k8s.io", "v1",
				map[string]any{"targetRef": target})
		},
		"ScaledObject": func(namespace string) client.Object {
			return peer(namespace, "ScaledObject", "keda.sh", "v1alpha1",
				map[string]any{"scaleTargetRef": map[string]any{"name": "web"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, "mode", "auto")
			p := s.pod("one")
			s.condition(v1alpha1.Active, metav1.ConditionTrue)
			o := rival(s.namespace)
			if err := kube.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			s.condition(v1alpha1.ConflictDetected, metav1.ConditionTrue, name+" rival", "only recommends")
			s.event("ConflictDetected", name+" rival")
			s.condition(v1alpha1.Active, metav1.ConditionFalse)
			if m, ok := s.grant(p); !ok || m.Mode != api.Recommend {
				t.Errorf("grant %+v, %v; want recommend", m.Mode, ok)
			}
			if err := kube.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			s.condition(v1alpha1.ConflictDetected, metav1.ConditionFalse)
			s.condition(v1alpha1.Active, metav1.ConditionTrue)
		})
	}
}
