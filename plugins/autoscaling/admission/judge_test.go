package admission_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/admission"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// amounts is requests or limits.
func amounts(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

// shop is a new pod of the Deployment shop/web, and what is known of it: in mode auto,
// where its siblings were given a reservation of 150m and memory of 100Mi instead of the template's 200m and 128Mi.
type shop struct {
	pod        *corev1.Pod
	deployment *appsv1.Deployment
	object     *v1alpha1.MultidimPodAutoscaler
}

func open() *shop {
	marks := map[string]string{"app": "web", v1alpha1.ManagedLabel: "true"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: marks},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name:      "web",
			Resources: corev1.ResourceRequirements{Requests: amounts("200m", "64Mi"), Limits: amounts("400m", "128Mi")},
		}}},
	}
	yes := true
	two := int32(2)
	return &shop{
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", GenerateName: "web-1-", Labels: marks,
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "set", Controller: &yes,
				}},
				ManagedFields: []metav1.ManagedFieldsEntry{{
					Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
					FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)},
				}},
			},
			Spec: *template.Spec.DeepCopy(),
		},
		deployment: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template,
			},
		},
		object: &v1alpha1.MultidimPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 3},
			Spec: v1alpha1.MultidimPodAutoscalerSpec{
				TargetRef: v1alpha1.TargetRef{Kind: "Deployment", Name: "web"}, Mode: "auto",
			},
			Status: v1alpha1.MultidimPodAutoscalerStatus{
				ObservedGeneration: 3,
				Recommendation: []v1alpha1.ContainerSize{{
					Name:     "web",
					Requests: &v1alpha1.Size{CPU: quantity("150m")},
					Limits:   v1alpha1.Size{Memory: quantity("100Mi")},
					Template: &v1alpha1.Size{CPU: quantity("400m"), Memory: quantity("128Mi")},
				}},
				Decisions: []v1alpha1.DecisionStatus{{Time: metav1.NewTime(noon.Add(-time.Minute)), Effect: "unchanged"}},
				Conditions: []metav1.Condition{
					{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Message: "valid"},
					{Type: v1alpha1.Active, Status: metav1.ConditionTrue, Message: "acting"},
				},
			},
		},
	}
}

// workload is what the cache has of the Deployment.
func (s *shop) workload() *updater.Workload {
	return &updater.Workload{
		Object: s.deployment, Kind: "Deployment", Template: s.deployment.Spec.Template,
		Selector: labels.SelectorFromSet(s.deployment.Spec.Selector.MatchLabels), Replicas: *s.deployment.Spec.Replicas,
	}
}

func (s *shop) facts() admission.Facts {
	return admission.Facts{Now: noon, MaxAge: 10 * time.Minute, Workload: s.workload(), Object: s.object}
}

// judge judges the pod as it comes over the wire.
func (s *shop) judge(t *testing.T) admission.Verdict {
	t.Helper()
	raw, err := json.Marshal(s.pod)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := admission.ParsePod(raw)
	if err != nil {
		t.Fatal(err)
	}
	pod.Namespace = s.pod.Namespace
	return admission.Judge(pod, s.facts())
}

// template is the template's container, of which the pod's is a copy.
func (s *shop) template() *corev1.Container { return &s.deployment.Spec.Template.Spec.Containers[0] }

// says sets a condition of the object.
func (s *shop) says(kind string, is metav1.ConditionStatus) {
	meta.SetStatusCondition(&s.object.Status.Conditions, metav1.Condition{Type: kind, Status: is, Reason: "Test"})
}

// made gives the template and the pod other resources, and makes the decision one for that template.
func (s *shop) made(requests, limits corev1.ResourceList) {
	r := corev1.ResourceRequirements{Requests: requests, Limits: limits}
	s.template().Resources = *r.DeepCopy()
	s.pod.Spec.Containers[0].Resources = *r.DeepCopy()
	s.object.Status.Recommendation[0].Template = recommender.TemplateSize(updater.Limits(r))
}

// after is the resources of a container after a verdict, as "200m/400m 64Mi/128Mi".
func after(pod *corev1.Pod, v admission.Verdict, container int) string {
	r := pod.Spec.Containers[container].Resources
	for _, c := range v.Containers {
		if c.Index == container {
			r = c.After
		}
	}
	return r.Requests.Cpu().String() + "/" + r.Limits.Cpu().String() + " " +
		r.Requests.Memory().String() + "/" + r.Limits.Memory().String()
}

