package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"awarescale.dev/aware/learner/sim"
)

// FloorRuns is the default number of simulated runs of a search for a floor, and
// levelRuns how many of them are kept for the last search of Z.
const (
	FloorRuns = 60
	levelRuns = 8
)

// Floor is what the best policy needs that we can find for a cell when it knows
// what no policy can know: see [Margins] and [Foresight]. It is an upper bound of
// the fewest cores with which the promises can be kept with this knowledge.
type Floor struct {
	App      string  `json:"app"`
	Trace    string  `json:"trace"`
	Cores    float64 `json:"floor"`          // cores of the oracle, or of the best rule when Rule is the floor
	Used     float64 `json:"used_cores"`     // lowest mean CPU use of a run that keeps the promises
	Searched float64 `json:"searched_cores"` // of the oracle: mean over the seeds
	P99MS    float64 `json:"p99_ms"`         // of the oracle: highest of the seeds
	Holds    bool    `json:"holds"`          // the oracle keeps the promises with every seed
	Margins  Margins `json:"margins"`
	Seeds    int     `json:"seeds"`
	Runs     int     `json:"search_runs"` // simulated runs
	Rule     string  `json:"best_rule"`   // empty when no rule was compared that holds
	Best     float64 `json:"best_rule_cores"`
	IsRule   bool    `json:"floor_is_rule"` // the search found nothing below the best rule, whose cores are then the floor
}

// FloorOptions are the options of a search.
type FloorOptions struct {
	Seeds int               // the promises must hold with seeds from 1 to this number
	Runs  int               // limit of the simulated runs, without those of the last check
	Step  func(what string) // called after each run; may be nil
	// Known gives a floor that was found earlier with the same options; may be nil.
	Known func(app, trace string) (Floor, bool)
}

// FindFloor searches the oracle's margins on the cell's own trace, with seed 1:
//
//  1. the least Z that keeps the promises, by bisection;
//  2. the other margins, one after the other, and Z again;
//  3. a factor of Z per service, the services with the most scatter first, until
//     the runs are spent, and Z again;
//  4. with all seeds, Z raised until the promises hold with every one.
//
// Steps 2 and 3 take a change when the cores that it would need at the SLO fall:
// see [floorSearch.projected].
func FindFloor(ctx context.Context, cell Cell, o FloorOptions) (Floor, error) {
	load := sequence{warm: cell.Warm, trace: cell.Trace}
	s := &floorSearch{
		cell:   cell,
		limit:  o.Runs,
		step:   o.Step,
		oracle: newOracle(cell.App, load, lead+cell.Trace.Length()),
		known:  map[string]Score{},
		slope:  -0.15,
	}
	m := Margins{Z: 0.5, Ahead: 1, Backlog: 0.3, Fast: 0.6}
	m, err := s.level(ctx, m, 2)
	if err != nil {
		return Floor{}, err
	}
	for _, pass := range []func(context.Context, Margins) (Margins, error){s.global, s.perService} {
		if m, err = pass(ctx, m); err != nil {
			return Floor{}, err
		}
		if m, err = s.level(ctx, m, 1.1); err != nil {
			return Floor{}, err
		}
	}
	return s.check(ctx, o.Seeds)
}

// floorSearch is a search for the floor of a cell.
type floorSearch struct {
	cell   Cell
	oracle *oracle
	limit  int              // of runs
	runs   int              // so far
	known  map[string]Score // of the runs so far, by margins and seed
	step   func(what string)
	best   *Score // the fewest cores of a run with seed 1 that holds; nil before the first
	with   Margins
	slope  float64 // of the logarithm of cores over that of the p99, where the promises begin to hold
}

// run simulates margins with a seed, unless it has done so before.
func (s *floorSearch) run(ctx context.Context, m Margins, seed uint64) (Score, error) {
	key := fmt.Sprint(m, seed) // maps are printed in the order of their keys
	if score, ok := s.known[key]; ok {
		return score, nil
	}
	score, err := Run(ctx, s.cell, s.oracle.choice(m), Options{Seed: seed})
	if err != nil {
		return score, err
	}
	s.runs++
	s.known[key] = score
	if seed == 1 && !score.Violates && (s.best == nil || score.Cores < s.best.Cores) {
		s.best, s.with = &score, m
	}
	if s.step != nil {
		s.step(fmt.Sprintf("%s under %s: run %d, z %.3f, %.2f cores, p99 %.0f ms", s.cell.Application,
			s.cell.Trace.Name, s.runs, m.Z, score.Cores, score.P99MS))
	}
	return score, nil
}

// spent reports whether the search has no runs left.
func (s *floorSearch) spent() bool { return s.runs >= s.limit }

