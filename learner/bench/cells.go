package bench

import (
	"fmt"
	"slices"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// bins are the widths of the tower's bins of the request rate, per application
// in the order of the table.
var bins = []struct {
	application string
	width       mdp.Rate
}{
	{"train-ticket", 20},
	{"social-network", 20},
	{"hotel-reservation", 200},
}

// Applications returns the names of the applications of the cells.
func Applications() []string {
	var names []string
	for _, b := range bins {
		names = append(names, b.application)
	}
	return names
}

// traces are the columns of the table. The warm-up trace is not one of them.
var traces = []string{"diurnal", "constant", "noisy", "bursty"}

// warmUp is the name of the warm-up trace.
const warmUp = "diurnal-2"

// Cells returns the twelve cells: three applications with four traces of one
// hour each.
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

// Columns returns cells with the three applications and another trace, with the
// same multipliers of the rate. A trace with the name of one of the twelve
// cells' traces is renamed, because no baseline was tuned for it.
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

// cell is the cell of an application that comes with aware.
func cell(name string, t workload.Trace) (Cell, error) {
	app, err := workload.NamedApp(name)
	if err != nil {
		return Cell{}, err
	}
	return under(name, app, t)
}

// under is the cell of an application and a trace, with its warm-up trace.
func under(name string, app sim.App, t workload.Trace) (Cell, error) {
	warm, err := workload.Named(warmUp)
	if err != nil {
		return Cell{}, err
	}
	// The warm-up trace has the shape of another day and the mean rate of the
	// cell: operators know the mean rate of their application.
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

// Single is a cell of any application and trace. The rates of the trace are
// multiplied by times. With times 0 the multiplier is the one of the
// application in the twelve cells, or 1.
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
