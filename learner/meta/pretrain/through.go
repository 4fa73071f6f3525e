package pretrain

import (
	"fmt"

	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/graph"
)

// through is a loss of a base-learner's values, where its gradient goes on into the meta-learner. The embeddings in the states
// that the base-learner is given are made again from the bundles, so that they can be differentiated.
type through struct {
	meta  []float64   // parameters of the meta-learner
	grad  []float64   // theirs, summed up over the calls since [through.reset]
	calls int         // since then
	theta []float64   // scratch: meta-learner's and values'
	all   []float64   // scratch: gradients of both
	of    meta.Config // shape of the meta-learner
	batch int
	graph *graph.Graph[float64]
	x     graph.Input[float64] // bundles of episodes
	obs   graph.Input[float64] // observations without embeddings

	lengths []int // of the episodes
	task    []int // of each row of the batch
}

// newThrough builds a loss for batches of that many workloads. loss makes it of the states, embeddings included, and of where
// the parameters of the values begin, of which there are as many as given.
func newThrough(
	of meta.Config, tasks, batch, params int, loss func(b *graph.Builder[float64], state *graph.Node, begin int) *graph.Node,
) (*through, error) {
	n := of.Params()
	t := &through{
		grad: make([]float64, n), theta: make([]float64, n+params), all: make([]float64, n+params), of: of, batch: batch,
		lengths: make([]int, tasks*of.Bundle), task: make([]int, batch),
	}
	var err error
	t.graph, err = graph.Build(n+params, func(b *graph.Builder[float64]) *graph.Node {
		t.x = b.Input("episodes", of.Length*len(t.lengths), of.Form.Width())
		t.obs = b.Input("observation", batch, of.Form.Observation)
		e := embedding(b, of, tasks, t.x.Node, t.lengths)
		return loss(b, b.Join("state", t.obs.Node, b.Rows("embedding of a row", e, t.task)), n)
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

// gradient is the loss, and the gradient of the values' parameters. Each row of the batch begins with its observation.
func (t *through) gradient(theta, rows, grad []float64) (float64, error) {
	n, width := t.of.Form.Observation, len(rows)/t.batch
	for i := range t.batch {
		copy(t.obs.Data[i*n:][:n], rows[i*width:])
	}
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

// throughCritic is ddpg's gradients, where that of a critic goes on into the meta-learner.
type throughCritic struct {
	*through
	ddpg.Gradients // the actor's
	c              ddpg.Config
	action         graph.Input[float64]
	y              graph.Input[float64]
	w              graph.Input[float64]
}

func newThroughCritic(of meta.Config, c ddpg.Config, tasks int) (*throughCritic, error) {
	plain, err := ddpg.Gorgonia(c)
	if err != nil {
		return nil, err
	}
	critic := c.Critic()
	t := &throughCritic{Gradients: plain, c: c}
	loss := func(b *graph.Builder[float64], s *graph.Node, begin int) *graph.Node {
		t.action = b.Input("action", c.Batch, c.Action)
		t.y, t.w = b.Input("target", c.Batch, 1), b.Input("weight", c.Batch, 1)
		q := b.MLP("critic", critic, b.Join("state and action", s, t.action.Node), begin)
		return b.Mean(b.Mul(t.w.Node, b.Square(b.Sub(q, t.y.Node))))
	}
	t.through, err = newThrough(of, tasks, c.Batch, critic.Params(), loss)
	return t, err
}

// Critic implements [ddpg.Gradients].
func (t *throughCritic) Critic(theta, sa, y, weight, grad []float64) (float64, error) {
	for i := range t.c.Batch {
		copy(t.action.Data[i*t.c.Action:][:t.c.Action], sa[i*(t.c.State+t.c.Action)+t.c.State:])
	}
	copy(t.y.Data, y)
	copy(t.w.Data, weight)
	return t.gradient(theta, sa, grad)
}

// throughValues is discrete BCQ's gradients, where that of the values goes on into the meta-learner.
type throughValues struct {
	*through
	discrete.Gradients // the behaviour's
	action, y          []float64
}

func newThroughValues(of meta.Config, c discrete.Config, tasks int) (*throughValues, error) {
	plain, err := discrete.Gorgonia(c)
	if err != nil {
		return nil, err
	}
	t := &throughValues{Gradients: plain}
	values := c.Network()
	loss := func(b *graph.Builder[float64], s *graph.Node, begin int) *graph.Node {
		return b.Loss("values", func(in, grads [][]float64) (float64, error) {
			return nn.Huber(in[0], t.action, t.y, nil, grads[0], nil), nil
		}, b.MLP("values", values, s, begin))
	}
	t.through, err = newThrough(of, tasks, c.Batch, values.Params(), loss)
	return t, err
}

// Values implements [discrete.Gradients].
func (t *throughValues) Values(theta, s, a, y, grad []float64) (float64, error) {
	t.action, t.y = a, y
	return t.gradient(theta, s, grad)
}

var (
	_ ddpg.Gradients     = (*throughCritic)(nil)
	_ discrete.Gradients = (*throughValues)(nil)
)
