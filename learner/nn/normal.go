package nn

import (
	"fmt"
	"math"
)

// Normaliser brings vectors to mean 0 and deviation 1 by the statistics of
// those that it observed (Chan et al. 1979). Its exported fields are all its
// state.
type Normaliser struct {
	Mean      []float64 // of each number
	Square    []float64 // sum of squared differences from the mean
	Count     float64   // vectors that were observed
	ClipRange float64   // results are clipped at plus and minus this; 0 does not clip
	Frozen    bool      // when set, Observe changes nothing: for evaluation and serving
}

// NewNormaliser is a Normaliser of vectors of n numbers that clips at 10, as
// the reference implementations do.
func NewNormaliser(n int) *Normaliser {
	return &Normaliser{Mean: make([]float64, n), Square: make([]float64, n), ClipRange: 10}
}

// Observe takes a vector into account.
func (n *Normaliser) Observe(x []float64) {
	if len(x) != len(n.Mean) {
		panic(fmt.Sprintf("observe: %d numbers: the normaliser has %d", len(x), len(n.Mean)))
	}
	if n.Frozen {
		return
	}
	n.Count++
	for i, v := range x {
		d := v - n.Mean[i]
		n.Mean[i] += d / n.Count
		n.Square[i] += d * (v - n.Mean[i])
	}
}

// Deviation is the i-th number's, or 1 before there are two different values.
func (n *Normaliser) Deviation(i int) float64 {
	if n.Count < 2 || n.Square[i] <= 0 {
		return 1
	}
	return math.Sqrt(n.Square[i]/n.Count + 1e-8)
}

// Normalise writes the normalised x into to, which may be x.
func (n *Normaliser) Normalise(to, x []float64) {
	for i, v := range x {
		v = (v - n.Mean[i]) / n.Deviation(i)
		if n.ClipRange > 0 {
			v = max(-n.ClipRange, min(n.ClipRange, v))
		}
		to[i] = v
	}
}
