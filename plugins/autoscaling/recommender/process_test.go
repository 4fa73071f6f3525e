package recommender

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decidedOn is a container, what is decided on for it, and whether its policy is told that it is the first one.
type decidedOn struct {
	container string
	knobs     mdp.Set
	first     bool
}

// Each container that has a limit is decided on. The template's first one decides on replicas, where the owner gives bounds, and
// no other does.
func TestWhichContainersAreDecidedOn(t *testing.T) {
	limited := func(name string, limits ...corev1.ResourceName) corev1.Container {
		c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}
		for _, r := range limits {
			c.Resources.Limits[r] = map[corev1.ResourceName]resource.Quantity{
				corev1.ResourceCPU: resource.MustParse("400m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}[r]
		}
		return c
	}
	app := limited("app", corev1.ResourceCPU, corev1.ResourceMemory)
	cache := limited("cache", corev1.ResourceMemory)
	free := limited("free")
	both := mdp.SetOf(mdp.CPUReservation, mdp.MemoryLimit)
	memory, replicas := mdp.SetOf(mdp.MemoryLimit), mdp.SetOf(mdp.Replicas)
	bounds := &v1alpha1.ReplicaConstraints{Min: 1, Max: 3}
	for name, one := range map[string]struct {
		containers []corev1.Container
		replicas   *v1alpha1.ReplicaConstraints
		want       []decidedOn
	}{
		"two with limits": {
			[]corev1.Container{app, cache}, nil, []decidedOn{{"app", both, true}, {"cache", memory, false}},
		},
		"the first one has none": {
			[]corev1.Container{free, app}, nil, []decidedOn{{"app", both, true}},
		},
		"replicas too": {
			[]corev1.Container{app, free, cache}, bounds, []decidedOn{{"app", both | replicas, true}, {"cache", memory, false}},
		},
		"replicas alone": {
			[]corev1.Container{free, free}, bounds, []decidedOn{{"free", replicas, true}},
		},
		"nothing to decide on": {
			[]corev1.Container{free, free}, nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &updater.Workload{
				Object: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, Kind: "Deployment",
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: one.containers}}, Replicas: 2,
			}
			var first []bool
			config := Config{Policies: func(r PolicyRequest) (mdp.Policy, string, error) {
				first = append(first, r.First)
				return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}, nil }), "fixed/1", nil
			}}
			spec := v1alpha1.MultidimPodAutoscalerSpec{Constraints: v1alpha1.Constraints{Replicas: one.replicas}}
			loops, err := config.newLoops(spec, Objective(spec), w)
			var got []decidedOn
			for i, l := range loops {
				got = append(got, decidedOn{l.sensor.Container, l.knobs, first[i]})
			}
			if !slices.Equal(got, one.want) {
				t.Errorf("decided on are %v, want %v", got, one.want)
			}
			if none := err != nil && strings.Contains(err.Error(), "there is nothing to move"); none != (one.want == nil) {
				t.Errorf("an error %v, where %d containers are to be decided on", err, len(one.want))
			}
		})
	}
}

// scrape has the node report a pod's histogram: how many requests took at most each of some bounds in seconds, and all of them.
func (c *cluster) scrape(upper []float64, counts ...uint64) {
	s := api.Summary{Mode: api.Auto, State: mdp.State{At: c.now}}
	s.Container = api.ContainerRef{Namespace: "shop", Pod: "web-1", PodUID: "uid-web-1", Container: "web"}
	s.Latency = api.Histogram{At: c.now, Upper: append(slices.Clone(upper), math.Inf(1)), Counts: counts}
	c.fleet.Accept(c.now, api.Report{Node: "node", At: c.now, Full: true, Containers: []api.Summary{s}})
}

// Owners read in the status what is in force on the nodes, in the mean of the pods of which it is known. What nobody reports any
// more is not known.
func TestTheStatusHasWhatIsInForceOnTheNodes(t *testing.T) {
	c := newCluster(t, api.Observe)
	if mpa := c.reconcile("web"); mpa.Status.Effective != nil {
		t.Errorf("%v are in force, of which nobody has told", mpa.Status.Effective)
	}
	c.now = c.now.Add(10 * time.Second)
	var all []api.Summary
	for pod, limit := range map[string]mdp.Size{
		"web-1": {CPU: 300, Memory: 100 * mdp.MiB}, "web-2": {CPU: 500, Memory: 140 * mdp.MiB},
	} {
		s := api.Summary{Mode: api.Observe, State: mdp.State{At: c.now, Limit: limit}}
		s.State.Observed = mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit)
		s.Container = api.ContainerRef{Namespace: "shop", Pod: pod, PodUID: "uid-" + pod, Container: "web"}
		all = append(all, s)
	}
	c.fleet.Accept(c.now, api.Report{Node: "node", At: c.now, Full: true, Containers: all})
	is := c.reconcile("web").Status.Effective
	if is == nil || is.CPU.String() != "400m" || is.Memory.String() != "120Mi" {
		t.Errorf("%v are in force, want 400m and 120Mi", is)
	}
	c.now = c.now.Add(10 * time.Minute)
	if is := c.reconcile("web").Status.Effective; is != nil {
		t.Errorf("%v are in force, of which nobody has told for ten minutes", is)
	}
}

