package margins

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"awarescale.dev/aware/learner/bench"
)

// Outcome is what came out of one world.
type Outcome struct {
	Tail  float64 // mean logarithm of the shares of late requests
	Late  float64 // share of the requests above the SLO
	Cores float64 // mean of the limits
}

// Judge runs a world with the margins of all services, in their order. The same arguments give the same
// Outcome. It is called by several goroutines.
type Judge func(ctx context.Context, world uint64, margins []float64) (Outcome, error)

// Config is the settings of a Learner. Start with [Default].
type Config struct {
	Worlds int     // in each round
	Late   float64 // share of late requests at which margins are compared
	Lower  float64 // by how much a margin is lowered to see what that does
	Step   float64 // of a margin, for each e-fold of the ratio to the mean; halved when it does not help
	Most   float64 // a margin moves by, in a round
	Seed   uint64
}

// Default is for an SLO of the 99th percentile.
var Default = Config{Worlds: 2, Late: 0.008, Lower: 0.7, Step: 0.6, Most: 0.8, Seed: 1}

// Check is nil for valid settings. Otherwise the error names the field, its value and the rule.
func (c Config) Check() error {
	switch {
	case c.Worlds < 1:
		return fmt.Errorf("margins: worlds %d: it must be at least 1", c.Worlds)
	case !(c.Late > 0 && c.Late < 0.5):
		return fmt.Errorf("margins: late %v: it must be above 0 and below 0.5", c.Late)
	case !(c.Lower > 0 && c.Lower <= 3) || !(c.Step > 0 && c.Step <= 2) || !(c.Most > 0 && c.Most <= 3):
		return fmt.Errorf("margins: lower %v, step %v, most %v: they must be above 0 and at most 3, 2 and 3",
			c.Lower, c.Step, c.Most)
	}
	return nil
}

// State is what a Learner knows.
type State struct {
	Margins []float64 `json:"margins"` // of each service
	Step    float64   `json:"step"`    // 0: that of the Config
	Tails   []float64 `json:"tails"`   // what lowering each service's margin adds to the tail, sums that fade
	Freed   []float64 `json:"freed"`   // and the cores that it frees
	Rounds  []Round   `json:"rounds"`
}

// Round is what one round has found.
type Round struct {
	Before float64 `json:"cores_before"` // in the round's worlds, at the same share of late requests
	After  float64 `json:"cores_after"`
	Kept   bool    `json:"kept"`
}

// Learner learns the margins of one application.
type Learner struct {
	config Config
	judge  Judge
	state  State
}

// New makes a learner of n services that goes on from a State; the zero State is the begin.
func New(c Config, n int, judge Judge, from State) (*Learner, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if from.Margins == nil {
		from.Margins = make([]float64, n)
	}
	if len(from.Margins) != n {
		return nil, fmt.Errorf("margins: a state of %d services, and the application has %d", len(from.Margins), n)
	}
	if from.Step == 0 {
		from.Step = c.Step
	}
	if from.Tails == nil {
		from.Tails, from.Freed = make([]float64, n), make([]float64, n)
	}
	if len(from.Tails) != n || len(from.Freed) != n {
		return nil, fmt.Errorf("margins: a state with %d tails and %d figures of cores for %d services",
			len(from.Tails), len(from.Freed), n)
	}
	return &Learner{config: c, judge: judge, state: from.clone()}, nil
}

// State is what the learner knows now.
func (l *Learner) State() State { return l.state.clone() }

func (s State) clone() State {
	s.Margins, s.Rounds = slices.Clone(s.Margins), slices.Clone(s.Rounds)
	s.Tails, s.Freed = slices.Clone(s.Tails), slices.Clone(s.Freed)
	return s
}

// fades is what remains of a round's figures in the next one: a single world says little of the
// services that few requests call.
const fades = 0.6

// Round is one improvement. done is called after each world that was run, by one goroutine at a time, with how many are to be
// run, roughly; it may be nil. An interrupted round changes nothing.
func (l *Learner) Round(ctx context.Context, done func(of int)) (Round, error) {
	n, worlds := len(l.state.Margins), l.worlds()
	run := counter{judge: l.judge, done: done, of: len(worlds) * (n + 2*tries)}
	before, levels, err := l.cores(ctx, &run, worlds, l.state.Margins)
	if err != nil {
		return Round{}, err
	}
	outcomes := make([]Outcome, n*len(worlds))
	base := make([]Outcome, len(worlds))
	if err := bench.InParallel(ctx, len(base)+len(outcomes), func(ctx context.Context, k int) (err error) {
		if k < len(base) {
			base[k], err = run.one(ctx, worlds[k], shifted(l.state.Margins, levels[k]))
			return err
		}
		k -= len(base)
		i, w := k/len(worlds), k%len(worlds)
		lowered := shifted(l.state.Margins, levels[w])
		lowered[i] -= l.config.Lower
		outcomes[k], err = run.one(ctx, worlds[w], lowered)
		return err
	}); err != nil {
		return Round{}, err
	}
	to := l.state.clone()
	for i := range n {
		to.Tails[i] *= fades
		to.Freed[i] *= fades
	}
	for k, o := range outcomes {
		b := base[k%len(worlds)]
		to.Tails[k/len(worlds)] += o.Tail - b.Tail
		to.Freed[k/len(worlds)] += b.Cores - o.Cores
	}
	next := l.move(to.Tails, to.Freed)
	after, _, err := l.cores(ctx, &run, worlds, next)
	if err != nil {
		return Round{}, err
	}
	r := Round{Before: before, After: after, Kept: after < before}
	if r.Kept {
		to.Margins = next
	} else {
		to.Step = max(to.Step/2, l.config.Step/leastStep)
	}
	to.Rounds = append(to.Rounds, r)
	l.state = to
	return r, nil
}

