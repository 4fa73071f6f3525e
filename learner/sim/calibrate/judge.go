package calibrate

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"

	"awarescale.dev/aware/learner/sim"
)

// Judged is how well a predictor does on windows of policies that it was not
// fitted to. It sees the offered load and the allocation only.
type Judged struct {
	Spearman *float64 `json:"spearman"` // of the p99, all policies together
	// Within is the mean over the policies of the Spearman correlation in each. A
	// policy whose windows all get the same prediction has no order, and counts 0.
	// Spearman depends on three offsets between the policies; Within does not.
	Within    *float64 `json:"spearman_within_policies,omitempty"`
	MedianAPE *float64 `json:"median_ape"` // of the p99
	Held      int      `json:"held_out"`
	// Reported is the median error when a prediction below every p99 of the
	// fitted windows is raised to the lowest of them.
	Reported  *float64          `json:"median_ape_reported"`
	Completed *float64          `json:"completed_median_ape"` // of the completed rate
	Order     *float64          `json:"completed_spearman"`   // of the completed rate
	Saturated Saturation        `json:"saturated"`
	Groups    map[string]Judged `json:"by_group,omitempty"`
	points    []Point           // p99 in ms
	rates     []Point           // completed requests per second
}

// Saturation is about the question whether a window completes less than 99 % of
// what is offered.
type Saturation struct {
	Accuracy *float64 `json:"accuracy"`
	Majority *float64 `json:"majority_class"` // accuracy of the more frequent answer
	Balanced *float64 `json:"balanced"`       // mean of the accuracies among saturated and among other windows; 0.5 is chance
}

// outcome is one held-out window and its prediction.
type outcome struct {
	window    Window
	offered   float64 // requests per second, as fitted
	least     float64 // lowest p99 of the fitted windows, in ms
	rate, p99 float64 // predicted, per second and in ms
}

func saturated(rate, offered float64) bool { return rate < overloaded*offered }

// judged scores predictions. When it is not one group, it has the groups, too.
func judged(all []outcome) Judged {
	j := score(all)
	groups := map[string][]outcome{}
	for _, o := range all {
		groups[o.window.Policy] = append(groups[o.window.Policy], o)
	}
	j.Groups = map[string]Judged{}
	within := 0.0
	for _, g := range names(groups) {
		of := score(groups[g])
		j.Groups[g] = of
		if of.Spearman != nil {
			within += *of.Spearman / float64(len(groups))
		}
	}
	j.Within = figure(within)
	return j
}

func score(all []outcome) Judged {
	var raised []Point
	var right, of [2]float64 // not saturated, saturated
	j := Judged{Held: len(all)}
	for _, o := range all {
		j.points = append(j.points, Point{o.window.Policy, o.window.P99, o.p99})
		raised = append(raised, Point{o.window.Policy, o.window.P99, max(o.p99, o.least)})
		if o.window.Rate() > 0 {
			j.rates = append(j.rates, Point{o.window.Policy, o.window.Rate(), o.rate})
		}
		class := 0
		if saturated(o.window.Rate(), o.offered) {
			class = 1
		}
		of[class]++
		if saturated(o.rate, o.offered) == (class == 1) {
			right[class]++
		}
	}
	j.Spearman, j.MedianAPE, j.Reported, j.Completed = spearman(j.points), medianAPE(j.points), medianAPE(raised), medianAPE(j.rates)
	j.Order = spearman(j.rates)
	if n := of[0] + of[1]; n > 0 {
		j.Saturated.Accuracy = figure((right[0] + right[1]) / n)
		j.Saturated.Majority = figure(max(of[0], of[1]) / n)
	}
	j.Saturated.Balanced = figure((right[0]/of[0] + right[1]/of[1]) / 2) // nil with one class
	return j
}

// predictor is fitted to windows and predicts others.
type predictor struct {
	name string
	slow bool // it simulates: progress is reported
	fit  func(rows []Window, c client) (func(Window) (rate, p99 float64, err error), error)
}

