// Package updater carries out decisions through the API server: replicas
// through /scale, and sizes through pods/resize. It is the Actuator of one
// container of a workload; the recommender has the Sensor.
//
// An Updater never evicts, deletes or restarts a pod. [Evict] evicts one, through the
// Eviction API: the recommender calls it for a pod in an OOM loop whose owner allows it. An
// Updater refuses with a reason: a resize that would restart the container, a change
// of the QoS class, and a scale-in that a PodDisruptionBudget does not allow. Each write carries the
// resource version of what was decided on: of two writers the one that read
// earlier loses.
package updater

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
	// Manager is the field manager of what it writes; [Manager] when it is empty.
	// What is written under another one is not restored by central.
	Manager string
	// Only, when set, restricts resizes to one pod (mode canary).
	Only string

	Workload *Workload

	decided   mdp.Action // the sizes that were decided last, and not held
	decidedAt time.Time  // when there was a decision last

	settled map[types.UID]corev1.ResourceRequirements // of each pod's container, when no resize was under way last
	full    map[string]time.Time                      // nodes without room for more CPU requests, until then

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
	u.remember()
	waits := u.waiting()
	a = Whole(u.Bounds, a.Only(u.Knobs))
	a, held := u.goOn(now, a)
	wishes, err := u.wishes(a, held)
	if err != nil {
		return fail(err)
	}
	turns := u.turns(wishes)
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
				"pod %s: its node can never have room for the resize: the spec is restored to what was settled",
				pod.Name,
			)
			one, err := u.giveUp(ctx, pod)
			if err != nil {
				return fail(err)
			}
			effect = effect.Worse(mdp.Infeasible).Worse(one)
			continue
		case pending == corev1.PodReasonDeferred && waitsForCPU(pod) && waits[pod.Spec.NodeName] != pod.Name:
			u.Reason = fmt.Sprintf("pod %s: no room on its node, where pod %s waits for it", pod.Name, waits[pod.Spec.NodeName])
			one, err := u.giveUp(ctx, pod)
			if err != nil {
				return fail(err)
			}
			effect = effect.Worse(mdp.Deferred).Worse(one)
			continue
		case pending == corev1.PodReasonDeferred && now.Sub(since) > u.Patience:
			u.Reason = fmt.Sprintf("pod %s: no room on its node for %v: scaling out instead", pod.Name,
				now.Sub(since).Round(time.Second))
			u.fill(now, pod)
			one, err := u.giveUp(ctx, pod)
			if err != nil {
				return fail(err)
			}
			stuck++
			effect = effect.Worse(mdp.Deferred).Worse(one)
			continue
		case pending == corev1.PodReasonDeferred:
			effect = effect.Worse(mdp.Deferred)
		}
		node := pod.Spec.NodeName
		waiter := waits[node]
		full := waiter != "" && waiter != pod.Name || now.Before(u.full[node])
		one, err := u.resize(ctx, pod, wishes[i], full, turns[node] == pod.Name)
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

// forgotten is the time without a decision after which what was decided before is not carried on with.
const forgotten = time.Minute

// goOn is an action with what it holds, and which knobs each pod keeps as they are. A guard that lets nothing shrink for some
// time after a shrink does not mean the pods whose turn is still to come: for them it is the shrink that was decided before. In
// a burst, or while the SLO is violated, it means them, too.
func (u *Updater) goOn(now time.Time, a mdp.Action) (mdp.Action, mdp.Set) {
	if now.Sub(u.decidedAt) > forgotten {
		u.decided = mdp.Action{}
	}
	u.decidedAt = now
	held := u.Workload.held(u.Container, a)
	spaced := a.Clipped&(mdp.ClippedDwell|mdp.ClippedBurst|mdp.ClippedSLO) == mdp.ClippedDwell
	for k := range (a.Sets & mdp.SetOf(mdp.CPUReservation, mdp.MemoryLimit)).Signals() {
		v, _ := a.Knob(k)
		switch before, has := u.decided.Knob(k); {
		case !held.Has(k):
			u.decided = u.decided.WithKnob(k, v)
		case spaced && has && before < v:
			a, held = a.WithKnob(k, before), held.Without(mdp.SetOf(k))
		}
	}
	return a, held
}

// wish is the resources that a pod's container has, and those that an action gives it.
type wish struct{ now, want corev1.ResourceRequirements }

// wishes are those of the workload's pods. A pod of an older template, without the container, stays as it is.
func (u *Updater) wishes(a mdp.Action, held mdp.Set) ([]wish, error) {
	template, err := findContainer(&u.Workload.Template.Spec, u.Container)
	if err != nil {
		return nil, fmt.Errorf("template of %s: %w", u.Workload.Key(), err)
	}
	wishes := make([]wish, len(u.Workload.Pods))
	for i := range u.Workload.Pods {
		has, err := findContainer(&u.Workload.Pods[i].Spec, u.Container)
		if err != nil {
			continue
		}
		worth := Worthwhile(template.Resources, has.Resources, u.Bounds, a, held)
		wishes[i] = wish{now: has.Resources, want: Wanted(*template, *has, u.Bounds, worth)}
	}
	return wishes, nil
}

