package ppo

import "math"

// Minibatch is the part of a rollout that one update learns from. Rows are
// transitions.
type Minibatch struct {
	State     []float64 // [n][State]
	Action    []float64 // [n][Action], as sampled
	LogProb   []float64 // [n]; of the action when it was sampled
	Advantage []float64 // [n]; normalised
	Return    []float64 // [n]
	Legal     []bool    // [n][NumActions]; nil when all choices are legal
	Overruled []bool    // [n]; another action took force: the row is left out of the policy's loss; nil: none
	Unknown   []bool    // [n]; the reward is not known: the row is left out of both losses; nil: none
	Clip      float64   // how far a ratio may be from 1
}

// learns reports whether row i counts in the policy's and in the value's loss.
func (m *Minibatch) learns(i int) (policy, value bool) {
	value = m.Unknown == nil || !m.Unknown[i]
	return value && (m.Overruled == nil || !m.Overruled[i]), value
}

// counts is how many rows count in the policy's and in the value's loss.
func (m *Minibatch) counts() (policy, value int) {
	for i := range m.Advantage {
		p, v := m.learns(i)
		if p {
			policy++
		}
		if v {
			value++
		}
	}
	return policy, value
}

// Stats are figures of an update.
type Stats struct {
	Loss    float64 // weighted sum of the three parts
	Policy  float64 // clipped objective, negative
	Value   float64 // half the mean squared error
	Entropy float64 // mean of the policy's entropy
	KL      float64 // mean((ratio-1) - log ratio), Schulman's estimate
	Clipped float64 // share of ratios beyond Clip
	Norm    float64 // of the gradient before it was clipped
}

// illegal is the logit of an action that is not legal: its probability becomes 0.
const illegal = -1e8

// Loss is the loss of a minibatch, and its gradients with respect to the
// policy's outputs [n][Outputs], the logarithms of deviations (of a continuous
// policy), and the values [n].
func (c Config) Loss(m *Minibatch, outputs, deviations, values, dOutputs, dDeviations, dValues []float64) Stats {
	var s Stats
	policyRows, valueRows := m.counts()
	clear(dDeviations)
	width := c.Outputs()
	for i := range values {
		policy, value := m.learns(i)
		dValues[i] = 0
		if value {
			e := values[i] - m.Return[i]
			s.Value += 0.5 * e * e / float64(valueRows)
			dValues[i] = c.Value * e / float64(valueRows)
		}
		n := policyRows
		out, d := outputs[i*width:][:width], dOutputs[i*width:][:width]
		if !policy {
			clear(d)
			continue
		}
		var logProb, entropy float64
		if c.NumActions > 0 {
			var legal []bool
			if m.Legal != nil {
				legal = m.Legal[i*width:][:width]
			}
			logProb, entropy = categorical(out, legal, int(m.Action[i]), d)
		} else {
			logProb = normal(out, deviations, m.Action[i*width:][:width])
			for _, l := range deviations {
				entropy += l + 0.5*math.Log(2*math.Pi*math.E)
			}
		}
		ratio := math.Exp(logProb - m.LogProb[i])
		a := m.Advantage[i]
		free, cut := -a*ratio, -a*max(1-m.Clip, min(1+m.Clip, ratio))
		scale := 0.0 // of the gradient of logProb
		if free >= cut {
			scale = -a * ratio / float64(n)
		}
		s.Policy += max(free, cut) / float64(n)
		s.Entropy += entropy / float64(n)
		s.KL += (ratio - 1 - (logProb - m.LogProb[i])) / float64(n)
		if math.Abs(ratio-1) > m.Clip {
			s.Clipped += 1 / float64(n)
		}
		if c.NumActions > 0 {
			c.backCategorical(d, int(m.Action[i]), entropy, scale, n)
		} else {
			for j, l := range deviations {
				v := math.Exp(-2 * l)
				off := m.Action[i*width+j] - out[j]
				d[j] = scale * off * v
				dDeviations[j] += scale*(off*off*v-1) - c.Entropy/float64(n)
			}
		}
	}
	s.Loss = s.Policy + c.Value*s.Value - c.Entropy*s.Entropy
	return s
}

