// Package updater carries out decisions through the API server: replicas
// through /scale, and sizes through pods/resize. It is the Actuator of one
// container of a workload; the recommender has the Sensor.
//
// It never evicts, deletes or restarts a pod. It refuses with a reason: a
// resize that would restart the container, a change of the QoS class, and a
// scale-in that a PodDisruptionBudget does not allow.
package updater

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Workload is a workload at one time, as the API server has it.
type Workload struct {
	Object   client.Object // a Deployment, StatefulSet or ReplicaSet
	Kind     string
	Template corev1.PodTemplateSpec
	Selector labels.Selector
	Replicas int32        // desired by its spec
	Pods     []corev1.Pod // the pods that run and are not being deleted
}

// Key names the workload: namespace/kind/name.
func (w *Workload) Key() string {
	return w.Object.GetNamespace() + "/" + w.Kind + "/" + w.Object.GetName()
}

// Ready is how many pods are ready.
func (w *Workload) Ready() int {
	n := 0
	for i := range w.Pods {
		if podReady(&w.Pods[i]) {
			n++
		}
	}
	return n
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// NoSelectorError says that a workload selects nothing, so that its pods are not known.
type NoSelectorError struct{ Workload string }

func (e *NoSelectorError) Error() string {
	return e.Workload + " has an empty selector: its pods cannot be distinguished from others"
}

// Load reads a workload and its pods.
func Load(ctx context.Context, c client.Client, namespace, kind, name string) (*Workload, error) {
	w := &Workload{Kind: kind}
	var selector *metav1.LabelSelector
	var replicas *int32
	key := client.ObjectKey{Namespace: namespace, Name: name}
	switch kind {
	case "Deployment":
		var d appsv1.Deployment
		if err := c.Get(ctx, key, &d); err != nil {
			return nil, fmt.Errorf("reading target %s %s: %w", kind, key, err)
		}
		w.Object = &d
		w.Template = d.Spec.Template
		selector = d.Spec.Selector
		replicas = d.Spec.Replicas
	case "StatefulSet":
		var s appsv1.StatefulSet
		if err := c.Get(ctx, key, &s); err != nil {
			return nil, fmt.Errorf("reading target %s %s: %w", kind, key, err)
		}
		w.Object = &s
		w.Template = s.Spec.Template
		selector = s.Spec.Selector
		replicas = s.Spec.Replicas
	case "ReplicaSet":
		var r appsv1.ReplicaSet
		if err := c.Get(ctx, key, &r); err != nil {
			return nil, fmt.Errorf("reading target %s %s: %w", kind, key, err)
		}
		w.Object = &r
		w.Template = r.Spec.Template
		selector = r.Spec.Selector
		replicas = r.Spec.Replicas
	default:
		return nil, fmt.Errorf("target kind %q: it must be Deployment, StatefulSet or ReplicaSet", kind)
	}
	var err error
	if w.Selector, err = metav1.LabelSelectorAsSelector(selector); err != nil {
		return nil, fmt.Errorf("selector of %s %s: %w", kind, key, err)
	}
	if selector == nil || w.Selector.Empty() {
		return nil, &NoSelectorError{Workload: kind + " " + key.String()}
	}
	w.Replicas = 1
	if replicas != nil {
		w.Replicas = *replicas
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: w.Selector}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s %s: %w", kind, key, err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning &&
			p.Annotations[corev1.MirrorPodAnnotationKey] == "" {
			w.Pods = append(w.Pods, p)
		}
	}
	return w, nil
}

// Updater acts on one container of a workload, and on the workload's replicas.
// Before each step the caller sets Workload to what was just loaded.
type Updater struct {
	Client    client.Client
	Container string
	Bounds    mdp.Bounds
	Knobs     mdp.Set // what it may set
	// Patience is how long a resize may stay deferred before the workload is
	// scaled out instead.
	Patience time.Duration
	// Only, when set, restricts resizes to one pod (mode canary).
	Only string

	Workload *Workload

	Resizes int64  // patches of pods/resize that the API server accepted
	Reason  string // why the last Act did what it did, for people
}

