package ppo

import (
	"fmt"

	"awarescale.dev/aware/learner/nn/graph"
)

// trialScratch is what an update of a Recurrent needs, and what is not its state.
type trialScratch struct {
	graph *graph.Graph[float64]
	input graph.Input[float64]
	batch *Minibatch // of the run
	stats Stats      // of the run
}

// newTrialScratch builds the loss of whole trials.
func newTrialScratch(c Config) (*trialScratch, error) {
	s, m := &trialScratch{}, c.memories()
	var err error
	s.graph, err = graph.Build(m.n, func(b *graph.Builder[float64]) *graph.Node {
		trials := c.Minibatch / c.Horizon
		s.input = b.Input("trials", c.Minibatch, m.seen)
		p := b.GRU("policy", m.policy, c.Horizon, trials, nil, s.input.Node, 0)
		v := b.GRU("critic", m.critic, c.Horizon, trials, nil, s.input.Node, m.critics)
		in := []*graph.Node{
			b.Dense("policy/head", m.policyHead, p,
				b.Params("policy/head/theta", m.pHead, m.policyHead.Params())),
			b.Dense("critic/head", m.criticHead, v,
				b.Params("critic/head/theta", m.cHead, m.criticHead.Params())),
		}
		if m.deviations > 0 {
			in = append(in, b.Params("deviations", m.dev, m.deviations))
		}
		return b.Loss("ppo", func(in, grads [][]float64) (float64, error) {
			var deviations, dDeviations []float64
			if len(in) == 3 {
				deviations, dDeviations = in[2], grads[2]
			}
			s.stats = c.Loss(s.batch, in[0], deviations, in[1], grads[0], dDeviations, grads[1])
			return s.stats.Loss, nil
		}, in...)
	})
	if err != nil {
		return nil, fmt.Errorf("recurrent ppo: %w", err)
	}
	return s, nil
}