// turns is the pod of each node whose resources may be freed in this step: the one that frees most CPU.
// A resize keeps the kubelet, the container runtime and the API server busy, and nobody waits for what it frees: three
// pods of one node, resized at once, had a machine of two cores to themselves for half a second, and the workload's requests
// waited for that long.
func (u *Updater) turns(wishes []wish) map[string]string {
	turns, most := map[string]string{}, map[string]int64{}
	for i, w := range wishes {
		pod := &u.Workload.Pods[i]
		if u.Only != "" && pod.Name != u.Only || Equal(w.want, w.now) || !w.frees() {
			continue
		}
		node, freed := pod.Spec.NodeName, w.now.Requests.Cpu().MilliValue()-w.want.Requests.Cpu().MilliValue()
		if _, has := turns[node]; !has || freed > most[node] {
			turns[node], most[node] = pod.Name, freed
		}
	}
	return turns
}

// resize brings one pod's container to what is wished. Where the node is full its CPU
// request does not rise. What only frees waits for the pod's turn.
func (u *Updater) resize(ctx context.Context, pod *corev1.Pod, w wish, full, turn bool) (mdp.Effect, error) {
	if has, is := w.now.Requests[corev1.ResourceCPU]; full && is && w.want.Requests.Cpu().Cmp(has) > 0 {
		w.want.Requests[corev1.ResourceCPU] = has
	}
	switch {
	case Equal(w.want, w.now):
		return mdp.Unchanged, nil
	case !turn && w.frees():
		return mdp.Pending, nil
	}
	return u.write(ctx, pod, w.want)
}

// frees reports whether a resize gives a container no more of anything.
func (w wish) frees() bool {
	for _, name := range Resizable {
		request, limit := w.now.Requests[name], w.now.Limits[name]
		if request.Cmp(w.want.Requests[name]) < 0 || limit.Cmp(w.want.Limits[name]) < 0 {
			return false
		}
	}
	return true
}

// fullFor is how long a node that had no room for a CPU request is not asked for more of them.
const fullFor = 5 * time.Minute

// fill notes that a pod's node has no room for its CPU request.
func (u *Updater) fill(now time.Time, pod *corev1.Pod) {
	if !waitsForCPU(pod) {
		return
	}
	if u.full == nil {
		u.full = map[string]time.Time{}
	}
	maps.DeleteFunc(u.full, func(_ string, until time.Time) bool { return now.After(until) })
	u.full[pod.Spec.NodeName] = now.Add(fullFor)
}

// waiting is the nodes without room for a pod's CPU request, with the pod that waits there: the
// one that began first. One is enough. A kubelet tries each resize that waits whenever anything
// changes, and looks at all its pods each time: a hundred of them took it half a core.
func (u *Updater) waiting() map[string]string {
	on := map[string]string{}
	first := map[string]time.Time{}
	for i := range u.Workload.Pods {
		pod := &u.Workload.Pods[i]
		node := pod.Spec.NodeName
		reason, since := resizePending(pod)
		if reason != corev1.PodReasonDeferred || !waitsForCPU(pod) {
			continue
		}
		if at, has := first[node]; !has || since.Before(at) || since.Equal(at) && pod.Name < on[node] {
			on[node], first[node] = pod.Name, since
		}
	}
	return on
}

// waitsForCPU reports whether a pod requests more CPU than its node has allocated to it.
func waitsForCPU(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.Containers {
		allocated, known := allocatedTo(pod, c.Name)[corev1.ResourceCPU]
		if known && c.Resources.Requests.Cpu().Cmp(allocated) > 0 {
			return true
		}
	}
	return false
}

// noRoom reports whether the API server refused a resize because the whole node
// is smaller. Before 1.37 it left that to the kubelet.
func noRoom(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "didn't have enough allocatable resources")
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
	// The resource version makes a stale decision a conflict.
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": u.Workload.Object.GetResourceVersion()},
		"spec":     scale.Spec,
	})
	if err != nil {
		return have, mdp.Failed, fmt.Errorf("writing the scale: %w", err)
	}
	object := u.Workload.Object.DeepCopyObject().(client.Object)
	change := client.RawPatch(types.MergePatchType, body)
	err = u.Client.SubResource("scale").Patch(ctx, object, change, client.WithSubResourceBody(scale),
		client.FieldOwner(u.manager()))
	if apierrors.IsConflict(err) {
		u.Reason = u.Workload.Key() + " was changed by another writer since it was read: the next step reads it again"
		return have, mdp.Refused, nil
	}
	if err != nil {
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
		// An empty selector is every pod of the namespace, and none at all is no pod (policy/v1). One that nobody can read selects
		// nothing for the API server either.
		if err != nil || !selector.Matches(labels.Set(u.Workload.Template.Labels)) {
			continue
		}
		if n := int(b.Status.DisruptionsAllowed); allowed < 0 || n < allowed {
			allowed, by = n, b.Name
		}
	}
	return allowed, by, nil
}
