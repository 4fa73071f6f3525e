package updater_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// shop is an API server in memory with the workload "web" of one pod. The test is
// the pod's kubelet.
type shop struct {
	t      *testing.T
	client client.Client
}

func open(t *testing.T, template corev1.ResourceRequirements, funcs interceptor.Funcs) shop {
	t.Helper()
	labels := map[string]string{"app": "web"}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Resources: template}}}
	one := int32(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", UID: types.UID("uid"), Labels: labels,
			// With an entry of its maker the API server in memory writes down the managers, as a real one does.
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
				FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{"f:app":{}}}}`)},
			}},
		},
		Spec: *spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name:               "web",
			AllocatedResources: template.Requests.DeepCopy(),
			Resources:          template.DeepCopy(),
		}}},
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &one,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
	if funcs.SubResourcePatch == nil {
		funcs.SubResourcePatch = scales
	}
	c := fake.NewClientBuilder().WithObjects(d, p).WithStatusSubresource(p).WithReturnManagedFields().
		WithInterceptorFuncs(funcs).Build()
	return shop{t, c}
}

// scales is /scale of an API server in memory, which has none: a patch with another
// resource version than the workload's is a conflict.
func scales(
	ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	if sub != "scale" {
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	return c.Patch(ctx, o, client.RawPatch(p.Type(), data))
}

func (s shop) load() *updater.Workload {
	s.t.Helper()
	w, err := updater.Load(s.t.Context(), s.client, "shop", "Deployment", "web")
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// updater is a new one, as after a restart of central.
func (s shop) updater() *updater.Updater {
	return &updater.Updater{
		Client: s.client, Container: "web", Knobs: mdp.Knobs, Patience: time.Minute, Workload: s.load(),
		Bounds: mdp.Bounds{
			Replicas: mdp.Range[int]{Min: 1, Max: 3},
			CPU:      mdp.Range[mdp.MilliCPU]{Min: 50, Max: 4000},
			Memory:   mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 4096 * mdp.MiB},

			Reservation: mdp.Range[mdp.MilliCPU]{Min: 25, Max: 4000},
		},
	}
}

// act lets an updater act on the workload as it is now.
func (s shop) act(u *updater.Updater, a mdp.Action) mdp.Effect {
	s.t.Helper()
	u.Workload = s.load()
	_, effect, err := u.Act(s.t.Context(), noon, a)
	if err != nil {
		s.t.Fatal(err)
	}
	return effect
}

// kubelet changes the pod's status.
func (s shop) kubelet(change func(*corev1.PodStatus)) {
	s.t.Helper()
	p := s.pod()
	change(&p.Status)
	if err := s.client.Status().Update(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
}

func (s shop) pod() *corev1.Pod {
	s.t.Helper()
	var p corev1.Pod
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-1"}, &p); err != nil {
		s.t.Fatal(err)
	}
	return &p
}

// size is the pod's requests and limits: CPU in millicores, memory in MiB.
func (s shop) size() [4]int64 {
	r := s.pod().Spec.Containers[0].Resources
	return [4]int64{r.Requests.Cpu().MilliValue(), r.Limits.Cpu().MilliValue(),
		r.Requests.Memory().Value() >> 20, r.Limits.Memory().Value() >> 20}
}

// infeasible is a kubelet's answer to a resize. Its runtime shows what the node's
// agent wrote, which is less than what is allocated.
func infeasible(st *corev1.PodStatus) {
	st.Conditions = []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
	}}
	written := resources(500, 110, 128, 96)
	st.ContainerStatuses[0].Resources = &written
}

func TestGivingUpGoesBackToTheSizeThatWasSettledLast(t *testing.T) {
	s := open(t, resources(500, 1000, 128, 256), interceptor.Funcs{})
	u := s.updater()
	s.act(u, mdp.Action{}.WithReservation(1500).WithMemory(512*mdp.MiB))
	s.kubelet(func(st *corev1.PodStatus) { // it carries out the first resize
		st.ContainerStatuses[0].AllocatedResources = s.pod().Spec.Containers[0].Resources.Requests
	})
	s.act(u, mdp.Action{}.WithReservation(3000).WithMemory(1024*mdp.MiB))
	if got := s.size(); got != [4]int64{3000, 4000, 512, 1024} {
		t.Fatalf("size %v after the second resize", got)
	}
	s.kubelet(infeasible)
	if effect := s.act(u, mdp.Action{}.WithReservation(3000)); effect != mdp.Infeasible {
		t.Errorf("effect %v", effect)
	}
	if got := s.size(); got != [4]int64{1500, 4000, 256, 512} {
		t.Errorf("size %v, want the first resize's", got)
	}
}

// An updater that remembers nothing knows what is allocated. No limit is below its
// request, whatever the runtime shows.
func TestGivingUpAfterARestartFollowsWhatIsAllocated(t *testing.T) {
	for name, c := range map[string]struct {
		template  corev1.ResourceRequirements
		allocated corev1.ResourceRequirements // its requests count
		want      [4]int64
	}{
		"the template's size":     {resources(500, 1000, 128, 256), resources(500, 0, 128, 0), [4]int64{500, 1000, 128, 256}},
		"a larger one":            {resources(500, 1000, 128, 256), resources(750, 0, 200, 0), [4]int64{750, 4000, 200, 400}},
		"requests like limits":    {resources(500, 500, 128, 128), resources(400, 0, 100, 0), [4]int64{400, 400, 100, 100}},
		"a tiny one stays legal":  {resources(999, 1000, 128, 129), resources(1, 0, 1, 0), [4]int64{1, 4000, 1, 129}},
		"nothing is said of them": {resources(500, 1000, 128, 256), corev1.ResourceRequirements{}, [4]int64{500, 1000, 128, 256}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, c.template, interceptor.Funcs{})
			s.act(s.updater(), mdp.Action{}.WithReservation(3000).WithMemory(1024*mdp.MiB))
			s.kubelet(func(st *corev1.PodStatus) {
				infeasible(st)
				st.ContainerStatuses[0].AllocatedResources = c.allocated.Requests
			})
			s.act(s.updater(), mdp.Action{}.WithReservation(3000))
			if got := s.size(); got != c.want {
				t.Errorf("size %v, want %v", got, c.want)
			}
		})
	}
}

// A size that a node has had no room for, for longer than is waited for it, becomes a replica more: where replicas may be
// set, and within the bounds. Until then nothing is given up.
func TestASizeWithoutRoomBecomesAReplica(t *testing.T) {
	for name, c := range map[string]struct {
		since time.Duration
		knobs mdp.Set
		most  int
		want  int32
	}{
		"after a while":                   {time.Minute + time.Second, mdp.Knobs, 3, 2},
		"a while is not over":             {time.Minute, mdp.Knobs, 3, 1},
		"replicas are somebody else's":    {time.Hour, mdp.Knobs.Without(mdp.SetOf(mdp.Replicas)), 3, 1},
		"there may not be more than one":  {time.Hour, mdp.Knobs, 1, 1},
		"a clock that was set back waits": {-time.Hour, mdp.Knobs, 3, 1},
	} {
		s := open(t, resources(500, 1000, 128, 256), interceptor.Funcs{})
		u := s.updater()
		s.act(u, mdp.Action{}.WithReservation(3000))
		s.kubelet(func(st *corev1.PodStatus) {
			st.Conditions = []corev1.PodCondition{{
				Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
				LastTransitionTime: metav1.NewTime(noon.Add(-c.since)),
			}}
		})
		u.Knobs, u.Bounds.Replicas.Max = c.knobs, c.most
		effect := s.act(u, mdp.Action{}.WithReservation(3000))
		if got := s.load().Replicas; got != c.want || effect == mdp.Applied || effect == mdp.Unchanged {
			t.Errorf("%s: %d replicas, effect %v (%s); want %d", name, got, effect, u.Reason, c.want)
		}
	}
}

// Two updaters read the workload, and the first one acts. The second one decided on
// what is no longer so.
func TestAStaleUpdaterLoses(t *testing.T) {
	s := open(t, resources(500, 1000, 128, 256), interceptor.Funcs{})
	leader, stale := s.updater(), s.updater()
	_, effect, err := leader.Act(t.Context(), noon, mdp.Action{}.WithReservation(1500).WithReplicas(2))
	if err != nil || effect != mdp.Pending {
		t.Fatalf("effect %v, %v", effect, err)
	}
	executed, effect, err := stale.Act(t.Context(), noon, mdp.Action{}.WithReservation(200).WithReplicas(3))
	if err != nil || effect != mdp.Refused || executed.Sets != 0 || !strings.Contains(stale.Reason, "another writer") {
		t.Errorf("executed %v, effect %v, reason %q, %v; want a refusal, and no error", executed, effect, stale.Reason, err)
	}
	if got, w := s.size(), s.load(); got[0] != 1500 || w.Replicas != 2 {
		t.Errorf("size %v and %d replicas: the stale updater won", got, w.Replicas)
	}
	// The next step reads again, and is no longer stale.
	if effect := s.act(stale, mdp.Action{}.WithReservation(800).WithReplicas(3)); effect != mdp.Pending {
		t.Errorf("effect %v of a step that has read again", effect)
	}
}

func TestAStaleUpdaterGivesNothingUp(t *testing.T) {
	s := open(t, resources(500, 1000, 128, 256), interceptor.Funcs{})
	s.act(s.updater(), mdp.Action{}.WithReservation(3000))
	s.kubelet(infeasible)
	stale := s.updater()
	s.kubelet(func(st *corev1.PodStatus) { st.Conditions = nil }) // the node found room
	if _, effect, err := stale.Act(t.Context(), noon, mdp.Action{}.WithReservation(3000)); err != nil || effect != mdp.Refused {
		t.Errorf("effect %v, %v; want a refusal", effect, err)
	}
	if got := s.size(); got[0] != 3000 {
		t.Errorf("size %v: a resize that was made was given up", got)
	}
}

// Replicas go as far as the strictest budget of their pods allows. What others have, or what selects no pod, says nothing; one
// that selects every pod of the namespace does.
func TestReplicasGoAsFarAsTheirDisruptionBudgetsAllow(t *testing.T) {
	pods := func(app string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	type budget struct {
		namespace string
		selector  *metav1.LabelSelector
		allows    int32
	}
	for name, c := range map[string]struct {
		budgets []budget
		want    int // of 5 replicas, where 2 are wanted
	}{
		"none":                {nil, 2},
		"none of three":       {[]budget{{"shop", pods("web"), 0}}, 5},
		"one of three":        {[]budget{{"shop", pods("web"), 1}}, 4},
		"all three":           {[]budget{{"shop", pods("web"), 3}}, 2},
		"more than is wanted": {[]budget{{"shop", pods("web"), 4}}, 2},
		"the strictest, whichever is first": {
			[]budget{{"shop", pods("web"), 2}, {"shop", pods("web"), 1}, {"shop", pods("web"), 3}}, 4,
		},
		"of every pod":         {[]budget{{"shop", &metav1.LabelSelector{}, 1}}, 4},
		"of no pod":            {[]budget{{"shop", nil, 0}}, 2},
		"of other pods":        {[]budget{{"shop", pods("db"), 0}}, 2},
		"of another namespace": {[]budget{{"market", pods("web"), 0}}, 2},
	} {
		s := open(t, resources(500, 1000, 128, 256), interceptor.Funcs{})
		for i, b := range c.budgets {
			if err := s.client.Create(t.Context(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: fmt.Sprint("budget-", i)},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: b.selector},
				Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: b.allows},
			}); err != nil {
				t.Fatal(err)
			}
		}
		u := s.updater()
		u.Bounds.Replicas.Max = 5
		s.act(u, mdp.Action{}.WithReplicas(5))
		u.Workload = s.load()
		executed, effect, err := u.Act(t.Context(), noon, mdp.Action{}.WithReplicas(2))
		refused := c.want == 5
		if err != nil || (effect == mdp.Refused) != refused || executed.Sets.Has(mdp.Replicas) == refused ||
			!refused && executed.Replicas != c.want || int(s.load().Replicas) != c.want {
			t.Errorf("%s: %d replicas, executed %v, effect %v, %v; want %d", name, s.load().Replicas, executed, effect, err, c.want)
		}
		if says := strings.Contains(u.Reason, "PodDisruptionBudget budget-"); says != (c.want > 2) {
			t.Errorf("%s: the reason is %q", name, u.Reason)
		}
	}
}

// The API server sets a request that a template leaves out to the limit. Such a
// pod's request follows its limit.
func TestATemplateWithoutRequestsKeepsTheQoSClass(t *testing.T) {
	template := resources(1000, 1000, 256, 256)
	template.Requests = nil
	got := updater.Resize(template, resources(1000, 1000, 256, 256), mdp.Size{CPU: 1000},
		mdp.Action{}.WithReservation(500).WithMemory(128*mdp.MiB))
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if request, limit := got.Requests[name], got.Limits[name]; request.Cmp(limit) != 0 {
			t.Errorf("%s: request %v, limit %v; want them equal", name, &request, &limit)
		}
	}
}

func TestOnlyWhatWeResizedIsRestored(t *testing.T) {
	s := open(t, resources(500, 1000, 128, 256), interceptor.Funcs{})
	if n, err := updater.Restore(t.Context(), s.client, s.load(), updater.Manager, ""); n != 0 || err != nil {
		t.Errorf("%d containers of a pod that was never resized were restored, %v", n, err)
	}
	s.act(s.updater(), mdp.Action{}.WithReservation(1000))
	p := s.pod()
	p.Spec.Containers[0].Resources = resources(1000, 2000, 300, 400) // its owner gives it memory
	if err := s.client.Update(t.Context(), p, client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
	if n, err := updater.Restore(t.Context(), s.client, s.load(), updater.Manager, ""); n != 1 || err != nil {
		t.Errorf("%d containers restored, %v", n, err)
	}
	if got := s.size(); got != [4]int64{500, 1000, 300, 400} {
		t.Errorf("size %v; want the template's CPU, and the owner's memory", got)
	}
	if n, err := updater.Restore(t.Context(), s.client, s.load(), updater.Manager, ""); n != 0 || err != nil {
		t.Errorf("what is restored was restored again: %d, %v", n, err)
	}
}

func TestARestoreThatFailedIsDoneByTheNextCall(t *testing.T) {
	down := false
	s := open(t, resources(500, 1000, 128, 256), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			if down {
				return errors.New("the API server is away")
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	s.act(s.updater(), mdp.Action{}.WithReservation(2000))
	down = true
	if n, err := updater.Restore(t.Context(), s.client, s.load(), updater.Manager, ""); n != 0 || err == nil {
		t.Errorf("%d restored, %v; want an error", n, err)
	}
	down = false
	n, err := updater.Restore(t.Context(), s.client, s.load(), updater.Manager, "")
	if n != 1 || err != nil || s.size()[1] != 1000 {
		t.Errorf("%d restored, %v, size %v", n, err, s.size())
	}
}

// A restore leaves one pod alone, such as the canary, and a container that the template does not have any more.
func TestARestoreLeavesOnePodAlone(t *testing.T) {
	s := open(t, resources(500, 1000, 128, 256), interceptor.Funcs{})
	s.act(s.updater(), mdp.Action{}.WithReservation(2000))
	renamed := s.load()
	renamed.Template.Spec.Containers[0].Name = "renamed"
	for _, one := range []struct {
		what     string
		of       *updater.Workload
		except   string
		restored int
		request  int64 // after it
	}{
		{"of the pod that is left alone", s.load(), "web-1", 0, 2000},
		{"of another name", renamed, "", 0, 2000},
		{"where another pod is left alone", s.load(), "web-2", 1, 500},
	} {
		n, err := updater.Restore(t.Context(), s.client, one.of, updater.Manager, one.except)
		if n != one.restored || err != nil || s.size()[0] != one.request {
			t.Errorf("%d containers %s were restored, %v, size %v", n, one.what, err, s.size())
		}
	}
}

// A pod belongs to what its controller belongs to. What has no controller, or one that cannot be resized, belongs to nobody
// here, and an API server that does not answer is no answer.
func TestAPodBelongsToItsWorkload(t *testing.T) {
	by := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
	}
	set := func(name string, owners []metav1.OwnerReference) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: owners}}
	}
	away := errors.New("the API server is away")
	c := fake.NewClientBuilder().WithObjects(
		set("web-7d9", by("Deployment", "web")), set("alone", nil), set("rolled", by("Rollout", "web")),
	).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Name == "unreachable" {
				return away
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	for _, one := range []struct {
		owners     []metav1.OwnerReference
		kind, name string
		err        error
	}{
		{by("ReplicaSet", "web-7d9"), "Deployment", "web", nil},
		{by("ReplicaSet", "alone"), "ReplicaSet", "alone", nil},
		{by("ReplicaSet", "rolled"), "ReplicaSet", "rolled", nil},
		{by("StatefulSet", "db"), "StatefulSet", "db", nil},
		{by("ReplicaSet", "gone"), "", "", nil},
		{by("DaemonSet", "logs"), "", "", nil},
		{by("ReplicaSet", "unreachable"), "", "", away},
		{[]metav1.OwnerReference{{Kind: "StatefulSet", Name: "db"}}, "", "", nil}, // an owner that does not control it
		{nil, "", "", nil},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: one.owners}}
		kind, name, ok, err := updater.Owner(t.Context(), c, p)
		if kind != one.kind || name != one.name || ok != (one.kind != "") || !errors.Is(err, one.err) {
			t.Errorf("%v: %s %s %v, %v; want %s %s", one.owners, kind, name, ok, err, one.kind, one.name)
		}
	}
}

func TestACacheKeepsWhoResizedAPod(t *testing.T) {
	s := open(t, resources(500, 1000, 128, 256), interceptor.Funcs{})
	s.act(s.updater(), mdp.Action{}.WithReservation(2000))
	p := s.pod()
	none := &metav1.FieldsV1{Raw: []byte("{}")}
	p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubelet", FieldsV1: none})
	if _, err := updater.KeepManager(p); err != nil {
		t.Fatal(err)
	}
	got := updater.Resized(p, "web", updater.Manager)
	if len(p.ManagedFields) != 1 || len(got) != 1 || got[0] != corev1.ResourceCPU {
		t.Errorf("%d managers are kept, and %v was resized; want ours alone, and CPU", len(p.ManagedFields), got)
	}
}
