package main

import (
	"context"
	"fmt"
	"sync"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"
)

// reserved is the memory that pods which AWARE does not manage have requested, by node. It
// is all that is kept of these pods. It implements [cache.ReflectorStore].
type reserved struct {
	mu     sync.Mutex
	pods   map[types.UID]request
	byNode map[string]mdp.Bytes
	listed bool // the API server has said at least once which pods there are
}

// request is what one pod has reserved on its node.
type request struct {
	node   string
	memory mdp.Bytes
}

func newReserved() *reserved {
	return &reserved{pods: map[types.UID]request{}, byNode: map[string]mdp.Bytes{}}
}

// watch watches the pods until the context ends: those that are on a node, not managed, and
// not ended.
func (r *reserved) watch(ctx context.Context, client kubernetes.Interface) {
	pods := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		func(o *metav1.ListOptions) {
			o.LabelSelector = v1alpha1.ManagedLabel + "!=true"
			o.FieldSelector = fields.AndSelectors(
				fields.OneTermNotEqualSelector("spec.nodeName", ""),
				fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
				fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
			).String()
		})
	cache.NewReflectorWithOptions(pods, &corev1.Pod{}, r, cache.ReflectorOptions{Name: "unmanaged pods"}).RunWithContext(ctx)
}

// of is the memory that is reserved on a node; ok is false while that is not known.
func (r *reserved) of(node string) (memory mdp.Bytes, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byNode[node], r.listed
}

// Add implements [cache.ReflectorStore], as do Update, Delete, Replace and Resync.
func (r *reserved) Add(o any) error { return r.set(o, true) }

// Update takes in a pod that has changed.
func (r *reserved) Update(o any) error { return r.set(o, true) }

// Delete takes in that a pod has ended, or is managed now.
func (r *reserved) Delete(o any) error { return r.set(o, false) }

// Resync has nothing to do: nothing is kept that the pods must be compared with.
func (r *reserved) Resync() error { return nil }

// Replace takes in all pods that there are.
func (r *reserved) Replace(all []any, _ string) error {
	next := newReserved()
	for _, o := range all {
		if err := next.set(o, true); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods, r.byNode, r.listed = next.pods, next.byNode, true
	return nil
}

// set takes in a pod that is there, or is not.
func (r *reserved) set(o any, there bool) error {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("watching unmanaged pods: a %T", o)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, had := r.pods[p.UID]; had {
		r.byNode[was.node] -= was.memory
		if r.byNode[was.node] == 0 {
			delete(r.byNode, was.node)
		}
		delete(r.pods, p.UID)
	}
	requests := resource.PodRequests(p, resource.PodResourcesOptions{UseStatusResources: true})
	memory := mdp.Bytes(requests.Memory().Value())
	if !there || memory <= 0 {
		return nil
	}
	r.pods[p.UID] = request{p.Spec.NodeName, memory}
	r.byNode[p.Spec.NodeName] += memory
	return nil
}