// decided has the last step have decided otherwise.
func (s *shop) decided(reservation, memory string) {
	s.object.Status.Recommendation[0].Requests = &v1alpha1.Size{CPU: quantity(reservation)}
	s.object.Status.Recommendation[0].Limits = v1alpha1.Size{Memory: quantity(memory)}
}

func TestANewPodGetsTheSizeOfItsSiblings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*shop)
		want   string
		result admission.Result
	}{
		"less than the template's": {func(*shop) {}, "150m/400m 50Mi/128Mi", admission.Sized},
		"more, as the owner allows": {func(s *shop) {
			s.object.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "*",
				Max: &v1alpha1.Size{CPU: quantity("2"), Memory: quantity("1Gi")}}}
			s.decided("500m", "512Mi")
		}, "500m/2 256Mi/512Mi", admission.Sized},
		"not more than the owner allows by now": {func(s *shop) {
			s.decided("1", "512Mi")
		}, "399m/400m 64Mi/128Mi", admission.Sized},
		"not less than the owner allows": {func(s *shop) {
			s.object.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "web",
				Min: &v1alpha1.Size{CPU: quantity("350m"), Memory: quantity("120Mi")}}}
		}, "175m/400m 60Mi/128Mi", admission.Sized},
		"what is not controlled stays": {func(s *shop) {
			s.object.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "web",
				ControlledResources: []corev1.ResourceName{corev1.ResourceMemory}}}
		}, "200m/400m 50Mi/128Mi", admission.Sized},
		"what was not decided stays": {func(s *shop) {
			s.object.Status.Recommendation[0].Limits.Memory = nil
		}, "150m/400m 64Mi/128Mi", admission.Sized},
		"what would restart a container stays": {func(s *shop) {
			s.pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
				{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
		}, "150m/400m 64Mi/128Mi", admission.Sized},
		"a Guaranteed pod stays one": {func(s *shop) {
			s.made(amounts("400m", "128Mi"), amounts("400m", "128Mi"))
			s.object.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "*",
				Min: &v1alpha1.Size{Memory: quantity("64Mi")}}}
		}, "150m/150m 100Mi/100Mi", admission.Sized},
		"a request that is left out is the limit": {func(s *shop) {
			s.made(nil, amounts("400m", "128Mi"))
			s.pod.Spec.Containers[0].Resources.Requests = amounts("400m", "128Mi") // the API server's default
			s.object.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "*",
				Min: &v1alpha1.Size{Memory: quantity("64Mi")}}}
		}, "150m/150m 100Mi/100Mi", admission.Sized},
		"the second call for one pod": {func(s *shop) {
			s.pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
				Requests: amounts("150m", "50Mi"), Limits: amounts("400m", "128Mi")}
		}, "150m/400m 50Mi/128Mi", admission.SameSize},
		"in an OOM loop memory is not less than the template's": {func(s *shop) {
			s.says(v1alpha1.OOMLoop, metav1.ConditionTrue)
		}, "150m/400m 64Mi/128Mi", admission.Sized},
		"the pod that replaces one that was evicted for want of memory": {func(s *shop) {
			s.object.Status.LastOOMEviction = &v1alpha1.OOMEviction{Time: metav1.NewTime(noon.Add(-9 * time.Minute))}
		}, "150m/400m 64Mi/128Mi", admission.Sized},
		"an eviction of long ago": {func(s *shop) {
			s.object.Status.LastOOMEviction = &v1alpha1.OOMEviction{Time: metav1.NewTime(noon.Add(-11 * time.Minute))}
		}, "150m/400m 50Mi/128Mi", admission.Sized},
		"in an OOM loop memory is more than the template's": {func(s *shop) {
			s.says(v1alpha1.OOMLoop, metav1.ConditionTrue)
			s.object.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "*",
				Max: &v1alpha1.Size{Memory: quantity("1Gi")}}}
			s.object.Status.Recommendation[0].Limits.Memory = quantity("256Mi")
		}, "150m/400m 128Mi/256Mi", admission.Sized},
		"a write that lost against another one": {func(s *shop) {
			s.object.Status.Decisions[0].Effect = "refused"
		}, "150m/400m 50Mi/128Mi", admission.Sized},
		"a step before the last one that failed": {func(s *shop) {
			s.object.Status.Decisions = append(s.object.Status.Decisions, v1alpha1.DecisionStatus{
				Time: metav1.NewTime(noon.Add(-70 * time.Second)), Effect: "failed"})
		}, "150m/400m 50Mi/128Mi", admission.Sized},
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			c.change(s)
			v := s.judge(t)
			if got := after(s.pod, v, 0); got != c.want || v.Result != c.result {
				t.Errorf("%s %s (%s), want %s %s", v.Result, got, v.Reason, c.result, c.want)
			}
		})
	}
}

