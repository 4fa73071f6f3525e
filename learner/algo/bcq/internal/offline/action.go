package offline

import (
	"fmt"
	"math"
	"slices"
)

// Units returns nil for actions whose numbers are all in [-1, 1].
func Units(actions []float64) error {
	for i, a := range actions {
		if !(a >= -1 && a <= 1) {
			return fmt.Errorf("action %d of the batch is %v: it must be in [-1, 1]", i, a)
		}
	}
	return nil
}

// CrossEntropy is mean(-log pi(a|s)) + flat * mean(logits^2) for logits
// [batch][n] and actions [batch], and its gradient by the logits. The mean of
// squares is over all logits.
func CrossEntropy(logits, actions []float64, flat float64, grad []float64) float64 {
	loss := 0.0
	batch := float64(len(actions))
	n := len(logits) / len(actions)
	for i, a := range actions {
		row, g := logits[i*n:][:n], grad[i*n:][:n]
		most, sum := slices.Max(row), 0.0
		for k, v := range row {
			g[k] = math.Exp(v - most)
			sum += g[k]
		}
		for k, v := range row {
			loss += flat * v * v / (batch * float64(n))
			g[k] = g[k]/(sum*batch) + flat*2*v/(batch*float64(n))
		}
		loss += (math.Log(sum) - (row[int(a)] - most)) / batch
		g[int(a)] -= 1 / batch
	}
	return loss
}
