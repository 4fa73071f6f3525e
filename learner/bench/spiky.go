package bench

import (
	"context"
	"fmt"
	"math"

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
// settings. Memory is as before. The trace has another name, because what was
// tuned with enough nodes was not tuned for these.
func Scarce(ctx context.Context, cell Cell, tuned TunedSettings) (Cell, error) {
	c, err := Contestant{Name: "static"}.choice(ctx, cell, tuned)
	if err != nil {
		return Cell{}, fmt.Errorf("scarce nodes for %s under %s: %w", cell.Application, cell.Trace.Name, err)
	}
	total, largest := staticCPU(cell.App, c)
	if len(cell.Cluster.Nodes) == 0 {
		cell.Cluster = Machines
	}
	// A node holds at least two replicas of the largest service: with less, the
	// shape of the nodes would be scarce, and not their CPU.
	nodes := len(cell.Cluster.Nodes)
	for nodes > 1 && float64(total)*Scarcity/float64(nodes) < 2*float64(largest) {
		nodes--
	}
	memory := mdp.Bytes(0)
	for _, n := range cell.Cluster.Nodes {
		memory += n.Size.Memory
	}
	delays := cell.Cluster.Delays
	cell.Cluster = sim.Uniform(nodes, mdp.Size{
		CPU:    mdp.MilliCPU(math.Ceil(float64(total) * Scarcity / float64(nodes))),
		Memory: memory / mdp.Bytes(nodes),
	})
	cell.Cluster.Delays = delays
	cell.Trace.Name += " (scarce)"
	return cell, nil
}

// staticCPU is what a static choice allocates, and its largest replica.
func staticCPU(app sim.App, c Choice) (total, largest mdp.MilliCPU) {
	for _, s := range app.Services {
		cpu := float64(s.Size.CPU)
		if v, ok := c.Settings["cpu."+s.Name]; ok {
			cpu = v
		}
		limit := mdp.MilliCPU(cpu * c.get("factor"))
		limit = max(s.Bounds.CPU.Min, min(s.Bounds.CPU.Max, limit))
		total += limit * mdp.MilliCPU(s.Replicas)
		largest = max(largest, limit)
	}
	return total, largest
}
