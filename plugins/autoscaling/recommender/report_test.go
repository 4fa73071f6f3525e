package recommender

import (
	"context"
	"fmt"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/fleet"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestWhatIsMaterialInAStatus(t *testing.T) {
	with := func(change func(*v1alpha1.MultidimPodAutoscalerStatus)) v1alpha1.MultidimPodAutoscalerStatus {
		s := v1alpha1.MultidimPodAutoscalerStatus{
			ObservedGeneration: 3,
			Stage:              v1alpha1.StageInitialized,
			Replicas:           v1alpha1.ReplicaStatus{Current: 2, Desired: 2},
			SLOPreservation:    "1.00",
			Reward:             &v1alpha1.RewardStatus{Mean: "150.0", Std: "3.0"},
			Policy:             &v1alpha1.PolicyStatus{Version: "rule/1", Source: "rule"},
			Effective:          apiSize(mdp.Size{CPU: 200, Memory: 64 * mdp.MiB}),
			Recommendation: []v1alpha1.ContainerSize{
				{Name: "web", Requests: &v1alpha1.Size{CPU: resource.NewMilliQuantity(1000, resource.DecimalSI)},
					Limits: v1alpha1.Size{Memory: resource.NewQuantity(int64(100*mdp.MiB), resource.BinarySI)}}},
			Decisions: []v1alpha1.DecisionStatus{{Time: metav1.NewTime(noon), Effect: "deferred", Reason: "no room for 10s"}},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Valid", Message: "valid"},
				{Type: v1alpha1.ResizeDeferred, Status: metav1.ConditionTrue, Reason: "NoRoom", Message: "no room for 10s"}},
		}
		change(&s)
		return s
	}
	before := with(func(*v1alpha1.MultidimPodAutoscalerStatus) {})
	for name, c := range map[string]struct {
		change func(*v1alpha1.MultidimPodAutoscalerStatus)
		want   bool
	}{
		"nothing": {func(*v1alpha1.MultidimPodAutoscalerStatus) {}, false},
		"time": {func(s *v1alpha1.MultidimPodAutoscalerStatus) {
			s.Decisions[0].Time = metav1.NewTime(noon.Add(time.Hour))
		}, false},
		"the reward's noise": {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Reward.Mean = "151.0" }, false},
		"the SLO's measure":  {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.SLOPreservation = "0.98" }, false},
		"limits in force": {func(s *v1alpha1.MultidimPodAutoscalerStatus) {
			s.Effective.CPU = resource.NewMilliQuantity(90, resource.DecimalSI)
		}, false},
		"a time in a text": {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Conditions[1].Message = "no room for 1m20.5s" }, false},
		"another text":     {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Conditions[1].Message = "no room on its node" }, true},
		"another's condition": {func(s *v1alpha1.MultidimPodAutoscalerStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: "Theirs"})
		}, false},
		"a size by 4 %": {func(s *v1alpha1.MultidimPodAutoscalerStatus) {
			s.Recommendation[0].Requests.CPU = resource.NewMilliQuantity(1040, resource.DecimalSI)
		}, false},
		"a size by 6 %": {func(s *v1alpha1.MultidimPodAutoscalerStatus) {
			s.Recommendation[0].Requests.CPU = resource.NewMilliQuantity(1060, resource.DecimalSI)
		}, true},
		"memory by 6 %": {func(s *v1alpha1.MultidimPodAutoscalerStatus) {
			s.Recommendation[0].Limits.Memory = resource.NewQuantity(int64(94*mdp.MiB), resource.BinarySI)
		}, true},
		"the template that it was decided for": {func(s *v1alpha1.MultidimPodAutoscalerStatus) {
			s.Recommendation[0].Template = TemplateSize(mdp.Size{CPU: 400})
		}, true},
		"no recommendation":    {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Recommendation = nil }, true},
		"replicas":             {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Replicas.Current = 1 }, true},
		"the stage":            {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Stage = v1alpha1.StageServing }, true},
		"the policy":           {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Policy.Version = "rule/2" }, true},
		"the generation":       {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.ObservedGeneration = 4 }, true},
		"a condition's reason": {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Conditions[1].Reason = "Other" }, true},
		"a condition less":     {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Conditions = s.Conditions[:1] }, true},
		"what Ready quotes":    {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Conditions[0].Message = "valid 2" }, true},
		"a decision's effect":  {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Decisions[0].Effect = "pending" }, true},
		"the first decision":   {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Decisions = nil }, true},
		"a decision's reason":  {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Decisions[0].Reason = "paused" }, true},
		"its seconds only":     {func(s *v1alpha1.MultidimPodAutoscalerStatus) { s.Decisions[0].Reason = "no room for 20s" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			after := with(c.change)
			if got := material(&before, &after); got != c.want {
				t.Errorf("material %v, want %v", got, c.want)
			}
		})
	}
	if !material(nil, &before) {
		t.Error("a status that was never written is not material")
	}
}

// crowd is an API server with many workloads of no pods, which answers from memory,
// and counts the writes of statuses by the second.
type crowd struct {
	objects map[client.ObjectKey]*v1alpha1.MultidimPodAutoscaler
	now     time.Time
	writes  map[int64]int // by seconds since noon
	last    map[string]time.Time
	longest time.Duration // between two writes of one object
}

func (c *crowd) second() int64 { return int64(c.now.Sub(noon) / time.Second) }

