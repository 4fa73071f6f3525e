package bench

import (
	"fmt"
	"slices"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// application is one of Autothrottle's three: how much of a trace's rate it gets, and its constant load.
type application struct {
	name     string
	times    float64
	constant float64
	bin      mdp.Rate
}

var applications = []application{
	{"train-ticket", 1, 200, 20},
	{"social-network", 1.5, 500, 20},
	{"hotel-reservation", 10, 2000, 200},
}

// Applications names those of the cells.
func Applications() []string {
	var names []string
	for _, a := range applications {
		names = append(names, a.name)
	}
	return names
}

// traces are the columns; the warm-up trace is another one.
var traces = []string{"diurnal", "constant", "noisy", "bursty"}

const warmUp = "diurnal-2"

// Cells are the twelve: three applications under four traces of an hour.
func Cells() ([]Cell, error) {
	var cells []Cell
	for _, a := range applications {
		for _, name := range traces {
			t, err := a.trace(name)
			if err != nil {
				return nil, err
			}
			c, err := a.cell(t)
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
	for _, a := range applications {
		scaled, err := t.Times(a.times)
		if err != nil {
			return nil, err
		}
		scaled.Name = t.Name
		c, err := a.cell(scaled)
		if err != nil {
			return nil, err
		}
		cells = append(cells, c)
	}
	return cells, nil
}

func (a application) trace(name string) (workload.Trace, error) {
	if name == "constant" {
		t, err := workload.Constant(a.constant, time.Hour)
		t.Name = name
		return t, err
	}
	t, err := workload.Named(name)
	if err != nil {
		return t, err
	}
	t, err = t.Times(a.times)
	t.Name = name
	return t, err
}

func (a application) cell(t workload.Trace) (Cell, error) {
	app, err := workload.NamedApp(a.name)
	if err != nil {
		return Cell{}, err
	}
	return under(a, app, t)
}

func under(a application, app sim.App, t workload.Trace) (Cell, error) {
	warm, err := workload.Named(warmUp)
	if err != nil {
		return Cell{}, err
	}
	// The warm-up trace at the cell's mean rate: the form is that of another day, the height is known to whoever runs it.
	if warm, err = warm.Scaled(t.Mean()); err != nil {
		return Cell{}, fmt.Errorf("%s under %s: %w", a.name, t.Name, err)
	}
	warm.Name = warmUp
	return Cell{Application: a.name, App: app, Trace: t, Warm: warm, Bin: a.bin}, nil
}

// Single is a cell of any application and trace. The trace's rates are multiplied; times 0 is what the application has in
// the twelve cells, or 1.
func Single(name string, app sim.App, t workload.Trace, times float64) (Cell, error) {
	a := application{name: name, times: 1, bin: 20}
	for _, known := range applications {
		if known.name == name {
			a = known
		}
	}
	if times == 0 {
		times = a.times
	}
	scaled, err := t.Times(times)
	if err != nil {
		return Cell{}, err
	}
	scaled.Name = t.Name
	return under(a, app, scaled)
}
