package pretrain

import (
	"fmt"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/nn/graph"
)

// through is ddpg's gradients, where that of the critic goes on into the meta-learner. The embeddings in the states
// that the critic is given are made again from the bundles, so that they can be differentiated.
type through struct {
	ddpg.Gradients // the actor's

	meta   []float64   // parameters of the meta-learner
	grad   []float64   // theirs, summed up over the calls since [through.reset]
	calls  int         // since then
	theta  []float64   // scratch: meta-learner's and critic's
	all    []float64   // scratch: gradients of both
	of     meta.Config // shape of the meta-learner
	base   ddpg.Config // of the base-learner
	graph  *graph.Graph[float64]
	x      graph.Input[float64] // bundles of episodes
	obs    graph.Input[float64] // observations without embeddings
	action graph.Input[float64]
	y      graph.Input[float64]
	w      graph.Input[float64]

	lengths []int // of the episodes
	task    []int // of each row of the batch
}

// newThrough builds the loss for batches of that many workloads.
func newThrough(of meta.Config, base ddpg.Config, tasks int) (*through, error) {
	actor, err := ddpg.Gorgonia(base)
	if err != nil {
		return nil, err
	}
	critic := base.Critic()
	n := of.Params()
	t := &through{
		Gradients: actor,
		grad:      make([]float64, n),
		theta:     make([]float64, n+critic.Params()),
		all:       make([]float64, n+critic.Params()),
		of:        of,
		base:      base,
		lengths:   make([]int, tasks*of.Bundle),
		task:      make([]int, base.Batch),
	}
	t.graph, err = graph.Build(n+critic.Params(), func(b *graph.Builder[float64]) *graph.Node {
		t.x = b.Input("episodes", of.Length*len(t.lengths), of.Form.Width())
		t.obs = b.Input("observation", base.Batch, of.Form.Observation)
		t.action = b.Input("action", base.Batch, base.Action)
		t.y, t.w = b.Input("target", base.Batch, 1), b.Input("weight", base.Batch, 1)
		e := embedding(b, of, tasks, t.x.Node, t.lengths)
		sa := b.Join("state and action", t.obs.Node, b.Rows("embedding of a row", e, t.task), t.action.Node)
		q := b.MLP("critic", critic, sa, n)
		return b.Mean(b.Mul(t.w.Node, b.Square(b.Sub(q, t.y.Node))))
	})
	if err != nil {
		return nil, fmt.Errorf("pretraining: %w", err)
	}
	return t, nil
}

// embedding is the meta-learner in a graph, its parameters being the graph's first ones: [tasks][Embedding].
func embedding(b *graph.Builder[float64], of meta.Config, tasks int, x *graph.Node, lengths []int) *graph.Node {
	begin := 0
	for i, g := range of.Recurrent() {
		x = b.GRU(fmt.Sprintf("recurrent/%d", i), g, of.Length, len(lengths), lengths, x, begin)
		begin += g.Params()
	}
	mean := b.MeanOfBundles("mean of bundles", x, of.Length, tasks, of.Bundle, lengths)
	return b.MLP("embedding", of.Head(), mean, begin)
}

// reset begins a new sum of gradients, for bundles of episodes and the workload of each row.
func (t *through) reset(theta []float64, bundles [][]meta.Episode, task []int) {
	t.meta = theta
	t.calls = 0
	clear(t.grad)
	t.of.Fill(bundles, t.x.Data, t.lengths)
	copy(t.task, task)
}

// Critic implements [ddpg.Gradients].
func (t *through) Critic(theta, sa, y, weight, grad []float64) (float64, error) {
	c, n := t.base, t.of.Form.Observation
	for i := range c.Batch {
		row := sa[i*(c.State+c.Action):][:c.State+c.Action]
		copy(t.obs.Data[i*n:][:n], row)
		copy(t.action.Data[i*c.Action:][:c.Action], row[c.State:])
	}
	copy(t.y.Data, y)
	copy(t.w.Data, weight)
	copy(t.theta, t.meta)
	copy(t.theta[len(t.meta):], theta)
	loss, err := t.graph.Gradient(t.theta, t.all)
	copy(grad, t.all[len(t.meta):])
	for i, g := range t.all[:len(t.meta)] {
		t.grad[i] += g
	}
	t.calls++
	return loss, err
}

var _ ddpg.Gradients = (*through)(nil)
