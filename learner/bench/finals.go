package bench

import (
	"cmp"
	"context"
	"slices"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

// fidelities are the names of the levels in results.
var fidelities = map[sim.Fidelity]string{sim.Fluid: "fluid", sim.Requests: "requests"}

// Contest is a comparison: every contestant in every cell.
type Contest struct {
	Cells       []Cell
	Contestants []Contestant
	Tuned       TunedSettings // of the baselines
	Seeds       int           // runs of each contestant in each cell, with seeds from 1
	Best        int           // rules of each cell that the request level judges too; 0 is none
	// Known returns a row of an earlier run that was cut short. It may be nil.
	Known func(app, trace, policy, fidelity string) (Row, bool)
	// Done is called after each row, never concurrently. It may be nil.
	Done func(r Row, of int)
}

// Run runs the contest: every contestant at the fluid level, then the best tuned rules
// of each cell and all others at the request level, whose verdict counts.
// A baseline without tuned settings for a cell is tuned first; this is the case
// for traces that are not part of aware. A contestant has one row in each cell,
// by the last level that judged it.
func (c Contest) Run(ctx context.Context) ([]Row, error) {
	var all []entry
	for _, cell := range c.Cells {
		for _, who := range c.Contestants {
			all = append(all, entry{cell, who})
		}
	}
	expected := len(all)
	if c.Best > 0 {
		others := 0
		for _, who := range c.Contestants {
			if !who.tuned() {
				others++
			}
		}
		expected += len(c.Cells) * (min(c.Best, len(c.Contestants)-others) + others)
	}
	rows, err := c.judge(ctx, all, sim.Fluid, expected)
	if err != nil || c.Best == 0 {
		Rank(rows)
		return rows, err
	}
	var finalists []entry
	var at []int // rows of finalists
	for i := range c.Cells {
		from := i * len(c.Contestants)
		for _, k := range c.finalists(c.Cells[i], rows[from:from+len(c.Contestants)]) {
			finalists = append(finalists, all[from+k])
			at = append(at, from+k)
		}
	}
	final, err := c.judge(ctx, finalists, sim.Requests, len(all)+len(finalists))
	for k, r := range final {
		rows[at[k]] = r
	}
	Rank(rows)
	return rows, err
}

// entry is a contestant in a cell.
type entry struct {
	cell Cell
	who  Contestant
}

// closeCall is by how much of the SLO a p99 of the fluid level may be above it, and
// the request level still be asked: about that level's error.
const closeCall = 0.2

// finalists are the indexes of the rows of a cell that the request level judges:
// the tuned rules with the fewest cores among those that hold, those with still fewer
// that miss by a close call, and all others.
func (c Contest) finalists(cell Cell, rows []Row) []int {
	var rules, others []int
	for k, who := range c.Contestants {
		switch {
		case !who.tuned():
			others = append(others, k)
		case rows[k].Holds || rows[k].nearlyHolds(cell.App.SLO):
			rules = append(rules, k)
		}
	}
	slices.SortStableFunc(rules, func(a, b int) int { return cmp.Compare(rows[a].Cores, rows[b].Cores) })
	held := 0
	for i, k := range rules {
		if rows[k].Holds {
			held++
		}
		if held == c.Best {
			rules = rules[:i+1]
			break
		}
	}
	return append(rules, others...)
}

// nearlyHolds reports whether nothing is missed in any run but the SLO's latency,
// and that by a close call.
func (r Row) nearlyHolds(slo mdp.SLO) bool {
	for _, s := range r.Runs {
		s.P99 = min(s.P99, slo.Latency)
		if s.breaks(slo) || s.P99MS > (1+closeCall)*r.SLOMS {
			return false
		}
	}
	return len(r.Runs) > 0
}

// judge runs entries at a level.
func (c Contest) judge(ctx context.Context, entries []entry, level sim.Fidelity, of int) ([]Row, error) {
	rows := make([]Row, len(entries))
	lock := make(chan struct{}, 1)
	err := InParallel(ctx, len(rows), func(ctx context.Context, i int) error {
		e := entries[i]
		known := false
		if c.Known != nil {
			rows[i], known = c.Known(e.cell.Application, e.cell.Trace.Name, e.who.Name, fidelities[level])
		}
		if !known {
			var err error
			if rows[i], err = c.row(ctx, e, level); err != nil {
				return err
			}
		}
		if c.Done != nil {
			lock <- struct{}{}
			c.Done(rows[i], of)
			<-lock
		}
		return nil
	})
	return rows, err
}

// row runs a contestant in a cell with every seed.
func (c Contest) row(ctx context.Context, e entry, level sim.Fidelity) (Row, error) {
	choice, err := e.who.choice(ctx, e.cell, c.Tuned)
	if err != nil {
		return Row{}, err
	}
	runs := make([]Score, c.Seeds)
	for k := range runs {
		seed := uint64(k + 1)
		warm, err := Warm(ctx, e.cell, choice, seed)
		if err != nil {
			return Row{}, err
		}
		if runs[k], err = Run(ctx, e.cell, choice, Options{Seed: seed, Tower: warm, Fidelity: level}); err != nil {
			return Row{}, err
		}
	}
	r := row(e.cell, choice, runs)
	r.Policy = e.who.Name
	r.Fidelity = fidelities[level]
	return r, nil
}
