package sim

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
)

// Shared is a resource that all containers of a node share. Limits do not
// divide it.
type Shared int

// The shared resources.
const (
	SharedCPU Shared = iota // execution units and private caches of a core with two hardware threads
	LLC                     // last-level cache
	MemoryBandwidth
	Disk
	Network
	sharedCount
)

// String is the name of the resource.
func (s Shared) String() string {
	return [...]string{"cpu", "llc", "memory-bandwidth", "disk", "network"}[s]
}

// Pressure is a value for each shared resource. For a node it is the share in
// use, from 0 to 1.
type Pressure [sharedCount]float64

// Node is a machine.
type Node struct {
	Name string
	Size mdp.Size // allocatable
}

// Cluster is a set of machines, and the delay of actions on them.
type Cluster struct {
	Nodes  []Node
	Delays Delays
}

// Check returns nil for a valid cluster. Otherwise the error names the wrong
// value.
func (c Cluster) Check() error {
	if len(c.Nodes) == 0 {
		return fmt.Errorf("a cluster without nodes")
	}
	for _, n := range c.Nodes {
		if n.Size.CPU <= 0 || n.Size.Memory <= 0 {
			return fmt.Errorf("node %q: size %v: it must be above zero", n.Name, n.Size)
		}
	}
	return c.Delays.check()
}

// Uniform is a cluster of n equal nodes with the delays in [Measured].
func Uniform(n int, size mdp.Size) Cluster {
	c := Cluster{Delays: Measured}
	for i := range n {
		c.Nodes = append(c.Nodes, Node{fmt.Sprintf("node-%d", i), size})
	}
	return c
}