// backCategorical turns logarithms of probabilities, in d, into the gradient of
// the loss with respect to the logits:
//
//	d logProb(a) / d logit_j = [j = a] - p_j
//	d entropy / d logit_j    = -p_j (log p_j + entropy)
func (c Config) backCategorical(d []float64, action int, entropy, scale float64, n int) {
	for j, l := range d {
		p := math.Exp(l)
		g := -scale * p
		if j == action {
			g += scale
		}
		if p > 0 {
			g += c.Entropy / float64(n) * p * (l + entropy)
		}
		d[j] = g
	}
}

// categorical is the logarithm of a choice's probability and the entropy, by
// logits of which only the legal ones count. It leaves the logarithms of all
// probabilities in logs.
func categorical(logits []float64, legal []bool, action int, logs []float64) (logProb, entropy float64) {
	most := math.Inf(-1)
	for j, l := range logits {
		if legal != nil && !legal[j] {
			l = illegal
		}
		logs[j] = l
		most = max(most, l)
	}
	sum := 0.0
	for _, l := range logs {
		sum += math.Exp(l - most)
	}
	norm := most + math.Log(sum)
	for j := range logs {
		logs[j] -= norm
		if p := math.Exp(logs[j]); p > 0 {
			entropy -= p * logs[j]
		}
	}
	return logs[action], entropy
}

// normal is the logarithm of the density of independent normal numbers.
func normal(mean, deviations, action []float64) float64 {
	sum := 0.0
	for j, l := range deviations {
		off := (action[j] - mean[j]) * math.Exp(-l)
		sum -= 0.5*off*off + l + 0.5*math.Log(2*math.Pi)
	}
	return sum
}

// Advantages computes generalised advantage estimates and returns (advantage +
// value) of a rollout, time by time:
//
//	delta = r + gamma * V(s') * (1 - terminated) - V(s)
//	A     = delta + gamma * lambda * (1 - ended) * A'
//
// rewards, values and next, V(s') of the true next observation, are [time][envs];
// ended is terminated or truncated. Where a reward is unknown (nil: nowhere) the
// row has no advantage, and the sum of the rows before it ends in front of it,
// as at a truncation: they bootstrap from its value.
func Advantages(gamma, lambda float64, envs int, rewards, values, next []float64, terminated, ended, unknown []bool,
	advantages, returns []float64) {
	for e := range envs {
		a := 0.0
		for i := len(rewards) - envs + e; i >= 0; i -= envs {
			if unknown != nil && unknown[i] {
				a = 0
				advantages[i], returns[i] = 0, values[i]
				continue
			}
			v := next[i]
			if terminated[i] {
				v = 0
			}
			if ended[i] {
				a = 0
			}
			a = rewards[i] + gamma*v - values[i] + gamma*lambda*a
			advantages[i], returns[i] = a, a+values[i]
		}
	}
}

// normalise brings the advantages of the rows that the policy learns from to
// mean 0 and deviation 1. A single one stays as it is.
func (m *Minibatch) normalise() {
	n, _ := m.counts()
	if n < 2 {
		return
	}
	mean, square := 0.0, 0.0
	for i, v := range m.Advantage {
		if learns, _ := m.learns(i); learns {
			mean += v / float64(n)
		}
	}
	for i, v := range m.Advantage {
		if learns, _ := m.learns(i); learns {
			square += (v - mean) * (v - mean) / float64(n-1)
		}
	}
	scale := 1 / (math.Sqrt(square) + 1e-8)
	for i := range m.Advantage {
		m.Advantage[i] = (m.Advantage[i] - mean) * scale
	}
}
