package ppo

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Recurrent learns to learn (RL^2, Duan et al. 2016): policy and critic remember a trial, which is Horizon steps of one task and
// may have several episodes in it. Beside the observation they see the last action, its reward, and whether it ended an
// episode; the memory is empty when a trial begins, and is kept across the episodes in it. The advantage goes across their
// ends, too, for what is learned of a task in one episode is worth something in the next. Learning goes back through the whole
// trial. One goroutine uses it at a time.
type Recurrent struct {
	Theta          []float64 // policy's memory and head, deviations, critic's memory and head
	Last           Stats
	SkippedUpdates int // updates that came to no number; the last one's reason is in Trouble
	LastError      error

	c        Config
	shape    memories
	graph    *graph.Graph[float64]
	input    graph.Input[float64]
	batch    *Minibatch
	stats    Stats
	adam     *nn.Adam
	pcg      *rand.PCG
	r        *rand.Rand
	steps    int
	time     int
	h, v     []float64 // memories of policy and critic, [envs][Hidden]
	gates    []float64
	out      []float64
	x        []float64 // [time][envs][seen]
	previous []float64 // last action, reward and end, [envs][seen-State]
	action   []float64
	logProb  []float64
	value    []float64
	reward   []float64
}

// memories is where parameters are.
type memories struct {
	policy, critic    kernel.GRU
	policyHead        kernel.Dense
	criticHead        kernel.Dense
	seen, deviations  int
	pHead, dev        int // where they begin
	critics, cHead, n int
}

func (c Config) memories() memories {
	m := memories{seen: c.State + c.Outputs() + 2, deviations: c.deviations()}
	m.policy = kernel.GRU{In: m.seen, Hidden: c.Hidden[0]}
	m.critic = m.policy
	m.policyHead, m.criticHead = kernel.Dense{In: c.Hidden[0], Out: c.Outputs()}, kernel.Dense{In: c.Hidden[0], Out: 1}
	m.pHead = m.policy.Params()
	m.dev = m.pHead + m.policyHead.Params()
	m.critics = m.dev + m.deviations
	m.cHead = m.critics + m.critic.Params()
	m.n = m.cHead + m.criticHead.Params()
	return m
}

// NewRecurrent makes one. Of Config.Hidden there is one width, that of the memories; minibatches are whole trials, so Minibatch
// is a multiple of Horizon; nothing is normalised, and Epochs go over the same trials.
func NewRecurrent(c Config) (*Recurrent, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	switch {
	case len(c.Hidden) != 1:
		return nil, fmt.Errorf("recurrent ppo: hidden %v: it must be one width", c.Hidden)
	case c.Minibatch%c.Horizon != 0:
		return nil, fmt.Errorf("recurrent ppo: minibatch %d: it must be a multiple of horizon %d: whole trials", c.Minibatch, c.Horizon)
	case c.NormaliseObservation || c.NormaliseReward:
		return nil, fmt.Errorf("recurrent ppo: normalise observation %v, reward %v: it must be neither", c.NormaliseObservation, c.NormaliseReward)
	}
	m, n := c.memories(), c.Envs*c.Horizon
	a := &Recurrent{
		c: c, shape: m, adam: nn.NewAdam(m.n, c.LearningRate, 1e-5), pcg: rand.NewPCG(c.Seed, 0x9e12),
		h: make([]float64, c.Envs*c.Hidden[0]), v: make([]float64, c.Envs*c.Hidden[0]), gates: make([]float64, 6*c.Envs*c.Hidden[0]),
		out: make([]float64, c.Envs*max(c.Outputs(), 1)), x: make([]float64, n*m.seen), previous: make([]float64, c.Envs*(m.seen-c.State)),
		action: make([]float64, n*c.Action()), logProb: make([]float64, n), value: make([]float64, n), reward: make([]float64, n),
	}
	a.r = rand.New(a.pcg)
	var err error
	a.graph, err = graph.Build(m.n, func(b *graph.Builder[float64]) *graph.Node {
		trials := c.Minibatch / c.Horizon
		a.input = b.Input("trials", c.Minibatch, m.seen)
		p := b.GRU("policy", m.policy, c.Horizon, trials, a.input.Node, 0)
		v := b.GRU("critic", m.critic, c.Horizon, trials, a.input.Node, m.critics)
		in := []*graph.Node{
			b.Dense("policy/head", m.policyHead, p, b.Params("policy/head/theta", m.pHead, m.policyHead.Params())),
			b.Dense("critic/head", m.criticHead, v, b.Params("critic/head/theta", m.cHead, m.criticHead.Params())),
		}
		if m.deviations > 0 {
			in = append(in, b.Params("deviations", m.dev, m.deviations))
		}
		return b.Loss("ppo", func(in, grads [][]float64) (float64, error) {
			var deviations, dDeviations []float64
			if len(in) == 3 {
				deviations, dDeviations = in[2], grads[2]
			}
			a.stats = c.Loss(a.batch, in[0], deviations, in[1], grads[0], dDeviations, grads[1])
			return a.stats.Loss, nil
		}, in...)
	})
	if err != nil {
		return nil, fmt.Errorf("recurrent ppo: %w", err)
	}
	a.Theta = a.graph.Theta // the graph is the agent's own
	nn.UniformGRU(m.policy, a.Theta, a.r)
	nn.UniformGRU(m.critic, a.Theta[m.critics:], a.r)
	nn.Orthogonal(m.policyHead, a.Theta[m.pHead:], 0.01, a.r)
	nn.Orthogonal(m.criticHead, a.Theta[m.cHead:], 1, a.r)
	for i := range m.deviations {
		a.Theta[m.dev+i] = c.Deviation
	}
	return a, nil
}

