package draw

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"

	"awarescale.dev/aware/learner/bench/aware"
	"gonum.org/v1/plot/plotter"
)

// Drives is a report of arms that drive workloads for a number of episodes (fig. 9 and fig. 10).
type Drives struct {
	File   string // of the data
	Title  string
	About  string
	Made   any // settings
	Arms   []aware.Arm
	Claims func(all []aware.Drive) []aware.Claim
}

// Data is what the report says, for a program.
func (r Drives) Data(all []aware.Drive) map[string]any {
	return map[string]any{"made": r.Made, "arms": aware.SummariseDrives(all, r.Arms), "claims": r.Claims(all)}
}

// Write writes index.html and the data.
func (r Drives) Write(dir string, all []aware.Drive) error {
	var pictures []Picture
	for _, c := range []struct {
		title, y string
		of       func(aware.Figures) (float64, bool)
	}{
		{"reward", "of a step", func(f aware.Figures) (float64, bool) { return f.Mean(), f.Known > 0 }},
		{"SLO violations", "% of the steps", percent(func(f aware.Figures) float64 { return float64(f.Violations) })},
		{"CPU utilisation", "%", percent(func(f aware.Figures) float64 { return f.CPU })},
		{"memory utilisation", "%", percent(func(f aware.Figures) float64 { return f.Memory })},
	} {
		var lines []Line
		for _, arm := range r.Arms {
			lines = append(lines, Line{string(arm), meanOfEpisodes(all, arm, c.of)})
		}
		p, err := Lines(c.title, "episode", c.y, nil, lines...)
		if err != nil {
			return err
		}
		pictures = append(pictures, p)
	}
	var table bytes.Buffer
	if err := r.Print(&table, all); err != nil {
		return err
	}
	return Write(dir, r.File, r.Data(all), Page{Title: r.Title, About: r.About, Pictures: pictures, Text: table.String()})
}

func percent(of func(aware.Figures) float64) func(aware.Figures) (float64, bool) {
	return func(f aware.Figures) (float64, bool) { return 100 * of(f) / float64(max(1, f.Steps)), f.Steps > 0 }
}

// block is how many episodes a point of a plot is the mean of.
const block = 10

// meanOfEpisodes is the mean of a figure over all runs of an arm, a point for each block of episodes.
func meanOfEpisodes(all []aware.Drive, arm aware.Arm, of func(aware.Figures) (float64, bool)) plotter.XYs {
	var sum, n []float64
	for _, d := range all {
		if d.Arm != arm {
			continue
		}
		for i, e := range d.Episodes {
			at := i / block
			if at == len(sum) {
				sum, n = append(sum, 0), append(n, 0)
			}
			if v, ok := of(e.Figures); ok {
				sum[at] += v
				n[at]++
			}
		}
	}
	var xy plotter.XYs
	for i := range sum {
		if n[i] > 0 {
			xy = append(xy, plotter.XY{X: float64((i + 1) * block), Y: sum[i] / n[i]})
		}
	}
	return xy
}

// Print prints the arms and the claims as tables.
func (r Drives) Print(out io.Writer, all []aware.Drive) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "arm\truns\treward of a step\tviolations an episode\tCPU utilisation\tmemory utilisation\t"+
		"CPU s of learning\tworst 20 episodes below the rule\tOffline\tOnline\tServing")
	for _, s := range aware.SummariseDrives(all, r.Arms) {
		worst := "-"
		if s.Worse != nil {
			worst = fmt.Sprintf("%v; of all %.3g", *s.Worse, *s.Worst)
		}
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\t%v\t%v\t%v\t%s\t%v\t%v\t%v\n", s.Arm, s.Runs, s.Reward, s.Violations, s.CPU, s.Memory,
			s.Seconds, worst, s.Offline, s.Online, s.Serving)
	}
	printClaims(w, r.Claims(all))
	return w.Flush()
}

func printClaims(w io.Writer, claims []aware.Claim) {
	fmt.Fprintln(w, "\nclaim\tbar\tfound\theld")
	for _, c := range claims {
		side := "at most"
		if c.Least {
			side = "at least"
		}
		if c.Reported {
			fmt.Fprintf(w, "%s\tnone (in the paper's form %s %.3g)\t%s\t-\n", c.What, side, c.Bar, said(c.Found, 1, ""))
			continue
		}
		fmt.Fprintf(w, "%s\t%s %.3g\t%s\t%v\n", c.What, side, c.Bar, said(c.Found, 1, ""), c.Held)
	}
}
