package recommender_test

import (
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func web() corev1.Container {
	return corev1.Container{Name: "web", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("20m"),
			corev1.ResourceMemory: resource.MustParse("64Mi"),
		},
		Limits: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("400m"),
			corev1.ResourceMemory: resource.MustParse("128Mi"),
		},
	}}
}

func TestEnvelopeCombinesConstraintsAndTemplate(t *testing.T) {
	all := v1alpha1.ContainerConstraints{Name: "*", Max: &v1alpha1.Size{CPU: quantity("900m")}}
	mine := v1alpha1.ContainerConstraints{
		Name:                "web",
		Min:                 &v1alpha1.Size{Memory: quantity("100Mi")},
		ControlledResources: []corev1.ResourceName{corev1.ResourceMemory},
	}
	for name, c := range map[string]struct {
		constraints []v1alpha1.ContainerConstraints
		cpu         mdp.Range[mdp.MilliCPU]
		memory      mdp.Range[mdp.Bytes]
		knobs       mdp.Set
	}{
		"without constraints: the template's limit at most, the default or the request at least": {
			cpu:    mdp.Range[mdp.MilliCPU]{Min: 20, Max: 400},
			memory: mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 128 * mdp.MiB},
			knobs:  mdp.SetOf(mdp.CPUReservation, mdp.MemoryLimit),
		},
		"constraints of every container": {
			constraints: []v1alpha1.ContainerConstraints{all},
			cpu:         mdp.Range[mdp.MilliCPU]{Min: 20, Max: 900},
			memory:      mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 128 * mdp.MiB},
			knobs:       mdp.SetOf(mdp.CPUReservation, mdp.MemoryLimit),
		},
		"constraints by name count before those of *": {
			constraints: []v1alpha1.ContainerConstraints{mine, all},
			cpu:         mdp.Range[mdp.MilliCPU]{Min: 400, Max: 400},
			memory:      mdp.Range[mdp.Bytes]{Min: 100 * mdp.MiB, Max: 128 * mdp.MiB},
			knobs:       mdp.SetOf(mdp.MemoryLimit),
		},
		"what is not controlled stays, on the node too": {
			constraints: []v1alpha1.ContainerConstraints{{
				Name: "*", ControlledResources: []corev1.ResourceName{corev1.ResourceCPU},
			}},
			cpu:    mdp.Range[mdp.MilliCPU]{Min: 20, Max: 400},
			memory: mdp.Range[mdp.Bytes]{Min: 128 * mdp.MiB, Max: 128 * mdp.MiB},
			knobs:  mdp.SetOf(mdp.CPUReservation),
		},
		"a maximum that no number can hold is the largest one": {
			constraints: []v1alpha1.ContainerConstraints{{
				Name: "*", Max: &v1alpha1.Size{CPU: quantity("1e99"), Memory: quantity("10E")},
			}},
			cpu:    mdp.Range[mdp.MilliCPU]{Min: 20, Max: 1e18},
			memory: mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 1e15},
			knobs:  mdp.SetOf(mdp.CPUReservation, mdp.MemoryLimit),
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, knobs, err := recommender.Envelope(v1alpha1.Constraints{Containers: c.constraints}, web(), 1)
			if err != nil || b.CPU != c.cpu || b.Memory != c.memory || knobs != c.knobs {
				t.Errorf("bounds %+v, knobs %v, err %v; want %v, %v, %v", b, knobs, err, c.cpu, c.memory, c.knobs)
			}
		})
	}
}

// A minimum is of the limit. What is reserved is at least its share of that, as in the
// template, and at least what VPA reserves, but for a template that reserves less.
func TestTheLeastReservationIsOfTheMinimumInTheTemplatesProportion(t *testing.T) {
	for name, c := range map[string]struct {
		request, limit, minimum string
		want                    mdp.Range[mdp.MilliCPU]
	}{
		"half of the minimum":               {"200m", "400m", "300m", mdp.Range[mdp.MilliCPU]{Min: 150, Max: 899}},
		"no minimum, so VPA's":              {"200m", "4", "", mdp.Range[mdp.MilliCPU]{Min: 25, Max: 899}},
		"no minimum, and a small template":  {"20m", "400m", "", mdp.Range[mdp.MilliCPU]{Min: 20, Max: 899}},
		"Guaranteed: the two are one":       {"400m", "400m", "300m", mdp.Range[mdp.MilliCPU]{Min: 300, Max: 900}},
		"a minimum below what VPA reserves": {"200m", "400m", "10m", mdp.Range[mdp.MilliCPU]{Min: 10, Max: 899}},
	} {
		t.Run(name, func(t *testing.T) {
			w := web()
			w.Resources.Requests[corev1.ResourceCPU] = *quantity(c.request)
			w.Resources.Limits[corev1.ResourceCPU] = *quantity(c.limit)
			own := v1alpha1.ContainerConstraints{Name: "*", Max: &v1alpha1.Size{CPU: quantity("900m")}}
			if c.minimum != "" {
				own.Min = &v1alpha1.Size{CPU: quantity(c.minimum)}
			}
			b, _, err := recommender.Envelope(v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{own}}, w, 1)
			if err != nil || b.Reservation != c.want {
				t.Errorf("reservation %v, %v; want %v", b.Reservation, err, c.want)
			}
		})
	}
}

