package pretrain

import (
	"slices"

	"gonum.org/v1/gonum/floats"
)

// mean is the mean of some parameters over rounds. What a policy does moves from round to round more than what it is worth; the
// mean of the parameters is steadier (Polyak and Juditsky 1992; Izmailov et al. 2018).
type mean struct {
	sum   []float64
	terms int
}

// add takes the parameters as they are into the mean.
func (m *mean) add(theta []float64) {
	if m.sum == nil {
		m.sum = make([]float64, len(theta))
	}
	floats.Add(m.sum, theta)
	m.terms++
}

// or is the mean, or a copy of the parameters as they are where there is none.
func (m *mean) or(theta []float64) []float64 {
	if m.terms == 0 {
		return slices.Clone(theta)
	}
	return floats.ScaleTo(make([]float64, len(m.sum)), 1/float64(m.terms), m.sum)
}
