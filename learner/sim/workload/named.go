package workload

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed apps/*.yaml data/autothrottle/*.txt data/azure/*.csv data/aware/generatedFunctions.txt
var data embed.FS

// embedded is a file that is compiled in.
func embedded(path string) *bytes.Reader {
	b, err := data.ReadFile(path)
	if err != nil {
		panic(err) // the pattern above names it
	}
	return bytes.NewReader(b)
}

// autothrottle are the four traces of Autothrottle (NSDI 2024), an hour each.
var autothrottle = []string{"diurnal", "diurnal-2", "noisy", "bursty"}

// Traces are the names that [Open] knows: Autothrottle's four, and of the Azure Functions of 2019 the requests to all
// functions of [Azure], to those that are invoked more than 10^5 times a day, and to the others.
func Traces() []string { return append(slices.Clone(autothrottle), "azure", "azure-high", "azure-low") }

// Named is a trace that is compiled in.
func Named(name string) (Trace, error) {
	if slices.Contains(autothrottle, name) {
		return ReadRates(name, embedded("data/autothrottle/"+name+".txt"))
	}
	switch name {
	case "azure":
		return Sum(name, Azure(nil)...)
	case "azure-high":
		return Sum(name, Azure(Busy)...)
	case "azure-low":
		return Sum(name, Azure(func(f Function) bool { return !Busy(f) })...)
	}
	return Trace{}, fmt.Errorf("trace %q: known are %s", name, strings.Join(Traces(), ", "))
}

// Busy tells which half of the Azure functions one belongs to, as AWARE divides them for its changes of load: those with
// more than 10^5 invocations a day, and the others (dissertation, Insight 5.2).
func Busy(f Function) bool { return f.Daily > 1e5 }

// Azure is the compiled-in sample of the Azure Functions trace: the 20 busiest functions of a sample of 500, 8 hours by
// minute; nine of them are [Busy].
func Azure(keep func(Function) bool) []Trace {
	const file = "data/azure/busiest_invocations.csv"
	traces, err := ReadAzure(file, embedded(file), keep)
	if err != nil && !errors.Is(err, ErrNoRates) { // which says that nothing was kept
		panic(err)
	}
	return traces
}

// Open is a trace that is compiled in, or else one from a file: of invocations by minute when it ends in .csv, all functions
// together, and of rates by second otherwise.
func Open(nameOrPath string) (Trace, error) {
	named, unknown := Named(nameOrPath)
	if unknown == nil {
		return named, nil
	}
	f, err := os.Open(nameOrPath)
	if err != nil {
		return Trace{}, fmt.Errorf("%w, or a file: %w", unknown, err)
	}
	defer f.Close()
	if filepath.Ext(nameOrPath) != ".csv" {
		return ReadRates(nameOrPath, f)
	}
	traces, err := ReadAzure(nameOrPath, f, nil)
	if err != nil {
		return Trace{}, err
	}
	return Sum(nameOrPath, traces...)
}

// Multiple is by how much Autothrottle's experiments multiply their traces for an application of [Apps]; ok is false for
// others.
func Multiple(app string) (times float64, ok bool) {
	times, ok = map[string]float64{"train-ticket": 1, "social-network": 1.5, "hotel-reservation": 10}[app]
	return times, ok
}

// Cell is the load of one of Autothrottle's experiments: an application of [Apps] under diurnal, diurnal-2 (with which its
// authors warm up), noisy or bursty, at its [Multiple], or under their constant rate for it.
func Cell(app, trace string) (Trace, error) {
	times, known := Multiple(app)
	if !known {
		return Trace{}, fmt.Errorf("application %q: known are %s", app, strings.Join(Apps(), ", "))
	}
	if trace == "constant" {
		constant := map[string]float64{"train-ticket": 200, "social-network": 500, "hotel-reservation": 2000}
		return Constant(constant[app], time.Hour)
	}
	if !slices.Contains(autothrottle, trace) {
		return Trace{}, fmt.Errorf("trace %q: known are constant, %s", trace, strings.Join(autothrottle, ", "))
	}
	t, err := Named(trace)
	if err != nil {
		return Trace{}, err
	}
	return t.Times(times)
}
