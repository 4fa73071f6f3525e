package aware

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

// Bounds that owners give; all are chosen. A policy that has learned within bounds that hold nothing back is worse than a rule
// within narrow ones (ADR 39, ADR 40).
const (
	narrowest, widest       = 400, 16000       // CPU of a replica, at most, in millicores, before it is rounded up
	leastMemory, mostMemory = 2, 32            // memory of a replica, at most, as a multiple of what it begins with
	deep                    = 256              // CPU of a replica, at most over at least
	deepMemory              = 128              // the same of memory
	leastReplicas           = 2                // replicas, at most, as a multiple of those that it begins with
	mostReplicas            = 10               // replicas, at most, unless leastReplicas needs more
	fixed                   = 1. / 6           // share of the workloads whose replicas the owner does not let anybody scale
	toOne                   = 1. / 2           // share of the others that may go down to one replica; the rest has some minimum
	floorCPU                = mdp.MilliCPU(10) // of lower bounds
	floorMemory             = 16 * mdp.MiB
	wholeCPU                = mdp.MilliCPU(100) // of which upper bounds are multiples, as people write them
	wholeMemory             = 64 * mdp.MiB
)

// own gives a service the bounds of an owner, and the size and the replicas with which it begins there. They follow from the
// workload's name, so that whoever is compared in a workload has the same ones. Each factor is as likely as the others.
func own(s *sim.Service, name string) {
	h := fnv.New64a()
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(h.Sum64(), 0xb0))
	factor := func(least, most float64) float64 { return least * math.Pow(most/least, r.Float64()) }

	need := float64(s.Size.CPU) * float64(s.Replicas)
	cpu := math.Ceil(factor(narrowest, widest)/float64(wholeCPU)) * float64(wholeCPU)
	s.Replicas = max(1, int(math.Ceil(need/cpu)))
	s.Size.CPU = mdp.MilliCPU(min(cpu, math.Ceil(need/float64(s.Replicas)/float64(wholeCPU))*float64(wholeCPU)))
	s.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: max(floorCPU, mdp.MilliCPU(cpu/factor(1, deep))), Max: mdp.MilliCPU(cpu)}
	s.Size.CPU = max(s.Size.CPU, s.Bounds.CPU.Min)

	memory := math.Round(float64(s.Size.Memory)*factor(leastMemory, mostMemory)/float64(wholeMemory)) * float64(wholeMemory)
	s.Bounds.Memory = mdp.Range[mdp.Bytes]{
		Min: max(floorMemory, mdp.Bytes(memory/factor(1, deepMemory))), Max: mdp.Bytes(memory),
	}
	s.Size.Memory = max(s.Size.Memory, s.Bounds.Memory.Min)

	twice := float64(leastReplicas * s.Replicas)
	s.Bounds.Replicas = mdp.Range[int]{Min: 1, Max: int(math.Round(factor(twice, max(twice, mostReplicas))))}
	switch kind := r.Float64(); {
	case kind < fixed:
		s.Bounds.Replicas = mdp.Range[int]{Min: s.Replicas, Max: s.Replicas}
	case kind > fixed+(1-fixed)*toOne:
		s.Bounds.Replicas.Min = 1 + r.IntN(max(2, s.Replicas))
	}
	s.Replicas = max(s.Replicas, s.Bounds.Replicas.Min)
}
