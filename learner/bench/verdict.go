package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Verdict is how a policy that was not tuned for the cells does against the best tuned rule of each.
type Verdict struct {
	Policy string   `json:"policy"`
	Cells  int      `json:"cells"`       // in which there is a rule to compare with
	Won    int      `json:"cells_won"`   // see [Verdicts]
	Saved  float64  `json:"cores_saved"` // the mean over the cells of 1 - cores / the rule's cores
	Lost   []string `json:"cells_lost"`  // and why
}

// allowedWindows is the share of windows over the SLO that is not held against a policy.
const allowedWindows = 0.05

// Verdicts compares. The rule to beat in a cell is the tuned one with the fewest cores of those that
// hold with every seed. A cell is won with fewer cores, no more memory, with every seed held, at most half a percent of the
// requests lost, and no more windows over the SLO than that rule, or at most a twentieth.
func Verdicts(rows []Row) []Verdict {
	rules := Tunable()
	var all []Verdict
	for _, cell := range ByCell(rows) {
		best := bestRule(cell, rules)
		if best == nil {
			continue
		}
		for _, r := range cell {
			if slices.Contains(rules, r.Policy) {
				continue
			}
			i := slices.IndexFunc(all, func(v Verdict) bool { return v.Policy == r.Policy })
			if i < 0 {
				i = len(all)
				all = append(all, Verdict{Policy: r.Policy})
			}
			v := &all[i]
			v.Cells++
			v.Saved += 1 - r.Cores/best.Cores
			if why := r.losesTo(*best); why == "" {
				v.Won++
			} else {
				v.Lost = append(v.Lost, fmt.Sprintf("%s under %s: %s", r.App, r.Trace, why))
			}
		}
	}
	for i := range all {
		all[i].Saved /= float64(all[i].Cells)
	}
	return all
}

// ByCell groups rows by cell, in their order.
func ByCell(rows []Row) [][]Row {
	var all [][]Row
	for _, r := range rows {
		i := slices.IndexFunc(all, func(cell []Row) bool { return cell[0].App == r.App && cell[0].Trace == r.Trace })
		if i < 0 {
			all = append(all, []Row{r})
		} else {
			all[i] = append(all[i], r)
		}
	}
	return all
}

// bestRule is the tuned rule of a cell to beat; nil when none holds.
func bestRule(cell []Row, rules []string) *Row {
	var best *Row
	for i := range cell {
		if r := &cell[i]; slices.Contains(rules, r.Policy) && r.Holds && (best == nil || r.Cores < best.Cores) {
			best = r
		}
	}
	return best
}

// losesTo is why a row does not win against a rule; empty when it does.
func (r Row) losesTo(rule Row) string {
	var why []string
	no := func(bad bool, format string, args ...any) {
		if bad {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	no(r.Violates, "a seed violates the SLO, p99 %.0f ms", r.P99MS)
	no(r.Lost > 0.005, "%.2f %% lost", 100*r.Lost)
	no(!(r.Cores < rule.Cores), "%.2f cores, %s has %.2f", r.Cores, rule.Policy, rule.Cores)
	no(r.Memory > rule.Memory*1.000001, "%.2f GiB, %s has %.2f", r.Memory, rule.Policy, rule.Memory)
	no(r.Ratio > max(rule.Ratio, allowedWindows), "%.1f %% of windows over, %s has %.1f %%", 100*r.Ratio, rule.Policy,
		100*rule.Ratio)
	return strings.Join(why, ", ")
}

// PrintVerdicts writes them as a table, with the cells that were not won.
func PrintVerdicts(out io.Writer, all []Verdict) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(all) > 0 {
		fmt.Fprintln(t, "\nagainst the best tuned rule of each cell\tCELLS WON\tCORES SAVED\t")
	}
	for _, v := range all {
		fmt.Fprintf(t, "  %s\t%d of %d\t%.1f %%\t\n", v.Policy, v.Won, v.Cells, 100*v.Saved)
		for _, why := range v.Lost {
			fmt.Fprintf(t, "    %s\t\t\t\n", why)
		}
	}
	return t.Flush()
}
