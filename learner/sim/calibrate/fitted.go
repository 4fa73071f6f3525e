package calibrate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// Fitted is an application's constants, fitted to measured windows, and what
// speaks for them.
type Fitted struct {
	Application string            `json:"application"`
	Offered     *float64          `json:"offered_per_s"`
	Connections float64           `json:"connections"`
	Operations  []FittedOperation `json:"operations"`
	// Present and New are the application as it is in its file and as it is
	// fitted, both judged by the formula on each policy, with the constants of the
	// others.
	Present Judged `json:"as_in_its_file"`
	New     Judged `json:"fitted"`
	// Explained is the Spearman correlation on the windows that were fitted to:
	// what the constants can explain at all.
	Explained *float64 `json:"spearman_on_the_fitted_windows"`
	// DemandAtMost is an upper bound of a request's CPU time on each service in ms:
	// what an unsaturated window allocated to it, per request.
	DemandAtMost map[string]*float64  `json:"demand_at_most_ms"`
	Time         map[string]TimeShape `json:"time,omitempty"` // of functions, by size
}

// FittedOperation is the constants of one operation.
type FittedOperation struct {
	Name    string        `json:"name"`
	Service string        `json:"service"`
	File    time.Duration `json:"work_in_its_file_ns"`
	Work    time.Duration `json:"work_ns"`
	Wait    time.Duration `json:"wait_ns"`
	// Low and High are the works that are fitted with one policy left out.
	Low  time.Duration `json:"work_low_ns"`
	High time.Duration `json:"work_high_ns"`
}

// Determined reports whether the work is about the same whichever policy is
// left out. Otherwise the data does not determine it.
func (o FittedOperation) Determined() bool { return float64(o.High) <= 1.5*float64(o.Low) }

// Fit fits the constants of the measured application to all windows, and to
// those of all policies but one. The same data give the same constants.
func Fit(d Data, progress func(string)) (*Fitted, error) {
	in, err := load(d)
	if err != nil {
		return nil, err
	}
	if why := in.why(cilantroFile); why != "" {
		return nil, errors.New("nothing to fit to: " + cilantroFile + " is " + why)
	}
	rows, services := in.windows.Rows, in.windows.Services
	if len(rows) == 0 {
		return nil, fmt.Errorf("nothing to fit to: no window of %s has a p99", cilantroFile)
	}
	c, err := clientOf(rows)
	if err != nil {
		return nil, err
	}
	w := newWorldFit(services, 0)
	progress(fmt.Sprintf("all policies: %d windows", len(rows)))
	all := w.fitted(rows, c)
	f := &Fitted{
		Application:  w.app.Name,
		Offered:      figure(c.offered),
		Connections:  c.connections,
		Operations:   w.operations(all),
		DemandAtMost: demands(rows, services, fitLoop(rows).client),
		Time:         validateTime(in, 0).Families,
	}
	var points []Point
	for _, v := range rows {
		_, p99 := w.plant.answer(all, v.Alloc, c)
		points = append(points, Point{v.Policy, v.P99, p99})
	}
	f.Explained = spearman(points)
	chosen := choose(rows, len(rows))
	for _, policy := range names(chosen) {
		fitting := others(rows, func(i int) string { return rows[i].Policy }, policy)
		if len(fitting) == 0 {
			continue
		}
		progress(fmt.Sprintf("without %s: %d windows", policy, len(fitting)))
		f.widen(w.operations(w.fitted(fitting, c)))
	}
	as := func(name string, fit func([]Window, client) factors) (Judged, error) {
		p := predictor{name, false, func(rows []Window, c client) (func(Window) (float64, float64, error), error) {
			g := fit(rows, c)
			return func(v Window) (float64, float64, error) {
				rate, p99 := w.plant.answer(g, v.Alloc, c)
				return rate, p99, nil
			}, nil
		}}
		out, err := leaveOut(rows, chosen, p, func(string) {})
		return judged(out), err
	}
	if f.New, err = as("fitted", func(rows []Window, c client) factors { return w.fitted(rows, c) }); err != nil {
		return nil, err
	}
	f.Present, err = as("as in its file", func([]Window, client) factors { return unscaled(len(services)) })
	return f, err
}

// unscaled are the factors of an application as it is.
func unscaled(services int) factors {
	f := factors{make([]float64, services), 1}
	for i := range f.work {
		f.work[i] = 1
	}
	return f
}

// operations lists the constants of an application with the given factors.
func (w *worldFit) operations(f factors) []FittedOperation {
	var list []FittedOperation
	for i, o := range scaled(w.app, w.services, f).Operations {
		work := o.Work.Round(time.Microsecond)
		list = append(list, FittedOperation{o.Name, o.Service, w.app.Operations[i].Work, work,
			o.Wait.Round(time.Microsecond), work, work})
	}
	return list
}

func (f *Fitted) widen(other []FittedOperation) {
	for i := range f.Operations {
		o := &f.Operations[i]
		o.Low, o.High = min(o.Low, other[i].Work), max(o.High, other[i].Work)
	}
}

// Print writes the constants for people.
func (f *Fitted) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "OPERATION\tSERVICE\tIN ITS FILE\tFITTED\tONE POLICY LEFT OUT\tWAIT")
	determined := 0
	for _, o := range f.Operations {
		note := fmt.Sprintf("%v to %v", o.Low, o.High)
		if o.Determined() {
			determined++
		} else {
			note += ", not determined"
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%v\t%s\t%v\n", o.Name, o.Service, o.File, o.Work, note, o.Wait)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "- %s, %.0f requests/s offered on %.0f connections\n"+
		"- work is at most %v of an operation; %d of %d works are about the same whichever policy is left out, most of them because "+
		"the fit did not move them\n"+
		"- on the windows that were fitted to, the Spearman correlation of the p99 is %s: "+
		"so much of its order do CPU allocations explain in this model\n"+
		"- %s\n- %s\n", f.Application, or(f.Offered), f.Connections, time.Duration(mostWork*float64(time.Second)), determined,
		len(f.Operations), shown(f.Explained), f.Present.note("formula, application as in its file"),
		f.New.note("formula, fitted to the other policies"))
	if err != nil {
		return err
	}
	for _, name := range names(f.Time) {
		s := f.Time[name]
		parallel := math.Inf(1)
		if s.Parallel != nil {
			parallel = *s.Parallel
		}
		if _, err := fmt.Fprintf(out, "- time of %s: parallel on %.2f cores, throttle %.2f, floor %s of the time on one core\n",
			name, parallel, s.Throttle, shown(s.Floor)); err != nil {
			return err
		}
	}
	return nil
}
