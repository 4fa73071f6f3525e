package kernel

import (
	"fmt"
	"math"
	"slices"
)

// HeadKind says how a network's output becomes an action.
type HeadKind string

// The kinds of heads.
const (
	// Argmax takes the legal choice with the largest output: values of DQN,
	// logits of PPO.
	Argmax HeadKind = "argmax"
	// Constrained takes the legal choice with the largest value among those
	// that the data's policy could have taken. The output is values and then as
	// many logits of that policy (discrete BCQ).
	Constrained HeadKind = "batch-constrained"
	// Interval brings each output to the interval from Low to High: stretched
	// from [-1, 1] (the tanh of DDPG).
	Interval HeadKind = "interval"
	// Clamp cuts each output off at Low and High (the mean of PPO).
	Clamp HeadKind = "clamp"
)

// Head is the last step of a decision without exploration. It is part of a Snapshot.
type Head struct {
	Kind      HeadKind
	Threshold float64   // of Constrained: a choice needs more than this share of the most probable one's probability
	Low       []float64 // of Interval and Clamp, for each number of an action
	High      []float64
}

// Check is nil for a head that fits a network of so many outputs.
func (h Head) Check(outputs int) error {
	switch h.Kind {
	case Argmax:
		return nil
	case Constrained:
		if outputs%2 != 0 || !(h.Threshold >= 0 && h.Threshold < 1) {
			return fmt.Errorf("head %s: %d outputs, threshold %v: outputs must be even, and the threshold in [0, 1)",
				h.Kind, outputs, h.Threshold)
		}
		return nil
	case Interval, Clamp:
		if len(h.Low) != outputs || len(h.High) != outputs {
			return fmt.Errorf("head %s: %d and %d bounds for %d outputs", h.Kind, len(h.Low), len(h.High),
				outputs)
		}
		for i := range h.Low {
			if !(h.Low[i] < h.High[i]) || math.IsInf(h.High[i]-h.Low[i], 0) {
				return fmt.Errorf("head %s: bounds [%v, %v]: need low < high, both finite", h.Kind, h.Low[i],
					h.High[i])
			}
		}
		return nil
	}
	return fmt.Errorf("head %q: it must be %s, %s, %s or %s", h.Kind, Argmax, Constrained, Interval, Clamp)
}

// NumActions is the number of choices of a network of so many outputs; 0 for a
// continuous action.
func (h Head) NumActions(outputs int) int {
	switch h.Kind {
	case Argmax:
		return outputs
	case Constrained:
		return outputs / 2
	}
	return 0
}

// Action makes an action of a network's output: one number, the index of the
// choice, or as many as there are outputs. legal has one entry for each choice;
// nil allows all. Of equal choices it is the first; without a legal one it is
// 0.
func (h Head) Action(out []float64, legal []bool, action []float64) {
	switch h.Kind {
	case Argmax:
		action[0] = float64(largest(out, legal, nil, 0))
	case Constrained:
		n := len(out) / 2
		logits := out[n:]
		best := math.Inf(-1)
		for i, v := range logits {
			if legal == nil || legal[i] {
				best = max(best, v)
			}
		}
		action[0] = float64(largest(out[:n], legal, logits, best+math.Log(h.Threshold)))
	case Interval:
		Outward(action, out, h.Low, h.High)
	case Clamp:
		for i, v := range out {
			action[i] = max(h.Low[i], min(h.High[i], v))
		}
	}
}

// Outward scales an action of [-1, 1] to bounds, and clips it there.
func Outward(to, action, low, high []float64) {
	for i, v := range action {
		to[i] = max(low[i], min(high[i], low[i]+(v+1)/2*(high[i]-low[i])))
	}
}

// Inward scales an action from its bounds to [-1, 1], and clips it there.
func Inward(to, action, low, high []float64) {
	for i, v := range action {
		to[i] = max(-1, min(1, 2*(v-low[i])/(high[i]-low[i])-1))
	}
}

// largest is the place of the largest value among the legal ones whose logit,
// if there are logits, is above least.
func largest(values []float64, legal []bool, logits []float64, least float64) int {
	best := -1
	for i, v := range values {
		if legal != nil && !legal[i] || logits != nil && !(logits[i] > least) {
			continue
		}
		if best < 0 || v > values[best] {
			best = i
		}
	}
	return max(best, 0)
}

func (h Head) clone() Head {
	h.Low, h.High = slices.Clone(h.Low), slices.Clone(h.High)
	return h
}
