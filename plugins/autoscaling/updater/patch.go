package updater

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"awarescale.dev/aware/learner/mdp"
)

// patch resizes one pod's container. It carries the resource version of the pod
// that was decided on: when somebody has changed the pod since, the API server
// answers with a conflict, and nothing changes.
func patch(
	ctx context.Context, c client.Client, manager string,
	pod *corev1.Pod, container string, want corev1.ResourceRequirements,
) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": pod.ResourceVersion},
		"spec": map[string]any{"containers": []map[string]any{{
			"name": container,
			"resources": map[string]any{
				"requests": resizable(want.Requests), "limits": resizable(want.Limits),
			},
		}}},
	})
	if err != nil {
		return fmt.Errorf("writing the resize of pod %s: %w", pod.Name, err)
	}
	updated := pod.DeepCopy()
	change := client.RawPatch(types.StrategicMergePatchType, body)
	if err := c.SubResource("resize").Patch(ctx, updated, change, client.FieldOwner(manager)); err != nil {
		return fmt.Errorf("resizing container %s of pod %s/%s to %s: %w", container, pod.Namespace, pod.Name,
			body, err)
	}
	*pod = *updated
	return nil
}

// Resizable is the resources of a container that central sets.
var Resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// resizable keeps the resources that can be resized.
func resizable(l corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range Resizable {
		if q, ok := l[name]; ok {
			out[name] = q
		}
	}
	return out
}

// Equal reports whether CPU and memory are the same.
func Equal(a, b corev1.ResourceRequirements) bool {
	return same(a.Limits, b.Limits) && same(a.Requests, b.Requests)
}

func same(a, b corev1.ResourceList) bool {
	for _, name := range Resizable {
		one := a[name]
		if one.Cmp(b[name]) != 0 {
			return false
		}
	}
	return true
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

// manager is the field manager of what the updater writes.
func (u *Updater) manager() string {
	if u.Manager == "" {
		return Manager
	}
	return u.Manager
}

// remember notes the size of every pod on which no resize is under way. Pods that
// are gone are forgotten.
func (u *Updater) remember() {
	if u.settled == nil {
		u.settled = map[types.UID]corev1.ResourceRequirements{}
	}
	maps.DeleteFunc(u.settled, func(uid types.UID, _ corev1.ResourceRequirements) bool {
		return !slices.ContainsFunc(u.Workload.Pods, func(p corev1.Pod) bool { return p.UID == uid })
	})
	for i := range u.Workload.Pods {
		pod := &u.Workload.Pods[i]
		if now, err := findContainer(&pod.Spec, u.Container); err == nil && settled(pod, now) {
			u.settled[pod.UID] = *now.Resources.DeepCopy()
		}
	}
}

// settled reports whether the kubelet has carried out what a pod's spec says of a
// container: it has seen this spec, waits with nothing, and has allocated the
// requests.
func settled(pod *corev1.Pod, c *corev1.Container) bool {
	if seen := pod.Status.ObservedGeneration; seen != 0 && seen < pod.Generation {
		return false
	}
	for _, one := range pod.Status.Conditions {
		resize := one.Type == corev1.PodResizePending || one.Type == corev1.PodResizeInProgress
		if resize && one.Status == corev1.ConditionTrue {
			return false
		}
	}
	allocated := allocatedTo(pod, c.Name)
	return allocated == nil || same(allocated, c.Resources.Requests)
}

// allocatedTo is the requests that a container's node has allocated; nil when that
// is not known.
func allocatedTo(pod *corev1.Pod, container string) corev1.ResourceList {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container {
			return s.AllocatedResources
		}
	}
	return nil
}

// giveUp sets a pod's spec to the size that was last settled, so that the
// scheduler does not count a resize that was not made. When that size is not
// remembered it follows from the requests that the node has allocated. The limits
// in the pod's status are no source: they are read back from the runtime, and show
// what our own agents wrote.
func (u *Updater) giveUp(ctx context.Context, pod *corev1.Pod) (mdp.Effect, error) {
	now, err := findContainer(&pod.Spec, u.Container)
	if err != nil {
		return mdp.Unchanged, nil // a pod of an older template
	}
	want, remembered := u.settled[pod.UID]
	if !remembered {
		template, err := findContainer(&u.Workload.Template.Spec, u.Container)
		if err != nil {
			return mdp.Failed, fmt.Errorf("template of %s: %w", u.Workload.Key(), err)
		}
		want = sizeOf(allocatedTo(pod, u.Container), now.Resources.Limits, template.Resources)
	}
	if Equal(want, now.Resources) {
		return mdp.Unchanged, nil
	}
	return u.write(ctx, pod, want)
}

// write resizes one pod's container. What the API server refuses for a reason that
// the next step can see is an effect and not an error: the pod is gone, it was
// changed since it was read, or no node is large enough.
func (u *Updater) write(ctx context.Context, pod *corev1.Pod, want corev1.ResourceRequirements) (mdp.Effect, error) {
	err := patch(ctx, u.Client, u.manager(), pod, u.Container, want)
	switch {
	case err == nil:
		u.Resizes++
		return mdp.Pending, nil
	case apierrors.IsNotFound(err):
		return mdp.Unchanged, nil
	case apierrors.IsConflict(err):
		u.Reason = fmt.Sprintf("pod %s was changed by another writer since it was read: the next step reads it again",
			pod.Name)
		return mdp.Refused, nil
	case noRoom(err):
		u.Reason = err.Error()
		return mdp.Infeasible, nil
	}
	return mdp.Failed, err
}
