package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// printGuards writes the guards of each policy.
func printGuards(out io.Writer, rows []Row) error {
	var guards []string
	who := map[string][]string{}
	for _, r := range rows {
		if !slices.Contains(guards, r.Guards) {
			guards = append(guards, r.Guards)
		}
		if !slices.Contains(who[r.Guards], r.Policy) {
			who[r.Guards] = append(who[r.Guards], r.Policy)
		}
	}
	fmt.Fprintln(out)
	for _, g := range guards {
		if _, err := fmt.Fprintf(out, "guards of %s: %s\n", strings.Join(who[g], ", "), g); err != nil {
			return err
		}
	}
	return nil
}

// Rank sets the places of all rows in their cells, by both criteria: the fewest
// cores among those that hold, and the smallest share of windows over the SLO,
// where the hour's p99 does not count.
func Rank(rows []Row) {
	for i := range rows {
		r := &rows[i]
		r.ByCores, r.ByWindows = 1, 1
		for _, o := range rows {
			if o.App != r.App || o.Trace != r.Trace {
				continue
			}
			if !o.Violates && o.Cores < r.Cores {
				r.ByCores++
			}
			if o.Ratio < r.Ratio {
				r.ByWindows++
			}
		}
		if r.Violates {
			r.ByCores = 0
		}
	}
}

// Print writes the rows as a table with a block for each cell. They must be
// ranked; see [Rank].
func Print(out io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	cell := ""
	for _, r := range rows {
		if name := r.App + ", " + r.Trace; name != cell {
			cell = name
			fmt.Fprintf(t, "\n%s (SLO %.0f ms)\tCORES\t95 %%\tP99 MS\tWINDOWS OVER\tLOST\tLATE\tFLAPPING\tMEMORY GIB\tRESIZES\t"+
				"BY\tPLACE: CORES\tWINDOWS\t\n", name, r.SLOMS)
		}
		place := "violates"
		if !r.Violates {
			place = strconv.Itoa(r.ByCores)
		}
		fmt.Fprintf(t, "  %s\t%.2f\t%.2f-%.2f\t%.0f\t%.2f %%\t%.2f %%\t%.2f %%\t%.1f\t%.1f\t%.0f\t%s\t%s\t%d\t\n",
			r.Policy, r.Cores, r.CoresCI.Low, r.CoresCI.High,
			r.P99MS, 100*r.Ratio, 100*r.Lost, 100*r.Late, r.Flapping, r.Memory, r.Resizes, r.Fidelity, place, r.ByWindows)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printGuards(out, rows)
}

// Markdown writes the rows as a document with a table for each cell. They must be
// ranked; see [Rank].
func Markdown(out io.Writer, rows []Row) error {
	titles := []string{"policy", "cores", "GiB", "p99, ms", "windows over", "lost", "judged by", "place: cores", "place: windows"}
	floors := slices.ContainsFunc(rows, func(r Row) bool { return r.FloorCores > 0 })
	if floors {
		titles = append(titles, "to the floor")
	}
	app, cell := "", ""
	for _, r := range rows {
		if r.App != app {
			app = r.App
			fmt.Fprintf(out, "\n### %s (SLO %.0f ms)\n", app, r.SLOMS)
		}
		if name := r.App + ", " + r.Trace; name != cell {
			cell = name
			fmt.Fprintf(out, "\n**%s**", r.Trace)
			if r.FloorCores > 0 {
				fmt.Fprintf(out, " (floor %.2f cores)", r.FloorCores)
			}
			fmt.Fprintf(out, "\n\n| %s |\n|%s\n", strings.Join(titles, " | "), strings.Repeat("---|", len(titles)))
		}
		place, way := "violates", ""
		if !r.Violates {
			place = strconv.Itoa(r.ByCores)
		}
		switch {
		case r.ToFloor != nil:
			way = fmt.Sprintf(" %.0f %% |", 100**r.ToFloor)
		case floors:
			way = " |"
		}
		if _, err := fmt.Fprintf(out, "| %s | %.2f | %.1f | %.0f | %.1f %% | %.2f %% | %s | %s | %d |%s\n",
			r.Policy, r.Cores, r.Memory, r.P99MS, 100*r.Ratio, 100*r.Lost, r.Fidelity, place, r.ByWindows, way); err != nil {
			return err
		}
	}
	return nil
}
