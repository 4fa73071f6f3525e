package calibrate

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Row is one line of the table that people read.
type Row struct {
	What     string
	Held     int
	Figure   string   // name of the figure
	Value    *float64 // nil when it could not be measured
	Target   float64  // what the project set itself
	AtLeast  bool     // the target is a floor, else a ceiling
	Reason   string   // why there is no value
	Protocol string
}

// Met says whether the target is reached; not knowing is not reaching.
func (r Row) Met() bool {
	return r.Value != nil && (r.AtLeast && *r.Value >= r.Target || !r.AtLeast && *r.Value <= r.Target)
}

// Verdict is for people: the target, and whether it is reached.
func (r Row) Verdict() string {
	sign := "<="
	if r.AtLeast {
		sign = ">="
	}
	switch {
	case r.Value == nil:
		return fmt.Sprintf("%s %.2f: not measured", sign, r.Target)
	case r.Met():
		return fmt.Sprintf("%s %.2f: reached", sign, r.Target)
	}
	return fmt.Sprintf("%s %.2f: MISSED", sign, r.Target)
}

// Shown is the value for people.
func (r Row) Shown() string {
	if r.Value == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *r.Value)
}

// Table lists the figures beside their targets.
func (r *Result) Table() []Row {
	c, t, i := r.Cilantro, r.Time, r.Interference
	w, g := c.ByPolicy, c.Regression
	random := "a random fifth of the windows, five times over"
	policy := "each policy in turn"
	inputs := "each policy in turn; from the offered load and the allocations"
	randomReads := random + "; reads the completed rate"
	reads := policy + "; reads the completed rate"
	majority := 0.5
	if m := w.Saturated.Majority; m != nil {
		majority = *m + 0.01 // who always gives the more frequent answer has predicted nothing
	}
	const world, regression = "simulated world", "regression"
	return []Row{
		{world, w.Held, "Spearman, all policies together", w.Spearman, 0.40, true, c.WorldReason, inputs},
		{world, w.Held, "Spearman, mean within policies", w.Within, 0.40, true, c.WorldReason, inputs},
		{world, w.Held, "median APE", w.MedianAPE, 0.35, false, c.WorldReason, inputs},
		{world, w.Held, "median APE, raised to the lowest p99", w.Reported, 0.35, false, c.WorldReason, inputs},
		{world, w.Held, "median APE, completed rate", w.Completed, 0.15, false, c.WorldReason, inputs},
		{world, w.Held, "accuracy, saturated or not", w.Saturated.Accuracy, majority, true, c.WorldReason, inputs},
		{regression + ", random", g.Random.Held, "Spearman", g.Random.Spearman, 0.65, true, c.Reason, randomReads},
		{regression + ", random", g.Random.Held, "median APE", g.Random.MedianAPE, 0.30, false, c.Reason, randomReads},
		{regression + ", by policy", g.ByPolicy.Held, "Spearman", g.ByPolicy.Spearman, 0.60, true, c.Reason, reads},
		{regression + ", by policy", g.ByPolicy.Held, "median APE", g.ByPolicy.MedianAPE, 0.50, false, c.Reason, reads},
		{"time", t.Held, "MAPE", t.MAPE, 0.20, false, t.Reason, "a fifth of each function's sizes, five times over"},
		{"interference", i.Held, "MAPE", i.MAPE, 0.20, false, i.Reason, "each team in turn"},
	}
}

// Print writes the table and what else a reader should know, for people.
func (r *Result) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "HELD OUT\tPOINTS\tFIGURE\tVALUE\tTARGET\tPROTOCOL")
	for _, row := range r.Table() {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", row.What, row.Held, row.Figure, row.Shown(), row.Verdict(), row.Protocol)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, note := range r.Notes() {
		if _, err := fmt.Fprintln(out, "-", note); err != nil {
			return err
		}
	}
	return nil
}

