package updater

import (
	"context"
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// Key names a workload: namespace/kind/name.
func Key(namespace, kind, name string) string { return namespace + "/" + kind + "/" + name }

// Key names the workload.
func (w *Workload) Key() string { return Key(w.Object.GetNamespace(), w.Kind, w.Object.GetName()) }

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

// Given is what the API gives to a container; 0 is no request, and no limit.
type Given struct {
	Reservation, Ceiling mdp.MilliCPU // of CPU
	Memory               mdp.Bytes    // that was decided: see [Memory]
}

// Mean is what the API gives to a container in the mean of the pods that give it any limit.
func (w *Workload) Mean(container string) Given {
	var template corev1.ResourceRequirements
	var mean Given
	pods := 0
	if c, err := findContainer(&w.Template.Spec, container); err == nil {
		template = c.Resources
	}
	for i := range w.Pods {
		c, err := findContainer(&w.Pods[i].Spec, container)
		if err != nil || c.Resources.Limits == nil {
			continue
		}
		mean.Reservation += Reserved(c.Resources)
		mean.Ceiling += Limits(c.Resources).CPU
		mean.Memory += Memory(template, c.Resources)
		pods++
	}
	if pods > 0 {
		mean.Reservation /= mdp.MilliCPU(pods)
		mean.Ceiling /= mdp.MilliCPU(pods)
		mean.Memory /= mdp.Bytes(pods)
	}
	return mean
}

// Running reports whether a pod counts as one of its workload's.
func Running(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning &&
		p.Annotations[corev1.MirrorPodAnnotationKey] == ""
}

// NoSelectorError says that a workload selects nothing, so that its pods are not known.
type NoSelectorError struct{ Workload string }

func (e *NoSelectorError) Error() string {
	return e.Workload + " has an empty selector: its pods cannot be distinguished from others"
}

// Load reads a workload and its pods.
func Load(ctx context.Context, c client.Reader, namespace, kind, name string) (*Workload, error) {
	w, err := Read(ctx, c, namespace, kind, name)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: w.Selector}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s %s/%s: %w", kind, namespace, name, err)
	}
	for _, p := range pods.Items {
		if Running(&p) {
			w.Pods = append(w.Pods, p)
		}
	}
	return w, nil
}

// Read reads a workload without its pods.
func Read(ctx context.Context, c client.Reader, namespace, kind, name string) (*Workload, error) {
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
	return w, nil
}