// worlds are the seeds of the next round's worlds.
func (l *Learner) worlds() []uint64 {
	seeds := make([]uint64, l.config.Worlds)
	for i := range seeds {
		seeds[i] = l.config.Seed<<32 + uint64(len(l.state.Rounds)*l.config.Worlds+i)
	}
	return seeds
}

// leastStep is how small a step becomes, at least: rounds differ, and a bad one is not the end.
const leastStep = 8

// least is the tail, as a share of the mean one, that a service is taken to have: one with none would lose all of its margin.
const least = 0.05

// move is the margins after a round: up where a core buys more tail than in the mean, down where it buys less. What is in the
// mean is weighted by cores, so that the level stays about what it is.
func (l *Learner) move(tails, freed []float64) []float64 {
	next := slices.Clone(l.state.Margins)
	var tail, cores float64
	for i := range next {
		tail += max(0, tails[i])
		cores += max(0, freed[i])
	}
	if tail <= 0 || cores <= 0 {
		return next
	}
	moves, sum := make([]float64, len(next)), 0.0
	for i := range next {
		if freed[i] <= 0 {
			continue
		}
		ratio := max(tails[i]/freed[i]/(tail/cores), least)
		moves[i] = max(-l.config.Most, min(l.config.Most, l.state.Step*math.Log(ratio)))
		sum += moves[i] * freed[i] / cores
	}
	for i := range next {
		if freed[i] > 0 {
			next[i] += moves[i] - sum
		}
	}
	return next
}

// tries is how often a level is corrected.
const tries = 5

// cores is the mean cores of the worlds, each at its own level, at which the share of late requests is
// the wanted one. It is interpolated between the two levels next to it.
func (l *Learner) cores(ctx context.Context, run *counter, worlds []uint64, margins []float64) (
	mean float64, levels []float64, err error) {
	levels = make([]float64, len(worlds))
	cores := make([]float64, len(worlds))
	if err := bench.InParallel(ctx, len(worlds), func(ctx context.Context, w int) (err error) {
		levels[w], cores[w], err = l.level(ctx, run, worlds[w], margins)
		return err
	}); err != nil {
		return 0, nil, err
	}
	for _, c := range cores {
		mean += c / float64(len(cores))
	}
	return mean, levels, nil
}

// tried is a level and what came of it.
type tried struct{ level, late, cores float64 }

// level finds the level of one world by the secant, on the logarithm of the late requests.
func (l *Learner) level(ctx context.Context, run *counter, world uint64, margins []float64) (level, cores float64, err error) {
	const slope = -1.5 // of the logarithm for a level more, where it is not known yet
	var all []tried
	wanted := math.Log(l.config.Late)
	for range tries {
		o, err := run.one(ctx, world, shifted(margins, level))
		if err != nil {
			return 0, 0, err
		}
		all = append(all, tried{level, math.Log(max(1e-6, o.Late)), o.Cores})
		slices.SortFunc(all, func(a, b tried) int { return cmp.Compare(math.Abs(a.late-wanted), math.Abs(b.late-wanted)) })
		is := slope
		if len(all) > 1 && all[0].level != all[1].level {
			is = min(-0.2, (all[0].late-all[1].late)/(all[0].level-all[1].level))
		}
		level = max(-6, min(6, all[0].level+max(-1.5, min(1.5, (wanted-all[0].late)/is))))
		if math.Abs(all[0].late-wanted) < 0.02 {
			break
		}
	}
	a := all[0]
	if len(all) == 1 {
		return a.level, a.cores, nil
	}
	b := all[1]
	if a.late == b.late {
		return a.level, a.cores, nil
	}
	part := max(-1, min(1, (wanted-a.late)/(b.late-a.late)))
	return a.level + part*(b.level-a.level), a.cores + part*(b.cores-a.cores), nil
}

// shifted is margins with a level added to each.
func shifted(margins []float64, level float64) []float64 {
	m := slices.Clone(margins)
	for i := range m {
		m[i] += level
	}
	return m
}

// counter runs worlds, and says so.
type counter struct {
	judge Judge
	done  func(of int)
	of    int
	mu    sync.Mutex
}

func (c *counter) one(ctx context.Context, world uint64, margins []float64) (Outcome, error) {
	o, err := c.judge(ctx, world, margins)
	switch {
	case err != nil:
		return o, err
	case math.IsNaN(o.Tail) || math.IsInf(o.Tail, 0) || math.IsNaN(o.Cores) || math.IsNaN(o.Late):
		return o, fmt.Errorf("margins: world %d came out as %+v", world, o)
	}
	if c.done != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.done(c.of)
	}
	return o, nil
}
