package recommender

import (
	"fmt"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/plugins/fleet"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// replica is a report of a container that has used a core in one second of ten, and a tenth in the others.
func replica(busy int) api.Summary {
	s := api.Summary{
		State:  mdp.State{Observed: mdp.SetOf(mdp.CPUBurst), CPUBurst: 1000},
		Course: api.Course{Until: 1000},
	}
	for i := range api.MaxHalves {
		used := mdp.MilliCPU(100)
		if i/2 == busy {
			used = 1000
		}
		s.Course.Use = append(s.Course.Use, used)
	}
	return s
}

// What a single replica would have to carry is what two have used in the same second. Where that is not known, and of more
// replicas, the mean of the bursts stays.
func TestTheBurstOfTwoIsOfTheSameSecond(t *testing.T) {
	old, unknown, brief := replica(6), replica(6), replica(0)
	old.Course = api.Course{}
	unknown.State.Observed = 0
	brief.State.CPUBurst = 1800 // between two halves
	for name, c := range map[string]struct {
		of   []api.Summary
		want mdp.MilliCPU
		ok   bool
	}{
		"together":              {[]api.Summary{replica(8), replica(8)}, 1000, true},
		"one after the other":   {[]api.Summary{replica(8), replica(6)}, 550, true},
		"at least what one did": {[]api.Summary{replica(8), brief}, 900, true},
		"an older agent":        {[]api.Summary{replica(8), old}, 0, false},
		"not known":             {[]api.Summary{replica(8), unknown}, 0, false},
		"one":                   {[]api.Summary{replica(8)}, 0, false},
		"three":                 {[]api.Summary{replica(8), replica(8), replica(8)}, 0, false},
	} {
		if got, ok := ofTwo(c.of); got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

// The sensor brings the courses of two ready replicas together. Of three the mean of the bursts stays,
// also when one of them is not reported.
func TestTheSensorSeesTwoReplicasAtTheSameTime(t *testing.T) {
	now := time.Unix(500, 0)
	for _, c := range []struct {
		pods, silent int
		want         mdp.MilliCPU
	}{{1, 0, 1000}, {2, 0, 550}, {3, 0, 1000}, {3, 1, 1000}} {
		s := Sensor{Fleet: fleet.New(time.Minute), Container: "app", MaxAge: time.Minute, Workload: &updater.Workload{}}
		var all []api.Summary
		for i := range c.pods {
			name := fmt.Sprint("web-", i)
			one := replica(8 - 2*(i%2))
			one.Container = api.ContainerRef{Namespace: "shop", Pod: name, PodUID: name, Container: "app"}
			all = append(all, one)
			s.Workload.Pods = append(s.Workload.Pods, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)},
				Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{
					Name:      "app",
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}},
				}}},
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
			})
		}
		s.Fleet.Accept(now, api.Report{Node: "node", At: now, Full: true, Containers: all[c.silent:]})
		state, err := s.Sense(t.Context(), now)
		if err != nil || !state.Knows(mdp.CPUBurst) || state.CPUBurst != c.want || state.Replicas != c.pods {
			t.Errorf("%d pods, %d silent: a burst of %v of %d replicas, want %v (%v)",
				c.pods, c.silent, state.CPUBurst, state.Replicas, c.want, err)
		}
	}
}
