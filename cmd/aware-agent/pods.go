package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/agent"
	nodeapi "awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/envelope"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// watched is the opted-in pods of this node, as the API server has them. It implements
// [agent.Pods].
type watched struct {
	api     kubernetes.Interface
	lister  listers.PodLister
	synced  cache.InformerSynced
	changed chan struct{}
}

// watch begins to watch the pods of a node.
func watch(ctx context.Context, api kubernetes.Interface, node, selector string) *watched {
	w := &watched{api: api, changed: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactoryWithOptions(
		api,
		0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
			o.LabelSelector = selector
		}),
		informers.WithTransform(func(o any) (any, error) {
			if p, ok := o.(*corev1.Pod); ok {
				p.ManagedFields = nil
			}
			return o, nil
		}),
	)
	informer := factory.Core().V1().Pods()
	touch := func() {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { touch() },
		UpdateFunc: func(any, any) { touch() },
		DeleteFunc: func(any) { touch() },
	}); err != nil {
		klog.FromContext(ctx).Error(err, "Watching pods: changes are seen once a second only")
	}
	w.lister, w.synced = informer.Lister(), informer.Informer().HasSynced
	factory.Start(ctx.Done())
	return w
}

// Synced implements [agent.Pods].
func (w *watched) Synced() bool { return w.synced() }

// findIn is how long asking for one pod may take.
const findIn = time.Second

// Find implements [agent.Pods].
func (w *watched) Find(ctx context.Context, ref nodeapi.ContainerRef) (agent.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, findIn)
	defer cancel()
	p, err := w.api.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && string(p.UID) != ref.PodUID {
		return agent.Pod{}, agent.ErrNoPod
	}
	if err != nil {
		return agent.Pod{}, fmt.Errorf("reading pod %s/%s: %w", ref.Namespace, ref.Pod, err)
	}
	return podOf(p), nil
}

// Changed implements [agent.Pods].
func (w *watched) Changed() <-chan struct{} { return w.changed }

// Snapshot implements [agent.Pods].
func (w *watched) Snapshot() []agent.Pod {
	all, err := w.lister.List(labels.Everything())
	if err != nil {
		return nil // a lister reads memory: it does not fail
	}
	pods := make([]agent.Pod, 0, len(all))
	for _, p := range all {
		if p.Status.Phase == corev1.PodRunning {
			pods = append(pods, podOf(p))
		}
	}
	return pods
}

// podOf converts a pod to the agent's type.
func podOf(p *corev1.Pod) agent.Pod {
	pod := agent.Pod{
		Namespace:   p.Namespace,
		Name:        p.Name,
		UID:         string(p.UID),
		IP:          p.Status.PodIP,
		HostNetwork: p.Spec.HostNetwork,
		QoS:         string(p.Status.QOSClass),
		Deleting:    p.DeletionTimestamp != nil,
		Mirror:      p.Annotations[corev1.MirrorPodAnnotationKey] != "",
		PodLimits:   p.Spec.Resources != nil,
	}
	pending := resizePending(p)
	add := func(c corev1.Container, statuses []corev1.ContainerStatus, kind envelope.Kind) {
		one := agent.Container{
			Name:          c.Name,
			Kind:          kind,
			Requests:      size(c.Resources.Requests),
			Limits:        size(c.Resources.Limits),
			ResizePending: pending,
		}
		for _, s := range statuses {
			if s.Name != c.Name {
				continue
			}
			if _, id, ok := strings.Cut(s.ContainerID, "://"); ok {
				one.ID = id
			}
			if s.State.Running != nil {
				one.Running, one.Started = true, s.State.Running.StartedAt.Time
			}
			if t := s.LastTerminationState.Terminated; t != nil && t.Reason == "OOMKilled" {
				one.OOMKilled = t.FinishedAt.Time
			}
		}
		pod.Containers = append(pod.Containers, one)
	}
	for _, c := range p.Spec.Containers {
		add(c, p.Status.ContainerStatuses, envelope.Regular)
	}
	for _, c := range p.Spec.InitContainers {
		add(c, p.Status.InitContainerStatuses, envelope.Init)
	}
	return pod
}

// resizePending reports whether the kubelet may not have carried out the spec's values.
func resizePending(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) &&
			c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return p.Status.ObservedGeneration != 0 && p.Status.ObservedGeneration < p.Generation
}

func size(l corev1.ResourceList) mdp.Size {
	return mdp.Size{CPU: mdp.MilliCPU(l.Cpu().MilliValue()), Memory: mdp.Bytes(l.Memory().Value())}
}

var _ agent.Pods = (*watched)(nil)
