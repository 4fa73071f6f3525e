// Package tower is Autothrottle's application-level controller (Wang et al., NSDI 2024, §3.4): once a minute it picks
// the throttle targets that the captains of an application's services keep, so that the application holds its latency
// SLO with little CPU.
//
// It is a contextual bandit. The context is the load, in bins of requests per second. Services are in two groups, those
// that use little CPU and those that use much, and an action is a target for each group out of nine: 81 actions. After
// a minute its action has a cost: the CPU that was allocated, scaled to [0, 1], if the SLO held; otherwise 2 and the
// latency, scaled to [0, 1]. Whatever holds the SLO is cheaper than whatever does not; where nothing holds it, the least
// latency is cheapest. From the medians of the costs by bin and action a small neural network learns to predict them; the
// tower picks the cheapest prediction, and now and then one of its neighbours.
//
// A Tower has no clock: the caller calls [Tower.Observe] at the end of each minute, and gives [Tower.Targets] to the
// captains (captain.Retarget) for the next.
//
// Departures from the paper, whose bandit is Vowpal Wabbit's (--cb_explore 81 --nn 3 --l 0.5):
//  1. The network is our own: 3 tanh units and AdaGrad at a rate of 0.5, trained from the beginning each minute. It
//     sees the action as figures; Vowpal Wabbit has weights apart for each of the 81, and must try each.
//  2. An action that was tried in this very bin is judged by its median and the network together, the more by the
//     median the more often it was tried. It stands for what 1 takes away.
//  3. Allocation is scaled between the least and the largest median so far, and the latency of a violation is
//     1 - SLO/latency: neither needs a bound that somebody has to know.
//  4. In the first minutes, ExploreFirst of them, actions are picked at random. The groups are formed anew from the mean
//     usage after each of as many minutes whose usage is known, and then stay; the few costs from under another
//     grouping are kept.
//  5. Of a bin and action only the latest 15 minutes are kept, so that the application may change.
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

// ladder is the throttle targets that a group can have, from the safest to the most thrifty.
var ladder = [...]mdp.Ratio{0, 0.02, 0.04, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3}

// Config is a tower's settings. Begin with [Default] and add an SLO.
type Config struct {
	// SLO has a latency objective; a minute whose latency is above it violates it.
	SLO mdp.SLO
	// BinRPS is the width of a bin of load, in requests per second. The paper has 20, and 200 for Hotel-Reservation: a
	// few tens of bins between the least and the largest load is right.
	BinRPS mdp.Rate
	// Epsilon is the share of minutes, in [0, 1], in which a neighbour of the best action is tried.
	Epsilon mdp.Ratio
	// ExploreFirst is how many minutes to begin with have random actions.
	ExploreFirst int
	// Samples is how many draws from the medians the network is trained on each minute: time against precision.
	Samples int
}

// Default is the paper's, and an exploration as long as its warm-up.
var Default = Config{BinRPS: 20, Epsilon: 0.1, ExploreFirst: 12, Samples: 10_000}

// Check names the field that is wrong, its value and the rule.
func (c Config) Check() error {
	switch {
	case c.SLO.Latency <= 0:
		return fmt.Errorf("tower SLO latency %v: it must be above zero", c.SLO.Latency)
	case !(c.BinRPS > 0 && c.BinRPS <= maxRPS):
		return fmt.Errorf("tower bin of %v requests per second: it must be in (0, %v]", float64(c.BinRPS), float64(maxRPS))
	case !(c.Epsilon >= 0 && c.Epsilon <= 1):
		return fmt.Errorf("tower epsilon %v: it must be in [0, 1]", float64(c.Epsilon))
	case c.ExploreFirst < 0:
		return fmt.Errorf("tower explore first %d minutes: it must not be below zero", c.ExploreFirst)
	case c.Samples < 1 || c.Samples > 1_000_000:
		return fmt.Errorf("tower samples %d: it must be in [1, 1000000]", c.Samples)
	}
	return c.SLO.Check()
}

// Minute is what came of a minute under the Targets. A figure is meaningful only when its signal is in Observed.
type Minute struct {
	Observed  mdp.Set
	RPS       mdp.Rate       // Throughput: requests per second of the application
	Latency   time.Duration  // Latency: at the SLO's percentile
	Allocated mdp.MilliCPU   // CPULimit: the mean over the minute, all services and replicas together
	Usage     []mdp.MilliCPU // CPUUsage: of each service, in their order; optional
}

// Tower picks the throttle targets of one application. It is used by one goroutine at a time.
type Tower struct {
	config   Config
	services []string

	minutes int    // that were learned from
	action  action // in force
	used    []float64
	usages  int   // minutes whose usage is in used
	group   []int // of each service: 0 uses little CPU, 1 much
	cells   []cell
	source  *rand.PCG
	random  *rand.Rand
}

// action is a notch of the ladder for each group.
type action [2]int

// cell is what is known of one action in one bin.
type cell struct {
	bin     int
	action  action
	samples []sample // at most remembered, oldest first
	median  sample   // of them
}

// sample is a minute's outcome.
type sample struct {
	allocated mdp.MilliCPU
	latency   time.Duration
}

// remembered is how many minutes of a cell are kept.
const remembered = 15

