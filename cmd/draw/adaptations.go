package draw

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"

	"awarescale.dev/aware/learner/bench/aware"
	"gonum.org/v1/plot/plotter"
)

// AdaptationsData is what the report on adaptation says, for a program.
func AdaptationsData(made aware.Fig8, all []aware.Adaptation) map[string]any {
	return map[string]any{"made": made, "arms": aware.Summarise(all), "claims": made.Claims(all)}
}

// Adaptations writes index.html and fig8.json of an experiment on adaptation.
func Adaptations(dir string, made aware.Fig8, all []aware.Adaptation) error {
	summaries := aware.Summarise(all)
	var pictures []Picture
	var curves, violations []Line
	for _, s := range summaries {
		curves = append(curves, Line{string(s.Arm), mean(all, s.Arm, func(a aware.Adaptation) plotter.XYs {
			var xy plotter.XYs
			for _, p := range a.Course.Promoted() {
				xy = append(xy, plotter.XY{X: float64(p.Episode), Y: p.Reward / a.Target})
			}
			return xy
		})})
		violations = append(violations, Line{string(s.Arm), mean(all, s.Arm, func(a aware.Adaptation) plotter.XYs {
			var xy plotter.XYs
			for i, e := range a.Course.Training {
				xy = append(xy, plotter.XY{X: float64(i + 1), Y: 100 * float64(e.Violations) / float64(max(1, e.Steps))})
			}
			return xy
		})})
	}
	one := 1.0
	for _, c := range []struct {
		title, y string
		level    *float64
		lines    []Line
	}{
		{"reward of the best policy so far, in evaluation episodes", "share of the converged policy's", &one, curves},
		{"steps over the SLO in training", "%", nil, violations},
	} {
		p, err := Lines(c.title, "episodes of training", c.y, c.level, c.lines...)
		if err != nil {
			return err
		}
		pictures = append(pictures, p)
	}
	var table bytes.Buffer
	if err := PrintAdaptations(&table, made, all); err != nil {
		return err
	}
	return Write(dir, "fig8.json", AdaptationsData(made, all), Page{
		Title: "Adaptation to workloads that were not seen",
		About: "Means over all workloads. An arm whose training ended because it had converged goes on in the means with what " +
			"it had then. Intervals are 95 % ones over the repetitions.",
		Pictures: pictures,
		Text:     table.String(),
	})
}

// mean is the mean of an arm's curves, point by point: one that has ended counts with its last point.
func mean(all []aware.Adaptation, arm aware.Arm, curve func(aware.Adaptation) plotter.XYs) plotter.XYs {
	var curves []plotter.XYs
	var longest plotter.XYs
	for _, a := range all {
		if c := curve(a); a.Arm == arm && len(c) > 0 {
			curves = append(curves, c)
			if len(c) > len(longest) {
				longest = c
			}
		}
	}
	var sum plotter.XYs
	for i, p := range longest {
		y := 0.0
		for _, c := range curves {
			y += c[min(i, len(c)-1)].Y / float64(len(curves))
		}
		sum = append(sum, plotter.XY{X: p.X, Y: y})
	}
	return sum
}

// PrintAdaptations prints the arms and the claims as tables.
func PrintAdaptations(out io.Writer, fig aware.Fig8, all []aware.Adaptation) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "arm\truns\tconverged\tepisodes until then\tover the SLO\tCPU utilisation\tmemory utilisation\t"+
		"CPU deficit\tmemory deficit\tCPU s of learning\treward before training")
	for _, s := range aware.Summarise(all) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%v\t%v\t%v\t%v\t%v\t%v\t%v\t%v\n", s.Arm, s.Runs, s.Converged, s.Episodes, s.Violations,
			s.CPU, s.Memory, s.CPUDeficit, s.MemoryDeficit, s.Seconds, s.First)
	}
	printClaims(w, fig.Claims(all))
	return w.Flush()
}
