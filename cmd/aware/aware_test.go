package main

import (
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func shop() v1alpha1.MultidimPodAutoscaler {
	q := func(s string) *resource.Quantity { q := resource.MustParse(s); return &q }
	return v1alpha1.MultidimPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "shop"},
		Spec: v1alpha1.MultidimPodAutoscalerSpec{
			Mode:      "auto",
			TargetRef: v1alpha1.TargetRef{Kind: "Deployment", Name: "shop"},
			SLO: &v1alpha1.SLO{Latency: &v1alpha1.LatencySLO{
				Percentile: 99,
				Threshold:  metav1.Duration{Duration: 50 * time.Millisecond},
			}},
		},
		Status: v1alpha1.MultidimPodAutoscalerStatus{
			Stage:           "Initialized",
			Replicas:        v1alpha1.ReplicaStatus{Current: 1, Desired: 2},
			Effective:       &v1alpha1.Size{CPU: q("240m"), Memory: q("96Mi")},
			SLOPreservation: "0.93",
			Latency:         &metav1.Duration{Duration: 53760 * time.Microsecond},
			Resizes:         v1alpha1.ResizeStatus{Node: 41, API: 3},
			Decisions: []v1alpha1.DecisionStatus{{
				Time:      metav1.NewTime(noon),
				Container: "web",
				Inputs:    "as text",
				Action:    "as text",
				Effect:    "pending",
				Signals: map[string]resource.Quantity{
					"replicas":  *q("1"),
					"cpu-usage": *q("200m"),
					"latency":   *q("12300u"),
				},
				Sets:      map[string]resource.Quantity{"replicas": *q("2"), "memory-limit": *q("96Mi")},
				ClippedBy: []string{"max"},
				Policy:    "learned/3",
				Rule:      "replicas=1",
			}},
			Conditions: []metav1.Condition{{
				Type:    v1alpha1.SLOObserved,
				Status:  metav1.ConditionFalse,
				Reason:  "Unreachable",
				Message: "connection refused",
			}},
		},
	}
}

func TestStatusPrintsOneLineForEachWorkloadAndItsProblems(t *testing.T) {
	var out strings.Builder
	if err := printStatus(&out, []v1alpha1.MultidimPodAutoscaler{shop()}, noon.Add(7*time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Deployment/shop", "1->2", "240m", "96Mi", "53.8ms of 50ms (p99)", "0.93",
		"41+3", "7s ago",
		"prod/shop: SLOObserved: Unreachable: connection refused"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("status does not print %q:\n%s", want, out.String())
		}
	}
}

func TestExplainPrintsDecisions(t *testing.T) {
	var out strings.Builder
	if err := explain(&out, shop()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"12:00:00", "web", "replicas=1 cpu-usage=200m latency=12.3ms",
		"replicas=2 memory-limit=96Mi", "max", "pending", "learned/3, where the rule wanted replicas=1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("explain does not print %q:\n%s", want, out.String())
		}
	}
}

func TestAnUnknownValueIsNotPrintedAsZero(t *testing.T) {
	m := shop()
	m.Status.Effective, m.Status.Latency = nil, nil
	var out strings.Builder
	printStatus(&out, []v1alpha1.MultidimPodAutoscaler{m}, noon)
	if n := strings.Count(out.String(), "unknown"); n != 3 {
		t.Errorf("%d figures are unknown, want 3:\n%s", n, out.String())
	}
}

func TestWorkloadIsFoundByShortNames(t *testing.T) {
	for name, want := range map[string]bool{
		"shop":             true,
		"deployment/shop":  true,
		"deploy/shop":      true,
		"Deployments/shop": true,
		"sts/shop":         false,
		"statefulset/shop": false,
		"deployment/web":   false,
		"web":              false,
	} {
		if got := names(shop(), name); got != want {
			t.Errorf("%q names it: %v", name, got)
		}
	}
}
