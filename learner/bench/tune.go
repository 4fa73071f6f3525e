package bench

import (
	"bytes"
	"context"
	_ "embed" // the tuned settings
	"encoding/json"
	"fmt"
	"io"
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
	App    string  `json:"app"`
	Trace  string  `json:"trace"`
	Choice Choice  `json:"choice"`
	On     string  `json:"on"`    // trace of the tuning runs, and its mean rate
	Seeds  int     `json:"seeds"` // runs per trial
	Holds  bool    `json:"holds"` // a trial met the SLO in all runs; otherwise the choice has the lowest p99
	Trials []Trial `json:"trials"`
}

// Trial is one point of the grid.
type Trial struct {
	Settings map[string]float64 `json:"settings"`
	Cores    float64            `json:"cores"`               // mean of its runs
	P99MS    float64            `json:"p99_ms"`              // highest of its runs
	Ratio    float64            `json:"slo_violation_ratio"` // highest of its runs
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

// For returns the tuned settings of a baseline for a cell; ok is false when
// there are none.
func (b TunedSettings) For(c Cell, policy string) (t Tuned, ok bool) {
	i := slices.IndexFunc(b.Tuned, func(t Tuned) bool {
		return t.App == c.Application && t.Trace == c.Trace.Name && t.Choice.Policy == policy
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
// seed. It selects the settings with the fewest cores among those that meet the
// SLO in every run. The static baseline must meet the SLO in every window, for
// 20 minutes at the peak rate of the trace, because static limits are set for
// the peak.
func Tune(ctx context.Context, cell Cell, policy string, seeds int) (Tuned, error) {
	c, err := Named(policy)
	if err != nil {
		return Tuned{}, err
	}
	b, err := c.baseline()
	if err != nil {
		return Tuned{}, err
	}
	switch policy {
	case "static":
		// Static limits are set for the worst case: the peak rate of
		// the trace.
		if cell.Warm, err = workload.Constant(cell.Trace.Peak(), 20*time.Minute); err != nil {
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
	best := math.Inf(1)
	for _, settings := range b.grid {
		tried, trial := c.with(settings), Trial{Settings: settings}
		for seed := range seeds {
			s, err := rehearse(ctx, cell, tried, uint64(1000+seed))
			if err != nil {
				return t, err
			}
			trial.Cores += s.Cores / float64(seeds)
			trial.P99MS = max(trial.P99MS, s.P99MS)
			trial.Ratio = max(trial.Ratio, s.Ratio)
		}
		t.Trials = append(t.Trials, trial)
		holds := trial.P99MS <= float64(cell.App.SLO.Latency)/float64(time.Millisecond)
		if policy == "static" {
			holds = holds && trial.Ratio == 0
		}
		cost := trial.Cores
		if !holds {
			cost = trial.P99MS
		}
		if holds && !t.Holds || holds == t.Holds && cost < best {
			best = cost
			t.Choice = tried
			t.Holds = holds
		}
	}
	return t, nil
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
	w, err := sim.New(sim.Config{App: app, Cluster: Machines, Load: cell.Warm, Seed: 999})
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

// inParallel runs n jobs with one goroutine per CPU. It stops at the first
// error.
func inParallel(ctx context.Context, n int, job func(ctx context.Context, i int) error) error {
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

// TuneAll tunes baselines in cells. It calls done after each, never
// concurrently.
func TuneAll(ctx context.Context, cells []Cell, policies []string, seeds int, done func(Tuned)) (TunedSettings, error) {
	all := TunedSettings{
		Encoding: Encoding,
		Tuned:    make([]Tuned, len(cells)*len(policies)),
		How: fmt.Sprintf(
			"aware bench tune: each point of a baseline's grid drives the application for an hour of the warm-up trace (%s at the cell's mean rate) with %d seeds (static for 20 minutes of the cell's peak rate); "+
				"taken are the least cores among the points that hold the objective in every run (static in every window)", warmUp, seeds),
	}
	lock := make(chan struct{}, 1)
	err := inParallel(ctx, len(all.Tuned), func(ctx context.Context, i int) error {
		t, err := Tune(ctx, cells[i/len(policies)], policies[i%len(policies)], seeds)
		if err != nil {
			return err
		}
		all.Tuned[i] = t
		lock <- struct{}{}
		done(t)
		<-lock
		return nil
	})
	return all, err
}
