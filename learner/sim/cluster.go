package sim

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
)

// Shared is a resource that the containers of a node share, whatever their limits say.
type Shared int

// The shared resources.
const (
	SharedCPU Shared = iota // execution units and private caches of a core that two threads share
	LLC                     // last-level cache
	MemoryBandwidth
	Disk
	Network
	sharedCount
)

func (s Shared) String() string {
	return [...]string{"cpu", "llc", "memory-bandwidth", "disk", "network"}[s]
}

// Pressure is a figure for each shared resource; of a node it is the share that is taken, 1 being all of it.
type Pressure [sharedCount]float64

// Node is a machine.
type Node struct {
	Name string
	Size mdp.Size // allocatable
}

// Cluster is the machines and how long it takes to do something on them.
type Cluster struct {
	Nodes  []Node
	Delays Delays
}

// Check is nil for a cluster that something can run on.
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

// Uniform is a cluster of n equal nodes with the measured delays.
func Uniform(n int, size mdp.Size) Cluster {
	c := Cluster{Delays: Measured}
	for i := range n {
		c.Nodes = append(c.Nodes, Node{fmt.Sprintf("node-%d", i), size})
	}
	return c
}
