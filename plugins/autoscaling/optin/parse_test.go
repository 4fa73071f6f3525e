package optin_test

import (
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func template(annotations ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"awarescale.dev/managed": "true"},
		Annotations: map[string]string{},
	}}
	t.Spec.Containers = []corev1.Container{{Name: "web", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090}}}}
	for i := 0; i < len(annotations); i += 2 {
		t.Annotations["awarescale.dev/"+annotations[i]] = annotations[i+1]
	}
	return t
}

func TestParseReadsEveryAnnotation(t *testing.T) {
	spec, errs := optin.Parse(template("mode", "auto", "slo-latency-p95", "50ms", "slo-throughput", "20", "max-replicas", "4",
		"scale-in-window", "30s", "min-cpu", "100m", "max-cpu", "1", "max-memory", "256Mi", "paused", "true", "oom-evict", "true"))
	if len(errs) != 0 {
		t.Fatal(errs)
	}
	c := spec.Constraints.Containers[0]
	if spec.Mode != "auto" || !spec.Paused || !spec.OOMEvict || spec.SLO.Latency.Percentile != 95 ||
		spec.SLO.Latency.Threshold.Duration.String() != "50ms" ||
		spec.SLO.Throughput.Value() != 20 || spec.SLO.Source.Type != "pod" || spec.Constraints.Replicas.Min != 1 ||
		spec.Constraints.Replicas.Max != 4 || spec.Constraints.Replicas.ScaleInWindow.Duration != 30*time.Second ||
		c.Name != "*" || c.Min.CPU.MilliValue() != 100 || c.Min.Memory != nil || c.Max.CPU.MilliValue() != 1000 {
		t.Errorf("spec = %+v, slo %+v, constraints %+v", spec, spec.SLO, spec.Constraints)
	}
}

// Both ends of what a scale-in window may be are taken; what is beyond them is not (TestParseNamesABadAnnotation).
func TestParseTakesTheShortestAndTheLongestScaleInWindow(t *testing.T) {
	for _, window := range []string{"10s", "1h"} {
		spec, errs := optin.Parse(template("max-replicas", "2", "scale-in-window", window))
		if want, _ := time.ParseDuration(window); len(errs) != 0 || spec.Constraints.Replicas.ScaleInWindow.Duration != want {
			t.Errorf("%s: %+v, errors %v", window, spec.Constraints.Replicas, errs)
		}
	}
}

func TestParseReadsHowAWorkloadIsLearned(t *testing.T) {
	spec, errs := optin.Parse(template("rule", "demand", "slo-latency-p99", "50ms", "budget", "0.5%", "windows", "5%"))
	want := v1alpha1.Learner{Rule: "demand", Budget: "0.5%", Windows: "5%"}
	if len(errs) != 0 || spec.Learner == nil || *spec.Learner != want {
		t.Errorf("learner %+v, errors %v", spec.Learner, errs)
	}
	spec, errs = optin.Parse(template("algorithm", "bcq"))
	if want := (v1alpha1.Learner{Algorithm: "bcq"}); len(errs) != 0 || spec.Learner == nil || *spec.Learner != want {
		t.Errorf("learner %+v, errors %v", spec.Learner, errs)
	}
	if spec, errs := optin.Parse(template("mode", "auto")); len(errs) != 0 || spec.Learner != nil {
		t.Errorf("without a word on it: learner %+v, errors %v", spec.Learner, errs)
	}
}

func TestParseDefaultsToObserve(t *testing.T) {
	spec, errs := optin.Parse(template())
	if len(errs) != 0 || spec.Mode != "observe" || spec.OOMEvict || spec.SLO != nil || spec.Constraints.Replicas != nil {
		t.Errorf("spec = %+v, errors %v", spec, errs)
	}
}

