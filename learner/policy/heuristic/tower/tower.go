// Package tower is Autothrottle's application-level controller (Wang et al.,
// NSDI 2024, §3.4). Once a minute it selects the throttle targets for the
// captains of an application's services. The goal is to meet the latency SLO
// with little CPU.
//
// It is a contextual bandit. The context is the load of the minute before
// the action, in bins of requests per second. There are two groups of services, with low and high CPU usage. An
// action selects one of nine targets for each group: 81 actions. The cost of an
// action is computed after a minute. If the SLO was met, the cost is the
// allocated CPU, scaled to [0, 1] by all minutes that met it. Otherwise it is 2
// plus the latency, scaled to [0, 1] by all minutes that did not. An action that meets the SLO therefore always has a lower cost
// than one that does not, and if no action meets the SLO, the lowest latency
// has the lowest cost. A small neural network learns to predict the median cost
// per bin and action. The tower selects the action with the lowest predicted
// cost, and sometimes one of its neighbours.
//
// A Tower has no clock. The caller calls [Tower.Observe] at the end of each
// minute, and gives [Tower.Targets] to the captains (captain.Retarget) for the
// next minute.
//
// The authors' evaluation starts with six hours of uniformly random actions and
// six hours in which half of the actions are neighbours of the best. A counted
// run follows, without exploration ([Tower.StopExploring]). In production a
// tenth of the minutes explore.
//
// Departures from the authors' source (utils.py), whose bandit is Vowpal
// Wabbit's --cb_explore 81 --epsilon 0 --nn 3 -l 0.5:
//  1. The network is our own: 3 tanh units, squared loss on the cost, and
//     AdaGrad with a learning rate of 0.5, trained from scratch each minute.
//     Its input is the action as numbers, and the load scaled to [-1, 1].
//     Vowpal Wabbit learns 81 predictors, one per action, each with its own 3
//     units over two features (the requests per second as they are, and a
//     constant), by its own update and its own estimator of the costs. An
//     action without data then has no prediction of its own.
//  2. The cost of an action that was tried in the current bin is a weighted
//     mean of its median and the prediction. The weight of the median grows
//     with the number of trials. This replaces the separate weights of point 1.
//  3. The prediction is for the bin of the load, as in training. The source
//     predicts for the load itself.
//  4. The groups are computed from the mean usage of the first Grouping minutes
//     with known usage; then they stay. The costs from earlier groupings are
//     kept. The authors compute the groups before, in runs of their own.
//  5. Random actions are those that were tried least in the whole warm-up. The
//     source counts the trials of each hour.
//  6. For each bin and action only the last 15 minutes are kept, because the
//     application can change. The source keeps all.
package tower

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// ladder is the throttle targets that a group can have, from the safest to the
// cheapest.
var ladder = [...]mdp.Ratio{0, 0.02, 0.04, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3}

// Config is the settings of a tower. Start with [Default] and add an SLO.
type Config struct {
	// SLO must have a latency objective. A minute with a higher latency
	// violates it.
	SLO mdp.SLO
	// BinRPS is the width of a bin of load, in requests per second. The paper
	// uses 20, and 200 for Hotel-Reservation. Choose it so that there are 20 to
	// 50 bins between the lowest and the highest load.
	BinRPS mdp.Rate
	// Uniform is the number of minutes with uniformly random actions at the
	// start. Each action has two minutes, and the tower learns from the second.
	Uniform int
	// Explore is the number of minutes after those in which the tower tries
	// a neighbour of the best action with a probability of ExploreEpsilon.
	Explore        int
	ExploreEpsilon mdp.Ratio // in [0, 1]
	// Epsilon is the share of the minutes after those, in [0, 1], in which the
	// tower tries a neighbour of the best action.
	Epsilon mdp.Ratio
	// Grouping is the number of minutes with known usage from which the groups
	// are computed.
	Grouping int
	// Samples is the number of training steps of the network per minute.
	// More samples give higher precision and need more time.
	Samples int
}

// Default has the values of the authors' source. The groups are our choice.
var Default = Config{
	BinRPS:         20,
	Uniform:        360,
	Explore:        360,
	ExploreEpsilon: 0.5,
	Epsilon:        0.1,
	Grouping:       12,
	Samples:        10_000,
}

