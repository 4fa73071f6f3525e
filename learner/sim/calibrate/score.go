package calibrate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Point is a held-out measurement and its prediction, in the same unit.
type Point struct {
	Group     string // a policy, a data set or a team
	Measured  float64
	Predicted float64
}

// errors returns the relative errors of the points.
func relative(points []Point) []float64 {
	out := make([]float64, len(points))
	for i, p := range points {
		out[i] = math.Abs(p.Predicted-p.Measured) / p.Measured
	}
	return out
}

// mape is the mean absolute relative error; nil when there is no point.
func mape(points []Point) *float64 {
	if len(points) == 0 {
		return nil
	}
	return figure(stat.Mean(relative(points), nil))
}

// medianAPE is the median absolute relative error; nil when there is no point.
func medianAPE(points []Point) *float64 {
	if len(points) == 0 {
		return nil
	}
	return figure(median(relative(points)))
}

// spearman is the correlation of the ranks of measured and predicted values.
// Ties have their mean rank. It is nil with fewer than two points, or when all
// values of one side are equal.
func spearman(points []Point) *float64 {
	m, p := make([]float64, len(points)), make([]float64, len(points))
	for i, v := range points {
		m[i], p[i] = v.Measured, v.Predicted
	}
	if len(points) < 2 {
		return nil
	}
	return figure(stat.Correlation(ranks(m), ranks(p), nil))
}

// correlation is 0 when all values of one side are equal.
func correlation(a, b []float64) float64 {
	if r := stat.Correlation(a, b, nil); !math.IsNaN(r) {
		return r
	}
	return 0
}

// figure rounds to six decimals. It is nil for a value that is not finite,
// which JSON cannot represent.
func figure(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	v = math.Round(v*1e6) / 1e6
	return &v
}

func ranks(v []float64) []float64 {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compare(v[a], v[b]) })
	out := make([]float64, len(v))
	for from := 0; from < len(order); {
		to := from
		for to < len(order) && v[order[to]] == v[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			out[i] = float64(from+to-1) / 2
		}
		from = to
	}
	return out
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// quantile interpolates between order statistics. It is NaN without values.
func quantile(q float64, v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	low := int(at)
	high := min(low+1, len(s)-1)
	return s[low] + (at-float64(low))*(s[high]-s[low])
}

func median(v []float64) float64 { return quantile(0.5, v) }
