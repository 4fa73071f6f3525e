package bench

import (
	"context"
	_ "embed" // the floors
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"text/tabwriter"
)

// Floors finds the floor of every cell that has no known one. It calls done after
// each, never concurrently; o.Step and o.Known may be called concurrently.
func Floors(ctx context.Context, cells []Cell, o FloorOptions, done func(Floor)) ([]Floor, error) {
	floors := make([]Floor, len(cells))
	lock := make(chan struct{}, 1)
	err := InParallel(ctx, len(cells), func(ctx context.Context, i int) error {
		f, err := o.find(ctx, cells[i])
		if err != nil {
			return err
		}
		floors[i] = f
		lock <- struct{}{}
		done(f)
		<-lock
		return nil
	})
	return floors, err
}

//go:embed floors.json
var shippedFloors []byte

// ShippedFloors are the floors that are part of aware: those of the twelve cells,
// found with five seeds and [FloorRuns] runs. Cells that differ in anything have none.
func ShippedFloors(cells []Cell) ([]Floor, error) {
	var all, floors []Floor
	if err := json.Unmarshal(shippedFloors, &all); err != nil {
		return nil, fmt.Errorf("floors.json (embedded): %w", err)
	}
	standard, err := Cells()
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		of := func(c Cell) bool { return c.Application == f.App && c.Trace.Name == f.Trace }
		i, k := slices.IndexFunc(cells, of), slices.IndexFunc(standard, of)
		if i >= 0 && k >= 0 && reflect.DeepEqual(cells[i], standard[k]) {
			floors = append(floors, f)
		}
	}
	return floors, nil
}

// find gives the floor of a cell: the known one, or what a search finds.
func (o FloorOptions) find(ctx context.Context, cell Cell) (Floor, error) {
	if o.Known != nil {
		if f, ok := o.Known(cell.Application, cell.Trace.Name); ok {
			return f, nil
		}
	}
	return FindFloor(ctx, cell, o)
}

// Marks puts the rows between the best rule and the floor of their cells: it sets
// the marks of the rows, and what the floors say of the rules. Rules are the
// baselines of [Tunable]. Where the search found nothing below the best rule, or
// nothing that holds, the best rule is the floor.
func Marks(rows []Row, floors []Floor) {
	names := Tunable()
	for i := range floors {
		f := &floors[i]
		same := func(r Row) bool { return r.App == f.App && r.Trace == f.Trace }
		for _, r := range rows {
			if !same(r) || r.Violates {
				continue
			}
			if f.Used == 0 || r.Used < f.Used {
				f.Used = r.Used
			}
			if slices.Contains(names, r.Policy) && (f.Rule == "" || r.Cores < f.Best) {
				f.Rule, f.Best = r.Policy, r.Cores
			}
		}
		if f.Rule != "" && (!f.Holds || f.Searched >= f.Best) {
			f.IsRule, f.Cores = true, f.Best
		}
		for k := range rows {
			r := &rows[k]
			if !same(*r) || !f.Holds && !f.IsRule {
				continue
			}
			r.FloorCores, r.FloorIsRule = f.Cores, f.IsRule
			if f.Rule != "" && f.Best > f.Cores && !r.Violates {
				share := (f.Best - r.Cores) / (f.Best - f.Cores)
				r.ToFloor = &share
			}
		}
	}
}

// PrintMarks writes a table of the floors, with the rows of their cells.
func PrintMarks(out io.Writer, rows []Row, floors []Floor) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range floors {
		fmt.Fprintf(t, "\n%s, %s\tCORES\tTO FLOOR\t\n", f.App, f.Trace)
		fmt.Fprintf(t, "  used\t%.2f\t\t\n", f.Used)
		note := fmt.Sprintf("found in %d runs, %d seeds", f.Runs, f.Seeds)
		if f.IsRule {
			note = fmt.Sprintf("is the best rule: the search found only %.2f", f.Searched)
		}
		if !f.Holds && !f.IsRule {
			note = "violates: nothing was found"
		}
		fmt.Fprintf(t, "  floor\t%.2f\t\t%s\n", f.Cores, note)
		for _, r := range rows {
			if r.App != f.App || r.Trace != f.Trace {
				continue
			}
			share, mark := "", ""
			if r.ToFloor != nil {
				share = fmt.Sprintf("%.0f %%", 100**r.ToFloor)
			}
			switch {
			case r.Violates:
				mark = "violates"
			case r.Policy == f.Rule:
				mark = "best rule"
			}
			fmt.Fprintf(t, "  %s\t%.2f\t%s\t%s\n", r.Policy, r.Cores, share, mark)
		}
	}
	return t.Flush()
}