// Check returns nil for valid settings. Otherwise the error names the field,
// its value and the rule.
func (c Config) Check() error {
	switch {
	case c.SLO.Latency <= 0:
		return fmt.Errorf("tower SLO latency %v: it must be above zero", c.SLO.Latency)
	case !(c.BinRPS > 0 && c.BinRPS <= maxRPS):
		return fmt.Errorf("tower bin of %v requests per second: it must be in (0, %v]",
			float64(c.BinRPS), float64(maxRPS))
	case !(c.Epsilon >= 0 && c.Epsilon <= 1):
		return fmt.Errorf("tower epsilon %v: it must be in [0, 1]", float64(c.Epsilon))
	case !(c.ExploreEpsilon >= 0 && c.ExploreEpsilon <= 1):
		return fmt.Errorf("tower explore epsilon %v: it must be in [0, 1]", float64(c.ExploreEpsilon))
	case c.Uniform < 0 || c.Uniform > maxMinutes:
		return fmt.Errorf("tower uniform %d minutes: it must be in [0, %d]", c.Uniform, maxMinutes)
	case c.Explore < 0 || c.Explore > maxMinutes:
		return fmt.Errorf("tower explore %d minutes: it must be in [0, %d]", c.Explore, maxMinutes)
	case c.Grouping < 1:
		return fmt.Errorf("tower grouping %d minutes: it must be above zero", c.Grouping)
	case c.Samples < 1 || c.Samples > 1_000_000:
		return fmt.Errorf("tower samples %d: it must be in [1, 1000000]", c.Samples)
	}
	return c.SLO.Check()
}

// Minute is the measurements of a minute with the Targets. A value is valid
// only when its signal is in Observed.
type Minute struct {
	Observed  mdp.Set
	RPS       mdp.Rate       // Throughput: requests per second of the application
	Latency   time.Duration  // Latency: at the SLO's percentile
	Allocated mdp.MilliCPU   // CPULimit: mean over the minute of the sum over all services and replicas
	Usage     []mdp.MilliCPU // CPUUsage: of each service, in the order given to New; optional
}

// Tower selects the throttle targets of one application. One goroutine uses it
// at a time.
type Tower struct {
	config   Config
	services []string

	minutes int       // number of minutes observed
	action  action    // current
	fresh   bool      // the action had no minute yet
	bin     int       // of the load when the action was selected; none at the start
	used    []float64 // sum of the usage of each service, in millicores
	usages  int       // number of minutes in used
	group   []int     // of each service: 0 is low CPU usage, 1 is high
	cells   []cell    // in the order of compareCells
	source  *rand.PCG // of random, for Encode
	random  *rand.Rand
}

// action is an index of the ladder (a notch) for each group.
type action [2]int

// cell is the data of one action in one bin.
type cell struct {
	bin     int
	action  action
	samples []sample  // at most maxSamples, oldest first
	median  [2]sample // of samples: the two in the middle, which may be the same
}

// sample is the result of a minute.
type sample struct {
	allocated mdp.MilliCPU
	latency   time.Duration
}

// none is the bin of an unknown load.
const none = -1

// maxSamples is the number of minutes that a cell keeps.
const maxSamples = 15

// New creates a tower without data. The config must pass Check. It starts with
// the safest targets.
func New(c Config, services []string, seed uint64) *Tower {
	t := &Tower{
		config:   c,
		services: slices.Clone(services),
		fresh:    true,
		bin:      none,
		used:     make([]float64, len(services)),
		source:   rand.NewPCG(seed, 0),
	}
	t.random = rand.New(t.source)
	t.group = groups(t.used)
	return t
}

// Targets is the throttle target of each service for the next minute, in the
// order given to New.
func (t *Tower) Targets() []mdp.Ratio {
	targets := make([]mdp.Ratio, len(t.group))
	for i, g := range t.group {
		targets[i] = ladder[t.action[g]]
	}
	return targets
}

// Observe learns from a minute and selects the targets for the next. If
// requests, allocation or latency were not observed, it learns nothing, the
// targets stay, and the error is an *[mdp.UnknownError]. With impossible values
// the result is the same, with another error.
func (t *Tower) Observe(m Minute) error {
	if missing := mdp.SetOf(mdp.Throughput, mdp.Latency, mdp.CPULimit).Without(m.Observed); missing != 0 {
		return &mdp.UnknownError{Who: "tower", Missing: missing}
	}
	if err := t.plausible(m); err != nil {
		return err
	}
	if m.RPS == 0 {
		return &mdp.UnknownError{Who: "tower, in a minute without traffic", Missing: mdp.SetOf(mdp.Latency)}
	}
	uniform := t.minutes < t.config.Uniform
	if t.bin != none && !(uniform && t.fresh) {
		t.keep(t.bin, t.action, sample{m.Allocated, m.Latency})
	}
	if t.usages < t.config.Grouping && m.Observed.Has(mdp.CPUUsage) {
		for i, u := range m.Usage {
			t.used[i] += float64(u)
		}
		t.usages++
		t.group = groups(t.used)
	}
	t.minutes++
	t.bin = int(math.Round(float64(m.RPS / t.config.BinRPS)))
	if uniform && t.fresh {
		t.fresh = false
		return nil
	}
	t.action = t.pick(t.bin)
	t.fresh = true
	return nil
}

