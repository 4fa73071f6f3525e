package bench

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // the tuned settings
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
	"golang.org/x/sync/errgroup"
)

// TuningSeeds is the default number of runs per point of a grid.
const TuningSeeds = 2

// Tuned is the settings of a baseline for a cell, and the result of their
// tuning.
type Tuned struct {
	App    string `json:"app"`
	Trace  string `json:"trace"`
	Choice Choice `json:"choice"`
	On     string `json:"on"`    // trace of the tuning runs, and its mean rate
	Seeds  int    `json:"seeds"` // runs per trial
	Holds  bool   `json:"holds"` // a trial kept the promises in all runs; otherwise the choice has the lowest p99
	// Edges are settings whose best value is the last one tried, though the
	// setting does not end there: the search did not find their optimum.
	Edges  []string `json:"edges,omitempty"`
	Trials []Trial  `json:"trials"`
}

// Trial is one point of the grid.
type Trial struct {
	Settings map[string]float64 `json:"settings"`
	Cores    float64            `json:"cores"`        // mean of its runs
	P99MS    float64            `json:"p99_ms"`       // highest of its runs
	Ratio    float64            `json:"windows_over"` // highest of its runs
	Holds    bool               `json:"holds"`        // every run kept the promises
}

// TunedSettings is a collection of tuned settings, and a description of the
// tuning.
type TunedSettings struct {
	Encoding int     `json:"encoding"`
	How      string  `json:"how"`
	Tuned    []Tuned `json:"tuned"`
}

//go:embed tuned.json
var shipped []byte

// Shipped returns the tuned settings that are part of aware.
func Shipped() (TunedSettings, error) {
	return ReadTunedSettings("tuned.json (embedded)", bytes.NewReader(shipped))
}

// ReadTunedSettings reads tuned settings. Errors contain the name.
func ReadTunedSettings(name string, r io.Reader) (TunedSettings, error) {
	var b TunedSettings
	d := json.NewDecoder(io.LimitReader(r, 16<<20))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return b, fmt.Errorf("tuned settings %s: %w", name, err)
	}
	if b.Encoding != Encoding {
		return b, fmt.Errorf("tuned settings %s: encoding %d: this aware reads encoding %d", name, b.Encoding, Encoding)
	}
	for _, t := range b.Tuned {
		if err := t.Choice.Check(); err != nil {
			return b, fmt.Errorf("tuned settings %s: %s under %s: %w", name, t.App, t.Trace, err)
		}
	}
	return b, nil
}

// Fingerprint is a hash of the settings. Results of other settings have another.
func (b TunedSettings) Fingerprint() uint32 {
	h := fnv.New32a()
	for _, t := range b.Tuned {
		fmt.Fprint(h, t.App, t.Trace, t.Choice.Policy)
		for _, name := range slices.Sorted(maps.Keys(t.Choice.Settings)) {
			fmt.Fprint(h, name, t.Choice.Settings[name])
		}
	}
	return h.Sum32()
}

// For returns the tuned settings of a baseline for a cell; ok is false when
// there are none.
func (b TunedSettings) For(c Cell, policy string) (t Tuned, ok bool) {
	i := slices.IndexFunc(b.Tuned, func(t Tuned) bool {
		return t.App == c.Application && t.Trace == c.tunedAs() && t.Choice.Policy == policy
	})
	if i < 0 {
		return Tuned{}, false
	}
	return b.Tuned[i], true
}

// Near returns the same as For. If there are no settings for the cell, it
// returns settings for the same application with another trace, which are
// better than the defaults.
func (b TunedSettings) Near(c Cell, policy string) (t Tuned, ok bool) {
	if t, ok = b.For(c, policy); ok {
		return t, true
	}
	i := slices.IndexFunc(b.Tuned, func(t Tuned) bool { return t.App == c.Application && t.Choice.Policy == policy })
	if i < 0 {
		return Tuned{}, false
	}
	return b.Tuned[i], true
}

