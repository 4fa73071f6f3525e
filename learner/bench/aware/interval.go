package aware

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is a mean with its 95 % interval, which a single value has not.
type Interval struct {
	Mean float64  `json:"mean"`
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
}

func (i Interval) String() string {
	if i.Low == nil {
		return fmt.Sprintf("%.3g", i.Mean)
	}
	return fmt.Sprintf("%.3g (%.3g to %.3g)", i.Mean, *i.Low, *i.High)
}

// interval is Student's, of independent values.
func interval(values []float64) Interval {
	mean, deviation := stat.MeanStdDev(values, nil)
	if len(values) < 2 {
		return Interval{Mean: mean}
	}
	n := float64(len(values))
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * stat.StdErr(deviation, n)
	low, high := mean-half, mean+half
	return Interval{Mean: mean, Low: &low, High: &high}
}

// jackknife is a figure of all repetitions together, with the jackknife's 95 % interval, of the figure without each of them.
// without is the figure without one repetition, and of all for -1. nil: it cannot be said.
func jackknife(repetitions []int, without func(left int) (float64, bool)) *Interval {
	mean, ok := without(-1)
	if !ok {
		return nil
	}
	var values []float64 // pseudo-values, of which the interval is made
	n := float64(len(repetitions))
	for _, repetition := range repetitions {
		v, ok := without(repetition)
		if !ok {
			return &Interval{Mean: mean}
		}
		values = append(values, n*mean-(n-1)*v)
	}
	i := interval(values)
	if i.Low != nil {
		low, high := *i.Low+mean-i.Mean, *i.High+mean-i.Mean
		i.Low, i.High = &low, &high
	}
	i.Mean = mean
	return &i
}

// overRepetitions is the interval over the repetitions' means of a figure.
func overRepetitions[T any](by map[int][]T, of func(T) float64) Interval {
	var means []float64
	for _, runs := range by {
		sum := 0.0
		for _, one := range runs {
			sum += of(one)
		}
		means = append(means, sum/float64(len(runs)))
	}
	slices.Sort(means) // the map's order is another one each time, and sums of floats depend on it
	return interval(means)
}