// Envs is the number of tasks that are tried at once.
func (a *Recurrent) Envs() int { return a.c.Envs }

// Begins tells whether the next step begins a trial: then there may be other tasks.
func (a *Recurrent) Begins() bool { return a.time == 0 }

// Explore samples an action for each task's observation, obs [envs][State].
func (a *Recurrent) Explore(obs []float64, _ []bool, actions []float64) error {
	c, m := a.c, a.shape
	if len(obs) != c.Envs*c.State || len(actions) != c.Envs*c.Action() {
		return fmt.Errorf("recurrent ppo: %d observed numbers and %d for actions: it must be %d and %d", len(obs), len(actions), c.Envs*c.State, c.Envs*c.Action())
	}
	if !nn.Finite(obs) {
		return fmt.Errorf("recurrent ppo: the observation %v: %w", obs, nn.ErrNotFinite)
	}
	if a.time == 0 {
		clear(a.h)
		clear(a.v)
		clear(a.previous)
	}
	at, rest := a.time*c.Envs, m.seen-c.State
	x := a.x[at*m.seen:][:c.Envs*m.seen]
	for i := range c.Envs {
		copy(x[i*m.seen:][:c.State], obs[i*c.State:])
		copy(x[i*m.seen+c.State:][:rest], a.previous[i*rest:])
	}
	kernel.GRUStep(m.policy, a.Theta, x, a.h, c.Envs, a.gates)
	kernel.GRUStep(m.critic, a.Theta[m.critics:], x, a.v, c.Envs, a.gates)
	kernel.DenseForward(m.criticHead, a.Theta[m.cHead:m.n], a.v, c.Envs, a.value[at:][:c.Envs])
	kernel.DenseForward(m.policyHead, a.Theta[m.pHead:m.dev], a.h, c.Envs, a.out)
	logs := make([]float64, c.Outputs())
	for i := range c.Envs {
		action := a.action[(at+i)*c.Action():][:c.Action()]
		a.logProb[at+i] = c.choose(a.out[i*c.Outputs():][:c.Outputs()], a.Theta[m.dev:m.critics], nil, logs, a.r, action)
		c.clip(action, actions[i*c.Action():][:c.Action()])
	}
	return nil
}