// Tune tries the grid of a baseline on the cell's warm-up trace, one hour per
// seed, and refines it around the best point until that is no edge. It selects
// the settings with the fewest cores among those that keep the promises in every
// run. The static baseline must meet the SLO in every window, for
// an hour at the peak rate of the trace, because static limits are set for
// the peak. A baseline that is not tuned has its defaults. captain+ goes on from captain's settings, which are tuned first when
// they are not among the known ones.
func Tune(ctx context.Context, cell Cell, policy string, seeds int, known TunedSettings) (Tuned, error) {
	c, err := Named(policy)
	if err != nil {
		return Tuned{}, err
	}
	b, err := c.baseline()
	if err != nil {
		return Tuned{}, err
	}
	if !b.tunable() {
		return Tuned{App: cell.Application, Trace: cell.Trace.Name, Choice: c}, nil
	}
	switch policy {
	case "static":
		// Static limits are set for the worst case: the peak rate of
		// the trace.
		if cell.Warm, err = workload.Constant(cell.Trace.Peak(), time.Hour); err != nil {
			return Tuned{}, err
		}
		cell.Warm.Name = "constant at the trace's peak"
		peaks, err := peaks(ctx, cell)
		if err != nil {
			return Tuned{}, err
		}
		c = c.with(peaks)
	case "autothrottle":
		c = c.with(map[string]float64{"bin_rps": float64(cell.Bin)})
	}
	t := Tuned{
		App:   cell.Application,
		Trace: cell.Trace.Name,
		Seeds: seeds,
		On:    fmt.Sprintf("%s, mean %.0f requests/s", cell.Warm.Name, cell.Warm.Mean()),
	}
	s := search{cell: cell, start: c, baseline: b, tuned: &t}
	if policy == captainPlus {
		common, ok := known.For(cell, "captain")
		if !ok {
			if common, err = Tune(ctx, cell, "captain", seeds, known); err != nil {
				return Tuned{}, err
			}
		}
		return t, s.eachService(ctx, common.Choice.Settings)
	}
	for _, settings := range b.grid {
		if err := s.try(ctx, settings); err != nil {
			return t, err
		}
	}
	return t, s.refine(ctx)
}

// search is the tuning of one baseline in one cell.
type search struct {
	cell     Cell
	start    Choice
	baseline baseline
	tuned    *Tuned
	best     map[string]float64 // settings of the best trial so far
	cost     float64            // its cores, or its p99 when no trial holds
}

// try runs a point of the search, and keeps it when it is better than the best
// one. A point that was tried before is not run again.
func (s *search) try(ctx context.Context, settings map[string]float64) error {
	t := s.tuned
	if slices.ContainsFunc(t.Trials, func(o Trial) bool { return maps.Equal(o.Settings, settings) }) {
		return nil
	}
	choice, trial := s.start.with(settings), Trial{Settings: settings, Holds: true}
	for seed := range t.Seeds {
		score, err := rehearse(ctx, s.cell, choice, uint64(1000+seed))
		if err != nil {
			return err
		}
		trial.Cores += score.Cores / float64(t.Seeds)
		trial.P99MS = max(trial.P99MS, score.P99MS)
		trial.Ratio = max(trial.Ratio, score.Ratio)
		trial.Holds = trial.Holds && !score.Violates
	}
	if s.baseline.name == "static" {
		trial.Holds = trial.Holds && trial.Ratio == 0
	}
	t.Trials = append(t.Trials, trial)
	cost := trial.Cores
	if !trial.Holds {
		cost = trial.P99MS
	}
	if s.best == nil || trial.Holds && !t.Holds || trial.Holds == t.Holds && cost < s.cost {
		s.best, s.cost = settings, cost
		t.Choice, t.Holds = choice, trial.Holds
	}
	return nil
}