func TestAMemoryLimitGoesBelowTheRequestOnlyWhenAsked(t *testing.T) {
	requests := func(memory string) corev1.Container {
		c := web()
		delete(c.Resources.Requests, corev1.ResourceMemory)
		if memory != "" {
			c.Resources.Requests[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return c
	}
	least := func(s v1alpha1.Size) v1alpha1.ContainerConstraints { return v1alpha1.ContainerConstraints{Min: &s} }
	most := func(s v1alpha1.Size) v1alpha1.ContainerConstraints { return v1alpha1.ContainerConstraints{Max: &s} }
	mib := func(least, most mdp.Bytes) mdp.Range[mdp.Bytes] {
		return mdp.Range[mdp.Bytes]{Min: least * mdp.MiB, Max: most * mdp.MiB}
	}
	for name, c := range map[string]struct {
		container corev1.Container
		own       v1alpha1.ContainerConstraints
		want      mdp.Range[mdp.Bytes]
	}{
		"not asked: the request":              {requests("96Mi"), v1alpha1.ContainerConstraints{}, mib(96, 128)},
		"a request below the default":         {requests("16Mi"), v1alpha1.ContainerConstraints{}, mib(16, 128)},
		"a request as large as the limit":     {requests("128Mi"), v1alpha1.ContainerConstraints{}, mib(128, 128)},
		"without a request it is the limit":   {requests(""), v1alpha1.ContainerConstraints{}, mib(128, 128)},
		"a minimum below the request asks":    {requests("96Mi"), least(v1alpha1.Size{Memory: quantity("40Mi")}), mib(40, 128)},
		"a minimum above the request":         {requests("64Mi"), least(v1alpha1.Size{Memory: quantity("100Mi")}), mib(100, 128)},
		"a maximum below the request asks":    {requests("96Mi"), most(v1alpha1.Size{Memory: quantity("80Mi")}), mib(80, 80)},
		"a minimum of CPU says nothing of it": {requests("96Mi"), least(v1alpha1.Size{CPU: quantity("10m")}), mib(96, 128)},
	} {
		t.Run(name, func(t *testing.T) {
			c.own.Name = "*"
			all := v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{c.own}}
			b, _, err := recommender.Envelope(all, c.container, 1)
			if err != nil || b.Memory != c.want {
				t.Fatalf("bounds %v, %v; want %v", b.Memory, err, c.want)
			}
		})
	}
}

func TestEnvelopeRejectsEmptyBounds(t *testing.T) {
	for name, c := range map[string]struct {
		constraints v1alpha1.ContainerConstraints
		want        string
	}{
		"minimum above the template's limit": {
			v1alpha1.ContainerConstraints{Name: "*", Min: &v1alpha1.Size{CPU: quantity("2")}},
			"cpu bounds [2000m, 400m]",
		},
		"maximum of zero": {v1alpha1.ContainerConstraints{Name: "*", Max: &v1alpha1.Size{CPU: quantity("0")}}, "cpu bounds"},
	} {
		t.Run(name, func(t *testing.T) {
			all := v1alpha1.Constraints{Containers: []v1alpha1.ContainerConstraints{c.constraints}}
			_, _, err := recommender.Envelope(all, web(), 1)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "container web") {
				t.Errorf("err = %v, want %q", err, c.want)
			}
		})
	}
}

func TestObjectiveIsReadFromSpec(t *testing.T) {
	o := recommender.Objective(v1alpha1.MultidimPodAutoscalerSpec{
		SLO: &v1alpha1.SLO{
			Latency:    &v1alpha1.LatencySLO{Percentile: 95, Threshold: metav1.Duration{Duration: 50 * time.Millisecond}},
			Throughput: quantity("100"),
		},
		Objective: &v1alpha1.Objective{Alpha: quantity("0.8")}})
	if want := (mdp.Objective{
		SLO:   mdp.SLO{Percentile: 95, Latency: 50 * time.Millisecond, Throughput: 100},
		Alpha: 0.8,
	}); o != want {
		t.Errorf("objective %+v, want %+v", o, want)
	}
	// A weight of nothing is one, too, and not the usual one.
	o = recommender.Objective(v1alpha1.MultidimPodAutoscalerSpec{Objective: &v1alpha1.Objective{Alpha: quantity("0")}})
	if o.Alpha != 0 {
		t.Errorf("an alpha of 0 became %v", o.Alpha)
	}
	o = recommender.Objective(v1alpha1.MultidimPodAutoscalerSpec{Objective: &v1alpha1.Objective{}})
	if o.Alpha != 0.5 {
		t.Errorf("an objective without alpha has one of %v", o.Alpha)
	}
	if o := recommender.Objective(v1alpha1.MultidimPodAutoscalerSpec{}); o.Alpha != 0.5 || o.SLO != (mdp.SLO{}) {
		t.Errorf("objective of an empty spec %+v", o)
	}
}