// New makes a tower that has learned nothing; the config must be one that passes Check. It begins with the safest
// targets.
func New(c Config, services []string, seed uint64) *Tower {
	t := &Tower{config: c, services: slices.Clone(services), used: make([]float64, len(services)), source: rand.NewPCG(seed, 0)}
	t.random = rand.New(t.source)
	t.group = groups(t.used)
	return t
}

// Targets is the throttle target of each service, in their order, for the next minute.
func (t *Tower) Targets() []mdp.Ratio {
	targets := make([]mdp.Ratio, len(t.group))
	for i, g := range t.group {
		targets[i] = ladder[t.action[g]]
	}
	return targets
}

// Observe learns from a minute and picks the targets for the next. From a minute without requests, allocation or latency
// observed nothing is learned, the targets stay and the error is an *[mdp.UnknownError]; so it is, with another error, of
// a minute whose figures cannot be.
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
	bin := int(m.RPS / t.config.BinRPS)
	t.keep(bin, t.action, sample{m.Allocated, m.Latency})
	if t.usages < max(1, t.config.ExploreFirst) && m.Observed.Has(mdp.CPUUsage) {
		for i, u := range m.Usage {
			t.used[i] += float64(u)
		}
		t.usages++
		t.group = groups(t.used)
	}
	t.minutes++
	t.action = t.pick(bin)
	return nil
}

// plausible refuses figures that no application has, before they are remembered.
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

// A million cores, a billion requests per second, a million bins: beyond them a figure is an accident.
const (
	maxCPU mdp.MilliCPU = 1_000_000_000
	maxRPS mdp.Rate     = 1_000_000_000
	maxBin              = 1_000_000
)

// keep remembers a minute. Cells are in order, so that what is learned does not depend on how they came.
func (t *Tower) keep(bin int, a action, s sample) {
	i, found := slices.BinarySearchFunc(t.cells, cell{bin: bin, action: a}, inOrder)
	if !found {
		t.cells = slices.Insert(t.cells, i, cell{bin: bin, action: a})
	}
	c := &t.cells[i]
	if len(c.samples) == remembered {
		c.samples = slices.Delete(c.samples, 0, 1)
	}
	c.samples = append(c.samples, s)
	c.median = t.median(c.samples)
}

func inOrder(a, b cell) int {
	return cmp.Or(cmp.Compare(a.bin, b.bin), cmp.Compare(a.action[0], b.action[0]), cmp.Compare(a.action[1], b.action[1]))
}

// pick is the action for the next minute, whose load is taken to be that of the last.
func (t *Tower) pick(bin int) action {
	if t.minutes <= t.config.ExploreFirst {
		return action{t.random.IntN(len(ladder)), t.random.IntN(len(ladder))}
	}
	best := t.best(bin)
	if t.random.Float64() >= float64(t.config.Epsilon) {
		return best
	}
	near := neighbours(best)
	return near[t.random.IntN(len(near))]
}

// best is the action with the least cost in a bin; of equals, the safest.
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

// doubt is how many minutes of an action in a bin weigh as much as the network's prediction.
const doubt = 0.25

// neighbours are the actions one notch from this one in one group.
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

// example is a cell as the network sees it.
type example struct {
	input input
	cost  float64 // of the median minute
	times int     // minutes that it is the median of
}

// examples are the cells, in their order, with their costs and on one scale of load.
func (t *Tower) examples() ([]example, scale) {
	least, largest := maxCPU, mdp.MilliCPU(0)
	for _, c := range t.cells {
		least, largest = min(least, c.median.allocated), max(largest, c.median.allocated)
	}
	// The cells are in the order of their bins.
	s := scale{low: float64(t.cells[0].bin), high: float64(t.cells[len(t.cells)-1].bin)}
	examples := make([]example, len(t.cells))
	for i, c := range t.cells {
		examples[i] = example{input{c.action, s.of(c.bin)}, t.cost(c.median, least, largest), len(c.samples)}
	}
	return examples, s
}

// cost is the paper's: in [0, 1] if the SLO held, in [2, 3] if not.
func (t *Tower) cost(s sample, least, largest mdp.MilliCPU) float64 {
	if t.violated(s) {
		return 3 - float64(t.config.SLO.Latency)/float64(s.latency)
	}
	if largest == least {
		return 0
	}
	return float64(s.allocated-least) / float64(largest-least)
}

// median is the sample in the middle of the costs; of two in the middle, the dearer.
func (t *Tower) median(samples []sample) sample {
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
	return ordered[len(ordered)/2]
}

func (t *Tower) violated(s sample) bool { return s.latency > t.config.SLO.Latency }

// scale brings bins to [-1, 1], and those that were never seen somewhat beyond.
type scale struct{ low, high float64 }

func (s scale) of(bin int) float64 {
	if s.low == s.high {
		return max(-1.5, min(1.5, float64(bin)-s.low))
	}
	return max(-1.5, min(1.5, 2*(float64(bin)-s.low)/(s.high-s.low)-1))
}

// groups splits the services in two by k-means on their usage: 0 uses little, 1 much. In one dimension each group is a
// run of the sorted usages, so every split is tried. Equals stay together; when all are, they are one group.
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

// spread is the sum of squared distances from the mean.
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