// level returns the margins with the least Z that keeps the promises, within
// 2 %. It leaves the present Z by factors until it has an interval, which it then
// bisects in logarithms.
func (s *floorSearch) level(ctx context.Context, m Margins, factor float64) (Margins, error) {
	const lowest, highest = 0.002, 50
	low, high := 0.0, 0.0 // the highest Z that violates, the lowest that holds; 0 is not known
	type point struct{ p99, cores float64 }
	var near []point
	for z := m.Z; !s.spent() && (low == 0 || high == 0 || high/low > 1.02); {
		m.Z = z
		score, err := s.run(ctx, m, 1)
		if err != nil {
			return m, err
		}
		over := math.Log(score.P99.Seconds() / s.cell.App.SLO.Latency.Seconds())
		if math.Abs(over) < 0.7 {
			near = append(near, point{over, math.Log(score.Cores)})
		}
		if score.Violates {
			low = z
		} else {
			high = z
		}
		switch {
		case low > 0 && high > 0:
			z = math.Sqrt(low * high)
		case score.Violates:
			z *= factor
		default:
			z /= factor
		}
		if z < lowest || z > highest {
			break
		}
	}
	if high > 0 {
		m.Z = high
	}
	if len(near) > 1 {
		slices.SortFunc(near, func(a, b point) int { return cmp.Compare(a.p99, b.p99) })
		a, b := near[0], near[len(near)-1]
		if b.p99-a.p99 > 0.05 {
			s.slope = max(-2, min(-0.02, (b.cores-a.cores)/(b.p99-a.p99)))
		}
	}
	return m, nil
}

// projected is the cores that a run would need with its p99 at the SLO, by the
// slope that level measured. It is infinite when another promise is broken.
func (s *floorSearch) projected(score Score) float64 {
	over := score.P99.Seconds() / s.cell.App.SLO.Latency.Seconds()
	if score.Violates && over <= 1 {
		return math.Inf(1)
	}
	return score.Cores * math.Pow(over, -s.slope)
}

// descend tries the alternatives one after the other. It keeps one that lowers
// the projected cores, of which now is the present value.
func (s *floorSearch) descend(ctx context.Context, m Margins, now float64, tries ...Margins) (Margins, float64, error) {
	for _, t := range tries {
		if s.runs+levelRuns >= s.limit {
			return m, now, nil
		}
		score, err := s.run(ctx, t, 1)
		if err != nil {
			return m, now, err
		}
		if p := s.projected(score); p < now {
			m, now = t, p
		}
	}
	return m, now, nil
}

// global selects the margins that all services share.
func (s *floorSearch) global(ctx context.Context, m Margins) (Margins, error) {
	m, now, err := s.descend(ctx, m, math.Inf(1), m)
	if err != nil {
		return m, err
	}
	for _, values := range []struct {
		to []float64
		of func(m *Margins, v float64)
	}{
		{[]float64{0, 0.3, 1.2}, func(m *Margins, v float64) { m.Fast = v }},
		{[]float64{1, 3, 6}, func(m *Margins, v float64) { m.Backlog = v }},
		{[]float64{0.3, 1}, func(m *Margins, v float64) { m.Peak = v }},
		{[]float64{0.05}, func(m *Margins, v float64) { m.Band = v }},
		{[]float64{2}, func(m *Margins, v float64) { m.Ahead = int(v) }},
	} {
		for _, v := range values.to {
			t := m
			values.of(&t, v)
			if t.Fast > 0 && t.Peak > 0 {
				continue // who acts in every slice knows each slice's demand
			}
			if m, now, err = s.descend(ctx, m, now, t); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// perService selects a factor for each service: half the margin, and if that does
// not pay, more of it.
func (s *floorSearch) perService(ctx context.Context, m Margins) (Margins, error) {
	m, now, err := s.descend(ctx, m, math.Inf(1), m)
	if err != nil {
		return m, err
	}
	services := slices.Clone(s.cell.App.Services)
	margin := func(v sim.Service) float64 {
		d := s.oracle.services[v.Name]
		return d.scatter * math.Sqrt(average(d.mean)) * float64(v.Replicas)
	}
	slices.SortStableFunc(services, func(a, b sim.Service) int { return cmp.Compare(margin(b), margin(a)) })
	for _, v := range services {
		before := now
		for _, factor := range []float64{0.6, 1.6} {
			t := m
			t.Services = maps.Clone(m.Services)
			if t.Services == nil {
				t.Services = map[string]float64{}
			}
			t.Services[v.Name] = factor
			if m, now, err = s.descend(ctx, m, now, t); err != nil || now < before {
				break
			}
		}
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// average is the mean of numbers.
func average(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(max(1, len(xs)))
}

// check runs the best margins with every seed, and raises Z until the promises
// hold with all of them, first by 2 % and then by half as much more each time.
func (s *floorSearch) check(ctx context.Context, seeds int) (Floor, error) {
	f := Floor{App: s.cell.Application, Trace: s.cell.Trace.Name, Seeds: seeds, Margins: s.with}
	for raise := 0.02; raise < 0.5; raise *= 1.5 {
		if s.best == nil {
			break // not even seed 1 holds
		}
		f.Searched, f.Used, f.P99MS, f.Holds = 0, 0, 0, true
		for seed := uint64(1); seed <= uint64(seeds); seed++ {
			score, err := s.run(ctx, f.Margins, seed)
			if err != nil {
				return f, err
			}
			f.Searched += score.Cores / float64(seeds)
			f.Used += score.Used / float64(seeds)
			f.P99MS = max(f.P99MS, score.P99MS)
			f.Holds = f.Holds && !score.Violates
		}
		if f.Holds {
			break
		}
		f.Margins.Z *= 1 + raise
	}
	f.Cores, f.Runs = f.Searched, s.runs
	return f, nil
}
