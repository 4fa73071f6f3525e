package draw

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"

	"awarescale.dev/aware/learner/bench/aware"
	"gonum.org/v1/plot/plotter"
)

// CostsData is what the report of fig. 3 and table 3 says, for a program.
func CostsData(fig aware.Fig3, all []aware.Cost) map[string]any {
	return map[string]any{"made": fig, "columns": aware.Columns(all), "early": fig.Table3(all)}
}

// Costs writes index.html and fig3.json of the experiment on what learning costs.
func Costs(dir string, fig aware.Fig3, all []aware.Cost) error {
	var lines []Line
	for _, c := range aware.Columns(all) {
		lines = append(lines, Line{c.What, meanCourse(all, c.What)})
	}
	one := 1.0
	retraining, err := Lines("reward while it is trained on", "episodes of training", "share of its best", &one, lines...)
	if err != nil {
		return err
	}
	var drives []aware.Drive
	for _, c := range all {
		drives = append(drives, c.Early...)
	}
	lines = nil
	for _, arm := range []aware.Arm{aware.NoBootstrap, aware.Rule} {
		lines = append(lines, Line{string(arm), meanOfEpisodes(drives, arm, func(f aware.Figures) (float64, bool) {
			return f.Mean(), f.Known > 0
		})})
	}
	early, err := Lines("the begin of training", "episode", "reward of a step", nil, lines...)
	if err != nil {
		return err
	}
	var table bytes.Buffer
	if err := PrintCosts(&table, fig, all); err != nil {
		return err
	}
	return Write(dir, "fig3.json", CostsData(fig, all), Page{
		Title: "What learning costs",
		About: "A policy that has converged in a workload is trained on in another application, and after each of the seven updates. " +
			"Below is the begin of training of an agent that knows nothing, beside the rule in the same episodes. " +
			"Intervals are 95 % ones over the repetitions.",
		Pictures: []Picture{retraining, early},
		Text:     table.String(),
	})
}

// meanCourse is the mean of the evaluations of a column, each as a share of the best one of its retraining.
func meanCourse(all []aware.Cost, what string) plotter.XYs {
	sum, n := map[int]float64{}, map[int]float64{}
	last := 0
	for _, one := range all {
		for _, r := range one.Retrainings {
			most := 0.0
			for _, p := range r.Course.Evaluations {
				most = max(most, p.Reward)
			}
			if r.What != what || most == 0 {
				continue
			}
			for _, p := range r.Course.Evaluations {
				sum[p.Episode] += p.Reward / most
				n[p.Episode]++
				last = max(last, p.Episode)
			}
		}
	}
	var xy plotter.XYs
	for i := range last + 1 {
		if n[i] > 0 {
			xy = append(xy, plotter.XY{X: float64(i), Y: sum[i] / n[i]})
		}
	}
	return xy
}

// PrintCosts prints fig. 3 and table 3 as tables.
func PrintCosts(out io.Writer, fig aware.Fig3, all []aware.Cost) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "change\truns\treward that was missing\tof runs\tconverged\tepisodes until then")
	for _, c := range aware.Columns(all) {
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%v\n", c.What, c.Runs, said(c.Drop, 100, " %"), c.Said, c.Converged, c.Episodes)
	}
	fmt.Fprintln(w, "\nepisodes of the begin\tCPU utilisation beside the rule's\tmemory utilisation\ttimes its SLO violations")
	for _, s := range fig.Table3(all) {
		fmt.Fprintf(w, "%d to %d\t%s\t%s\t%s\n", s.From, s.To, said(s.CPU, 100, " %"), said(s.Memory, 100, " %"),
			said(s.Violations, 1, ""))
	}
	return w.Flush()
}

// said is an interval in another unit, or that it cannot be said.
func said(i *aware.Interval, times float64, unit string) string {
	if i == nil {
		return "cannot be said"
	}
	scaled := aware.Interval{Mean: times * i.Mean}
	if i.Low != nil && i.High != nil {
		low, high := times**i.Low, times**i.High
		scaled.Low, scaled.High = &low, &high
	}
	return scaled.String() + unit
}