// The latency in the status is what is known of it now. An object without an SLO says nothing of one, also where it had one.
func TestTheStatusHasTheLatencyThatIsKnown(t *testing.T) {
	c, _ := observed(t)
	c.scrape([]float64{0.1}, 100, 100)
	if is := c.reconcile("web").Status.Latency; is != nil {
		t.Errorf("a latency of %v, of requests whose age is not known", is)
	}
	c.now = c.now.Add(10 * time.Second)
	c.scrape([]float64{0.1}, 200, 200)
	mpa := c.reconcile("web")
	if is := mpa.Status.Latency; is == nil || is.Duration <= 0 || is.Duration > 100*time.Millisecond {
		t.Errorf("a latency of %v, want one within 100ms", is)
	}
	if !meta.IsStatusConditionTrue(mpa.Status.Conditions, v1alpha1.SLOObserved) {
		t.Errorf("conditions %+v: want the SLO observed", mpa.Status.Conditions)
	}
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) { m.Spec.SLO = nil })
	c.now = c.now.Add(10 * time.Second)
	mpa = c.reconcile("web")
	if is := meta.FindStatusCondition(mpa.Status.Conditions, v1alpha1.SLOObserved); is != nil || mpa.Status.Latency != nil {
		t.Errorf("without an SLO: a latency of %v, and the condition %+v", mpa.Status.Latency, is)
	}
}

// A look between two steps, as when a pod begins to run, measures nothing: rates are of whole steps.
func TestALookBetweenStepsMeasuresNothing(t *testing.T) {
	c, seen := observed(t)
	for _, one := range []struct {
		requests uint64
		until    time.Duration // the next look
	}{{100, 10 * time.Second}, {200, 5 * time.Second}, {300, 5 * time.Second}, {300, 0}} {
		c.scrape([]float64{0.1}, one.requests, one.requests)
		c.reconcile("web")
		c.now = c.now.Add(one.until)
	}
	if !seen.Knows(mdp.Throughput) || seen.Throughput != 10 {
		t.Errorf("%v requests/s (%v): 100 came in the 10 seconds of this step", seen.Throughput, seen.Observed)
	}
}

// Where no load has ever been measured there is no peak of it, and above all none of zero.
func TestAPeakOfALoadThatNobodyMeasuresIsUnknown(t *testing.T) {
	c, seen := observed(t)
	for range 45 * 6 {
		c.reconcile("web")
		c.now = c.now.Add(10 * time.Second)
	}
	if seen.At.IsZero() || seen.Knows(mdp.LoadPeak) {
		t.Errorf("a peak of %v (%v) after 45 minutes of nothing", seen.LoadPeak, seen.Observed)
	}
}

// A canary that meets its SLO stays, and nobody hears of it. One that violates it is put back at once, its owner is told, and for
// five minutes there is none.
func TestACanaryIsRevertedForALateStepAndForNothingElse(t *testing.T) {
	c, _ := observed(t)
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) { m.Spec.Mode = string(api.Canary) })
	var soon, all uint64
	look := func(requests, late uint64) {
		soon, all = soon+requests-late, all+requests
		c.scrape([]float64{0.1, 1}, soon, all, all)
		c.reconcile("web")
	}
	is := func(when, cpu string, reverts int) {
		t.Helper()
		if got := c.cpu("web-1"); got != cpu {
			t.Errorf("%s: the first pod has %s, want %s", when, got, cpu)
		}
		if said := c.said("CanaryReverted"); len(said) != reverts {
			t.Errorf("%s: the owner was told %v, want it %d times", when, said, reverts)
		}
	}
	for range 4 {
		look(100, 0)
		c.now = c.now.Add(10 * time.Second)
	}
	is("with requests in time", "200m", 0)
	look(100, 50)
	is("with late ones", "400m", 1)
	c.now = c.now.Add(canaryHold - time.Second)
	look(100, 0)
	is("within five minutes", "400m", 0)
	c.now = c.now.Add(10 * time.Second)
	look(100, 0)
	is("after five minutes", "200m", 0)
}

// A workload that another autoscaler moves is not moved, and its owner is told once for each that comes.
func TestAConflictIsSaidWhenItBegins(t *testing.T) {
	c := newCluster(t, api.Auto)
	look := func(when, cpu string, events int) {
		t.Helper()
		c.reconcile("web")
		c.now = c.now.Add(10 * time.Second)
		if got := c.cpu("web-1"); got != cpu {
			t.Errorf("%s: the first pod has %s, want %s", when, got, cpu)
		}
		if said := c.said("ConflictDetected"); len(said) != events {
			t.Errorf("%s: the owner was told %v, want it %d times", when, said, events)
		}
	}
	look("alone", "200m", 0)
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine"}}
	hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}
	if err := c.client.Create(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}
	look("with an HPA", "400m", 1)
	look("still with it", "400m", 0)
	if err := c.client.Delete(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}
	look("alone again", "200m", 0)
}
