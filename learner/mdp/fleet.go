package mdp

import (
	"fmt"
	"time"
)

// Mode says how far AWARE may go with a workload.
type Mode string

// The modes, from nothing to everything. An owner who opts in without a mode gets Observe.
const (
	Off       Mode = "off"       // nothing is read, what was touched is put back
	Observe   Mode = "observe"   // read and report
	Recommend Mode = "recommend" // and say what would be done
	Canary    Mode = "canary"    // and do it to some replicas, taken back when the SLO suffers
	Auto      Mode = "auto"      // and do it
)

// ParseMode reads a mode as an owner writes it.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Off, Observe, Recommend, Canary, Auto:
		return m, nil
	}
	return "", fmt.Errorf("mode %q: it must be one of off, observe, recommend, canary, auto", s)
}

// ContainerRef names one running container of one pod.
type ContainerRef struct {
	Namespace, Pod string
	PodUID         string
	Container      string
}

func (c ContainerRef) String() string { return c.Namespace + "/" + c.Pod + "/" + c.Container }

// Summary is what a node tells of one container: the figures of its last local step and what came of it.
type Summary struct {
	Container ContainerRef
	State     State  // per this one container; Replicas is not observed
	Bounds    Bounds // the envelope in force: CPU and memory
	Mode      Mode   // in force on the node
	Want      Action // what the local policy asked for, after the guards
	Effect    Effect // what came of it
	Resizes   uint64 // made through the container runtime since the agent started
	Conflicts uint64 // changes of the limits by somebody else since the agent started
	Latency   Histogram
	Problem   string // why something could not be done or seen, for people; empty when all is well
}

// Report is what a node's agent tells central, about once a second.
type Report struct {
	Node       string
	Agent      string // version
	At         time.Time
	Sequence   uint64
	Containers []Summary
}

// Upper is the most that the reported containers can come to use without another word from central: the sum of
// their envelopes' upper ends.
func (r Report) Upper() Size {
	var sum Size
	for _, c := range r.Containers {
		sum.CPU += c.Bounds.CPU.Max
		sum.Memory += c.Bounds.Memory.Max
	}
	return sum
}

// Mandate is what central lets a node do with one container.
type Mandate struct {
	Container ContainerRef
	Mode      Mode
	Paused    bool   // hold what is in force: neither move it nor put it back
	Bounds    Bounds // CPU and memory, never wider than the container's API values; the agent checks that itself
	Throttle  Ratio  // the local policy's target: the share of CFS periods that may be throttled
	Latency   Source // where the container's latency histogram is to be read; zero when it has none
}

// Source is an endpoint of a pod with Prometheus metrics.
type Source struct {
	Port   int32
	Path   string // such as /metrics
	Metric string // a histogram in seconds, such as http_request_duration_seconds
}

// Mandates is central's whole word for one node: a container that is not in it is not AWARE's, and is put back.
type Mandates struct {
	Sequence uint64 // of the report that it answers
	TTL      time.Duration
	All      []Mandate
}
