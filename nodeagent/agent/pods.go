package agent

import (
	"context"
	"errors"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/envelope"
)

// Pod is one pod of this node that its owner opted in. A container that is in no
// Pod is not touched, and is restored if it was.
type Pod struct {
	Namespace   string
	Name        string
	UID         string
	IP          string // empty while it has none
	HostNetwork bool   // its IP is the node's
	QoS         string // Guaranteed, Burstable or BestEffort
	Deleting    bool   // it has a deletion timestamp
	Mirror      bool   // it is the mirror of a static pod
	PodLimits   bool   // its spec has limits of the whole pod, which its containers share
	Containers  []Container
}

// Container is one container of a Pod.
type Container struct {
	Name     string
	ID       string // of the running instance, without the scheme (containerd://); empty while there is none
	Kind     envelope.Kind
	Running  bool
	Started  time.Time
	Requests mdp.Size // of the spec; 0 is none
	Limits   mdp.Size // of the spec; 0 is none
	// ResizePending says that the kubelet may not have allocated and carried out
	// the spec's values: the pod has the condition PodResizePending or
	// PodResizeInProgress, or its status.observedGeneration is behind
	// metadata.generation. Status.resources does not help: the kubelet reads them
	// from the runtime, with our changes in them.
	ResizePending bool
	// ExclusiveCPUs says that the CPU manager gave it cores of its own.
	ExclusiveCPUs bool
	// OOMKilled is when its previous instance was killed for memory; zero when it
	// was not. The count in the cgroup is lost with the cgroup, and without this
	// time an agent would shrink a container that was just killed.
	OOMKilled time.Time
}

// Pods are the pods of this node.
type Pods interface {
	// Snapshot is the pods now. The caller does not change it.
	Snapshot() []Pod
	// Synced reports whether the snapshot is what the API server has: before its first
	// answer nothing is known of any pod.
	Synced() bool
	// Find asks the API server for a container's pod that is not in the snapshot,
	// because its owner opted out. It takes a second at most. The error is [ErrNoPod]
	// when there is none with that UID.
	Find(ctx context.Context, ref api.ContainerRef) (Pod, error)
	// Changed gets a value when the snapshot may have changed. It may stay silent:
	// the agent looks once a second anyway.
	Changed() <-chan struct{}
}

// ErrNoPod says that the API server has no such pod.
var ErrNoPod = errors.New("there is no such pod")

// Fixed are pods that never change, for benchmarks and for running without an
// API server.
type Fixed []Pod

// Snapshot is the pods.
func (f Fixed) Snapshot() []Pod { return f }

// Synced is true.
func (f Fixed) Synced() bool { return true }

// Find finds no other pods.
func (f Fixed) Find(context.Context, api.ContainerRef) (Pod, error) { return Pod{}, ErrNoPod }

// Changed never gets a value.
func (f Fixed) Changed() <-chan struct{} { return nil }
