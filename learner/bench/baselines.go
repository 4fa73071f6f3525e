package bench

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is a mean over seeds with its 95 % confidence interval (Student's
// t).
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// interval computes the Interval of a value of the runs. With a single run it
// has no width, and gives no information about other runs.
func interval(runs []Score, figure func(Score) float64) Interval {
	xs := make([]float64, len(runs))
	for i, r := range runs {
		xs[i] = figure(r)
	}
	mean, std := stat.MeanStdDev(xs, nil)
	if len(xs) < 2 {
		return Interval{mean, mean, mean}
	}
	n := float64(len(xs))
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * std / math.Sqrt(n)
	return Interval{mean, mean - half, mean + half}
}

// Row is the score of a policy in a cell: means over the seeds. See [Score] for
// the values and their units.
type Row struct {
	App      string   `json:"app"`
	Trace    string   `json:"trace"`
	Policy   string   `json:"policy"`
	Cores    float64  `json:"cores"`
	P99MS    float64  `json:"p99_ms"`
	Holds    bool     `json:"holds_all_seeds"` // every seed keeps its promises
	Violates bool     `json:"violates"`        // some seed does not
	Lost     float64  `json:"lost_ratio"`
	Late     float64  `json:"background_late_ratio"`
	Reward   float64  `json:"reward"`
	Fidelity string   `json:"fidelity"` // that judged it
	Ratio    float64  `json:"windows_over"`
	Flapping float64  `json:"flapping"`
	SLOMS    float64  `json:"slo_ms"`
	CoresCI  Interval `json:"cores_ci"`
	P99CI    Interval `json:"p99_ms_ci"`
	RatioCI  Interval `json:"windows_over_ci"`
	Mitigate float64  `json:"time_to_mitigate_s"`
	Used     float64  `json:"used_cores"`
	Memory   float64  `json:"memory_gib"`
	Started  float64  `json:"replicas_started"`
	Resizes  float64  `json:"resizes"`
	Runs     []Score  `json:"runs"` // one per seed
	Settings any      `json:"settings,omitempty"`
	Guards   string   `json:"guards"` // of the policy; see guard.Settings

	// Places in the cell, from 1; equal rows share one. See Rank.
	ByCores   int `json:"rank_cores,omitempty"` // 0 for a row that violates
	ByWindows int `json:"rank_windows"`

	// Set by Marks; see Floor.
	FloorCores  float64 `json:"floor,omitempty"` // in cores
	FloorIsRule bool    `json:"floor_is_rule,omitempty"`
	// ToFloor is (best rule - cores)/(best rule - floor) of a row that holds: 0 is the best rule, 1 the floor.
	ToFloor *float64 `json:"to_floor,omitempty"`
}

// row computes the Row of a choice from its runs.
func row(cell Cell, c Choice, runs []Score) Row {
	mean := func(figure func(Score) float64) float64 { return interval(runs, figure).Mean }
	r := Row{
		App:      cell.Application,
		Trace:    cell.Trace.Name,
		Policy:   c.Policy,
		Runs:     runs,
		SLOMS:    cell.App.SLO.Latency.Seconds() * 1000,
		CoresCI:  interval(runs, func(s Score) float64 { return s.Cores }),
		P99CI:    interval(runs, func(s Score) float64 { return s.P99MS }),
		RatioCI:  interval(runs, func(s Score) float64 { return s.Ratio }),
		Flapping: mean(func(s Score) float64 { return s.Flapping }),
		Mitigate: mean(func(s Score) float64 { return s.Mitigate }),
		Used:     mean(func(s Score) float64 { return s.Used }),
		Memory:   mean(func(s Score) float64 { return s.MemoryGiB }),
		Started:  mean(func(s Score) float64 { return float64(s.Started) }),
		Resizes:  mean(func(s Score) float64 { return float64(s.Resizes) }),
	}
	r.Cores = r.CoresCI.Mean
	r.P99MS = r.P99CI.Mean
	r.Ratio = r.RatioCI.Mean
	r.Holds = !slices.ContainsFunc(runs, func(s Score) bool { return s.Violates })
	r.Violates = !r.Holds
	r.Lost = mean(func(s Score) float64 { return s.LostRatio })
	r.Late = mean(func(s Score) float64 { return s.Late })
	r.Reward = mean(func(s Score) float64 { return s.Reward })
	r.Guards = c.Guards().String()
	switch {
	case c.joint != nil:
		r.Settings = map[string]string{"address": c.Policy}
	case c.Policy == "static":
		r.Settings = map[string]float64{"factor": c.get("factor")}
	default:
		r.Settings = c.Settings
	}
	return r
}

// Contestant is a policy in the comparison: a tuned baseline, or a policy file.
type Contestant struct {
	Name   string
	Choice *Choice // nil is the tuned baseline with that name
}

// tuned reports whether it is a rule that is tuned for each cell.
func (c Contestant) tuned() bool { return c.Choice == nil && slices.Contains(Tunable(), c.Name) }

// choice is the contestant's choice in a cell. It tunes a baseline that has no
// tuned settings for the cell.
func (c Contestant) choice(ctx context.Context, cell Cell, tuned TunedSettings) (Choice, error) {
	if c.Choice != nil {
		return *c.Choice, nil
	}
	if t, ok := tuned.For(cell, c.Name); ok {
		return t.Choice, nil
	}
	t, err := Tune(ctx, cell, c.Name, TuningSeeds, tuned)
	return t.Choice, err
}