// StopExploring ends the warm-up and all exploration: from the next Observe on
// the action with the lowest cost is selected. The authors count their runs
// like this.
func (t *Tower) StopExploring() {
	t.config.Uniform = 0
	t.config.Explore = 0
	t.config.Epsilon = 0
}

// plausible returns an error for impossible values, so that they are not
// stored.
func (t *Tower) plausible(m Minute) error {
	switch {
	case !(m.RPS >= 0 && m.RPS <= maxRPS) || m.RPS/t.config.BinRPS > maxBin:
		return fmt.Errorf("tower: %v requests per second: not a figure of an application", float64(m.RPS))
	case m.Latency < 0:
		return fmt.Errorf("tower: latency %v: not a figure of an application", m.Latency)
	case m.Allocated < 0 || m.Allocated > maxCPU:
		return fmt.Errorf("tower: %v allocated: not a figure of an application", m.Allocated)
	case !m.Observed.Has(mdp.CPUUsage):
		return nil
	case len(m.Usage) != len(t.services):
		return fmt.Errorf("tower: usage of %d services: it has %d", len(m.Usage), len(t.services))
	}
	for i, u := range m.Usage {
		if u < 0 || u > maxCPU {
			return fmt.Errorf("tower: %s uses %v: not a figure of a service", t.services[i], u)
		}
	}
	return nil
}

// The limits are a million cores, a billion requests per second and a million
// bins. Values above them are errors.
const (
	maxCPU mdp.MilliCPU = 1_000_000_000
	maxRPS mdp.Rate     = 1_000_000_000
	maxBin              = 1_000_000
)

// keep stores a minute. Cells are sorted, so that the result of training does
// not depend on the order of arrival.
func (t *Tower) keep(bin int, a action, s sample) {
	i, found := slices.BinarySearchFunc(t.cells, cell{bin: bin, action: a}, compareCells)
	if !found {
		t.cells = slices.Insert(t.cells, i, cell{bin: bin, action: a})
	}
	c := &t.cells[i]
	if len(c.samples) == maxSamples {
		c.samples = slices.Delete(c.samples, 0, 1)
	}
	c.samples = append(c.samples, s)
	c.median = t.median(c.samples)
}

// compareCells orders cells by bin and action.
func compareCells(a, b cell) int {
	return cmp.Or(
		cmp.Compare(a.bin, b.bin),
		cmp.Compare(a.action[0], b.action[0]),
		cmp.Compare(a.action[1], b.action[1]),
	)
}

// pick selects the action for the next minute. It assumes that the load stays
// the same.
func (t *Tower) pick(bin int) action {
	epsilon := t.config.Epsilon
	switch {
	case t.minutes < t.config.Uniform || len(t.cells) == 0:
		return t.leastTried()
	case t.minutes < t.config.Uniform+t.config.Explore:
		epsilon = t.config.ExploreEpsilon
	}
	best := t.best(bin)
	if t.random.Float64() >= float64(epsilon) {
		return best
	}
	near := neighbours(best)
	return near[t.random.IntN(len(near))]
}

// leastTried is a random one of the actions with the fewest minutes.
func (t *Tower) leastTried() action {
	var tried [len(ladder)][len(ladder)]int
	for _, c := range t.cells {
		tried[c.action[0]][c.action[1]] += len(c.samples)
	}
	least := math.MaxInt
	var actions []action
	for i := range ladder {
		for j, n := range tried[i] {
			if n < least {
				least = n
				actions = actions[:0]
			}
			if n == least {
				actions = append(actions, action{i, j})
			}
		}
	}
	return actions[t.random.IntN(len(actions))]
}

// best is the action with the lowest cost in a bin. Of equal costs it is the
// safest action.
func (t *Tower) best(bin int) action {
	examples, scale := t.examples()
	net := train(examples, t.config.Samples, t.random)
	tried := make(map[action]example)
	for i, c := range t.cells {
		if c.bin == bin {
			tried[c.action] = examples[i]
		}
	}
	var best action
	least := math.Inf(1)
	for i := range ladder {
		for j := range ladder {
			a := action{i, j}
			cost := net.predict(input{a, scale.of(bin)})
			if e, ok := tried[a]; ok {
				trust := float64(e.times) / (float64(e.times) + doubt)
				cost += trust * (e.cost - cost)
			}
			if cost < least {
				best, least = a, cost
			}
		}
	}
	return best
}

