package bench

import (
	"math/rand/v2"
	"time"

	"awarescale.dev/aware/learner/sim"
)

// The anomalies of a disturbed cell. FIRM injects its seven kinds with a type and
// an intensity that are uniformly random, at exponential intervals of 3 s in the
// mean, to train and to localise (the author's dissertation, §3.3.1 and table 3.4).
// Its lengths are not published. Here they are rarer, so that a rule has
// undisturbed time between them: both times are chosen.
const (
	anomalyEvery    = 30 * time.Second // mean time between two starts
	anomalyShortest = 5 * time.Second
	anomalyLongest  = 30 * time.Second
)

// Disturb is the cell with anomalies, the same ones for every policy and seed.
// The name of its trace says so. Baselines keep the settings that were tuned for
// the undisturbed cell: nobody tunes for what is not expected.
func Disturb(cell Cell) Cell {
	machines := cell.machines()
	r := rand.New(rand.NewPCG(1, 0xd157))
	begin := time.Duration(0)
	cell.Anomalies = nil
	for {
		begin += time.Duration(r.ExpFloat64() * float64(anomalyEvery)).Truncate(sim.Slice)
		if begin >= cell.Trace.Length() {
			break
		}
		a := sim.Anomaly{
			Kind:      sim.Kinds[r.IntN(len(sim.Kinds))],
			Intensity: r.Float64(),
			From:      begin,
			To:        begin + anomalyShortest + time.Duration(r.Int64N(int64(anomalyLongest-anomalyShortest))).Truncate(sim.Slice),
		}
		switch a.Kind {
		case sim.WorkloadVariation:
		case sim.NetworkDelay:
			a.Target = cell.App.Services[r.IntN(len(cell.App.Services))].Name
		default:
			a.Target = machines.Nodes[r.IntN(len(machines.Nodes))].Name
		}
		cell.Anomalies = append(cell.Anomalies, a)
	}
	cell.tunedFor = cell.tunedAs()
	cell.Trace.Name += " (anomalies)"
	return cell
}

// Delay is the cell with metrics that are late for every rule that acts through
// the API: it reads what central is told. A rule on the node reads its cgroups.
// The baselines' settings are those of the cell without a delay.
func Delay(cell Cell, metrics time.Duration) Cell {
	cell.tunedFor = cell.tunedAs()
	cell.Metrics = metrics
	cell.Trace.Name += " (metrics " + metrics.String() + " late)"
	return cell
}

// tunedAs is the name of the trace for which the cell's baselines are tuned.
func (c Cell) tunedAs() string {
	if c.tunedFor != "" {
		return c.tunedFor
	}
	return c.Trace.Name
}
