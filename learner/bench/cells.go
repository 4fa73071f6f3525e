package bench

import (
	"fmt"
	"slices"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// bins are the widths of the tower's bins of requests per second, by application in the order of the table.
var bins = []struct {
	application string
	width       mdp.Rate
}{
	{"train-ticket", 20},
	{"social-network", 20},
	{"hotel-reservation", 200},
}

// Applications names those of the cells.
func Applications() []string {
	var names []string
	for _, b := range bins {
		names = append(names, b.application)
	}
	return names
}

// traces are the columns; the warm-up trace is another one.
var traces = []string{"diurnal", "constant", "noisy", "bursty"}

const warmUp = "diurnal-2"

// Cells are the twelve: three applications under four traces of an hour.
func Cells() ([]Cell, error) {
	var cells []Cell
	for _, name := range Applications() {
		for _, trace := range traces {
			t, err := workload.Cell(name, trace)
			if err != nil {
				return nil, err
			}
			t.Name = trace
			c, err := cell(name, t)
			if err != nil {
				return nil, err
			}
			cells = append(cells, c)
		}
	}
	return cells, nil
}

// Columns are the three applications under another trace, with the same multipliers. A trace that has the name of one of the
// twelve cells' is called by another: it was not tuned for.
func Columns(t workload.Trace) ([]Cell, error) {
	if slices.Contains(traces, t.Name) {
		t.Name += " (file)"
	}
	var cells []Cell
	for _, name := range Applications() {
		app, err := workload.NamedApp(name)
		if err != nil {
			return nil, err
		}
		c, err := Single(name, app, t, 0)
		if err != nil {
			return nil, err
		}
		cells = append(cells, c)
	}
	return cells, nil
}

func cell(name string, t workload.Trace) (Cell, error) {
	app, err := workload.NamedApp(name)
	if err != nil {
		return Cell{}, err
	}
	return under(name, app, t)
}

func under(name string, app sim.App, t workload.Trace) (Cell, error) {
	warm, err := workload.Named(warmUp)
	if err != nil {
		return Cell{}, err
	}
	// The warm-up trace at the cell's mean rate: the form is that of another day, the height is known to whoever runs it.
	if warm, err = warm.Scaled(t.Mean()); err != nil {
		return Cell{}, fmt.Errorf("%s under %s: %w", name, t.Name, err)
	}
	warm.Name = warmUp
	c := Cell{Application: name, App: app, Trace: t, Warm: warm, Bin: tower.Default.BinRPS}
	for _, b := range bins {
		if b.application == name {
			c.Bin = b.width
		}
	}
	return c, nil
}

// Single is a cell of any application and trace. The trace's rates are multiplied; times 0 is what the application has in
// the twelve cells, or 1.
func Single(name string, app sim.App, t workload.Trace, times float64) (Cell, error) {
	if times == 0 {
		times = 1
		if m, known := workload.Multiple(name); known {
			times = m
		}
	}
	scaled, err := t.Times(times)
	if err != nil {
		return Cell{}, err
	}
	return under(name, app, scaled)
}
