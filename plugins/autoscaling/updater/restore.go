package updater

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Manager is the field manager of what central writes through the API server. A pod
// whose resources it owns is one that was resized and is to be restored: the API
// server writes that down with the resize itself, and takes it back when another
// writer sets the field.
const Manager = "aware-autoscaler"

// KeepManager is a transform for a cache of pods: of their managed fields it keeps
// only what says who resized them.
func KeepManager(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	var kept []metav1.ManagedFieldsEntry
	for _, one := range pod.ManagedFields {
		if one.Manager == Manager {
			kept = append(kept, one)
		}
	}
	pod.ManagedFields = kept
	return pod, nil
}

// Resized is the resources of a pod's container that this manager set last.
func Resized(pod *corev1.Pod, container, manager string) []corev1.ResourceName {
	type lists struct {
		Limits   map[string]any `json:"f:limits"`
		Requests map[string]any `json:"f:requests"`
	}
	var owned struct {
		Spec struct {
			Containers map[string]struct {
				Resources lists `json:"f:resources"`
			} `json:"f:containers"`
		} `json:"f:spec"`
	}
	var names []corev1.ResourceName
	for _, one := range pod.ManagedFields {
		if one.Manager != manager || one.FieldsV1 == nil {
			continue
		}
		owned.Spec.Containers = nil
		if err := json.Unmarshal(one.FieldsV1.GetRawBytes(), &owned); err != nil {
			continue // of another version of the format: it is not known to be ours
		}
		of := owned.Spec.Containers[containerKey(container)].Resources
		for _, name := range Resizable {
			_, limit := of.Limits["f:"+string(name)]
			_, request := of.Requests["f:"+string(name)]
			if (limit || request) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Mark is the entry in the managed fields of a new pod that was given other resources than
// its template's: those of its containers by name. [Resized] reads it as it reads what the
// API server writes down of a resize, and the API server takes it back in the same way.
func Mark(now time.Time, set map[string][]corev1.ResourceName) (metav1.ManagedFieldsEntry, error) {
	containers := map[string]any{}
	for container, names := range set {
		fields := map[string]any{}
		for _, name := range names {
			fields["f:"+string(name)] = struct{}{}
		}
		containers[containerKey(container)] = map[string]any{
			"f:resources": map[string]any{"f:limits": fields, "f:requests": fields},
		}
	}
	owned, err := json.Marshal(map[string]any{"f:spec": map[string]any{"f:containers": containers}})
	if err != nil {
		return metav1.ManagedFieldsEntry{}, fmt.Errorf("writing down the resources of a new pod: %w", err)
	}
	at := metav1.NewTime(now)
	return metav1.ManagedFieldsEntry{
		Manager:     Manager,
		Operation:   metav1.ManagedFieldsOperationUpdate,
		APIVersion:  "v1",
		Time:        &at,
		FieldsType:  "FieldsV1",
		FieldsV1:    &metav1.FieldsV1{Raw: owned},
		Subresource: "resize",
	}, nil
}

// containerKey is a container in managed fields.
func containerKey(name string) string { return fmt.Sprintf("k:{%q:%q}", "name", name) }

// Restore resizes what a manager resized of a workload's pods to the template's
// resources, but of the pod of the name except, which is left alone. It tries every pod, and
// returns what could not be done: the next call tries that again. restored is
// how many containers were written.
func Restore(ctx context.Context, c client.Client, w *Workload, manager, except string) (restored int, err error) {
	for i := range w.Pods {
		pod := &w.Pods[i]
		if pod.Name == except {
			continue
		}
		for _, t := range w.Template.Spec.Containers {
			now, missing := findContainer(&pod.Spec, t.Name)
			if missing != nil {
				continue // a pod of an older template
			}
			want := restoredTo(now.Resources, withRequests(t.Resources), Resized(pod, t.Name, manager))
			if Equal(want, now.Resources) {
				continue
			}
			switch failed := patch(ctx, c, manager, pod, t.Name, want); {
			case failed == nil:
				restored++
			case !apierrors.IsNotFound(failed):
				err = errors.Join(err, failed)
			}
		}
	}
	return restored, err
}

// restoredTo is a container's resources with the template's of those names. A
// resource that the template does not have cannot be removed from a pod.
func restoredTo(now, template corev1.ResourceRequirements, names []corev1.ResourceName) corev1.ResourceRequirements {
	out := *now.DeepCopy()
	for _, name := range names {
		if q, ok := template.Limits[name]; ok && out.Limits != nil {
			out.Limits[name] = q
		}
		if q, ok := template.Requests[name]; ok && out.Requests != nil {
			out.Requests[name] = q
		}
	}
	return out
}

// Owner is the kind and the name of the workload that a pod belongs to; ok is false
// when it is none that can be resized.
func Owner(ctx context.Context, reader client.Reader, pod *corev1.Pod) (kind, name string, ok bool, err error) {
	of := metav1.GetControllerOf(pod)
	switch {
	case of == nil:
		return "", "", false, nil
	case of.Kind == "StatefulSet":
		return of.Kind, of.Name, true, nil
	case of.Kind != "ReplicaSet":
		return "", "", false, nil
	}
	var set appsv1.ReplicaSet
	key := client.ObjectKey{Namespace: pod.Namespace, Name: of.Name}
	if err := reader.Get(ctx, key, &set); err != nil {
		if apierrors.IsNotFound(err) {
			return "", "", false, nil
		}
		return "", "", false, fmt.Errorf("reading ReplicaSet %s of pod %s: %w", key, pod.Name, err)
	}
	if above := metav1.GetControllerOf(&set); above != nil && above.Kind == "Deployment" {
		return above.Kind, above.Name, true, nil
	}
	return of.Kind, of.Name, true, nil
}
