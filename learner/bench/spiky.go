package bench

import (
	"context"
	"fmt"
	"math"
	"slices"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// Spiky returns twelve cells: the three applications with the four spiky traces
// of [workload.Spiky]. No baseline is tuned for them in aware.
func Spiky() ([]Cell, error) {
	var cells []Cell
	for _, name := range workload.Spiky() {
		t, err := workload.Named(name)
		if err != nil {
			return nil, err
		}
		more, err := Columns(t)
		if err != nil {
			return nil, err
		}
		cells = append(cells, more...)
	}
	return cells, nil
}

// Scarcity is the CPU of a cluster with scarce nodes, relative to what the static
// rule allocates for the peak rate.
const Scarcity = 1.2

// Scarce is the cell with scarce nodes: the machines have [Scarcity] times the
// CPU of the cell's tuned static rule, which is tuned first when it has no tuned
// settings. Memory is as before. Replicas start with the static limits. The trace
// has another name, because what was tuned with enough nodes was not tuned for
// these.
func Scarce(ctx context.Context, cell Cell, tuned TunedSettings) (Cell, error) {
	c, err := Contestant{Name: "static"}.choice(ctx, cell, tuned)
	if err != nil {
		return Cell{}, fmt.Errorf("scarce nodes for %s under %s: %w", cell.Application, cell.Trace.Name, err)
	}
	// The replicas start with these limits: what they reserve at first must fit.
	cell.App.Services = slices.Clone(cell.App.Services)
	total := mdp.MilliCPU(0)
	for i := range cell.App.Services {
		s := &cell.App.Services[i]
		s.Size.CPU = staticCPU(*s, c)
		s.Ceiling.CPU = max(s.Ceiling.CPU, s.Size.CPU)
		total += s.Size.CPU * mdp.MilliCPU(s.Replicas)
	}
	machines := cell.machines()
	memory := mdp.Bytes(0)
	for _, n := range machines.Nodes {
		memory += n.Size.Memory
	}
	cell.Trace.Name += " (scarce)"
	// Fewer and larger nodes, where a service does not fit on one of the small
	// ones.
	for nodes := len(machines.Nodes); ; nodes-- {
		cell.Cluster = sim.Uniform(nodes, mdp.Size{
			CPU:    mdp.MilliCPU(math.Ceil(float64(total) * Scarcity / float64(nodes))),
			Memory: memory / mdp.Bytes(nodes),
		})
		cell.Cluster.Delays = machines.Delays
		if _, err = cell.world(sim.L2, Options{}); err == nil || nodes == 1 {
			return cell, err
		}
	}
}

// staticCPU is the limit that a static choice sets for a replica.
func staticCPU(s sim.Service, c Choice) mdp.MilliCPU {
	cpu := float64(s.Size.CPU)
	if v, ok := c.Settings["cpu."+s.Name]; ok {
		cpu = v
	}
	return max(s.Bounds.CPU.Min, min(s.Bounds.CPU.Max, mdp.MilliCPU(cpu*c.get("factor"))))
}