// Act implements [mdp.Actuator]: sizes first, then replicas. Its Effect is the
// worst one of its parts. executed has the limits when at least one pod got
// them, and the replicas that were set.
func (u *Updater) Act(ctx context.Context, now time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	u.Reason = ""
	fail := func(err error) (mdp.Action, mdp.Effect, error) { return mdp.Action{}, mdp.Failed, err }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if err := a.Check(); err != nil {
		return fail(err)
	}
	a = u.Bounds.Clip(a.Only(u.Knobs))
	effect := mdp.Unchanged
	resized, stuck := 0, 0
	for i := range u.Workload.Pods {
		pod := &u.Workload.Pods[i]
		if u.Only != "" && pod.Name != u.Only {
			continue
		}
		switch pending, since := resizePending(pod); {
		case pending == corev1.PodReasonInfeasible:
			u.Reason = fmt.Sprintf(
				"pod %s: its node can never have room for the resize: the spec is restored to what is allocated",
				pod.Name,
			)
			if err := u.giveUp(ctx, pod); err != nil {
				return fail(err)
			}
			effect = effect.Worse(mdp.Infeasible)
			continue
		case pending == corev1.PodReasonDeferred && now.Sub(since) > u.Patience:
			u.Reason = fmt.Sprintf("pod %s: no room on its node for %v: scaling out instead", pod.Name,
				now.Sub(since).Round(time.Second))
			if err := u.giveUp(ctx, pod); err != nil {
				return fail(err)
			}
			stuck++
			effect = effect.Worse(mdp.Deferred)
			continue
		case pending == corev1.PodReasonDeferred:
			effect = effect.Worse(mdp.Deferred)
		}
		one, err := u.resize(ctx, pod, a)
		if err != nil {
			return fail(err)
		}
		if one == mdp.Pending || one == mdp.Unchanged {
			resized++
		}
		effect = effect.Worse(one)
	}
	executed := a
	executed.Clipped = 0
	if resized == 0 && len(u.Workload.Pods) > 0 {
		executed = executed.Only(mdp.SetOf(mdp.Replicas))
	}
	// FIRM: an action that oversubscribes a node becomes a scale-out.
	if stuck > 0 && u.Knobs.Has(mdp.Replicas) {
		a = u.Bounds.Clip(a.WithReplicas(max(a.Replicas, int(u.Workload.Replicas)+1)))
	}
	if a.Sets.Has(mdp.Replicas) {
		set, one, err := u.scale(ctx, a.Replicas)
		if err != nil {
			return fail(err)
		}
		executed = executed.WithReplicas(set)
		if one == mdp.Refused {
			executed = executed.Without(mdp.SetOf(mdp.Replicas))
		}
		effect = effect.Worse(one)
	}
	return executed, effect, nil
}

// resizePending is the reason why the kubelet has not begun a pod's resize, and
// since when; empty when none is pending.
func resizePending(pod *corev1.Pod) (reason string, since time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			return c.Reason, c.LastTransitionTime.Time
		}
	}
	return "", time.Time{}
}

// giveUp sets a pod's spec to what its node has allocated, so that the
// scheduler does not count a resize that was not made.
func (u *Updater) giveUp(ctx context.Context, pod *corev1.Pod) error {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != u.Container || s.Resources == nil {
			continue
		}
		return u.patch(ctx, pod,
			corev1.ResourceRequirements{Requests: s.AllocatedResources, Limits: s.Resources.Limits})
	}
	return nil
}

// resize brings one pod's container to the action's limits.
func (u *Updater) resize(ctx context.Context, pod *corev1.Pod, a mdp.Action) (mdp.Effect, error) {
	template, err := findContainer(&u.Workload.Template.Spec, u.Container)
	if err != nil {
		return mdp.Failed, fmt.Errorf("template of %s: %w", u.Workload.Key(), err)
	}
	now, err := findContainer(&pod.Spec, u.Container)
	if err != nil {
		return mdp.Unchanged, nil // a pod of an older template
	}
	a.Sets &= Knobs(*now) | mdp.SetOf(mdp.Replicas)
	if !a.Sets.Has(mdp.CPULimit) && !a.Sets.Has(mdp.MemoryLimit) {
		return mdp.Unchanged, nil
	}
	want := Resize(template.Resources, now.Resources, a)
	if equal(want, now.Resources) {
		return mdp.Unchanged, nil
	}
	if err := u.patch(ctx, pod, want); err != nil {
		if apierrors.IsNotFound(err) {
			return mdp.Unchanged, nil // the pod is gone
		}
		if noRoom(err) {
			u.Reason = err.Error()
			return mdp.Infeasible, nil
		}
		return mdp.Failed, err
	}
	u.Resizes++
	return mdp.Pending, nil
}