func TestAPodThatIsLeftAsItIs(t *testing.T) {
	mode := func(m string) func(*shop) { return func(s *shop) { s.object.Spec.Mode = m } }
	for name, c := range map[string]struct {
		change func(*shop)
		result admission.Result
		says   string
	}{
		"mode off":       {mode("off"), admission.NotActing, "mode off"},
		"mode observe":   {mode("observe"), admission.NotActing, "mode observe"},
		"mode recommend": {mode("recommend"), admission.NotActing, "mode recommend"},
		// The canary is chosen among the pods that run.
		"mode canary": {mode("canary"), admission.NotActing, "mode canary"},
		"no mode":     {mode(""), admission.NotActing, "mode"},
		"paused":      {func(s *shop) { s.object.Spec.Paused = true }, admission.NotActing, "paused"},
		"an object that is being deleted": {func(s *shop) {
			s.object.DeletionTimestamp = &metav1.Time{Time: noon}
		}, admission.NotActing, "deleted"},
		"another autoscaler moves the workload": {func(s *shop) {
			s.says(v1alpha1.Active, metav1.ConditionFalse)
		}, admission.NotActing, "Active"},
		"no object":             {func(s *shop) { s.object = nil }, admission.Undecided, "no MultidimPodAutoscaler"},
		"no decision yet":       {func(s *shop) { s.object.Status.Decisions = nil }, admission.Undecided, "nothing was decided"},
		"a decision of no size": {func(s *shop) { s.object.Status.Recommendation = nil }, admission.Undecided, "no size"},
		"an old decision": {func(s *shop) {
			s.object.Status.Decisions[0].Time = metav1.NewTime(noon.Add(-11 * time.Minute))
		}, admission.Stale, "11m0s old"},
		"settings that changed since": {func(s *shop) { s.object.Generation = 4 }, admission.Stale, "settings"},
		"a template that changed since": {func(s *shop) {
			s.template().Resources.Limits[corev1.ResourceMemory] = resource.MustParse("256Mi")
		}, admission.Stale, "limits have changed"},
		"a decision of an older central, for nobody knows which template": {func(s *shop) {
			s.object.Status.Recommendation[0].Template = nil
		}, admission.Stale, "limits have changed"},
		"a container that is in the template no more": {func(s *shop) {
			s.template().Name = "other"
		}, admission.Stale, "no such container"},
		"annotations that cannot be read": {func(s *shop) {
			s.says(v1alpha1.Ready, metav1.ConditionFalse)
		}, admission.Problem, "Ready"},
		"an object that nobody has looked at": {func(s *shop) {
			s.object.Status.Conditions = nil
		}, admission.Problem, "Ready"},
		"no room for the siblings": {func(s *shop) {
			s.says(v1alpha1.ResizeDeferred, metav1.ConditionTrue)
		}, admission.Problem, "ResizeDeferred"},
		"a size that no node has": {func(s *shop) {
			s.object.Status.Decisions[0].Effect = "infeasible"
		}, admission.Problem, "infeasible"},
		"a size that waits for room": {func(s *shop) {
			s.object.Status.Decisions[0].Effect = "deferred"
		}, admission.Problem, "deferred"},
		"a size that a quota refuses": {func(s *shop) {
			s.object.Status.Decisions[0].Effect = "failed"
			s.object.Status.Decisions[0].Reason = "exceeded quota"
		}, admission.Problem, "exceeded quota"},
		"an effect of a newer central": {func(s *shop) {
			s.object.Status.Decisions[0].Effect = "postponed"
		}, admission.Problem, "postponed"},
		"one of two containers was not given its size": {func(s *shop) {
			s.object.Status.Decisions = append(s.object.Status.Decisions, v1alpha1.DecisionStatus{
				Time: s.object.Status.Decisions[0].Time, Effect: "failed"})
		}, admission.Problem, "failed"},
		"bounds that nothing satisfies": {func(s *shop) {
			s.object.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "web",
				Min: &v1alpha1.Size{CPU: quantity("2")}}}
		}, admission.Problem, "cpu bounds"},
		"a pod without its container": {func(s *shop) {
			s.pod.Spec.Containers[0].Name = "other"
		}, admission.Different, "no such container"},
		"a limit that somebody else has set": {func(s *shop) {
			s.pod.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("800m")
		}, admission.Different, "not the template's"},
		"a request that somebody else has set": {func(s *shop) {
			s.pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("65Mi")
		}, admission.Different, "not the template's"},
		"a pod with resources of its own": {func(s *shop) {
			s.pod.Spec.Resources = &corev1.ResourceRequirements{Limits: amounts("1", "1Gi")}
		}, admission.Different, "resources of its own"},
		"a workload that has not opted in": {func(s *shop) {
			s.deployment.Spec.Template.Labels = map[string]string{"app": "web"}
		}, admission.NotManaged, "not labelled"},
		"a pod that its workload does not select": {func(s *shop) {
			s.pod.Labels = map[string]string{"app": "other"}
		}, admission.NotManaged, "does not select"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			c.change(s)
			v := s.judge(t)
			if v.Result != c.result || !strings.Contains(v.Reason, c.says) || len(v.Containers) != 0 {
				t.Errorf("%s: %s, %d containers; want %s saying %q", v.Result, v.Reason, len(v.Containers), c.result, c.says)
			}
			if patch, err := v.Patch(s.pod, noon); patch != nil || err != nil {
				t.Errorf("patch %s, %v", patch, err)
			}
		})
	}
	s := open()
	f := s.facts()
	f.Workload = nil
	if v := admission.Judge(s.pod, f); v.Result != admission.NotManaged || v.Containers != nil {
		t.Errorf("a pod that nobody owns: %+v", v)
	}
}

