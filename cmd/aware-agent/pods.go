package main

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/agent"
	nodeapi "awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/envelope"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// watched is the opted-in pods of this node, as the API server has them. It implements
// [agent.Pods]. A pod is converted when the API server has sent it, and nothing else of it is
// kept.
type watched struct {
	server  server
	changed chan struct{}

	mu     sync.Mutex
	pods   map[types.UID]agent.Pod // that run
	all    []agent.Pod             // of the map; nil after a change
	listed bool                    // the API server has said at least once which pods there are
}

// watch begins to watch the pods of a node.
func watch(ctx context.Context, s server, node, selector string) *watched {
	w := newWatched(s)
	r := cache.NewReflectorWithOptions(s.pods(node, selector), &corev1.Pod{}, w, cache.ReflectorOptions{Name: "pods"})
	go r.RunWithContext(ctx)
	return w
}

func newWatched(s server) *watched {
	return &watched{server: s, changed: make(chan struct{}, 1), pods: map[types.UID]agent.Pod{}}
}

// Add, Update, Delete, Replace and Resync implement [cache.ReflectorStore]: they are what the
// API server says.
func (w *watched) Add(o any) error { return w.set(o, true) }

func (w *watched) Update(o any) error { return w.set(o, true) }

func (w *watched) Delete(o any) error { return w.set(o, false) }

// set takes in a pod that is there, or is not.
func (w *watched) set(o any, there bool) error {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("watching pods: a %T", o)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was, had := w.pods[p.UID]
	if !there || p.Status.Phase != corev1.PodRunning {
		delete(w.pods, p.UID)
		if had {
			w.touch()
		}
		return nil
	}
	is := podOf(p)
	w.pods[p.UID] = is
	if !had || !reflect.DeepEqual(is, was) { // most news of a pod are of its conditions and probes
		w.touch()
	}
	return nil
}

// touch notes a change. Whoever looks at [watched.Changed] looks at all pods then.
func (w *watched) touch() {
	w.all = nil
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Replace takes in all pods that there are.
func (w *watched) Replace(all []any, _ string) error {
	pods := make(map[types.UID]agent.Pod, len(all))
	for _, o := range all {
		p, ok := o.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("listing pods: a %T", o)
		}
		if p.Status.Phase == corev1.PodRunning {
			pods[p.UID] = podOf(p)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods, w.listed = pods, true
	w.touch()
	return nil
}

// Resync has nothing to do: nothing is kept that the pods must be compared with.
func (w *watched) Resync() error { return nil }

// Synced implements [agent.Pods].
func (w *watched) Synced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed
}

// findIn is how long asking for one pod may take.
const findIn = time.Second

// Find implements [agent.Pods].
func (w *watched) Find(ctx context.Context, ref nodeapi.ContainerRef) (agent.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, findIn)
	defer cancel()
	p, err := w.server.pod(ctx, ref.Namespace, ref.Pod)
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
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = slices.AppendSeq(make([]agent.Pod, 0, len(w.pods)), maps.Values(w.pods))
	}
	return w.all
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