// Learn takes what the actions of the last Explore led to. At the end of a trial it learns from it.
func (a *Recurrent) Learn(rows env.Rows) error {
	c := a.c
	if len(rows.Rewards) != c.Envs || len(rows.Terminated) != c.Envs || len(rows.Truncated) != c.Envs {
		return fmt.Errorf("recurrent ppo: %d rewards and %d and %d ends: it must be %d", len(rows.Rewards),
			len(rows.Terminated), len(rows.Truncated), c.Envs)
	}
	if !nn.Finite(rows.Rewards) {
		return fmt.Errorf("recurrent ppo: rewards %v: %w", rows.Rewards, nn.ErrNotFinite)
	}
	at, rest := a.time*c.Envs, a.shape.seen-c.State
	copy(a.reward[at:], rows.Rewards)
	for i, r := range rows.Rewards {
		previous, action := a.previous[i*rest:][:rest], a.action[(at+i)*c.Action():][:c.Action()]
		clear(previous)
		if c.NumActions > 0 {
			previous[int(action[0])] = 1
		} else {
			c.clip(action, previous[:c.Action()])
		}
		previous[rest-2] = r
		if rows.Ended(i) {
			previous[rest-1] = 1
		}
	}
	a.steps += c.Envs
	if a.time++; a.time == c.Horizon {
		a.time = 0
		a.improve()
	}
	return nil
}

// improve learns from a whole trial of every task.
func (a *Recurrent) improve() {
	c, n := a.c, len(a.value)
	next, ends := make([]float64, n), make([]bool, n)
	copy(next, a.value[c.Envs:])
	for i := n - c.Envs; i < n; i++ {
		ends[i] = true // nothing comes after a trial
	}
	advantages, returns := make([]float64, n), make([]float64, n)
	Advantages(c.Gamma, c.Lambda, c.Envs, a.reward, a.value, next, ends, ends, advantages, returns)
	clip := c.Clip
	if c.AnnealSteps > 0 {
		left := max(0, 1-float64(a.steps-n)/float64(c.AnnealSteps))
		a.adam.LearningRate = c.LearningRate * left
		if c.AnnealClip {
			clip *= left
		}
	}
	trials := c.Minibatch / c.Horizon
	for range c.Epochs {
		tasks := a.r.Perm(c.Envs)
		for from := 0; from < c.Envs; from += trials {
			if err := a.update(tasks[from:][:trials], advantages, returns, clip); err != nil {
				a.SkippedUpdates++
				a.LastError = err
			}
		}
	}
}

func (a *Recurrent) update(tasks []int, advantages, returns []float64, clip float64) error {
	c, m, n := a.c, a.shape, a.c.Minibatch
	b := &Minibatch{
		Action: make([]float64, n*c.Action()), LogProb: make([]float64, n), Advantage: make([]float64, n), Return: make([]float64, n), Clip: clip,
	}
	for t := range c.Horizon {
		for k, task := range tasks {
			to, from := t*len(tasks)+k, t*c.Envs+task
			copy(a.input.Data[to*m.seen:][:m.seen], a.x[from*m.seen:])
			copy(b.Action[to*c.Action():][:c.Action()], a.action[from*c.Action():])
			b.LogProb[to], b.Advantage[to], b.Return[to] = a.logProb[from], advantages[from], returns[from]
		}
	}
	Normalise(b.Advantage)
	a.batch = b
	loss, err := a.graph.Run()
	if err := nn.CheckGradient(loss, a.graph.Grad, err); err != nil {
		return fmt.Errorf("updating recurrent ppo: %w", err)
	}
	a.stats.Norm = nn.Clip(c.MaxGradNorm, a.graph.Grad)
	a.adam.Update(a.Theta, a.graph.Grad)
	a.Last = a.stats
	return nil
}

// Save is all state: that of a learner who goes on as if never stopped, in the midst of a trial too.
func (a *Recurrent) Save() (weights.File, error) { return a.checkpoint().Save() }

// Restore brings back what Save gave, of one of the same shape. On an error nothing has changed.
func (a *Recurrent) Restore(f weights.File) error { return a.checkpoint().Restore(f) }

func (a *Recurrent) checkpoint() weights.State {
	s := weights.NewState(Algorithm+"-recurrent", Encoding, a.c)
	for name, data := range map[string][]float64{
		"theta": a.Theta, "memory.policy": a.h, "memory.critic": a.v, "told": a.previous, "trial.x": a.x, "trial.action": a.action,
		"trial.logprob": a.logProb, "trial.value": a.value, "trial.reward": a.reward,
	} {
		s.Numbers[name] = data
	}
	a.adam.State(&s, "adam")
	s.Counts["steps"], s.Counts["time"] = weights.Count{At: &a.steps}, weights.Count{At: &a.time, Below: a.c.Horizon}
	s.Parts["random"] = a.pcg
	return s
}
