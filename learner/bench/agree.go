package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"awarescale.dev/aware/learner/sim"
)

// Pair is the same run at both fidelities.
type Pair struct {
	App      string `json:"app"`
	Trace    string `json:"trace"`
	Policy   string `json:"policy"`
	Seed     uint64 `json:"seed"`
	Fluid    Score  `json:"fluid"`
	Requests Score  `json:"requests"`
}

// rule is the cell and the policy of the run.
func (p Pair) rule() [3]string { return [3]string{p.App, p.Trace, p.Policy} }

// P99Error is the relative error of the fluid level's p99.
func (p Pair) P99Error() float64 { return p.Fluid.P99MS/p.Requests.P99MS - 1 }

// CoresError is the relative error of the fluid level's allocated cores.
func (p Pair) CoresError() float64 { return p.Fluid.Cores/p.Requests.Cores - 1 }

// Flips reports whether the levels disagree about the promises, though the
// request level's p99 is not within 10 % of the SLO.
func (p Pair) Flips(slo time.Duration) bool {
	near := math.Abs(p.Requests.P99.Seconds()/slo.Seconds()-1) <= 0.1
	return p.Fluid.Violates != p.Requests.Violates && !near
}

// Agreement is how well the fluid level agrees with the request level under
// rules.
type Agreement struct {
	Runs     int      `json:"runs"`
	Median   float64  `json:"p99_error_median"` // of the absolute relative errors
	P95      float64  `json:"p99_error_p95"`
	Cores    float64  `json:"cores_error_max"`
	CoresP95 float64  `json:"cores_error_p95"`
	Flips    []string `json:"flips"` // runs in which a verdict differs
	// What no level can agree better than: the request level's own figures with two
	// seeds of the same run, compared in the same way. One seed tells nothing.
	NoiseMedian float64 `json:"seeds_p99_median,omitempty"`
	NoiseP95    float64 `json:"seeds_p99_p95,omitempty"`
	NoiseCores  float64 `json:"seeds_cores_max,omitempty"`
	// P95 of the rules whose p99s with two seeds are within 20 % of each other: under the
	// others a run goes one way or the other by chance.
	Steady    int     `json:"steady_runs,omitempty"`
	SteadyP95 float64 `json:"steady_p99_error_p95,omitempty"`
}

// Summarise computes the Agreement of pairs in cells.
func Summarise(cells []Cell, pairs []Pair) Agreement {
	a := Agreement{Runs: len(pairs)}
	var errs, cores, noise, steady []float64
	apart := map[[3]string]float64{} // how far two seeds' p99s are
	for k, p := range pairs {
		last := pairs[max(0, k-1)]
		if p.rule() == last.rule() && p.Seed > last.Seed {
			differ := math.Abs(p.Requests.P99MS/last.Requests.P99MS - 1)
			noise = append(noise, differ)
			a.NoiseCores = max(a.NoiseCores, math.Abs(p.Requests.Cores/last.Requests.Cores-1))
			apart[p.rule()] = max(apart[p.rule()], differ)
		}
	}
	for _, p := range pairs {
		errs = append(errs, math.Abs(p.P99Error()))
		cores = append(cores, math.Abs(p.CoresError()))
		if differ, known := apart[p.rule()]; known && differ <= 0.2 {
			steady = append(steady, math.Abs(p.P99Error()))
		}
		i := slices.IndexFunc(cells, func(c Cell) bool { return c.Application == p.App && c.Trace.Name == p.Trace })
		if i >= 0 && p.Flips(cells[i].App.SLO.Latency) {
			a.Flips = append(a.Flips, fmt.Sprintf("%s/%s/%s/%d", p.App, p.Trace, p.Policy, p.Seed))
		}
	}
	a.Median, a.P95 = middleAndTail(errs)
	a.NoiseMedian, a.NoiseP95 = middleAndTail(noise)
	_, a.SteadyP95 = middleAndTail(steady)
	a.Steady = len(steady)
	_, a.CoresP95 = middleAndTail(cores)
	a.Cores = slices.Max(append(cores, 0))
	return a
}

// middleAndTail are the median and the 95th percentile of values; 0 of none.
func middleAndTail(values []float64) (median, p95 float64) {
	if len(values) == 0 {
		return 0, 0
	}
	slices.Sort(values)
	return values[len(values)/2], values[(len(values)*95+99)/100-1]
}

// Agree runs every contestant in every cell at both fidelities, with seeds from 1
// to the given number. length is the scored time of a run; 0 is the trace's. It
// calls done after each pair, never concurrently.
func Agree(
	ctx context.Context, cells []Cell, contestants []Contestant, tuned TunedSettings, seeds int, length time.Duration,
	done func(Pair),
) ([]Pair, error) {
	pairs := make([]Pair, len(cells)*len(contestants)*seeds)
	lock := make(chan struct{}, 1)
	err := InParallel(ctx, len(pairs), func(ctx context.Context, i int) error {
		cell, who := cells[i/seeds/len(contestants)], contestants[i/seeds%len(contestants)]
		c, err := who.choice(ctx, cell, tuned)
		if err != nil {
			return err
		}
		seed := uint64(i%seeds + 1)
		p := Pair{App: cell.Application, Trace: cell.Trace.Name, Policy: who.Name, Seed: seed}
		warm, err := Warm(ctx, cell, c, seed)
		if err != nil {
			return err
		}
		for _, level := range []struct {
			fidelity sim.Fidelity
			score    *Score
		}{{sim.Fluid, &p.Fluid}, {sim.Requests, &p.Requests}} {
			o := Options{Seed: seed, Fidelity: level.fidelity, Length: length, Tower: warm}
			if *level.score, err = Run(ctx, cell, c, o); err != nil {
				return err
			}
		}
		pairs[i] = p
		lock <- struct{}{}
		done(p)
		<-lock
		return nil
	})
	return pairs, err
}
