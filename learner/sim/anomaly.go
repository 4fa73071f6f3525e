package sim

import (
	"fmt"
	"time"
)

// Kind is a kind of performance anomaly: those of FIRM's injector (OSDI'20; dissertation table 3.4).
type Kind string

// The anomalies.
const (
	WorkloadVariation Kind = "workload"         // the rate of requests rises, to three times at full intensity
	NetworkDelay      Kind = "network-delay"    // each call of a service takes longer, by 100 ms at full intensity
	CPUStress         Kind = "cpu"              // a neighbour takes CPU time of the node, all of it at full intensity
	LLCStress         Kind = "llc"              // a neighbour sweeps the last-level cache
	MemoryStress      Kind = "memory-bandwidth" // a neighbour streams through memory
	DiskStress        Kind = "disk"             // a neighbour keeps the disk busy
	NetworkStress     Kind = "network"          // a neighbour fills the network
)

// Kinds lists them in the order of the paper's table.
var Kinds = []Kind{WorkloadVariation, NetworkDelay, CPUStress, LLCStress, MemoryStress, DiskStress, NetworkStress}

// Anomaly is one injection. It hits the whole application (workload), a service (network delay) or a node (the others).
type Anomaly struct {
	Kind      Kind
	Target    string        // name of the service or the node; empty for a workload variation
	Intensity float64       // in [0, 1]
	From, To  time.Duration // since the beginning of the world
}

// Strength of an anomaly at full intensity.
const (
	fullVariation = 2.0  // more requests: three times as many
	fullDelay     = 0.1  // seconds on each call
	fullStress    = 0.95 // share of the node's resource that a neighbour can take for itself
)

func (a Anomaly) check(services, nodes map[string]int) error {
	if !(a.Intensity >= 0 && a.Intensity <= 1) {
		return fmt.Errorf("anomaly %s on %q: intensity %v: it must be in [0, 1]", a.Kind, a.Target, a.Intensity)
	}
	if a.From < 0 || a.To <= a.From {
		return fmt.Errorf("anomaly %s on %q: from %v to %v: it must end after it begins", a.Kind, a.Target, a.From, a.To)
	}
	var known bool
	switch a.Kind {
	case WorkloadVariation:
		known = a.Target == ""
	case NetworkDelay:
		_, known = services[a.Target]
	case CPUStress, LLCStress, MemoryStress, DiskStress, NetworkStress:
		_, known = nodes[a.Target]
	default:
		return fmt.Errorf("anomaly %q: known are %v", a.Kind, Kinds)
	}
	if !known {
		return fmt.Errorf("anomaly %s: target %q: a workload variation has none, a network delay a service, the others a node", a.Kind, a.Target)
	}
	return nil
}

// presses is the shared resource that the anomaly takes; ok is false when it takes none.
func (a Anomaly) presses() (Shared, bool) {
	switch a.Kind {
	case CPUStress:
		return SharedCPU, true
	case LLCStress:
		return LLC, true
	case MemoryStress:
		return MemoryBandwidth, true
	case DiskStress:
		return Disk, true
	case NetworkStress:
		return Network, true
	}
	return 0, false
}
