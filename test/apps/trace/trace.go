// Package trace reads traces of request rates.
//
// A trace is a text file with one number per line: the rate, in requests per
// second, of one step of the trace. A step lasts one second until the trace is
// scaled. The rate is constant within a step, so
//
//	# a calm second, then a burst of two
//	10
//	100
//	100
//
// asks for 210 requests in 3 seconds. Blank lines, and lines that begin with #,
// are left out.
//
// The package owns the file format and the arithmetic on rates. Package load
// turns rates into arrivals.
package trace

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"awarescale.dev/aware/learner/sim/workload"
)

// MaxRate is the highest rate a trace may have, in requests per second.
const MaxRate = workload.MaxRate

// ErrNoRates is wrapped by the error for a file without a single rate.
var ErrNoRates = workload.ErrNoRates

// Trace is a rate of requests that changes in steps of equal length.
type Trace struct {
	Step  time.Duration // length of one step
	Rates []float64     // requests per second within each step
}

// ReadFile reads the trace in the file at path.
func ReadFile(path string) (Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return Trace{}, fmt.Errorf("reading trace: %w", err)
	}
	defer f.Close()
	return Read(path, f)
}

// Read reads a trace from r, as the simulator does. Errors call it name, and give
// the line and the value.
func Read(name string, r io.Reader) (Trace, error) {
	t, err := workload.ReadRates(name, r)
	return Trace{Step: t.Step, Rates: t.Rates}, err
}

// Scale returns the trace with its steps time as long and its rates rate as
// high. Scale(0.5, 3) is over in half the time and asks for 1.5 times the
// requests.
func (t Trace) Scale(time, rate float64) (Trace, error) {
	step, err := scaledStep(t.Step, time)
	if err != nil {
		return Trace{}, fmt.Errorf("scaling a trace in time by %g: %w", time, err)
	}
	if !(rate >= 0) || t.Peak()*rate > MaxRate {
		return Trace{}, fmt.Errorf("scaling a trace with a peak of %g requests/s by %g: must give 0 to %g",
			t.Peak(), rate, MaxRate)
	}
	scaled := Trace{Step: step, Rates: make([]float64, len(t.Rates))}
	for i, r := range t.Rates {
		scaled.Rates[i] = r * rate
	}
	return scaled, nil
}

// Sharpen returns the trace with the same mean, and its rates as far from each other as their powers
// are: with a power of 2, what was three times the rate of another second is nine times it.
func (t Trace) Sharpen(power float64) (Trace, error) {
	if !(power >= 0 && power <= 10) || t.Peak() == 0 {
		return Trace{}, fmt.Errorf("sharpening a trace with a peak of %g requests/s by %g: must be 0 to 10, and a trace with requests",
			t.Peak(), power)
	}
	sharp := Trace{Step: t.Step, Rates: make([]float64, len(t.Rates))}
	for i, r := range t.Rates {
		sharp.Rates[i] = math.Pow(r/t.Peak(), power)
	}
	return sharp.Scale(1, t.Mean()/sharp.Mean())
}

func scaledStep(step time.Duration, by float64) (time.Duration, error) {
	scaled := float64(step) * by
	if !(scaled >= float64(time.Millisecond) && scaled <= float64(24*time.Hour)) {
		return 0, fmt.Errorf("a step of %v must become 1ms to 24h long", step)
	}
	return time.Duration(scaled), nil
}

// At returns the rate at time at since the start, in requests per second. It
// is 0 before the start and from the end on.
func (t Trace) At(at time.Duration) float64 {
	if at < 0 || at >= t.Duration() {
		return 0
	}
	return t.Rates[at/t.Step]
}

// Duration is the length of the trace.
func (t Trace) Duration() time.Duration { return time.Duration(len(t.Rates)) * t.Step }

// Requests is the number of requests of the trace.
func (t Trace) Requests() float64 {
	sum := 0.0
	for _, rate := range t.Rates {
		sum += rate
	}
	return sum * t.Step.Seconds()
}

// Mean is the mean rate in requests per second, 0 for an empty trace.
func (t Trace) Mean() float64 {
	if len(t.Rates) == 0 {
		return 0
	}
	return t.Requests() / t.Duration().Seconds()
}

// Peak is the highest rate in requests per second, 0 for an empty trace.
func (t Trace) Peak() float64 {
	if len(t.Rates) == 0 {
		return 0
	}
	return slices.Max(t.Rates)
}