// What is not in the object is not touched: containers that another webhook has added, init
// containers, and containers for which nothing was decided.
func TestOtherContainersAreNotTouched(t *testing.T) {
	s := open()
	other := corev1.ResourceRequirements{Requests: amounts("10m", "16Mi"), Limits: amounts("1", "1Gi")}
	s.deployment.Spec.Template.Spec.Containers = append(s.deployment.Spec.Template.Spec.Containers,
		corev1.Container{Name: "undecided", Resources: other})
	s.pod.Spec.InitContainers = []corev1.Container{{Name: "web", Resources: other}}
	s.pod.Spec.Containers = []corev1.Container{
		{Name: "mesh", Resources: other}, {Name: "undecided", Resources: other}, s.pod.Spec.Containers[0],
	}
	v := s.judge(t)
	if v.Result != admission.Sized || len(v.Containers) != 1 || v.Containers[0].Index != 2 || v.Containers[0].Name != "web" {
		t.Fatalf("%+v, want the third container sized alone", v)
	}
	if got := after(s.pod, v, 2); got != "150m/400m 50Mi/128Mi" {
		t.Errorf("web has %s", got)
	}
}

// Either all containers get what was decided for them, or none does.
func TestOneContainerThatDiffersLeavesTheWholePod(t *testing.T) {
	s := open()
	s.deployment.Spec.Template.Spec.Containers = append(s.deployment.Spec.Template.Spec.Containers,
		corev1.Container{Name: "proxy", Resources: s.template().Resources})
	second := s.object.Status.Recommendation[0]
	second.Name = "proxy"
	s.object.Status.Recommendation = append(s.object.Status.Recommendation, second)
	if v := s.judge(t); v.Result != admission.Different || v.Containers != nil {
		t.Errorf("%+v, want the pod left as it is", v)
	}
	s.pod.Spec.Containers = append(s.pod.Spec.Containers, s.deployment.Spec.Template.Spec.Containers[1])
	if v := s.judge(t); v.Result != admission.Sized || len(v.Containers) != 2 {
		t.Errorf("%+v, want both containers sized", v)
	}
}

func TestThePodIsNotWrittenTo(t *testing.T) {
	s := open()
	if v := admission.Judge(s.pod, s.facts()); v.Result != admission.Sized {
		t.Fatal(v)
	}
	if got := after(s.pod, admission.Verdict{}, 0); got != "200m/400m 64Mi/128Mi" {
		t.Errorf("the pod has %s after it was judged", got)
	}
}