// noRoom reports whether the API server refused a resize because the whole node
// is smaller. Before 1.37 it left that to the kubelet.
func noRoom(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "didn't have enough allocatable resources")
}

// equal reports whether CPU and memory are the same.
func equal(a, b corev1.ResourceRequirements) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit := a.Limits[name]
		request := a.Requests[name]
		if limit.Cmp(b.Limits[name]) != 0 || request.Cmp(b.Requests[name]) != 0 {
			return false
		}
	}
	return true
}

// patch resizes one pod's container.
func (u *Updater) patch(ctx context.Context, pod *corev1.Pod, want corev1.ResourceRequirements) error {
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []map[string]any{{
		"name": u.Container,
		"resources": map[string]any{
			"requests": resizable(want.Requests), "limits": resizable(want.Limits),
		},
	}}}})
	if err != nil {
		return fmt.Errorf("writing the resize of pod %s: %w", pod.Name, err)
	}
	updated := pod.DeepCopy()
	if err := u.Client.SubResource("resize").Patch(ctx, updated, client.RawPatch(types.StrategicMergePatchType, body)); err != nil {
		return fmt.Errorf("resizing container %s of pod %s/%s to %s: %w", u.Container, pod.Namespace, pod.Name,
			body, err)
	}
	*pod = *updated
	return nil
}

// resizable keeps the resources that can be resized.
func resizable(l corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, ok := l[name]; ok {
			out[name] = q
		}
	}
	return out
}

// scale sets the number of replicas, and returns the number that it set.
// Scaling in goes only as far as the workload's PodDisruptionBudgets allow.
// They limit evictions only, but their owner wants to keep pods.
func (u *Updater) scale(ctx context.Context, want int) (set int, effect mdp.Effect, err error) {
	have := int(u.Workload.Replicas)
	if want == have {
		return have, mdp.Unchanged, nil
	}
	if want < have {
		allowed, by, err := u.disruptions(ctx)
		if err != nil {
			return have, mdp.Failed, err
		}
		if allowed >= 0 && have-want > allowed {
			want = have - allowed
			u.Reason = fmt.Sprintf("PodDisruptionBudget %s allows %d disruptions", by, allowed)
			if want == have {
				return have, mdp.Refused, nil
			}
		}
	}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: int32(want)}}
	body, err := json.Marshal(map[string]any{"spec": scale.Spec})
	if err != nil {
		return have, mdp.Failed, fmt.Errorf("writing the scale: %w", err)
	}
	object := u.Workload.Object.DeepCopyObject().(client.Object)
	patch := client.RawPatch(types.MergePatchType, body)
	if err := u.Client.SubResource("scale").Patch(ctx, object, patch, client.WithSubResourceBody(scale)); err != nil {
		return have, mdp.Failed, fmt.Errorf("scaling %s from %d to %d: %w", u.Workload.Key(), have, want, err)
	}
	u.Workload.Replicas = int32(want)
	return want, mdp.Pending, nil
}

// disruptions is the smallest number of disruptions that a PodDisruptionBudget of the
// workload allows now, and its name; -1 when there is none.
func (u *Updater) disruptions(ctx context.Context) (allowed int, by string, err error) {
	var budgets policyv1.PodDisruptionBudgetList
	if err := u.Client.List(ctx, &budgets, client.InNamespace(u.Workload.Object.GetNamespace())); err != nil {
		return 0, "", fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	allowed = -1
	for _, b := range budgets.Items {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(u.Workload.Template.Labels)) {
			continue
		}
		if n := int(b.Status.DisruptionsAllowed); allowed < 0 || n < allowed {
			allowed, by = n, b.Name
		}
	}
	return allowed, by, nil
}

// Restore resizes every pod's container to its template's resources.
func (u *Updater) Restore(ctx context.Context) error {
	template, err := findContainer(&u.Workload.Template.Spec, u.Container)
	if err != nil {
		return fmt.Errorf("template of %s: %w", u.Workload.Key(), err)
	}
	for i := range u.Workload.Pods {
		pod := &u.Workload.Pods[i]
		now, err := findContainer(&pod.Spec, u.Container)
		if err != nil || equal(template.Resources, now.Resources) || (u.Only != "" && pod.Name != u.Only) {
			continue
		}
		if err := u.patch(ctx, pod, template.Resources); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
