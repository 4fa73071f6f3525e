package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// ownerIn is how long a pod's ReplicaSet may be missing in the cache, and ownerEvery how
	// often it is looked for: the first pods of a ReplicaSet come right after it.
	ownerIn    = 250 * time.Millisecond
	ownerEvery = 25 * time.Millisecond
	// minAge is how old a decision may be in any case, and countEvery how often objects are
	// counted: many objects make each one's status older.
	minAge     = 10 * time.Minute
	countEvery = time.Minute
)

// Objects are the kinds of objects that a Source reads. Its cache has them filled before.
var Objects = []client.Object{
	&v1alpha1.MultidimPodAutoscaler{}, &appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.ReplicaSet{},
}

// Source reads facts from a cache. It is safe for concurrent use.
type Source struct {
	Reader      client.Reader // of a cache
	Now         func() time.Time
	StatusEvery time.Duration // the recommender's

	mu      sync.Mutex
	maxAge  time.Duration
	counted time.Time
}

// Facts finds out what is known of a new pod's workload.
func (s *Source) Facts(ctx context.Context, pod *corev1.Pod) (Facts, error) {
	f := Facts{Now: s.Now()}
	kind, name, ok, err := s.owner(ctx, pod)
	if err != nil || !ok {
		return f, err
	}
	f.Workload, err = updater.Read(ctx, s.Reader, pod.Namespace, kind, name)
	var none *updater.NoSelectorError
	if apierrors.IsNotFound(err) || errors.As(err, &none) {
		f.Workload = nil
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if f.Object, err = s.object(ctx, pod.Namespace, kind, name); err != nil {
		return f, err
	}
	f.MaxAge, err = s.age(ctx, f.Now)
	return f, err
}

// owner finds the workload that a pod belongs to. It waits a moment for a ReplicaSet that
// the cache does not have yet.
func (s *Source) owner(ctx context.Context, pod *corev1.Pod) (kind, name string, ok bool, err error) {
	if of := metav1.GetControllerOf(pod); of == nil || of.Kind != "ReplicaSet" {
		return updater.Owner(ctx, s.Reader, pod)
	}
	for waited := time.Duration(0); waited < ownerIn; waited += ownerEvery {
		if kind, name, ok, err = updater.Owner(ctx, s.Reader, pod); ok || err != nil {
			return kind, name, ok, err
		}
		select {
		case <-ctx.Done():
			return "", "", false, ctx.Err()
		case <-time.After(ownerEvery):
		}
	}
	return "", "", false, nil
}

// object finds the object that decides on a workload. Of several it is the one that central
// is content with: the others say that the workload is taken.
func (s *Source) object(ctx context.Context, namespace, kind, name string) (*v1alpha1.MultidimPodAutoscaler, error) {
	var all v1alpha1.MultidimPodAutoscalerList
	if err := s.Reader.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the MultidimPodAutoscalers of namespace %s: %w", namespace, err)
	}
	var found *v1alpha1.MultidimPodAutoscaler
	for i := range all.Items {
		one := &all.Items[i]
		if one.Spec.TargetRef.Kind != kind || one.Spec.TargetRef.Name != name {
			continue
		}
		if found == nil || meta.IsStatusConditionTrue(one.Status.Conditions, v1alpha1.Ready) {
			found = one
		}
	}
	return found, nil
}

// age is how old a decision may be that counts.
func (s *Source) age(ctx context.Context, now time.Time) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.counted.IsZero() && now.Sub(s.counted) < countEvery {
		return s.maxAge, nil
	}
	var all v1alpha1.MultidimPodAutoscalerList
	if err := s.Reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("counting the MultidimPodAutoscalers: %w", err)
	}
	s.maxAge = max(minAge, recommender.MaxStatusAge(s.StatusEvery, len(all.Items)))
	s.counted = now
	return s.maxAge, nil
}
