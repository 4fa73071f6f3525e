package main

import (
	"context"
	"slices"
	"sync/atomic"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/fleet"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// placement is what the autoscaler's cache says of nodes and opted-in pods, and what other
// pods have reserved. It says nothing before the cache is filled. It implements
// [fleet.Cluster].
type placement struct {
	cache    atomic.Pointer[client.Reader]
	reserved *reserved
}

var _ fleet.Cluster = (*placement)(nil)

// from sets the cache.
func (p *placement) from(r client.Reader) { p.cache.Store(&r) }

// read gets an object from the cache, which does not wait.
func (p *placement) read(name types.NamespacedName, into client.Object) bool {
	r := p.cache.Load()
	return r != nil && (*r).Get(context.Background(), name, into) == nil
}

// Runs implements [fleet.Cluster].
func (p *placement) Runs(node string, c api.ContainerRef) bool {
	var pod corev1.Pod
	if !p.read(types.NamespacedName{Namespace: c.Namespace, Name: c.Pod}, &pod) {
		return false
	}
	named := func(one corev1.Container) bool { return one.Name == c.Container }
	return string(pod.UID) == c.PodUID && pod.Spec.NodeName == node &&
		(slices.ContainsFunc(pod.Spec.Containers, named) || slices.ContainsFunc(pod.Spec.InitContainers, named))
}

// Capacity implements [fleet.Cluster]. It is the capacity and not what is allocatable,
// because pods may use what the system leaves unused.
func (p *placement) Capacity(node string) (mdp.Size, bool) {
	var n corev1.Node
	if !p.read(types.NamespacedName{Name: node}, &n) {
		return mdp.Size{}, false
	}
	return mdp.Size{
		CPU:    mdp.MilliCPU(n.Status.Capacity.Cpu().MilliValue()),
		Memory: mdp.Bytes(n.Status.Capacity.Memory().Value()),
	}, true
}

// Room implements [fleet.Cluster]. CPU is shared, so all of it is room. Memory is not.
func (p *placement) Room(node string) (mdp.Size, bool) {
	var n corev1.Node
	others, known := p.reserved.of(node)
	if !known || !p.read(types.NamespacedName{Name: node}, &n) {
		return mdp.Size{}, false
	}
	return mdp.Size{
		CPU:    mdp.MilliCPU(n.Status.Allocatable.Cpu().MilliValue()),
		Memory: max(0, mdp.Bytes(n.Status.Allocatable.Memory().Value())-others),
	}, true
}

// onlyCapacity keeps of a node what is read of it. A node lists its images, which
// take more memory than all the rest.
func onlyCapacity(object any) (any, error) {
	if n, ok := object.(*corev1.Node); ok {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion},
			Status:     corev1.NodeStatus{Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable},
		}, nil
	}
	return object, nil
}
