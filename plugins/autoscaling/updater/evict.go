package updater

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Evict evicts one pod through the Eviction API, which keeps to its
// PodDisruptionBudgets: an error for which apierrors.IsTooManyRequests holds is their
// refusal. Only the pod of this UID is evicted, and one that is gone already is no error.
func Evict(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	}
	err := c.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction)
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// Settled reports whether the kubelet says that it has carried out what the spec of a
// pod says of a container; false when the pod has no such container.
func Settled(pod *corev1.Pod, container string) bool {
	c, err := findContainer(&pod.Spec, container)
	return err == nil && settled(pod, c)
}