// doubt is the number of minutes of an action in a bin that have the same
// weight as the network's prediction.
const doubt = 0.25

// neighbours returns the actions that differ by one notch in one group.
func neighbours(a action) []action {
	var near []action
	for g := range a {
		for _, d := range []int{-1, 1} {
			b := a
			if b[g] += d; b[g] >= 0 && b[g] < len(ladder) {
				near = append(near, b)
			}
		}
	}
	return near
}

// example is a training example of the network, from a cell.
type example struct {
	input input
	cost  float64 // median of the minutes
	times int     // number of minutes in the cell
}

// examples returns an example for each cell, in the same order, and the scale
// of the load.
func (t *Tower) examples() ([]example, scale) {
	r := t.observed()
	// The cells are in the order of their bins.
	s := scale{low: float64(t.cells[0].bin), high: float64(t.cells[len(t.cells)-1].bin)}
	examples := make([]example, len(t.cells))
	for i, c := range t.cells {
		examples[i] = example{
			input: input{c.action, s.of(c.bin)},
			cost:  (t.cost(c.median[0], r) + t.cost(c.median[1], r)) / 2,
			times: len(c.samples),
		}
	}
	return examples, s
}

// ranges are the lowest and the highest values that scale the costs.
type ranges struct {
	allocated [2]mdp.MilliCPU  // in minutes that met the SLO
	latency   [2]time.Duration // in minutes that violated it
}

// observed returns the ranges of all minutes.
func (t *Tower) observed() ranges {
	r := ranges{
		allocated: [2]mdp.MilliCPU{math.MaxInt64, 0},
		latency:   [2]time.Duration{math.MaxInt64, 0},
	}
	for i := range t.cells {
		for _, s := range t.cells[i].samples {
			if t.violated(s) {
				r.latency[0], r.latency[1] = min(r.latency[0], s.latency), max(r.latency[1], s.latency)
				continue
			}
			r.allocated[0], r.allocated[1] = min(r.allocated[0], s.allocated), max(r.allocated[1], s.allocated)
		}
	}
	return r
}

// cost is the authors' cost: in [0, 1] if the SLO was met, otherwise in [2, 3].
func (t *Tower) cost(s sample, r ranges) float64 {
	if t.violated(s) {
		return 2 + share(s.latency, r.latency)
	}
	return share(s.allocated, r.allocated)
}

// share is the place of a value in its range, in [0, 1]. In a range of a single
// value it is the middle.
func share[T ~int64](v T, in [2]T) float64 {
	if in[0] == in[1] {
		return 0.5
	}
	return float64(v-in[0]) / float64(in[1]-in[0])
}

// median is the sample with the median cost, twice; of an even number it is the
// two in the middle. The order by cost does not depend on the scale.
func (t *Tower) median(samples []sample) [2]sample {
	ordered := slices.Clone(samples)
	slices.SortFunc(ordered, func(a, b sample) int {
		switch va, vb := t.violated(a), t.violated(b); {
		case va && vb:
			return cmp.Compare(a.latency, b.latency)
		case va:
			return 1
		case vb:
			return -1
		}
		return cmp.Compare(a.allocated, b.allocated)
	})
	return [2]sample{ordered[(len(ordered)-1)/2], ordered[len(ordered)/2]}
}

// violated reports whether a sample violates the SLO.
func (t *Tower) violated(s sample) bool { return s.latency > t.config.SLO.Latency }

// scale maps the observed bins to [-1, 1], and other bins to at most [-1.5,
// 1.5].
type scale struct{ low, high float64 }

// of is the scaled value of a bin.
func (s scale) of(bin int) float64 {
	if s.low == s.high {
		return max(-1.5, min(1.5, float64(bin)-s.low))
	}
	return max(-1.5, min(1.5, 2*(float64(bin)-s.low)/(s.high-s.low)-1))
}

// groups divides the services into two groups by k-means on their usage: 0 is
// low, 1 is high. In one dimension each group is a contiguous part of the
// sorted values, so all splits are tried. Equal values are in the same group.
func groups(used []float64) []int {
	sorted := slices.Sorted(slices.Values(used))
	threshold, least := math.Inf(-1), math.Inf(1)
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			continue
		}
		if d := spread(sorted[:i]) + spread(sorted[i:]); d < least {
			threshold, least = sorted[i], d
		}
	}
	group := make([]int, len(used))
	for i, u := range used {
		if u >= threshold {
			group[i] = 1
		}
	}
	return group
}

// spread is the sum of squared differences from the mean.
func spread(values []float64) float64 {
	var mean, sum float64
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return sum
}