func (c *crowd) client() client.Client {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			switch o := o.(type) {
			case *v1alpha1.MultidimPodAutoscaler:
				c.objects[key].DeepCopyInto(o)
			case *appsv1.Deployment:
				o.Namespace, o.Name = key.Namespace, key.Name
				o.Spec.Selector = selector
				o.Spec.Template.Labels = map[string]string{v1alpha1.ManagedLabel: "true"}
				o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400m")}}}}
			}
			return nil
		},
		List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
			if all, ok := l.(*v1alpha1.MultidimPodAutoscalerList); ok {
				for _, o := range c.objects {
					all.Items = append(all.Items, *o)
				}
			}
			return nil
		},
		SubResourceApply: func(
			_ context.Context, _ client.Client, _ string, o runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption,
		) error {
			c.writes[c.second()]++
			name := o.(interface{ GetName() string }).GetName()
			if before, ok := c.last[name]; ok {
				c.longest = max(c.longest, c.now.Sub(before))
			}
			c.last[name] = c.now
			return nil
		},
	}).Build()
}

// A thousand workloads decide every 10 s. Central has just started; their rules
// change their minds by a little at each step, and by much now and then.
func TestAThousandWorkloadsCostAtMostTenWritesASecond(t *testing.T) {
	const objects = 1000
	c := &crowd{
		objects: map[client.ObjectKey]*v1alpha1.MultidimPodAutoscaler{},
		now:     noon,
		writes:  map[int64]int{},
		last:    map[string]time.Time{},
	}
	next := map[client.ObjectKey]time.Time{}
	for i := range objects {
		key := client.ObjectKey{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		mpa := &v1alpha1.MultidimPodAutoscaler{Spec: v1alpha1.MultidimPodAutoscalerSpec{
			Mode: "recommend", TargetRef: v1alpha1.TargetRef{Kind: "Deployment", Name: key.Name}}}
		mpa.Namespace, mpa.Name, mpa.UID = key.Namespace, key.Name, types.UID(key.Name)
		c.objects[key] = mpa
		next[key] = noon.Add(time.Duration(i) * 10 * time.Millisecond)
	}
	decisions := 0
	r := New(Config{
		Client: c.client(), Fleet: fleet.New(time.Minute), Events: events.NewFakeRecorder(100 * objects),
		Step: 10 * time.Second, Now: func() time.Time { return c.now },
		Policies: func(PolicyRequest) (mdp.Policy, string, error) {
			return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
				decisions++
				size := mdp.MilliCPU(200 + decisions%5)
				if decisions%2000 == 0 {
					size = 300
				}
				return mdp.Action{}.WithReservation(size), nil
			}), "fixed/1", nil
		},
	})
	const end = 10 * time.Minute
	for ; c.now.Sub(noon) < end; c.now = c.now.Add(100 * time.Millisecond) {
		for key, at := range next {
			if c.now.Before(at) {
				continue
			}
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if err != nil {
				t.Fatal(err)
			}
			next[key] = c.now.Add(result.RequeueAfter)
		}
	}
	total := 0
	for second, n := range c.writes {
		total += n
		if n > 10 {
			t.Errorf("%d writes in second %d", n, second)
		}
	}
	if len(c.last) != objects || total < 2*objects {
		t.Errorf("%d of %d objects were written, %d times: want each at least once, and twice on average", len(c.last), objects, total)
	}
	if c.longest > 8*time.Minute {
		t.Errorf("an object was not written for %v", c.longest)
	}
	t.Logf("%d decisions, %d writes in %v, %v between two of one object at most", decisions, total, end, c.longest)
}

func TestAFewWorkloadsAreWrittenOnceAMinuteAndAtOnceWhenItMatters(t *testing.T) {
	mpa := &v1alpha1.MultidimPodAutoscaler{}
	mpa.Name = "web"
	budget := newWrites(0)
	budget.count(3)
	var r report
	r.into(mpa)
	written := map[string]int{}
	for now := noon; now.Before(noon.Add(10 * time.Minute)); now = now.Add(10 * time.Second) {
		mpa.Status.SLOPreservation = now.String()
		kind := "routine"
		if now.Equal(noon.Add(5 * time.Minute)) {
			mpa.Status.Replicas.Desired++
			kind = "material"
		}
		if write, _ := r.due(now, mpa, budget); write {
			written[kind]++
			r.wrote(now)
		}
	}
	if written["material"] != 1 || written["routine"] < 8 || written["routine"] > 10 {
		t.Errorf("writes %v in 10 minutes; want the material one at once, and else one a minute", written)
	}
}

func TestWhatIsMaterialWaitsItsTurnAndIsNotForgotten(t *testing.T) {
	budget := newWrites(0)
	one := &v1alpha1.MultidimPodAutoscaler{}
	var waits []time.Duration
	for i := range 20 {
		var r report
		r.into(one)
		mpa := one.DeepCopy()
		mpa.Status.Replicas.Desired = int32(i + 1)
		write, after := r.due(noon, mpa, budget)
		if write != (after == 0) {
			t.Fatalf("write %v, after %v", write, after)
		}
		waits = append(waits, after)
		if later, _ := r.due(noon.Add(after), mpa, budget); !write && !later {
			t.Errorf("its turn came after %v, and it was not written", after)
		}
	}
	if waits[0] != 0 || waits[19] < 2*time.Second || waits[19] > 3*time.Second {
		t.Errorf("waits %v; want the first at once, and the others at %d a second", waits, statusRate)
	}
}
