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

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

//go:embed apps/*.yaml data/autothrottle/*.txt data/azure/*.csv data/aware/generatedFunctions.txt
var data embed.FS

// embedded opens a file that is compiled in.
func embedded(path string) *bytes.Reader {
	b, err := data.ReadFile(path)
	if err != nil {
		panic(err) // a missing file is a bug
	}
	return bytes.NewReader(b)
}

// autothrottle is the four traces of Autothrottle (NSDI 2024), one hour each.
var autothrottle = []string{"diurnal", "diurnal-2", "noisy", "bursty"}

// Traces returns the names that [Open] knows: the four traces of Autothrottle,
// the four generated ones of [Spiky], and three from the Azure Functions trace of 2019: the requests to all
// functions of [Azure], to the functions with more than 10^5 invocations per
// day, and to the other functions.
func Traces() []string {
	return slices.Concat(autothrottle, []string{"azure", "azure-high", "azure-low"}, spiky)
}

// Named returns a trace that is compiled in, or one of [Spiky].
func Named(name string) (Trace, error) {
	if slices.Contains(autothrottle, name) {
		return ReadRates(name, embedded("data/autothrottle/"+name+".txt"))
	}
	if slices.Contains(spiky, name) {
		return namedSpiky(name)
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

// Busy reports whether a function has more than 10^5 invocations per day. AWARE
// divides the functions in this way for its changes of load (dissertation,
// Insight 5.2).
func Busy(f Function) bool { return f.Daily > 1e5 }

// Azure returns the compiled-in sample of the Azure Functions trace: the 20
// busiest functions of a sample of 500, for 8 hours with one value per minute.
// Nine of them are [Busy].
func Azure(keep func(Function) bool) []Trace {
	const file = "data/azure/busiest_invocations.csv"
	traces, err := ReadAzure(file, embedded(file), keep)
	if err != nil && !errors.Is(err, ErrNoRates) { // ErrNoRates: keep selected nothing
		panic(err)
	}
	return traces
}

// Open returns a trace that is compiled in, or reads one from a file. A file
// that ends in .csv has invocations per minute; the trace is the sum of all
// functions. Any other file has rates per second.
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

// Multiple is the factor by which Autothrottle's experiments multiply their
// traces for an application of [Apps]; ok is false for other applications.
func Multiple(app string) (times float64, ok bool) {
	times, ok = map[string]float64{"train-ticket": 1, "social-network": 1.5, "hotel-reservation": 10}[app]
	return times, ok
}

// Machines are those of Autothrottle's experiments: five nodes with 32 cores.
var Machines = sim.Uniform(5, mdp.Size{CPU: 32_000, Memory: 128 << 30})

// CellTraces returns the traces that [Cell] knows: those of [Traces], and
// constant.
func CellTraces() []string { return append([]string{"constant"}, Traces()...) }

// Cell is the load of one of Autothrottle's experiments: the trace diurnal,
// diurnal-2 (their warm-up), noisy or bursty, multiplied by the application's
// [Multiple], or their constant rate for the application. The other traces of
// [Traces] are multiplied in the same way.
func Cell(app, trace string) (Trace, error) {
	times, known := Multiple(app)
	if !known {
		return Trace{}, fmt.Errorf("application %q: known are %s", app, strings.Join(Apps(), ", "))
	}
	if trace == "constant" {
		constant := map[string]float64{"train-ticket": 200, "social-network": 500, "hotel-reservation": 2000}
		return Constant(constant[app], time.Hour)
	}
	if !slices.Contains(CellTraces(), trace) {
		return Trace{}, fmt.Errorf("trace %q: known are %s", trace, strings.Join(CellTraces(), ", "))
	}
	t, err := Named(trace)
	if err != nil {
		return Trace{}, err
	}
	return t.Times(times)
}
