package margins

import (
	"context"
	"fmt"
	"sync"
	"time"

	"awarescale.dev/aware/learner/bench"
	"gonum.org/v1/gonum/floats"
)

// CommonLevels are the margins that are tried for services of which nothing was learned; none is the first one.
func CommonLevels() []Part {
	return []Part{{}, {Level: 0.5}, {Level: -0.5}, {Level: -1}, {Level: -1.5}, {Level: -2}}
}

// fromTheBegin is the lead of an hour of [Common]: the policy sees its services for the first time in it.
const fromTheBegin = time.Minute

// Common judges margins for services of which nothing was learned: one for all services of all applications. Each application
// has one hour of a random world, which is the same for all margins and begins with the policy's life: what a margin spares is
// the error budget's way to where it goes anyway.
//
// Cores are those of the first part, so that a small application counts as much as a large one. best is the index of the part
// that [Choose] takes. Which world an application has, world says. done is called after each hour, by one goroutine at a time; it
// may be nil.
func Common(
	ctx context.Context, cells []bench.Cell, choice bench.Choice, parts []Part, world func(k int) uint64, done func(of int),
) (best int, err error) {
	all := make([]Part, len(parts)*len(cells))
	var mu sync.Mutex
	err = bench.InParallel(ctx, len(all), func(ctx context.Context, k int) (err error) {
		part, cell := parts[k/len(cells)], k%len(cells)
		c := choice.With([]string{"margin"}, []float64{part.Level})
		if all[k], err = hour(ctx, cells[cell], c, world(cell), fromTheBegin); err != nil {
			return fmt.Errorf("application %s: %w", cells[cell].Application, err)
		}
		if done != nil {
			mu.Lock()
			defer mu.Unlock()
			done(len(all))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for k, one := range all {
		p, first := &parts[k/len(cells)], all[k%len(cells)]
		if !(first.Cores > 0) {
			return 0, fmt.Errorf("application %s: no cores in an hour", cells[k%len(cells)].Application)
		}
		p.Hours = append(p.Hours, one.Cores/first.Cores)
		p.late, p.over = append(p.late, one.Late), append(p.over, one.Windows)
	}
	for i := range parts {
		parts[i].sum()
	}
	return Choose(parts), nil
}

// sum makes a part's figures of those of its hours.
func (p *Part) sum() {
	p.Cores, p.Late, p.Windows, p.Broken = 0, 0, 0, 0
	for k := range p.Hours {
		if p.breaks(k) {
			p.Broken++
		}
	}
	if n := float64(len(p.Hours)); n > 0 {
		p.Cores, p.Late, p.Windows = floats.Sum(p.Hours)/n, floats.Sum(p.late)/n, floats.Sum(p.over)/n
	}
}

// breaks reports whether an hour misses more than it may.
func (p *Part) breaks(hour int) bool { return p.late[hour] > lateMost || p.over[hour] > windowsMost }