// Every error names the key, the value and the rule.
func TestParseNamesABadAnnotation(t *testing.T) {
	for name, c := range map[string]struct {
		annotations []string
		want        []string
	}{
		"unknown key": {
			[]string{"mod", "auto"},
			[]string{"awarescale.dev/mod:", `"auto"`, "unknown key", "awarescale.dev/mode"},
		},
		"unknown mode":        {[]string{"mode", "fast"}, []string{"mode:", `"fast"`, "one of off, observe"}},
		"bad quantity":        {[]string{"max-cpu", "2 cores"}, []string{"max-cpu:", `"2 cores"`, "such as 250m"}},
		"quantity below zero": {[]string{"max-memory", "-1Gi"}, []string{"max-memory:", `"-1Gi"`, "above zero"}},
		"min above max": {
			[]string{"min-cpu", "2", "max-cpu", "500m"}, []string{"min-cpu:", `"2"`, "max-cpu is 500m"},
		},
		"min replicas above max replicas": {
			[]string{"min-replicas", "5", "max-replicas", "2"},
			[]string{"min-replicas:", `"5"`, "max-replicas is 2"},
		},
		"replicas not a number": {[]string{"max-replicas", "many"}, []string{"max-replicas:", `"many"`, "whole number"}},
		"a scale-in window without a unit": {
			[]string{"max-replicas", "2", "scale-in-window", "30"}, []string{"scale-in-window:", `"30"`, "from 10s to 1h"},
		},
		"one shorter than a step": {
			[]string{"max-replicas", "2", "scale-in-window", "9.9s"}, []string{"scale-in-window:", `"9.9s"`, "from 10s to 1h"},
		},
		"one longer than an HPA's": {
			[]string{"max-replicas", "2", "scale-in-window", "61m"}, []string{"scale-in-window:", `"61m"`, "from 10s to 1h"},
		},
		"one where replicas are left alone": {
			[]string{"scale-in-window", "30s"}, []string{"scale-in-window:", `"30s"`, "needs max-replicas"},
		},
		"one beside bounds that are no bounds": {
			[]string{"min-replicas", "5", "max-replicas", "2", "scale-in-window", "30s"}, []string{"min-replicas:", "max-replicas is 2"},
		},
		"slo without source": {
			[]string{"slo-latency-p99", "50ms", "slo-port", "http"},
			[]string{"slo-port:", "the SLO has no source", `"http"`, "metrics"},
		},
		"prometheus without a server": {
			[]string{"slo-latency-p99", "50ms", "slo-source", "prometheus"},
			[]string{"slo-server", "needs slo-server"},
		},
		"a source without an slo": {[]string{"slo-port", "9090"}, []string{"no slo-latency-pNN"}},
		"unknown source": {
			[]string{"slo-latency-p99", "50ms", "slo-source", "tea leaves"},
			[]string{`"tea leaves"`, "pod or prometheus"},
		},
		"latency without a unit": {[]string{"slo-latency-p99", "50"}, []string{"slo-latency-p99:", `"50"`, "such as 50ms"}},
		"two percentiles": {
			[]string{"slo-latency-p99", "50ms", "slo-latency-p50", "5ms"},
			[]string{"slo-latency-p99", "slo-latency-p50 is set, too"},
		},
		// Found by FuzzParse. Reading it as a quantity takes hours: one owner's annotation would
		// have stopped the autoscaler for everybody.
		"a quantity of a trillion digits": {
			[]string{"max-cpu", "07E1000000000000"},
			[]string{"max-cpu:", `"07E1000000000000"`, "two of them in an exponent"},
		},
		"a tiny one of as many": {
			[]string{"min-memory", "1e-99999999"}, []string{"min-memory:", "two of them in an exponent"},
		},
		"a long quantity": {
			[]string{"max-memory", strings.Repeat("1", 1000)}, []string{"max-memory:", "20 characters"},
		},
		"more CPU than a number can hold": {[]string{"max-cpu", "1e99"}, []string{"max-cpu:", `"1e99"`, "at most 1P"}},
		"unknown algorithm":               {[]string{"algorithm", "magic"}, []string{"algorithm:", `"magic"`, "none or bcq"}},
		"unknown rule":                    {[]string{"rule", "magic"}, []string{"rule:", `"magic"`, "captain or demand"}},
		"demand without a latency": {
			[]string{"rule", "demand", "slo-throughput", "20"}, []string{"rule:", `"demand"`, "slo-latency-p99"},
		},
		"a budget that is no share": {
			[]string{"rule", "demand", "slo-latency-p99", "50ms", "budget", "0.5"}, []string{"budget:", `"0.5"`, "such as 0.5%"},
		},
		"a budget of everything": {
			[]string{"rule", "demand", "slo-latency-p99", "50ms", "windows", "100%"}, []string{"windows:", `"100%"`, "below 100%"},
		},
		"a budget without its rule": {[]string{"budget", "0.5%"}, []string{"budget:", "of the rule demand"}},
		"paused maybe":              {[]string{"paused", "maybe"}, []string{"paused:", `"maybe"`, "true or false"}},
		"evicting maybe":            {[]string{"oom-evict", "maybe"}, []string{"oom-evict:", `"maybe"`, "true or false"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := optin.Parse(template(c.annotations...))
			if len(errs) != 1 {
				t.Fatalf("errors = %v, want one", errs)
			}
			for _, part := range c.want {
				if !strings.Contains(errs[0].Error(), part) {
					t.Errorf("%q does not say %q", errs[0], part)
				}
			}
		})
	}
}

// A port has the name that a container gives it which runs as long as the pod: a native sidecar does, and what only
// prepares the pod does not.
func TestAPortIsOfWhatRunsAsLongAsThePod(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	one := func(name string, port int32) corev1.Container {
		return corev1.Container{Name: name, Ports: []corev1.ContainerPort{{Name: name, ContainerPort: port}}}
	}
	sidecar := one("proxy", 15090)
	sidecar.RestartPolicy = &always
	pod := corev1.PodSpec{
		InitContainers: []corev1.Container{one("setup", 1), sidecar}, Containers: []corev1.Container{one("metrics", 9090)},
	}
	for name, want := range map[string]int32{"metrics": 9090, "proxy": 15090, "8080": 8080} {
		if got, err := optin.ResolvePort(name, pod); got != want || err != nil {
			t.Errorf("port %s is %d, want %d (%v)", name, got, want, err)
		}
	}
	if _, err := optin.ResolvePort("setup", pod); err == nil || !strings.Contains(err.Error(), "there are metrics, proxy") {
		t.Errorf("the port of a container that ends: %v", err)
	}
	if len(pod.Containers) != 1 {
		t.Errorf("the pod has %d containers now", len(pod.Containers))
	}
}

func TestParseReportsEveryBadAnnotation(t *testing.T) {
	if _, errs := optin.Parse(template("mode", "fast", "max-cpu", "x", "hue", "blue")); len(errs) != 3 {
		t.Errorf("errors = %v, want three", errs)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("mode", "auto")
	f.Add("slo-latency-p99", "50ms")
	f.Add("max-cpu", "1e99")
	f.Add("max-memory", "07E1000000000000")
	f.Fuzz(func(t *testing.T, key, value string) {
		spec, errs := optin.Parse(template(key, value))
		if len(errs) > 0 {
			return
		}
		if spec.Mode == "" {
			t.Error("a spec without a mode")
		}
		for _, c := range spec.Constraints.Containers {
			for _, s := range []*v1alpha1.Size{c.Min, c.Max} {
				if s != nil && (s.CPU != nil && s.CPU.MilliValue() <= 0 || s.Memory != nil && s.Memory.Value() <= 0) {
					t.Errorf("%+v is not above zero", s)
				}
			}
		}
	})
}
