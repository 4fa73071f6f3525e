package recommender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Nothing remembers which pods are to be restored: the API server has written it
// into each pod that was resized ([updater.Manager]). So what fails is tried again
// by the next step, and what an earlier instance of central left is found.

// restore resizes what was resized to the template's values, but of the pod of the
// name except. What fails is logged: the next step tries it again.
func (p *process) restore(ctx context.Context, w *updater.Workload, except string) {
	n, err := updater.Restore(ctx, p.config.Client, w, updater.Manager, except)
	p.uncounted += int64(n)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Restoring sizes; it is tried again", "workload", w.Key())
	}
}

// sweep restores the pods that were resized and whose workload has no object any
// more. A workload that is gone has no template, and nothing to restore.
func (r *Reconciler) sweep(ctx context.Context) error {
	var objects v1alpha1.MultidimPodAutoscalerList
	if err := r.config.Client.List(ctx, &objects); err != nil {
		return fmt.Errorf("listing MultidimPodAutoscalers: %w", err)
	}
	done := map[string]bool{} // workloads that have an object, or were looked at
	for i := range objects.Items {
		o := &objects.Items[i]
		done[o.Namespace+"/"+o.Spec.TargetRef.Kind+"/"+o.Spec.TargetRef.Name] = true
	}
	var pods corev1.PodList
	managed := client.MatchingLabels{v1alpha1.ManagedLabel: "true"}
	if err := r.config.Client.List(ctx, &pods, managed, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var all error
	for i := range pods.Items {
		if !resized(&pods.Items[i]) {
			continue
		}
		pod := pods.Items[i].DeepCopy()
		kind, name, ok, err := updater.Owner(ctx, r.config.Client, pod)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		key := pod.Namespace + "/" + kind + "/" + name
		if !ok || done[key] {
			continue
		}
		done[key] = true
		w, err := updater.Load(ctx, r.config.Client, pod.Namespace, kind, name)
		if err == nil {
			_, err = updater.Restore(ctx, r.config.Client, w, updater.Manager, "")
		}
		all = errors.Join(all, client.IgnoreNotFound(err))
	}
	return all
}

// resized reports whether central has set the size of a container of a pod last.
func resized(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.Containers {
		if len(updater.Resized(pod, c.Name, updater.Manager)) > 0 {
			return true
		}
	}
	return false
}

// sweeps sweeps now and then, until the context ends.
func (r *Reconciler) sweeps(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "Restoring the sizes of workloads without an object; it is tried again")
		}
	}, max(3*r.config.Step, time.Second))
	return nil
}