// qos is a pod's QoS class: Kubernetes' rule in a few lines (kubernetes.io/docs/concepts/workloads/pods/pod-qos).
func qos(pod corev1.PodSpec) corev1.PodQOSClass {
	some, all := false, true
	for _, c := range pod.Containers {
		for _, name := range updater.Resizable {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			some = some || !request.IsZero() || !limit.IsZero()
			all = all && !limit.IsZero() && request.Cmp(limit) == 0
		}
	}
	switch {
	case !some:
		return corev1.PodQOSBestEffort
	case all:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// For every template, bounds and decision: a container that is sized is within its owner's
// bounds, what it does not have it does not get, no request is above its limit, the QoS
// class is the template's, and the updater has nothing to write afterwards.
func TestASizedPodIsWithinItsOwnersBoundsAndKeepsItsQoSClass(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	upTo := func(n int64) int64 { return 1 + random.Int64N(n) }
	seen := map[admission.Result]int{}
	for range 20_000 {
		s := open()
		cpu, memory := upTo(8000), upTo(1<<random.IntN(35))
		limits := corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(cpu, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		}
		requests := limits.DeepCopy()
		if random.IntN(3) > 0 {
			requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(upTo(cpu), resource.DecimalSI)
			requests[corev1.ResourceMemory] = *resource.NewQuantity(upTo(memory), resource.BinarySI)
		}
		if random.IntN(5) == 0 {
			delete(limits, corev1.ResourceCPU)
		}
		s.made(requests, limits)
		bound := func() *v1alpha1.Size {
			return &v1alpha1.Size{CPU: resource.NewMilliQuantity(upTo(9000), resource.DecimalSI),
				Memory: resource.NewQuantity(upTo(1<<random.IntN(36)), resource.BinarySI)}
		}
		own := v1alpha1.ContainerConstraints{Name: "web"}
		if random.IntN(2) == 0 {
			own.Max = bound()
		}
		if random.IntN(2) == 0 {
			own.Min = bound()
		}
		s.object.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{own}
		decided := bound()
		s.object.Status.Recommendation[0].Requests = &v1alpha1.Size{CPU: decided.CPU}
		s.object.Status.Recommendation[0].Limits = v1alpha1.Size{Memory: decided.Memory}
		v := s.judge(t)
		seen[v.Result]++
		if v.Result != admission.Sized {
			continue
		}
		got := v.Containers[0].After
		template, sized := s.pod.Spec.DeepCopy(), s.pod.Spec.DeepCopy()
		sized.Containers[0].Resources = got
		if qos(*template) != qos(*sized) {
			t.Fatalf("QoS class %s became %s: %v became %v", qos(*template), qos(*sized), template.Containers[0].Resources, got)
		}
		for name := range got.Limits {
			limit, request := got.Limits[name], got.Requests[name]
			if _, had := limits[name]; !had || request.Cmp(limit) > 0 || request.Sign() <= 0 {
				t.Fatalf("%s: request %s, limit %s", name, &request, &limit)
			}
		}
		within(t, own, got, updater.Limits(s.template().Resources))
		bounds, knobs, err := recommender.Envelope(s.object.Spec.Constraints, *s.template(), 2)
		if err != nil {
			t.Fatal(err)
		}
		again := updater.Wanted(*s.template(), sized.Containers[0], bounds,
			recommender.Decided(s.object.Status.Recommendation[0]).Only(knobs))
		if !updater.Equal(again, got) {
			t.Fatalf("the updater would write %v onto %v", again, got)
		}
	}
	t.Logf("%v", seen)
	if seen[admission.Sized] < 5000 {
		t.Errorf("only %d of 20000 pods were sized: %v", seen[admission.Sized], seen)
	}
}

// within checks limits against what the owner has written, or the template's limit where
// the owner has written no maximum.
func within(t *testing.T, own v1alpha1.ContainerConstraints, got corev1.ResourceRequirements, template mdp.Size) {
	t.Helper()
	limit := updater.Limits(got)
	most, least := template, mdp.Size{}
	if own.Max != nil {
		most = mdp.Size{CPU: mdp.MilliCPU(own.Max.CPU.MilliValue()), Memory: mdp.Bytes(own.Max.Memory.Value())}
	}
	if own.Min != nil {
		least = mdp.Size{CPU: mdp.MilliCPU(own.Min.CPU.MilliValue()), Memory: mdp.Bytes(own.Min.Memory.Value())}
	}
	if template.CPU == 0 { // it has no limit of CPU, and gets none
		most.CPU, least.CPU = math.MaxInt64, 0
	}
	if r := updater.Reserved(got); template.CPU > 0 && r > most.CPU {
		t.Fatalf("a reservation of %v, and the owner allows %v", r, most.CPU)
	}
	if limit.CPU > most.CPU || limit.Memory > most.Memory || limit.CPU < least.CPU || limit.Memory < least.Memory {
		t.Fatalf("limits %v, and the owner allows %v to %v", limit, least, most)
	}
}

// A pod that was sized is restored when its workload opts out, as one that was resized.
func TestASizedPodSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*shop)
		want   []corev1.ResourceName
	}{
		"CPU and memory": {func(*shop) {}, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}},
		"CPU alone": {func(s *shop) {
			s.object.Status.Recommendation[0].Limits.Memory = nil
		}, []corev1.ResourceName{corev1.ResourceCPU}},
		"without managed fields": {func(s *shop) {
			s.pod.ManagedFields = nil
		}, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			c.change(s)
			made := apply(t, s.pod, s.judge(t))
			if got := updater.Resized(made, "web", updater.Manager); !sameNames(got, c.want) {
				t.Errorf("the pod says %v, want %v: %+v", got, c.want, made.ManagedFields)
			}
			if len(made.ManagedFields) != len(s.pod.ManagedFields)+1 {
				t.Fatalf("%d managers, want one more than %d", len(made.ManagedFields), len(s.pod.ManagedFields))
			}
			// The updater's resizes go into the same entry, so that there is one to take back.
			one := made.ManagedFields[len(made.ManagedFields)-1]
			if one.Subresource != "resize" || one.Operation != metav1.ManagedFieldsOperationUpdate || !one.Time.Time.Equal(noon) {
				t.Errorf("the entry is %+v, want one as of a resize", one)
			}
			made.Namespace, made.Name, made.UID, made.Status.Phase = "shop", "web-1-a", types.UID("a"), corev1.PodRunning
			restored(t, s, made)
		})
	}
}

