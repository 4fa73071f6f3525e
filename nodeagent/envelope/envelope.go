// Package envelope says what of a container may be moved, and how far. It
// follows from the container's API values and from central's grant. It is pure.
//
// The invariant is floor <= what is written <= the smallest of the live API limit, a
// value that somebody else has set since, and the pod's room. The
// request is the reservation that the scheduler and quotas count: it is never
// touched. The allocated limit is the ceiling, because the pod-level cgroup,
// which only the kubelet writes, is made from it. On cgroup v1 a quota above
// the parent's is EINVAL; on v2 it has no effect. More needs pods/resize, which
// is central's.
package envelope

import (
	"strings"

	"awarescale.dev/aware/learner/mdp"
)

// Kind is what a container is to its pod.
type Kind string

// The kinds.
const (
	Regular   Kind = ""
	Init      Kind = "init" // sidecars too: the kubelet counts them differently
	Ephemeral Kind = "ephemeral"
)

// Guaranteed is the quality-of-service class that is left alone.
const Guaranteed = "Guaranteed"

// Container is what is known of a container through the API.
type Container struct {
	Namespace     string
	QoS           string // Guaranteed, Burstable or BestEffort
	Kind          Kind
	PodDeleting   bool
	Mirror        bool // a static pod, seen through its mirror
	ExclusiveCPUs bool // the kubelet's CPU manager gave it cores of its own
	// Requests are those of its spec; 0 is none.
	Requests mdp.Size
	// Settled are its limits when no resize was pending last; 0 is none. When
	// that was never so, they are what is in force.
	Settled mdp.Size
	// Limits are those that its spec has now; 0 is none.
	Limits mdp.Size
	// ResizePending says that Limits are not yet allocated, or not yet acted on
	// by the kubelet.
	ResizePending bool
	// Foreign are the limits that somebody else has set since, most often the
	// kubelet, while the API server's news of it may be late; 0 is none.
	Foreign mdp.Size
	// Room is what the pod's own limits leave to the container; 0 is none.
	Room mdp.Size
}

// Reason says why something is left alone.
type Reason string

// The reasons.
const (
	Deleting       Reason = "its pod is being deleted"
	Static         Reason = "its pod is static"
	NotRegular     Reason = "it is an init or ephemeral container"
	System         Reason = "its namespace is kube-system"
	Own            Reason = "its namespace is the agent's own"
	GuaranteedPod  Reason = "its pod is Guaranteed"
	Exclusive      Reason = "it has CPUs of its own"
	NoCPULimit     Reason = "it has no CPU limit"
	NoMemoryLimit  Reason = "it has no memory limit"
	NothingToMove  Reason = "it has neither a CPU nor a memory limit"
	BoundsTooLarge Reason = "the grant's minimum is above its limit"
)

// Rules are the node's.
type Rules struct {
	OwnNamespace string // of the agent; never touched
	Guaranteed   bool   // move Guaranteed pods too; default no: they take the slow path
}

// Envelope is how far a container may be moved.
type Envelope struct {
	Bounds     mdp.Bounds // of CPU and memory; a knob that may not move has the one value that it has, or 0 for none
	Knobs      mdp.Set    // what may be moved
	Left       Reason     // why nothing may be moved; empty when something may
	LeftCPU    Reason     // why CPU is not moved, or not as granted; empty otherwise
	LeftMemory Reason     // why memory is not moved, or not as granted; empty otherwise
}

// The floors: nothing is moved below them, whatever a grant says. The kernel
// takes no quota below 1 ms in a period of 100 ms. Hardly any process starts
// with less than 4 MiB.
const (
	LeastCPU    mdp.MilliCPU = 10
	LeastMemory mdp.Bytes    = 4 * mdp.MiB
)

// Ceiling is the largest limit that is certainly allocated: no write is above it.
// It is the smallest of the API's limit, of what somebody else has set since, and of
// what the pod has room for. While a resize is pending, for whatever reason, the
// API's limit is the smaller of old and new. A container without a limit in the API
// has none.
func (c Container) Ceiling() mdp.Size {
	return mdp.Size{
		CPU:    ceiling(c, func(s mdp.Size) mdp.MilliCPU { return s.CPU }),
		Memory: ceiling(c, func(s mdp.Size) mdp.Bytes { return s.Memory }),
	}
}

func ceiling[T ~int64](c Container, of func(mdp.Size) T) T {
	limit := of(c.Limits)
	if c.ResizePending {
		limit = lesser(of(c.Settled), limit)
	}
	if limit == 0 {
		return 0
	}
	return lesser(lesser(limit, of(c.Foreign)), of(c.Room))
}

// lesser is the smaller of two limits where 0 is none.
func lesser[T ~int64](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Of is the envelope of a container under a grant's bounds. A bound of 0 is
// none: then the floor or the allocated limit counts.
func Of(c Container, grant mdp.Bounds, r Rules) Envelope {
	ceiling := c.Ceiling()
	e := Envelope{Bounds: mdp.Bounds{
		CPU:    mdp.Range[mdp.MilliCPU]{Min: ceiling.CPU, Max: ceiling.CPU},
		Memory: mdp.Range[mdp.Bytes]{Min: ceiling.Memory, Max: ceiling.Memory},
	}}
	e.Left = left(c, r)
	if e.Left != "" {
		return e
	}
	if ceiling.CPU == 0 {
		// A quota on a container that has no limit would never be removed by
		// anyone else.
		e.LeftCPU = NoCPULimit
	} else {
		e.Knobs |= mdp.SetOf(mdp.CPULimit)
		e.Bounds.CPU, e.LeftCPU = within(grant.CPU, LeastCPU, ceiling.CPU)
	}
	if ceiling.Memory == 0 {
		e.LeftMemory = NoMemoryLimit
	} else {
		e.Knobs |= mdp.SetOf(mdp.MemoryLimit)
		e.Bounds.Memory, e.LeftMemory = within(grant.Memory, leastMemory(c, grant), ceiling.Memory)
	}
	if e.Knobs == 0 {
		e.Left = NothingToMove
	}
	return e
}

// leastMemory is the floor of a memory limit. Below the request, which the scheduler has
// reserved, a limit frees nothing that anybody could use: only a grant that says so goes
// there.
func leastMemory(c Container, grant mdp.Bounds) mdp.Bytes {
	if grant.Memory.Min > 0 {
		return LeastMemory
	}
	return max(LeastMemory, c.Requests.Memory)
}

// within cuts a grant's range to [least, ceiling]. A range that lies above the
// ceiling leaves the ceiling.
func within[T ~int64](grant mdp.Range[T], least, ceiling T) (mdp.Range[T], Reason) {
	upper := ceiling
	if grant.Max > 0 {
		upper = min(upper, grant.Max)
	}
	lower := min(max(grant.Min, least), ceiling)
	if lower > upper {
		upper = lower // a grant with Max under Min, or under the floor: its floor counts
	}
	if grant.Min > ceiling {
		return mdp.Range[T]{Min: lower, Max: upper}, BoundsTooLarge
	}
	return mdp.Range[T]{Min: lower, Max: upper}, ""
}

func left(c Container, r Rules) Reason {
	switch {
	case c.PodDeleting:
		return Deleting
	case c.Mirror:
		return Static
	case c.Kind != Regular:
		return NotRegular
	case c.Namespace == "kube-system":
		return System
	case r.OwnNamespace != "" && strings.EqualFold(c.Namespace, r.OwnNamespace):
		return Own
	case c.ExclusiveCPUs:
		return Exclusive
	case c.QoS == Guaranteed && !r.Guaranteed:
		return GuaranteedPod
	}
	return ""
}
