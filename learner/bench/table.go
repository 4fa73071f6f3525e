package bench

import (
	"fmt"
	"io"
	"slices"
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

// Print writes the rows as a table with a block for each cell. It marks the row
// with the fewest cores among the policies of a cell that meet the SLO.
func Print(out io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	cell := ""
	best := map[string]float64{}
	for _, r := range rows {
		if c, ok := best[r.App+r.Trace]; !r.Violates && (!ok || r.Cores < c) {
			best[r.App+r.Trace] = r.Cores
		}
	}
	for _, r := range rows {
		if name := r.App + ", " + r.Trace; name != cell {
			cell = name
			fmt.Fprintf(t, "\n%s (SLO %.0f ms)\tCORES\t95 %%\tP99 MS\tWINDOWS OVER\tLOST\tLATE\tFLAPPING\tMEMORY GIB\tRESIZES\tBY\t\n",
				name, r.SLOMS)
		}
		mark := ""
		switch {
		case r.Violates:
			mark = "violates"
		case r.Cores == best[r.App+r.Trace]:
			mark = "fewest"
		}
		fmt.Fprintf(t, "  %s\t%.2f\t%.2f-%.2f\t%.0f\t%.2f %%\t%.2f %%\t%.2f %%\t%.1f\t%.1f\t%.0f\t%s\t%s\n",
			r.Policy, r.Cores, r.CoresCI.Low, r.CoresCI.High,
			r.P99MS, 100*r.Ratio, 100*r.Lost, 100*r.Late, r.Flapping, r.Memory, r.Resizes, r.Fidelity, mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printGuards(out, rows)
}
