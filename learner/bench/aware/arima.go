package aware

import (
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// arma is an ARIMA(2, 0, 1) model of a series: what comes next from the last two values and the last surprise (Box and Jenkins).
// It is written here since of the Go libraries that were found the module proxy refuses all but one (kedastral v0.1.2), and
// that one's forecasts are the last value, moved by a tenth of what its coefficients say.
type arma struct {
	constant float64
	ar       [2]float64
	ma       float64
	last     [2]float64 // values, the newest first
	surprise float64    // the last value less what was expected
}

// long is the order of the regression whose residuals stand for the surprises.
const long = 5

// fitARMA fits by Hannan and Rissanen's method (1982): a long autoregression shows the surprises, and then a second
// regression has them among its variables. It needs some four times as many values as the model has parameters.
func fitARMA(y []float64) (arma, error) {
	if len(y) < fewestLoads {
		return arma{}, fmt.Errorf("arima of %d values: there must be %d", len(y), fewestLoads)
	}
	first, err := regress(y, long, func(t int) []float64 {
		row := []float64{1}
		for k := 1; k <= long; k++ {
			row = append(row, y[t-k])
		}
		return row
	})
	if err != nil {
		return arma{}, err
	}
	surprises := make([]float64, len(y))
	for t := long; t < len(y); t++ {
		surprises[t] = y[t] - first[0]
		for k := 1; k <= long; k++ {
			surprises[t] -= first[k] * y[t-k]
		}
	}
	second, err := regress(y, long+1, func(t int) []float64 { return []float64{1, y[t-1], y[t-2], surprises[t-1]} })
	if err != nil {
		return arma{}, err
	}
	n := len(y)
	m := arma{constant: second[0], ar: [2]float64{second[1], second[2]}, ma: second[3], last: [2]float64{y[n-1], y[n-2]}}
	m.surprise = surprises[n-1]
	return m, nil
}

// regress is the least squares of y from a time on, by rows of variables. A little is added to the diagonal: a constant load
// has no other solution.
func regress(y []float64, from int, row func(t int) []float64) ([]float64, error) {
	n := len(row(from))
	xx, xy := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for t := from; t < len(y); t++ {
		x := mat.NewVecDense(n, row(t))
		xx.SymRankOne(xx, 1, x)
		xy.AddScaledVec(xy, y[t], x)
	}
	for i := range n {
		xx.SetSym(i, i, xx.At(i, i)*(1+1e-9)+1e-9)
	}
	var c mat.Cholesky
	if !c.Factorize(xx) {
		return nil, fmt.Errorf("arima: the regression of %d values has no solution", len(y)-from)
	}
	var theta mat.VecDense
	if err := c.SolveVecTo(&theta, xy); err != nil {
		return nil, fmt.Errorf("arima: %w", err)
	}
	return theta.RawVector().Data, nil
}

// forecast is the next values.
func (m arma) forecast(n int) []float64 {
	out := make([]float64, n)
	last, surprise := m.last, m.surprise
	for i := range out {
		out[i] = m.constant + m.ar[0]*last[0] + m.ar[1]*last[1] + m.ma*surprise
		last, surprise = [2]float64{out[i], last[0]}, 0
	}
	return out
}
