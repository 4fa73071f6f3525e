package margins

import (
	"context"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/sim"
	"gonum.org/v1/gonum/stat"
)

// Part is a part of the learned margins, and a level for all services; and how the policy does with it in worlds that
// learning has not seen.
type Part struct {
	Of      float64 `json:"of"`    // the learned margins are multiplied by it
	Level   float64 `json:"level"` // and it is added to them
	Cores   float64 `json:"cores"`
	Late    float64 `json:"late"`         // share of the requests above the SLO
	Windows float64 `json:"windows_over"` // share of the windows of ten seconds that are over it
	Broken  int     `json:"broken"`       // hours of [Common] that miss more than they may

	Hours []float64 `json:"hours"` // the cores of each

	late, over []float64 // the same of Late and Windows, of hours of [Common]
}

// Margins are the margins that a part comes to.
func (p Part) Margins(learned []float64) []float64 {
	m := slices.Clone(learned)
	for i := range m {
		m[i] = max(-5, min(5, p.Of*m[i]+p.Level))
	}
	return m
}

// Parts are how much of what was learned is tried.
func Parts() []Part { return []Part{{Of: 0}, {Of: 0.25}, {Of: 0.5}, {Of: 0.75}, {Of: 1}} }

// Levels are the levels that are tried with a part: an error budget that begins where it would go anyway
// need not find the way there, which takes it an hour for a level of three.
func Levels(of float64) []Part {
	return []Part{{Of: of, Level: 0.5}, {Of: of, Level: -0.5}, {Of: of, Level: -1}, {Of: of, Level: -1.5}}
}

// What a part may miss; more only where no margins at all miss as much.
const (
	lateMost    = 0.01
	windowsMost = 0.05
)

// HeldOutWorld is the seed of the k-th world of [HeldOut], and BudgetedWorld that of the k-th one of [Budgeted]. The highest two
// bits of a seed say what its world is for: 00 is learning, 01 [Budgeted], 10 [HeldOut], and 11 is left to other packages.
func HeldOutWorld(k int) uint64 { return 0b10<<62 + uint64(k) }

func BudgetedWorld(k int) uint64 { return 0b01<<62 + uint64(k) }

// HeldOut judges parts of learned margins in hours of random worlds that learning has not seen, with the error budget of the
// choice, and fills in what came of them. A part that was judged before is not judged again.
//
// Learning compares at a fixed share of late requests, in minutes: a service of which these worlds showed hardly a tail has a
// margin that is noise, and an application whose percentile is far below its SLO has many such services.
//
// best is the index of the part that [Choose] takes. done is called after each hour, by one goroutine at a time; it may be nil.
func HeldOut(ctx context.Context, cell bench.Cell, choice bench.Choice, learned []float64, parts []Part, worlds int,
	done func(of int)) (best int, err error) {
	var open []*Part
	for i := range parts {
		if parts[i].Hours == nil {
			open = append(open, &parts[i])
		}
	}
	all := make([]Part, len(open)*worlds)
	var mu sync.Mutex
	err = bench.InParallel(ctx, len(all), func(ctx context.Context, k int) (err error) {
		all[k], err = hour(ctx, cell, choice.With(names(cell), open[k/worlds].Margins(learned)), HeldOutWorld(k%worlds), usualLead)
		if done != nil {
			mu.Lock()
			defer mu.Unlock()
			done(len(all))
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for k, one := range all {
		p := open[k/worlds]
		p.Hours = append(p.Hours, one.Cores)
		p.Cores += one.Cores / float64(worlds)
		p.Late += one.Late / float64(worlds)
		p.Windows += one.Windows / float64(worlds)
	}
	return Choose(parts), nil
}

// Budgeted is the share of late requests at which a choice's error budget keeps an application, in hours of random worlds
// that neither learning nor [HeldOut] sees. It is where margins are to be compared. The budget of requests alone is not:
// where the budget of windows binds, far fewer requests are late than it allows, and what a core buys there is another thing.
func Budgeted(ctx context.Context, cell bench.Cell, choice bench.Choice, worlds int) (late float64, err error) {
	all := make([]Part, worlds)
	err = bench.InParallel(ctx, worlds, func(ctx context.Context, k int) (err error) {
		all[k], err = hour(ctx, cell, choice, BudgetedWorld(k), usualLead)
		return err
	})
	for _, one := range all {
		late += one.Late / float64(worlds)
	}
	return late, err
}

// Choose is the index of the best of some parts that were judged in the same hours: the one with the fewest cores of those that
// miss no more than they may, or than the first one. An earlier part stays where a later one saves less than chance explains:
// than twice the standard error of what it saves in an hour.
func Choose(parts []Part) int {
	best := 0
	for i, p := range parts {
		if p.Late <= max(lateMost, parts[0].Late) && p.Windows <= max(windowsMost, parts[0].Windows) &&
			p.Broken <= parts[0].Broken && p.saves(parts[best]) {
			best = i
		}
	}
	return best
}

// saves reports whether a part needs fewer cores than another one, by more than chance explains.
func (p Part) saves(other Part) bool {
	saved := slices.Clone(other.Hours)
	for i := range saved {
		saved[i] -= p.Hours[i]
	}
	if len(saved) < 2 {
		return p.Cores < other.Cores
	}
	mean, deviation := stat.MeanStdDev(saved, nil)
	return mean > 2*stat.StdErr(deviation, float64(len(saved)))
}

// usualLead is the time before an hour in which the policy learns its services and the budget finds its level.
const usualLead = time.Hour / 4

// hour runs a policy in a world, with a lead that is not scored.
func hour(ctx context.Context, cell bench.Cell, choice bench.Choice, seed uint64, lead time.Duration) (Part, error) {
	var p Part
	s, err := bench.Run(ctx, Random(cell, seed, time.Hour), choice, bench.Options{
		Seed: seed, Fidelity: sim.Fluid, Length: time.Hour, Lead: lead,
		Tail: func(above bench.Above) { p.Late = above(cell.App.SLO.Latency) },
	})
	p.Cores, p.Windows = s.Cores, s.Ratio
	return p, err
}

// names are the settings of the margins of a cell's services, in their order.
func names(cell bench.Cell) []string {
	var all []string
	for _, s := range cell.App.Services {
		all = append(all, "margin."+s.Name)
	}
	return all
}
