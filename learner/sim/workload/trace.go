package workload

import (
	"fmt"
	"math"
	"slices"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// MaxRate is the highest rate of a trace, in requests per second. A higher rate
// is probably a typing error.
const MaxRate = 1e6

// Trace is a request rate that is constant within steps of equal length. After
// its end it repeats, so that a world can run longer than the trace.
type Trace struct {
	Name  string
	Step  time.Duration // at least one second
	Rates []float64     // requests per second in each step
}

// Rate is the rate at a time since the start of the world. It implements
// [awarescale.dev/aware/learner/sim.Load].
func (t Trace) Rate(at time.Duration) mdp.Rate {
	if len(t.Rates) == 0 || t.Step <= 0 || at < 0 {
		return 0
	}
	return mdp.Rate(t.Rates[int64(at/t.Step)%int64(len(t.Rates))])
}

// Length is the time after which the trace repeats.
func (t Trace) Length() time.Duration { return t.Step * time.Duration(len(t.Rates)) }

// Mean is the mean rate, 0 for a trace without rates.
func (t Trace) Mean() float64 {
	if len(t.Rates) == 0 {
		return 0
	}
	sum := 0.0
	for _, r := range t.Rates {
		sum += r
	}
	return sum / float64(len(t.Rates))
}

// Peak is the highest rate, 0 for a trace without rates.
func (t Trace) Peak() float64 {
	if len(t.Rates) == 0 {
		return 0
	}
	return slices.Max(t.Rates)
}

// Check returns nil for a valid trace. Otherwise the error names the wrong
// value.
func (t Trace) Check() error {
	if t.Step < time.Second {
		return fmt.Errorf("trace %s: step %v: it must be at least 1s", t.Name, t.Step)
	}
	if len(t.Rates) == 0 {
		return fmt.Errorf("trace %s: %w", t.Name, ErrNoRates)
	}
	for i, r := range t.Rates {
		if !(r >= 0 && r <= MaxRate) {
			return fmt.Errorf("trace %s: rate %v in step %d: it must be in [0, %g]", t.Name, r, i, MaxRate)
		}
	}
	return nil
}

// Times is the trace with all rates multiplied by the factor.
func (t Trace) Times(factor float64) (Trace, error) {
	if !(factor >= 0) || math.IsInf(factor, 0) {
		return Trace{}, fmt.Errorf("trace %s times %v: the factor must not be negative", t.Name, factor)
	}
	if peak := t.Peak() * factor; peak > MaxRate {
		return Trace{}, fmt.Errorf("trace %s times %v: its peak becomes %g, and must be at most %g", t.Name,
			factor, peak, MaxRate)
	}
	rates := make([]float64, len(t.Rates))
	for i, r := range t.Rates {
		rates[i] = r * factor
	}
	t.Rates = rates
	return t, nil
}

// Scaled is the trace with the given mean rate and the same shape.
func (t Trace) Scaled(mean float64) (Trace, error) {
	if !(mean >= 0 && mean <= MaxRate) {
		return Trace{}, fmt.Errorf("trace %s scaled to a mean of %v: it must be in [0, %g]", t.Name, mean, MaxRate)
	}
	have := t.Mean()
	if have == 0 {
		return Trace{}, fmt.Errorf("trace %s scaled to a mean of %v: its own mean is 0", t.Name, mean)
	}
	return t.Times(mean / have)
}

// Cut is the part of the trace between two times, in whole steps.
func (t Trace) Cut(from, to time.Duration) (Trace, error) {
	if from < 0 || to > t.Length() || from >= to {
		return Trace{}, fmt.Errorf("trace %s cut from %v to %v: it lasts from 0 to %v, and something must be left",
			t.Name, from, to, t.Length())
	}
	if from%t.Step != 0 || to%t.Step != 0 {
		return Trace{}, fmt.Errorf("trace %s cut from %v to %v: both must be whole steps of %v", t.Name, from, to, t.Step)
	}
	t.Rates = slices.Clone(t.Rates[from/t.Step : to/t.Step])
	return t, nil
}

// Sum adds the rates of several traces, which must have the same step and
// length.
func Sum(name string, traces ...Trace) (Trace, error) {
	if len(traces) == 0 {
		return Trace{}, fmt.Errorf("trace %s: the sum of no traces", name)
	}
	sum := Trace{Name: name, Step: traces[0].Step, Rates: make([]float64, len(traces[0].Rates))}
	for _, t := range traces {
		if t.Step != sum.Step || len(t.Rates) != len(sum.Rates) {
			return Trace{}, fmt.Errorf("trace %s: the sum of %s (%d steps of %v) and %s (%d steps of %v): they must be of one length",
				name, traces[0].Name, len(sum.Rates), sum.Step, t.Name, len(t.Rates), t.Step)
		}
		for i, r := range t.Rates {
			sum.Rates[i] += r
		}
	}
	return sum, sum.Check()
}
