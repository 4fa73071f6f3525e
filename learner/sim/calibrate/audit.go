package calibrate

import "math"

// Audit says what the records of a policy can tell. It is about the published
// figures alone; no model is involved.
type Audit struct {
	Windows     int `json:"windows"`
	Allocations int `json:"distinct_allocations"`
	Commonest   int `json:"windows_with_the_commonest_allocation"`
	// Impossible windows have a p99, a mean and a standard deviation that no
	// distribution has together (Cantelli's inequality).
	Impossible int `json:"impossible"`
	// Printed windows have a p99 as wrk2 prints it, with two decimals: 564.73ms,
	// 2.33s. One in ten values of three decimals looks like this by chance.
	Printed int `json:"p99_as_printed"`
	// KnownRate is the Spearman correlation of the p99 with the negative
	// completed rate: what a prediction reaches that knows the rate exactly.
	KnownRate *float64 `json:"spearman_of_the_completed_rate"`
	// KnownDeviation is the same with the standard deviation of the latency.
	KnownDeviation *float64 `json:"spearman_of_the_standard_deviation"`
}

func audit(rows []Window) Audit {
	a := Audit{Windows: len(rows)}
	count := map[string]int{}
	var rate, deviation []Point
	for _, w := range rows {
		count[key(w.Alloc)]++
		a.Commonest = max(a.Commonest, count[key(w.Alloc)])
		if w.impossible() {
			a.Impossible++
		}
		if w.printed() {
			a.Printed++
		}
		rate = append(rate, Point{w.Policy, w.P99, -w.Rate()})
		if w.Deviation > 0 {
			deviation = append(deviation, Point{w.Policy, w.P99, w.Deviation})
		}
	}
	a.Allocations = len(count)
	a.KnownRate, a.KnownDeviation = spearman(rate), spearman(deviation)
	return a
}

// impossible applies Cantelli's inequality: the quantile q of any distribution
// is at most mean + deviation * sqrt(q/(1-q)), and at least mean - deviation *
// sqrt((1-q)/q). For the p99 the factors are 9.95 and 0.1005.
func (w Window) impossible() bool {
	if w.Deviation == 0 {
		return false // not known
	}
	return w.P99-w.Mean > w.Deviation*math.Sqrt(99) || w.Mean-w.P99 > w.Deviation/math.Sqrt(99)
}

// printed reports whether wrk2 can have printed the p99: 100.61ms, and from a
// second on 1.38s.
func (w Window) printed() bool {
	unit := 0.01
	if w.P99 >= 1000 {
		unit = 10
	}
	n := w.P99 / unit
	return math.Abs(n-math.Round(n)) < 1e-6
}