// baselines are what the world is compared with.
func (w *worldFit) baselines() []predictor {
	near := func(distance func(a, b Window) float64) func([]Window, client) (func(Window) (float64, float64, error), error) {
		return func(rows []Window, _ client) (func(Window) (float64, float64, error), error) {
			return func(v Window) (float64, float64, error) {
				rate, p99 := nearest(rows, func(r Window) float64 { return distance(v, r) })
				return rate, p99, nil
			}, nil
		}
	}
	return []predictor{
		{"constant", false, func(rows []Window, _ client) (func(Window) (float64, float64, error), error) {
			rate := median(column(rows, Window.Rate))
			p99 := median(column(rows, func(v Window) float64 { return v.P99 }))
			return func(Window) (float64, float64, error) { return rate, p99, nil }, nil
		}},
		{"nearest_neighbours", false, near(apart)},
		{"nearest_neighbours_that_see_the_completed_rate", false, near(func(a, b Window) float64 {
			d := completedWeight * math.Log(max(1, a.Rate())/max(1, b.Rate()))
			return apart(a, b) + d*d
		})},
		{"formula", false, func(rows []Window, c client) (func(Window) (float64, float64, error), error) {
			f := w.fitted(rows, c)
			return func(v Window) (float64, float64, error) {
				rate, p99 := w.plant.answer(f, v.Alloc, c)
				return rate, p99, nil
			}, nil
		}},
	}
}

// Constants of the nearest neighbours.
const (
	nearby          = 10 // neighbours
	completedWeight = 5  // of the log rate, against the root mean square log allocation
)

// apart is the mean square difference of the log allocations.
func apart(a, b Window) float64 {
	d := 0.0
	for i := range a.Alloc {
		l := math.Log(max(a.Alloc[i], leastCPU) / max(b.Alloc[i], leastCPU))
		d += l * l
	}
	return d / float64(len(a.Alloc))
}

// nearest is the median rate and the median p99 of the nearest rows. Rows at
// the same distance count in their order.
func nearest(rows []Window, distance func(Window) float64) (rate, p99 float64) {
	type neighbour struct {
		at  float64
		row int
	}
	all := make([]neighbour, len(rows))
	for i, r := range rows {
		all[i] = neighbour{distance(r), i}
	}
	slices.SortStableFunc(all, func(a, b neighbour) int { return compare(a.at, b.at) })
	var rates, p99s []float64
	for _, n := range all[:min(nearby, len(all))] {
		rates = append(rates, rows[n.row].Rate())
		p99s = append(p99s, rows[n.row].P99)
	}
	return median(rates), median(p99s)
}

// worldFit is the application that the world simulates, and what is fitted of
// it.
type worldFit struct {
	app      sim.App
	known    bool // the application is compiled in
	services []string
	plant    *plant
	seed     uint64
	done     map[string]factors // by a hash of the windows that were fitted to
}

func newWorldFit(services []string, seed uint64) *worldFit {
	app, known := application(services)
	return &worldFit{app, known, services, newPlant(app, services), seed, map[string]factors{}}
}

// fitted is fitPlant, once for the same windows.
func (w *worldFit) fitted(rows []Window, c client) factors {
	h := sha256.New()
	fmt.Fprintln(h, c, rows)
	k := string(h.Sum(nil))
	f, known := w.done[k]
	if !known {
		f = fitPlant(w.plant, rows, c)
		w.done[k] = f
	}
	return f
}

// world is the simulated world with the constants that are fitted to rows.
func (w *worldFit) world() predictor {
	return predictor{"world", true, func(rows []Window, c client) (func(Window) (float64, float64, error), error) {
		app := scaled(w.app, w.services, w.fitted(rows, c))
		return w.simulated(app, c), nil
	}}
}

// unfitted is the simulated world with the constants of the application's file.
func (w *worldFit) unfitted() predictor {
	return predictor{"world_as_in_its_file", true, func(_ []Window, c client) (func(Window) (float64, float64, error), error) {
		return w.simulated(w.app, c), nil
	}}
}

// simulated predicts windows by simulation, and the same allocation once.
func (w *worldFit) simulated(app sim.App, c client) func(Window) (rate, p99 float64, err error) {
	type answer struct{ rate, p99 float64 }
	done := map[string]answer{}
	return func(v Window) (float64, float64, error) {
		k := key(v.Alloc)
		a, known := done[k]
		if !known {
			cores := 0.0
			for _, c := range v.Alloc {
				cores += c
			}
			if cores > mostCores {
				return 0, 0, fmt.Errorf("an allocation of %.3g cores: at most %d can be simulated", cores, mostCores)
			}
			var err error
			if a.rate, a.p99, err = replay(allocated(app, w.services, v.Alloc), c, w.seed); err != nil {
				return 0, 0, err
			}
			done[k] = a
		}
		return a.rate, a.p99, nil
	}
}