// What does not change is not in the patch: a field that is named belongs to us afterwards.
func TestThePatchNamesOnlyWhatItChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*shop)
		paths  []string
		set    []corev1.ResourceName
	}{
		"CPU alone": {func(s *shop) { s.object.Status.Recommendation[0].Limits.Memory = nil },
			[]string{"requests/cpu"}, []corev1.ResourceName{corev1.ResourceCPU}},
		// Requests are in whole mebibytes, as the updater writes them: 100M are 95.4 MiB.
		"a request alone": {func(s *shop) {
			s.made(amounts("200m", "100M"), amounts("400m", "256Mi"))
			s.decided("200m", "256Mi")
		}, []string{"requests/memory"}, []corev1.ResourceName{corev1.ResourceMemory}},
		"a limit alone": {func(s *shop) {
			s.made(amounts("1m", "64Mi"), amounts("400m", "128Mi"))
			s.object.Status.Recommendation[0].Requests = &v1alpha1.Size{CPU: quantity("1m")} // the template's
			s.object.Status.Recommendation[0].Limits = v1alpha1.Size{}
			s.object.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{Name: "web", Max: &v1alpha1.Size{CPU: quantity("2")}}}
		}, []string{"limits/cpu"}, []corev1.ResourceName{corev1.ResourceCPU}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			c.change(s)
			v := s.judge(t)
			body, err := v.Patch(s.pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			var patch []struct{ Op, Path string }
			if err := json.Unmarshal(body, &patch); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			var paths []string
			for _, one := range patch {
				if path, ok := strings.CutPrefix(one.Path, "/spec/containers/0/resources/"); ok {
					paths = append(paths, path)
				}
			}
			if !slices.Equal(paths, c.paths) || len(patch) != len(c.paths)+1 {
				t.Errorf("patch %s, want %v and the managed fields", body, c.paths)
			}
			if got := updater.Resized(apply(t, s.pod, v), "web", updater.Manager); !sameNames(got, c.set) {
				t.Errorf("the pod says %v, want %v", got, c.set)
			}
		})
	}
}
