package sim

import (
	"fmt"
	"time"
)

// Kind is a kind of performance anomaly. The kinds are the ones of FIRM's
// injector (OSDI'20; dissertation table 3.4).
type Kind string

// The anomalies.
const (
	WorkloadVariation Kind = "workload"         // the request rate rises; at full intensity it is three times as high
	NetworkDelay      Kind = "network-delay"    // each call of a service takes longer; 100 ms at full intensity
	CPUStress         Kind = "cpu"              // a neighbour uses CPU time of the node; 95 % at full intensity
	LLCStress         Kind = "llc"              // a neighbour uses the last-level cache
	MemoryStress      Kind = "memory-bandwidth" // a neighbour uses memory bandwidth
	DiskStress        Kind = "disk"             // a neighbour keeps the disk busy
	NetworkStress     Kind = "network"          // a neighbour fills the network
)

// Kinds lists all kinds in the order of the paper's table.
var Kinds = []Kind{WorkloadVariation, NetworkDelay, CPUStress, LLCStress, MemoryStress, DiskStress, NetworkStress}

// Anomaly is one injection. It affects the whole application (workload), a
// service (network delay) or a node (all others).
type Anomaly struct {
	Kind      Kind
	Target    string        // name of the service or node; empty for a workload variation
	Intensity float64       // in [0, 1]
	From      time.Duration // when it starts, since the start of the world
	To        time.Duration // when it ends, since the start of the world
}

// Strength of an anomaly at full intensity.
const (
	fullVariation = 2.0  // relative increase of the request rate
	fullDelay     = 0.1  // seconds added to each call
	fullStress    = 0.95 // share of the node's resource that the neighbour takes
)

// check returns an error that names the wrong value. The keys of services and
// nodes are the known names.
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
		return fmt.Errorf("anomaly %s: target %q: a workload variation has none, a network delay a service, the others a node",
			a.Kind, a.Target)
	}
	return nil
}

// sharedResource is the shared resource that the anomaly puts under pressure;
// ok is false when there is none.
func (a Anomaly) sharedResource() (r Shared, ok bool) {
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