// refine leaves the grid: along each setting that the grid varies it goes on
// beyond the grid's edge while that helps, and then halves the distance to the
// neighbours of the best point, by golden section, until they are within 3 % of
// the range that was tried.
func (s *search) refine(ctx context.Context) error {
	for _, name := range s.varied() {
		if err := s.extend(ctx, name); err != nil {
			return err
		}
		if err := s.section(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range s.varied() {
		values := s.values(name)
		at := slices.Index(values, s.best[name])
		if limit, _ := s.baseline.setting(name); (at == 0 || at == len(values)-1) && !limit.natural(s.best[name]) {
			s.tuned.Edges = append(s.tuned.Edges, name)
		}
	}
	return nil
}

// natural reports whether a value is where a setting ends by its nature.
func (s setting) natural(v float64) bool { return v == s.lowest || v == s.highest || s.whole }

// varied are the settings that take several values in the grid, by name.
func (s *search) varied() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.best)) {
		if limit, ok := s.baseline.setting(name); ok && !limit.whole && len(s.values(name)) > 1 {
			names = append(names, name)
		}
	}
	return names
}

// values are the values of a setting that were tried with the other settings of
// the best point, in order.
func (s *search) values(name string) []float64 {
	var values []float64
	for _, t := range s.tuned.Trials {
		same := true
		for k, v := range s.best {
			same = same && (k == name || t.Settings[k] == v)
		}
		if v, ok := t.Settings[name]; ok && same && len(t.Settings) == len(s.best) {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// at is the best point with another value of a setting.
func (s *search) at(name string, v float64) map[string]float64 {
	m := maps.Clone(s.best)
	m[name] = v
	return m
}

// extend goes on beyond the edge of the grid while the best point is there.
func (s *search) extend(ctx context.Context, name string) error {
	limit, _ := s.baseline.setting(name)
	for range 8 {
		values := s.values(name)
		if len(values) < 2 {
			return nil
		}
		var next float64
		switch last := len(values) - 1; s.best[name] {
		case values[0]:
			next = max(limit.lowest, values[0]-(values[1]-values[0]))
		case values[last]:
			next = min(limit.highest, values[last]+(values[last]-values[last-1]))
		default:
			return nil
		}
		if next = math.Round(next*1e4) / 1e4; next == s.best[name] {
			return nil
		}
		if err := s.try(ctx, s.at(name, next)); err != nil {
			return err
		}
		if s.best[name] != next {
			return nil
		}
	}
	return nil
}

// section halves the wider of the best point's two gaps, by golden section.
func (s *search) section(ctx context.Context, name string) error {
	const golden = 0.382
	for range 5 {
		values := s.values(name)
		at := slices.Index(values, s.best[name])
		if at <= 0 || at == len(values)-1 {
			return nil
		}
		below, above := values[at]-values[at-1], values[at+1]-values[at]
		if max(below, above) < 0.03*(values[len(values)-1]-values[0]) {
			return nil
		}
		next := values[at] + golden*above
		if below > above {
			next = values[at] - golden*below
		}
		if err := s.try(ctx, s.at(name, math.Round(next*1e4)/1e4)); err != nil {
			return err
		}
	}
	return nil
}

// ownTargets is the number of services that may have a target of their own: those
// that use most of the application's CPU. The others share one.
const ownTargets = 11

// ladder is the targets that eachService tries.
var ladder = []float64{0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}

// eachService begins with one target for all services, and changes one service's
// after the other, the largest service first and those without a target of their
// own last: up the ladder while that helps, otherwise down.
func (s *search) eachService(ctx context.Context, common map[string]float64) error {
	start := maps.Clone(common)
	names := s.largest(ownTargets)
	for i := range names {
		names[i] = "target." + names[i]
		start[names[i]] = common["target"]
	}
	if err := s.try(ctx, start); err != nil {
		return err
	}
	for _, name := range append(names, "target") {
		for _, up := range []bool{true, false} {
			from := s.best[name]
			if err := s.climb(ctx, name, up); err != nil {
				return err
			}
			if s.best[name] != from {
				break
			}
		}
	}
	return nil
}

// climb moves a setting of the best point along the ladder while that helps.
func (s *search) climb(ctx context.Context, name string, up bool) error {
	for {
		from := s.best[name]
		next := slices.IndexFunc(ladder, func(v float64) bool { return v > from })
		if next < 0 {
			next = len(ladder)
		}
		if !up {
			next = slices.IndexFunc(ladder, func(v float64) bool { return v >= from }) - 1
		}
		if next < 0 || next == len(ladder) {
			return nil
		}
		if err := s.try(ctx, s.at(name, ladder[next])); err != nil {
			return err
		}
		if s.best[name] == from {
			return nil
		}
	}
}

// largest are the n services that need most CPU, by their work per request.
func (s *search) largest(n int) []string {
	need := map[string]float64{}
	for name, d := range newOracle(s.cell.App, s.cell.Warm, time.Minute).services {
		for _, cores := range d.mean {
			need[name] += cores
		}
	}
	var names []string
	for _, v := range s.cell.App.Services {
		need[v.Name] *= float64(v.Replicas)
		names = append(names, v.Name)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(need[b], need[a]) })
	return names[:min(n, len(names))]
}

// rehearse runs a choice in the cell with the warm-up trace instead of the
// trace.
func rehearse(ctx context.Context, cell Cell, c Choice, seed uint64) (Score, error) {
	cell.Trace = cell.Warm
	warm, err := Warm(ctx, cell, c, seed)
	if err != nil {
		return Score{}, err
	}
	return Run(ctx, cell, c, Options{Seed: seed, Tower: warm})
}

// Warm returns a tower after its hours of warm-up, for Options.Tower. It returns
// nil for a choice without a tower or without warm-up.
func Warm(ctx context.Context, cell Cell, c Choice, seed uint64) (*tower.Tower, error) {
	hours := c.get("warm_hours")
	if c.Policy != "autothrottle" || hours == 0 {
		return nil, nil
	}
	var warm *tower.Tower
	cell.Trace = cell.Warm
	_, err := Run(ctx, cell, c, Options{
		Seed:   seed + 77,
		Length: time.Duration(hours * float64(time.Hour)),
		After:  func(t *tower.Tower) { warm = t },
	})
	return warm, err
}

// peaks returns the highest CPU use of each service in any 100 ms of the
// warm-up trace, in millicores. The keys are settings of the static baseline.
func peaks(ctx context.Context, cell Cell) (map[string]float64, error) {
	app := cell.App
	w, err := sim.New(sim.Config{App: app, Cluster: workload.Machines, Load: cell.Warm, Seed: 999})
	if err != nil {
		return nil, err
	}
	highest := map[string]float64{}
	sensors := make([]mdp.Sensor, len(app.Services))
	for i, h := range w.Services() {
		sensors[i] = h.Sensor()
	}
	for w.Elapsed() < cell.Warm.Length() {
		w.Advance(5 * time.Second)
		for i, h := range w.Services() {
			s, err := sensors[i].Sense(ctx, w.Now())
			if err != nil {
				return nil, err
			}
			if s.Knows(mdp.CPUPeak) {
				key := "cpu." + h.Name()
				highest[key] = max(highest[key], float64(max(1, s.CPUPeak)))
			}
		}
	}
	return highest, nil
}

// InParallel runs n jobs with one goroutine per CPU. It stops at the first
// error.
func InParallel(ctx context.Context, n int, job func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return job(ctx, i)
		})
	}
	return g.Wait()
}

// TuneAll tunes baselines in cells, those of one cell in the given order. It
// calls done after each, never concurrently.
func TuneAll(ctx context.Context, cells []Cell, policies []string, seeds int, done func(Tuned)) (TunedSettings, error) {
	all := TunedSettings{
		Encoding: Encoding,
		Tuned:    make([]Tuned, len(cells)*len(policies)),
		How: fmt.Sprintf(
			"aware bench tune: each point of a baseline's grid drives the application for an hour of the warm-up trace "+
				"(%s at the cell's mean rate) with %d seeds (static at the peak rate of the cell); taken are the least "+
				"cores among the points that hold the objective in every run (static in every window)", warmUp, seeds),
	}
	lock := make(chan struct{}, 1)
	err := InParallel(ctx, len(cells), func(ctx context.Context, i int) error {
		var known TunedSettings
		for k, policy := range policies {
			t, err := Tune(ctx, cells[i], policy, seeds, known)
			if err != nil {
				return err
			}
			known.Tuned = append(known.Tuned, t)
			all.Tuned[i*len(policies)+k] = t
			lock <- struct{}{}
			done(t)
			<-lock
		}
		return nil
	})
	return all, err
}
