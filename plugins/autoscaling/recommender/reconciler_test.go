package recommender

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/fleet"
	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// cluster is an API server in memory with one workload "web" of two pods, and a
// Reconciler on top. The clock stands still unless a test moves it.
type cluster struct {
	t       *testing.T
	client  client.Client
	fleet   *fleet.Fleet
	r       *Reconciler
	now     time.Time
	fail    func(verb string, o any) bool // which calls of the API server fail; nil is none
	failing bool                          // for fail
	evicted []string                      // pods whose eviction was asked for
	refuse  error                         // what evictions are answered with; nil evicts
	noApply bool                          // statuses cannot be written
}

func newCluster(t *testing.T, mode api.Mode) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"app": "web", v1alpha1.ManagedLabel: "true"}
	spec := corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "web", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("400m"),
			corev1.ResourceMemory: resource.MustParse("128Mi"),
		}}}}}
	two := int32(2)
	objects := []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.DeploymentSpec{
			Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}}},
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-rs", OwnerReferences: ownedBy("Deployment", "web"),
		}},
		&v1alpha1.MultidimPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1},
			Spec: v1alpha1.MultidimPodAutoscalerSpec{
				Mode:      string(mode),
				TargetRef: v1alpha1.TargetRef{Kind: "Deployment", Name: "web"},
			}},
	}
	for _, name := range []string{"web-1", "web-2"} {
		p := pod(name, "node")
		p.Labels = labels
		p.Spec = *spec.DeepCopy()
		p.Status.Phase = corev1.PodRunning
		// With an entry of its maker the API server in memory writes down the managers, as a real one does.
		p.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{"f:app":{}}}}`)},
		}}
		p.OwnerReferences = ownedBy("ReplicaSet", "web-rs")
		objects = append(objects, &p)
	}
	c := &cluster{t: t, now: noon}
	c.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithReturnManagedFields().
		WithStatusSubresource(&v1alpha1.MultidimPodAutoscaler{}).WithInterceptorFuncs(c.faults()).Build()
	c.start()
	return c
}

// ownedBy is the reference to a controller.
func ownedBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: new(true)}}
}

// faults lets calls of the API server fail while the test says so.
func (c *cluster) faults() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if c.fail != nil && c.fail("get", o) {
				return errAway
			}
			return w.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if c.fail != nil && c.fail("list", l) {
				return errAway
			}
			return w.List(ctx, l, opts...)
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			if c.fail != nil && c.fail(sub, o) {
				return errAway
			}
			if sub == "scale" {
				return scale(ctx, w, o, p)
			}
			return w.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		SubResourceApply: func(ctx context.Context, w client.Client, sub string, o runtime.ApplyConfiguration,
			opts ...client.SubResourceApplyOption) error {
			if c.noApply {
				return errAway
			}
			return w.SubResource(sub).Apply(ctx, o, opts...)
		},
		SubResourceCreate: func(ctx context.Context, w client.Client, sub string, o, body client.Object,
			opts ...client.SubResourceCreateOption) error {
			c.evicted = append(c.evicted, o.GetName())
			if c.refuse != nil {
				return c.refuse
			}
			return w.SubResource(sub).Create(ctx, o, body, opts...)
		},
	}
}

// scale is what an API server does with a patch of a Deployment's scale, which the one in
// memory does not do.
func scale(ctx context.Context, w client.Client, o client.Object, p client.Patch) error {
	body, err := p.Data(o)
	if err != nil {
		return err
	}
	var want autoscalingv1.Scale
	if err := json.Unmarshal(body, &want); err != nil {
		return err
	}
	var d appsv1.Deployment
	if err := w.Get(ctx, client.ObjectKeyFromObject(o), &d); err != nil {
		return err
	}
	d.Spec.Replicas = &want.Spec.Replicas
	return w.Update(ctx, &d)
}

var errAway = errors.New("the API server is away")

// start starts central, as after a restart: it remembers nothing. Its writes wait
// for no turn.
func (c *cluster) start() {
	c.fleet = fleet.New(time.Minute)
	c.r = New(Config{
		Client:   c.client,
		Fleet:    c.fleet,
		Events:   events.NewFakeRecorder(100),
		Step:     10 * time.Second,
		Patience: time.Minute,
		Now:      func() time.Time { return c.now },
		Policies: func(PolicyRequest) (mdp.Policy, string, error) {
			fixed := func(mdp.State) (mdp.Action, error) { return mdp.Action{}.WithReservation(200), nil }
			return mdp.PolicyFunc(fixed), "fixed/1", nil
		},
		StatusEvery: time.Nanosecond,
	})
	c.r.writes.limiter.SetLimit(rate.Inf)
}

// reconcile reconciles the object of that name, and reads it again.
func (c *cluster) reconcile(name string) *v1alpha1.MultidimPodAutoscaler {
	c.t.Helper()
	key := client.ObjectKey{Namespace: "shop", Name: name}
	if _, err := c.r.Reconcile(c.t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		c.t.Fatal(err)
	}
	mpa := new(v1alpha1.MultidimPodAutoscaler)
	if err := c.client.Get(c.t.Context(), key, mpa); client.IgnoreNotFound(err) != nil {
		c.t.Fatal(err)
	}
	return mpa
}

// grants is the mode of each pod's grant.
func (c *cluster) grants() map[string]api.Mode {
	modes := map[string]api.Mode{}
	all, _, _ := c.fleet.Grants("node")
	for _, g := range all.All {
		modes[g.Container.Pod] = g.Mode
	}
	return modes
}

// cpu is a pod's CPU limit in the API.
func (c *cluster) cpu(name string) string {
	c.t.Helper()
	var p corev1.Pod
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &p); err != nil {
		c.t.Fatal(err)
	}
	return p.Spec.Containers[0].Resources.Limits.Cpu().String()
}

func TestTheCanaryOfTheAPIIsTheCanaryOfTheNodes(t *testing.T) {
	c := newCluster(t, api.Canary)
	mpa := c.reconcile("web")
	if one, two := c.cpu("web-1"), c.cpu("web-2"); one != "200m" || two != "400m" {
		t.Errorf("CPU limits %s and %s: want the first pod moved alone", one, two)
	}
	if modes := c.grants(); modes["web-1"] != api.Auto || modes["web-2"] != api.Recommend {
		t.Errorf("grants %v: want auto for the first pod, and recommend for the other", modes)
	}
	if mpa.Status.Resizes.API != 1 || !meta.IsStatusConditionTrue(mpa.Status.Conditions, v1alpha1.Active) {
		t.Errorf("status %+v: want it active, and one resize", mpa.Status)
	}
}

func TestAProcessThatEndsRestoresTheTemplatesSizes(t *testing.T) {
	c := newCluster(t, api.Auto)
	c.reconcile("web")
	c.now = c.now.Add(10 * time.Second) // the pods of a node have what is freed in turns
	mpa := c.reconcile("web")
	if one, two := c.cpu("web-1"), c.cpu("web-2"); one != "200m" || two != "200m" {
		t.Fatalf("CPU limits %s and %s, want the policy's 200m", one, two)
	}
	if err := c.client.Delete(t.Context(), mpa); err != nil {
		t.Fatal(err)
	}
	c.reconcile("web")
	if one, two := c.cpu("web-1"), c.cpu("web-2"); one != "400m" || two != "400m" {
		t.Errorf("CPU limits %s and %s: want the template's", one, two)
	}
	if modes := c.grants(); len(modes) != 0 {
		t.Errorf("grants %v are left", modes)
	}
}

func TestASecondObjectOfAWorkloadDoesNotDecide(t *testing.T) {
	c := newCluster(t, api.Observe)
	first := c.reconcile("web")
	second := &v1alpha1.MultidimPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "second"},
		Spec: v1alpha1.MultidimPodAutoscalerSpec{Mode: "auto", TargetRef: v1alpha1.TargetRef{Kind: "Deployment", Name: "web"}}}
	if err := c.client.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	ready := func() *metav1.Condition {
		return meta.FindStatusCondition(c.reconcile("second").Status.Conditions, v1alpha1.Ready)
	}
	if got := ready(); got.Status != metav1.ConditionFalse || got.Reason != "TargetTaken" {
		t.Errorf("condition %+v, want TargetTaken", got)
	}
	if err := c.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	c.reconcile("web")
	if got := ready(); got.Status != metav1.ConditionTrue {
		t.Errorf("condition %+v after the first object is gone, want Ready", got)
	}
}

// An instance of central before this one was active. This one could not make
// loops before the object was deleted.
func TestAnObjectThatNeverDecidedCanBeForgotten(t *testing.T) {
	c := newCluster(t, "no such mode")
	mpa := c.reconcile("web")
	condition{v1alpha1.Active, true, "Acting", "by an earlier instance"}.set(mpa, noon)
	if err := c.client.Status().Update(t.Context(), mpa); err != nil {
		t.Fatal(err)
	}
	c.reconcile("web")
	if err := c.client.Delete(t.Context(), mpa); err != nil {
		t.Fatal(err)
	}
	c.reconcile("web")
	if _, ok := c.r.processes[client.ObjectKeyFromObject(mpa)]; ok {
		t.Error("the process is still there")
	}
}

func TestAStepIsMadeWhenItIsDue(t *testing.T) {
	c := newCluster(t, api.Observe)
	for i, want := range []int{1, 1, 2, 2, 3} {
		if got := len(c.reconcile("web").Status.Decisions); got != want {
			t.Errorf("after %d s: %d decisions, want %d", 5*i, got, want)
		}
		c.now = c.now.Add(5 * time.Second)
	}
}

// New pods start with what the object recommends, so that it must be what the others got,
// to the byte, and say for which template.
func TestARecommendationIsWhatPodsGot(t *testing.T) {
	c := newCluster(t, api.Auto)
	c.r.config.Policies = func(PolicyRequest) (mdp.Policy, string, error) {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
			return mdp.Action{}.WithReservation(300).WithMemory(99_900_000), nil
		}), "fixed/1", nil
	}
	least, most := resource.MustParse("50M"), resource.MustParse("100M") // 95.4 MiB
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
		m.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{
			Name: "*", Min: &v1alpha1.Size{Memory: &least}, Max: &v1alpha1.Size{Memory: &most},
		}}
	})
	all := c.reconcile("web").Status.Recommendation
	var p corev1.Pod
	if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-1"}, &p); err != nil {
		t.Fatal(err)
	}
	got := p.Spec.Containers[0].Resources.Limits
	if got.Cpu().String() != "300m" || got.Memory().String() != "95Mi" {
		t.Errorf("the pod got %v, want 300m and the whole mebibytes within 100M", got)
	}
	if len(all) != 1 || all[0].Requests.CPU.Cmp(*got.Cpu()) != 0 || all[0].Limits.Memory.Cmp(*got.Memory()) != 0 {
		t.Fatalf("recommendation %+v, and the pod got %v", all, got)
	}
	if of := all[0].Template; of == nil || of.CPU.String() != "400m" || of.Memory.String() != "128Mi" {
		t.Errorf("the template is %+v, want 400m and 128Mi", of)
	}
}

// A learned policy moves one knob at a time. What was decided of the others holds, and a new pod starts with all of it; in other
// bounds as far as they go, and with another template, or where the owner leaves a resource alone, no more.
func TestWhatWasDecidedHoldsUntilSomethingElseIs(t *testing.T) {
	c := newCluster(t, api.Auto)
	var next mdp.Action
	c.r.config.Policies = func(PolicyRequest) (mdp.Policy, string, error) {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return next, nil }), "fixed/1", nil
	}
	recommends := func(when string, a mdp.Action, want mdp.Action) {
		t.Helper()
		next = a
		c.now = c.now.Add(c.r.config.Step)
		all := c.reconcile("web").Status.Recommendation
		if want.Sets == 0 {
			if len(all) != 0 {
				t.Errorf("%s: the recommendation is %+v, want none", when, all)
			}
			return
		}
		if len(all) != 1 || Decided(all[0]) != want {
			t.Errorf("%s: the recommendation is %+v, want %v", when, all, want)
		}
	}
	memory := func(least, most string) {
		from, to := resource.MustParse(least), resource.MustParse(most)
		change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
			m.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{
				Name: "*", Min: &v1alpha1.Size{Memory: &from}, Max: &v1alpha1.Size{Memory: &to},
			}}
		})
	}
	memory("64Mi", "128Mi")
	both := mdp.Action{}.WithReservation(300).WithMemory(100 * mdp.MiB)
	recommends("at first", mdp.Action{}.WithReplicas(2), mdp.Action{})
	recommends("both", both, both)
	recommends("a replica more", mdp.Action{}.WithReplicas(3), both)
	recommends("nothing", mdp.Action{}, both)
	recommends("memory", mdp.Action{}.WithMemory(110*mdp.MiB), both.WithMemory(110*mdp.MiB))
	recommends("CPU", mdp.Action{}.WithReservation(250), both.WithReservation(250).WithMemory(110*mdp.MiB))
	memory("64Mi", "105Mi")
	recommends("in other bounds", mdp.Action{}, both.WithReservation(250).WithMemory(105*mdp.MiB))
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
		m.Spec.Constraints.Containers[0].ControlledResources = []corev1.ResourceName{corev1.ResourceCPU}
	})
	recommends("with CPU alone", mdp.Action{}, mdp.Action{}.WithReservation(250))
	change(c, &appsv1.Deployment{}, "web", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("120Mi")
	})
	recommends("with another template", mdp.Action{}, mdp.Action{})
}

// pressing has the node report that the container of a pod is throttled at its ceiling.
func (c *cluster) pressing(pod string) {
	s := api.Summary{Mode: api.Auto, State: mdp.State{At: c.now}}
	s.Container = api.ContainerRef{Namespace: "shop", Pod: pod, PodUID: "uid-" + pod, Container: "web"}
	s.State.Observed = mdp.SetOf(mdp.CPULimit, mdp.Throttled, mdp.CPUUsage)
	s.State.Limit.CPU, s.State.Usage.CPU, s.State.Throttled = 400, 400, 0.5
	s.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: 10, Max: 400}
	c.fleet.Accept(c.now, api.Report{Node: "node", At: c.now, Full: true, Containers: []api.Summary{s}})
}

// A workload that is throttled at its ceilings is decided on at once and not at the next step.
func TestAWorkloadAtItsCeilingIsDecidedOnAtOnce(t *testing.T) {
	c := newCluster(t, api.Auto)
	decisions, replicas := 0, 2
	c.r.config.Policies = func(PolicyRequest) (mdp.Policy, string, error) {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
			decisions++
			return mdp.Action{}.WithReplicas(replicas), nil
		}), "fixed/1", nil
	}
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
		m.Spec.Constraints.Replicas = &v1alpha1.ReplicaConstraints{Min: 1, Max: 5}
	})
	look := func() time.Duration {
		t.Helper()
		result, err := c.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "web"}})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	look()
	if decisions != 1 {
		t.Fatalf("%d decisions", decisions)
	}
	c.now = c.now.Add(time.Second)
	if look(); decisions != 1 {
		t.Error("a decision before its time, and nobody asked for it")
	}
	c.pressing("web-1")
	select {
	case e := <-c.r.pressed:
		if e.Object.GetNamespace() != "shop" || e.Object.GetName() != "web" {
			t.Errorf("woken: %v", e.Object)
		}
	default:
		t.Fatal("nobody was woken")
	}
	c.pressing("web-1")
	if len(c.r.pressed) != 0 {
		t.Error("woken twice for one thing")
	}
	if next := look(); decisions != 1 || next != time.Second {
		t.Errorf("%d decisions a second after the last one, the next look after %v: want the least time of 2 s", decisions, next)
	}
	c.now = c.now.Add(time.Second)
	replicas = 3
	if next := look(); decisions != 2 || next != 10*time.Second {
		t.Errorf("%d decisions, the next look after %v: want one more, and the next one in a step", decisions, next)
	}
}

// A pod's containers have their grants as soon as it runs, and nothing is decided before its time. Other events of pods, and
// pods of nobody's, wake nobody.
func TestAPodHasItsGrantsAsSoonAsItRuns(t *testing.T) {
	c := newCluster(t, api.Auto)
	decisions := 0
	c.r.config.Policies = func(PolicyRequest) (mdp.Policy, string, error) {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
			decisions++
			return mdp.Action{}, nil
		}), "fixed/1", nil
	}
	c.reconcile("web")
	var p corev1.Pod
	if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-1"}, &p); err != nil {
		t.Fatal(err)
	}
	p.ObjectMeta = metav1.ObjectMeta{
		Namespace:       "shop",
		Name:            "web-3",
		UID:             "web-3",
		Labels:          p.Labels,
		OwnerReferences: p.OwnerReferences,
	}
	if err := c.client.Create(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(time.Second)
	woken := c.r.ofPod(t.Context(), &p)
	if len(woken) != 1 || woken[0].String() != "shop/web" {
		t.Fatalf("woken: %v", woken)
	}
	if c.reconcile("web"); decisions != 1 || c.grants()["web-3"] != api.Auto {
		t.Errorf("%d decisions, grants %v: want one for the new pod, and no decision", decisions, c.grants())
	}
	if p.OwnerReferences = nil; len(c.r.ofPod(t.Context(), &p)) != 0 {
		t.Error("a pod of nobody's wakes somebody")
	}
	p.OwnerReferences = ownedBy("StatefulSet", "store")
	if len(c.r.ofPod(t.Context(), &p)) != 0 {
		t.Error("a pod of a workload without an object wakes somebody")
	}

	pending, ending := p.DeepCopy(), p.DeepCopy()
	pending.Status.Phase = corev1.PodPending
	ending.DeletionTimestamp = new(metav1.NewTime(c.now))
	for name, is := range map[string]struct{ passes, want bool }{
		"a pod that ran before we looked": {runsNow{}.Create(event.CreateEvent{Object: &p}), true},
		"a new pod":                       {runsNow{}.Create(event.CreateEvent{Object: pending}), false},
		"begins to run":                   {runsNow{}.Update(event.UpdateEvent{ObjectOld: pending, ObjectNew: &p}), true},
		"still runs":                      {runsNow{}.Update(event.UpdateEvent{ObjectOld: &p, ObjectNew: &p}), false},
		"ends":                            {runsNow{}.Update(event.UpdateEvent{ObjectOld: &p, ObjectNew: ending}), false},
		"is gone":                         {runsNow{}.Delete(event.DeleteEvent{Object: &p}), false},
	} {
		if is.passes != is.want {
			t.Errorf("%s: passes %v", name, is.passes)
		}
	}
}

// observed is a cluster whose workload has an SLO of 100 ms, and what its policy sees.
func observed(t *testing.T) (*cluster, *mdp.State) {
	c, seen := newCluster(t, api.Auto), &mdp.State{}
	c.r.config.Policies = func(PolicyRequest) (mdp.Policy, string, error) {
		return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
			*seen = s
			return mdp.Action{}.WithReservation(200), nil
		}), "seen/1", nil
	}
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
		m.Spec.SLO = &v1alpha1.SLO{Latency: &v1alpha1.LatencySLO{
			Percentile: 99, Threshold: metav1.Duration{Duration: 100 * time.Millisecond},
		}}
	})
	return c, seen
}

// answers reports how many requests a pod has answered, and how many of them within a bound in seconds; then central decides,
// and a step passes.
func (c *cluster) answers(bound float64, within, all uint64) {
	c.scrape([]float64{bound}, within, all)
	c.reconcile("web")
	c.now = c.now.Add(10 * time.Second)
}

// What was late since the decision before is in the State, and so has a price in the reward: as a share of at least as many
// requests as make one late one the objective's tolerance. Without a bucket at the objective nobody knows it.
func TestWhatWasLateIsSeen(t *testing.T) {
	c, seen := observed(t)
	var soon, all uint64
	bound := 0.1
	pass := func(requests, late uint64) {
		t.Helper()
		soon, all = soon+requests-late, all+requests
		c.answers(bound, soon, all)
	}
	pass(100, 0)
	for _, one := range []struct {
		requests, late uint64
		want           mdp.Ratio
	}{{200, 10, 0.05}, {200, 0, 0}, {50, 1, 0.01}, {5, 5, 0.05}} {
		pass(one.requests, one.late)
		if !seen.Knows(mdp.Missed) || math.Abs(float64(seen.Missed-one.want)) > 1e-9 {
			t.Errorf("%d of %d were late: %v (%v), want %v", one.late, one.requests, seen.Missed, seen.Observed, one.want)
		}
	}
	bound = 0.07
	pass(100, 0)
	if pass(200, 10); seen.Knows(mdp.Missed) {
		t.Errorf("a share of %v was made up: no bucket ends at the objective", seen.Missed)
	}
}

// What a workload must be ready for is in the State that its policy sees: the peak of the load of the last hours, which outlives
// a change of the object's spec.
func TestThePeakOfTheLoadIsSeen(t *testing.T) {
	c, seen := observed(t)
	requests := uint64(0)
	pass := func(d time.Duration, perSecond uint64) {
		for range d / (10 * time.Second) {
			requests += 10 * perSecond
			c.answers(0.01, requests, requests)
		}
	}
	pass(10*time.Minute, 5)
	pass(time.Minute, 80)
	pass(15*time.Minute, 5)
	if seen.Knows(mdp.LoadPeak) || seen.Throughput != 5 {
		t.Errorf("after 26 minutes: %v/s, and a peak of %v", seen.Throughput, seen.LoadPeak)
	}
	change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
		m.Spec.SLO.Latency.Threshold.Duration *= 2
	})
	pass(15*time.Minute, 5)
	if !seen.Knows(mdp.LoadPeak) || seen.LoadPeak != 80 || seen.Throughput != 5 {
		t.Errorf("after 41 minutes: %v/s, and a peak of %v (%v): want 5 and 80", seen.Throughput, seen.LoadPeak, seen.Observed)
	}
	// An agent's peak is of before the object and the process.
	policies, peak := c.r.config.Policies, c.r.processes[client.ObjectKey{Namespace: "shop", Name: "web"}].peak
	c.start()
	c.r.config.Policies, c.r.config.Episodes = policies, &learner{life: Life{Peak: peak}, known: true}
	pass(time.Minute, 5)
	if !seen.Knows(mdp.LoadPeak) || seen.LoadPeak != 80 {
		t.Errorf("after a restart: a peak of %v (%v): want 80", seen.LoadPeak, seen.Observed)
	}
	// What is remembered is no reading: when nobody reports any more, the owner hears it.
	c.now = c.now.Add(10 * time.Minute)
	mpa := c.reconcile("web")
	if is := meta.FindStatusCondition(mpa.Status.Conditions, v1alpha1.SLOObserved); is == nil || is.Status != metav1.ConditionFalse {
		t.Errorf("nothing is read any more, and the condition is %+v", is)
	}
	if seen.Knows(mdp.Throughput) || !seen.Knows(mdp.LoadPeak) || seen.LoadPeak != 80 {
		t.Errorf("%v: the peak is still known, and the throughput is not", seen.Observed)
	}
}

// How long replicas are kept for the next burst is the owner's word, and a new one is followed.
func TestAPolicyHasItsOwnersScaleInWindow(t *testing.T) {
	c := newCluster(t, api.Auto)
	var windows []time.Duration
	c.r.config.Policies = func(r PolicyRequest) (mdp.Policy, string, error) {
		windows = append(windows, r.ScaleIn)
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}, nil }), "fixed/1", nil
	}
	half, hour := &metav1.Duration{Duration: 30 * time.Second}, &metav1.Duration{Duration: time.Hour}
	for _, window := range []*metav1.Duration{nil, half, half, hour} {
		change(c, &v1alpha1.MultidimPodAutoscaler{}, "web", func(m *v1alpha1.MultidimPodAutoscaler) {
			m.Spec.Constraints.Replicas = &v1alpha1.ReplicaConstraints{Min: 1, Max: 5, ScaleInWindow: window}
		})
		c.now = c.now.Add(10 * time.Second)
		if _, err := c.r.Reconcile(t.Context(), ctrl.Request{
			NamespacedName: client.ObjectKey{Namespace: "shop", Name: "web"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []time.Duration{0, 30 * time.Second, time.Hour}; !slices.Equal(windows, want) {
		t.Errorf("policies were made with windows of %v, want %v: one for each that is new", windows, want)
	}
}
