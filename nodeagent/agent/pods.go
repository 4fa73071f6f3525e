package agent

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/envelope"
)

// Pod is one pod of this node that its owner opted in. Who is not in the snapshot is not touched, or put back.
type Pod struct {
	Namespace, Name, UID string
	IP                   string // empty while it has none
	QoS                  string // Guaranteed, Burstable or BestEffort
	Deleting             bool   // it has a deletion timestamp
	Mirror               bool   // it stands for a static pod
	Containers           []Container
}

// Container is one container of a Pod.
type Container struct {
	Name    string
	ID      string // of the running instance, without the scheme (containerd://); empty while there is none
	Kind    envelope.Kind
	Running bool
	Started time.Time
	// Requests and Limits are the spec's; 0 is none.
	Requests, Limits mdp.Size
	// ResizePending says that the spec's values are perhaps not those that the kubelet has allocated and carried out:
	// the pod has the condition PodResizePending or PodResizeInProgress, or its status.observedGeneration is behind
	// metadata.generation. Status.resources will not do: the kubelet reads them back from the runtime, our changes and all.
	ResizePending bool
	// ExclusiveCPUs says that the CPU manager gave it cores of its own.
	ExclusiveCPUs bool
	// OOMKilled is when its instance before this one was killed for memory; zero when it was not. The count in the
	// cgroup goes with the cgroup, and without this an agent would shrink what has just been killed.
	OOMKilled time.Time
}

// Pods are the pods of this node.
type Pods interface {
	// Snapshot is the pods now; the caller does not change it.
	Snapshot() []Pod
	// Changed gets something when the snapshot may have changed. Nothing is lost if it never does: the agent looks
	// once a second anyway.
	Changed() <-chan struct{}
}

// Fixed are pods that never change, for benchmarks and for running without an API server.
type Fixed []Pod

// Snapshot is the pods.
func (f Fixed) Snapshot() []Pod { return f }

// Changed never gets anything.
func (f Fixed) Changed() <-chan struct{} { return nil }