// Notes are the sentences below the table.
func (r *Result) Notes() []string {
	var notes []string
	add := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	c, t, i := r.Cilantro, r.Time, r.Interference
	add(c.Reason != "", "windows: %s", c.Reason)
	add(c.Dropped > 0, "windows: %d have a p99 of 0 and are left out", c.Dropped)
	add(c.Regression.Refused > 0, "regression: %d saturated windows report a p99 below the mean that Little's law gives them; "+
		"they are not used to fit the tail, and are predicted like all others", c.Regression.Refused)
	add(c.WorldReason != "" && c.WorldReason != c.Reason, "simulated world: %s", c.WorldReason)
	for _, name := range names(c.Beside) {
		notes = append(notes, c.Beside[name].note(name))
	}
	for _, policy := range names(c.ByPolicy.Groups) {
		notes = append(notes, c.ByPolicy.Groups[policy].note("simulated world, "+policy+" left out"))
	}
	for _, policy := range names(c.Audit) {
		a := c.Audit[policy]
		notes = append(notes, fmt.Sprintf("records of %s: %d windows, %d allocations; "+
			"%d have a p99, a mean and a standard deviation that no distribution has together; "+
			"%.0f %% of the p99s have the two decimals that wrk2 prints; Spearman of the p99 with the completed rate %s",
			policy, a.Windows, a.Allocations, a.Impossible, 100*float64(a.Printed)/float64(a.Windows), shown(a.KnownRate)))
	}
	if f := c.Regression.Fit; f != nil {
		add(true, "regression, fitted to all windows: %.0f clients, %.2f s think time, %.0f requests/s offered; "+
			"unsaturated mean %.1f ms and p99 %.1f ms; saturated p99 %.2f times the mean wait, up to %.2f s",
			or(f.Clients), or(f.ThinkSeconds), or(f.OfferedPerSecond),
			or(f.QuietMeanMillis), or(f.QuietP99Millis), or(f.Spread), or(f.CeilingSeconds))
	}
	add(t.Reason != "", "time: %s", t.Reason)
	for _, a := range t.Absent {
		add(t.Reason == "", "time: %s is absent", a)
	}
	for _, set := range names(t.Sets) {
		add(t.Sets[set] != nil, "time, %s alone: MAPE %.3f", set, or(t.Sets[set]))
	}
	add(t.ByCPU != nil, "time with whole CPU limits held out: MAPE %.3f", or(t.ByCPU))
	add(t.Dropped > 0, "time: %d runs took 0 ms and are left out", t.Dropped)
	add(t.Unpredicted > 0, "time: %d held-out runs have no other run of their function", t.Unpredicted)
	if f := t.Failures; f != nil {
		add(f.Accuracy != nil, "failures from memory, same folds: %.1f %% right, %d of %d runs failed, %.1f %% of those foreseen",
			100*or(f.Accuracy), f.Failed, f.Held, 100*or(f.Recall))
	}
	add(i.Reason != "", "interference: %s", i.Reason)
	add(i.Unbased > 0, "interference: %d runs have no run alone of their own team; the others' is their base", i.Unbased)
	add(i.Unpredicted > 0, "interference: %d runs could not be predicted", i.Unpredicted)
	add(i.Threads != nil, "speedup with threads, each team held out in turn: MAPE %.3f", or(i.Threads))
	return notes
}

// note is a sentence about a predictor.
func (j Judged) note(name string) string {
	within := ""
	if j.Groups != nil {
		within = fmt.Sprintf(" (%s within policies)", shown(j.Within))
	}
	return fmt.Sprintf("%s: Spearman %s%s, median APE %s (%s raised to the lowest p99), completed rate %s; "+
		"saturated or not: accuracy %s (majority class %s, balanced %s)", name, shown(j.Spearman), within, shown(j.MedianAPE),
		shown(j.Reported), shown(j.Completed), shown(j.Saturated.Accuracy), shown(j.Saturated.Majority), shown(j.Saturated.Balanced))
}

func shown(v *float64) string { return Row{Value: v}.Shown() }

func or(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// Comparison is what was predicted against what was measured, in one kind of
// held-out data.
type Comparison struct {
	File   string // a name for files, without an extension
	Name   string // for people
	Unit   string
	Points []Point
	// X and Y name the axes; "" is measured and predicted.
	X, Y string
}

// Comparisons lists all of them; one without points could not be made.
func (r *Result) Comparisons() []Comparison {
	c := r.Cilantro
	return []Comparison{
		{File: "world-p99", Name: "p99, simulated world, each policy held out", Unit: "ms", Points: c.ByPolicy.points},
		{File: "world-rate", Name: "Completed rate, simulated world, each policy held out", Unit: "1/s", Points: c.ByPolicy.rates},
		{File: "records", Name: "The records themselves: p99 against standard deviation", Unit: "ms", Points: c.records,
			X: "published standard deviation", Y: "published p99"},
		{File: "loop-random", Name: "p99, regression, random fifths held out", Unit: "ms", Points: c.Regression.Random.points},
		{File: "loop-by-policy", Name: "p99, regression, each policy held out", Unit: "ms", Points: c.Regression.ByPolicy.points},
		{File: "time", Name: "Time of a run, sizes held out", Unit: "ms", Points: r.Time.points},
		{File: "interference", Name: "Time under interference, each team held out", Unit: "s", Points: r.Interference.points},
	}
}