// Limits of what is simulated: a window of data that is not of Cilantro can be
// too large.
const (
	mostRequests = 300_000
	mostCores    = 1000
)

// clientOf is the client of Cilantro with the length of the windows and the
// offered rate of the rows. The rate is the highest that was completed (the 99th
// percentile).
func clientOf(rows []Window) (client, error) {
	c := cilantro
	c.offered = quantile(0.99, column(rows, Window.Rate))
	c.seconds = math.Floor(median(column(rows, func(w Window) float64 { return w.Length })))
	c.settle = min(c.settle, math.Floor(c.seconds/3))
	switch {
	case c.seconds < 3:
		return c, fmt.Errorf("windows of %v s are too short to simulate", c.seconds)
	case !(c.offered > 0) || c.offered*c.seconds > mostRequests:
		return c, fmt.Errorf("%.3g requests per window: 1 to %d can be simulated", c.offered*c.seconds, mostRequests)
	}
	return c, nil
}

// leaveOut predicts the chosen windows of each policy by a predictor that is
// fitted to all windows of the others.
func leaveOut(rows []Window, chosen map[string][]Window, p predictor, progress func(string)) ([]outcome, error) {
	var all []outcome
	for _, policy := range names(chosen) {
		fitting := others(rows, func(i int) string { return rows[i].Policy }, policy)
		if len(fitting) == 0 {
			continue
		}
		c, err := clientOf(fitting)
		if err != nil {
			return nil, err
		}
		predict, err := p.fit(fitting, c)
		if err != nil {
			return nil, err
		}
		least := slices.Min(column(fitting, func(w Window) float64 { return w.P99 }))
		for i, w := range chosen[policy] {
			if p.slow && i > 0 && i%10 == 0 {
				progress(fmt.Sprintf("%s: %d of %d windows of %s", p.name, i, len(chosen[policy]), policy))
			}
			rate, p99, err := predict(w)
			if err != nil {
				return nil, fmt.Errorf("window %d of %s: %w", i, policy, err)
			}
			all = append(all, outcome{w, c.offered, least, rate, p99})
		}
	}
	return all, nil
}

// choose takes at most n windows of each policy, evenly over its time.
func choose(rows []Window, n int) map[string][]Window {
	out := map[string][]Window{}
	for _, w := range rows {
		out[w.Policy] = append(out[w.Policy], w)
	}
	for policy, of := range out {
		if len(of) <= n {
			continue
		}
		kept := make([]Window, n)
		for i := range kept {
			kept[i] = of[(2*i+1)*len(of)/(2*n)]
		}
		out[policy] = kept
	}
	return out
}

// judgeWorld fills in the figures of the simulated world, and of the predictors
// beside it on the same windows.
func judgeWorld(r *CilantroResult, rows []Window, services []string, o Options, progress func(string)) error {
	fit := newWorldFit(services, o.Seed)
	r.Application, r.Compiled = fit.app.Name, fit.known
	chosen := choose(rows, o.Windows)
	all, err := leaveOut(rows, chosen, fit.world(), progress)
	if err != nil {
		return fmt.Errorf("simulating the windows: %w", err)
	}
	r.ByPolicy, r.Beside = judged(all), map[string]Judged{}
	for _, p := range append(fit.baselines(), fit.unfitted()) {
		all, err := leaveOut(rows, chosen, p, progress)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		r.Beside[p.name] = judged(all)
	}
	r.Beside["constant_of_its_own"] = judged(ownMedians(rows, chosen))
	return nil
}

// ownMedians predicts the windows of each policy by its own medians, which it
// must not know. No other constant has a lower mean absolute error.
func ownMedians(rows []Window, chosen map[string][]Window) (all []outcome) {
	of := choose(rows, len(rows))
	for _, policy := range names(chosen) {
		rate := median(column(of[policy], Window.Rate))
		p99 := median(column(of[policy], func(w Window) float64 { return w.P99 }))
		offered := quantile(0.99, column(others(rows, func(i int) string { return rows[i].Policy }, policy), Window.Rate))
		for _, w := range chosen[policy] {
			all = append(all, outcome{w, offered, p99, rate, p99})
		}
	}
	return all
}
