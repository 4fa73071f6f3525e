package ppo

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Recurrent learns to learn (RL^2, Duan et al. 2016): policy and critic
// remember a trial, which is Horizon steps of one task and may have several
// episodes in it. Beside the observation they see the last action, its reward,
// and whether it ended an episode; the memory is empty when a trial begins, and
// is kept across the episodes in it. The advantage goes across their ends, too,
// for what is learned of a task in one episode is worth something in the next.
// Learning goes back through the whole trial. One goroutine uses it at a time.
type Recurrent struct {
	Theta []float64 // policy's memory and head, deviations, critic's memory and head
	Last  Stats     // of the last update
	agent.Skipped

	c        Config
	given    agent.Shape
	shape    memories
	scratch  *trialScratch
	batch    *Minibatch // of the last update
	adam     *nn.Adam
	pcg      *rand.PCG
	r        *rand.Rand
	steps    int
	time     int
	h        []float64 // memory of the policy, [envs][Hidden]
	v        []float64 // memory of the critic, [envs][Hidden]
	gates    []float64
	out      []float64
	x        []float64 // [time][envs][seen]
	previous []float64 // last action, reward and end, [envs][seen-State]
	action   []float64
	logProb  []float64
	value    []float64
	reward   []float64

	overruled []bool    // [time][envs]; another action than the sampled one took force
	unknown   []bool    // [time][envs]; the reward is not known
	legal     []bool    // [time][envs][NumActions]; nil until a mask was given
	sent      []float64 // actions of the last Explore, as the environments got them
	after     []float64 // values of what came after the trial, [envs]; 0 where it terminated
}

// memories is the layers, and where their parameters are in Theta.
type memories struct {
	policy     kernel.GRU
	critic     kernel.GRU
	policyHead kernel.Dense
	criticHead kernel.Dense
	seen       int // numbers in an input: observation, last action, its reward, its end
	deviations int // logarithms of deviations
	pHead      int // first parameter of the policy's head
	dev        int // first of the deviations
	critics    int // first of the critic's memory
	cHead      int // first of the critic's head
	n          int // number of all parameters
}

func (c Config) memories() memories {
	m := memories{seen: c.State + c.Outputs() + 2, deviations: c.deviations()}
	m.policy = kernel.GRU{In: m.seen, Hidden: c.Hidden[0]}
	m.critic = m.policy
	m.policyHead, m.criticHead = kernel.Dense{
		In:  c.Hidden[0],
		Out: c.Outputs(),
	}, kernel.Dense{In: c.Hidden[0], Out: 1}
	m.pHead = m.policy.Params()
	m.dev = m.pHead + m.policyHead.Params()
	m.critics = m.dev + m.deviations
	m.cHead = m.critics + m.critic.Params()
	m.n = m.cHead + m.criticHead.Params()
	return m
}

// NewRecurrent makes one. Of Config.Hidden there is one width, that of the
// memories; minibatches are whole trials, so Minibatch is a multiple of
// Horizon; nothing is normalised, and Epochs go over the same trials.
func NewRecurrent(c Config) (*Recurrent, error) { return NewRecurrentWith(c, nil) }

// NewRecurrentWith makes one that shares graphs with the other agents of a
// Workspace.
func NewRecurrentWith(c Config, w *agent.Workspace) (*Recurrent, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	switch {
	case len(c.Hidden) != 1:
		return nil, fmt.Errorf("recurrent ppo: hidden %v: it must be one width", c.Hidden)
	case c.Minibatch%c.Horizon != 0:
		return nil, fmt.Errorf("recurrent ppo: minibatch %d: it must be a multiple of horizon %d: whole trials",
			c.Minibatch, c.Horizon)
	case c.NormaliseObservation || c.NormaliseReward:
		return nil, fmt.Errorf("recurrent ppo: normalise observation %v, reward %v: it must be neither",
			c.NormaliseObservation, c.NormaliseReward)
	}
	s, err := agent.Lend(w, Algorithm+"-recurrent", c.updates(),
		func() (*trialScratch, error) { return newTrialScratch(c) })
	if err != nil {
		return nil, err
	}
	m, n := c.memories(), c.Envs*c.Horizon
	a := &Recurrent{
		c:         c,
		scratch:   s,
		given:     c.shape("recurrent ppo"),
		shape:     m,
		adam:      nn.NewAdam(m.n, c.LearningRate, 1e-5),
		pcg:       rand.NewPCG(c.Seed, 0x9e12),
		h:         make([]float64, c.Envs*c.Hidden[0]),
		v:         make([]float64, c.Envs*c.Hidden[0]),
		gates:     make([]float64, 6*c.Envs*c.Hidden[0]),
		out:       make([]float64, c.Envs*max(c.Outputs(), 1)),
		x:         make([]float64, n*m.seen),
		previous:  make([]float64, c.Envs*(m.seen-c.State)),
		action:    make([]float64, n*c.Action()),
		logProb:   make([]float64, n),
		value:     make([]float64, n),
		reward:    make([]float64, n),
		overruled: make([]bool, n),
		unknown:   make([]bool, n),
		sent:      make([]float64, c.Envs*c.Action()),
		after:     make([]float64, c.Envs),
	}
	a.r = rand.New(a.pcg)
	a.Theta = make([]float64, m.n)
	nn.UniformGRU(m.policy, a.Theta, a.r)
	nn.UniformGRU(m.critic, a.Theta[m.critics:], a.r)
	nn.Orthogonal(m.policyHead, a.Theta[m.pHead:], 0.01, a.r)
	nn.Orthogonal(m.criticHead, a.Theta[m.cHead:], 1, a.r)
	for i := range m.deviations {
		a.Theta[m.dev+i] = c.Deviation
	}
	return a, nil
}

// Envs is the number of tasks that run at once.
func (a *Recurrent) Envs() int { return a.c.Envs }

// Begins reports whether the next step starts a trial: then the tasks may change.
func (a *Recurrent) Begins() bool { return a.time == 0 }

// Explore samples an action for each task's observation, obs [envs][State], among
// the legal choices [envs][NumActions]; nil allows all.
func (a *Recurrent) Explore(obs []float64, legal []bool, actions []float64) error {
	if err := a.given.Explore(obs, legal, actions); err != nil {
		return err
	}
	c, m := a.c, a.shape
	a.legal = c.keepMask(a.legal, legal, a.time)
	if a.time == 0 {
		clear(a.h)
		clear(a.v)
		clear(a.previous)
	}
	at := a.time * c.Envs
	x := a.x[at*m.seen:][:c.Envs*m.seen]
	a.join(x, obs)
	kernel.GRUStep(m.policy, a.Theta, x, a.h, c.Envs, a.gates)
	kernel.GRUStep(m.critic, a.Theta[m.critics:], x, a.v, c.Envs, a.gates)
	kernel.DenseForward(m.criticHead, a.Theta[m.cHead:m.n], a.v, c.Envs, a.value[at:][:c.Envs])
	kernel.DenseForward(m.policyHead, a.Theta[m.pHead:m.dev], a.h, c.Envs, a.out)
	logs := make([]float64, c.Outputs())
	for i := range c.Envs {
		action := a.action[(at+i)*c.Action():][:c.Action()]
		a.logProb[at+i] = c.choose(a.out[i*c.Outputs():][:c.Outputs()], a.Theta[m.dev:m.critics],
			nn.RowOf(a.legal, at+i, c.NumActions), logs, a.r, action)
		c.clip(action, actions[i*c.Action():][:c.Action()])
	}
	copy(a.sent, actions)
	return nil
}

// join puts the observations and the last actions, rewards and ends of each row
// together.
func (a *Recurrent) join(x, obs []float64) {
	c, rest := a.c, a.shape.seen-a.c.State
	for i := range c.Envs {
		row := x[i*a.shape.seen:]
		copy(row[:c.State], obs[i*c.State:])
		copy(row[c.State:][:rest], a.previous[i*rest:])
	}
}

// Learn takes what the actions of the last Explore led to. At the end of a trial
// it learns from it. Rows are left out as Agent.Learn does it.
func (a *Recurrent) Learn(rows env.Rows) error {
	if err := a.given.Rows(rows); err != nil {
		return err
	}
	c, at := a.c, a.time*a.c.Envs
	for i := range c.Envs {
		a.reward[at+i] = 0
		if rows.RewardKnown[i] {
			a.reward[at+i] = rows.Rewards[i]
		}
		a.overruled[at+i] = c.overruled(rows, a.sent, i)
		a.unknown[at+i] = !rows.RewardKnown[i]
		if a.overruled[at+i] || a.unknown[at+i] {
			a.SkippedRows++
		}
		a.remember(rows, i, a.reward[at+i])
	}
	a.steps += c.Envs
	if a.time++; a.time == c.Horizon {
		a.time = 0
		a.lookAhead(rows)
		a.improve()
	}
	return nil
}

// remember is what the next step of an environment sees of this one: the action
// that took force, its reward, and whether the episode ended.
func (a *Recurrent) remember(rows env.Rows, i int, reward float64) {
	c, rest := a.c, a.shape.seen-a.c.State
	previous, action := a.previous[i*rest:][:rest], rows.Executed[i*c.Action():][:c.Action()]
	clear(previous)
	if c.NumActions > 0 {
		previous[int(action[0])] = 1
	} else {
		c.clip(action, previous[:c.Action()])
	}
	previous[rest-2] = reward
	if rows.Ended(i) {
		previous[rest-1] = 1
	}
}

// lookAhead values what the trial ended in. A trial is cut off from outside, so
// that the future after it counts, unless the task itself terminated.
func (a *Recurrent) lookAhead(rows env.Rows) {
	c, m := a.c, a.shape
	x, memory := make([]float64, c.Envs*m.seen), slices.Clone(a.v)
	a.join(x, rows.Final)
	kernel.GRUStep(m.critic, a.Theta[m.critics:], x, memory, c.Envs, a.gates)
	kernel.DenseForward(m.criticHead, a.Theta[m.cHead:m.n], memory, c.Envs, a.after)
	for i, terminated := range rows.Terminated {
		if terminated {
			a.after[i] = 0
		}
	}
}

// improve learns from a whole trial of every task.
func (a *Recurrent) improve() {
	c, n := a.c, len(a.value)
	next, ends := make([]float64, n), make([]bool, n)
	copy(next, a.value[c.Envs:])
	copy(next[n-c.Envs:], a.after)
	for i := n - c.Envs; i < n; i++ {
		ends[i] = true
	}
	advantages, returns := make([]float64, n), make([]float64, n)
	Advantages(c.Gamma, c.Lambda, c.Envs, a.reward, a.value, next, make([]bool, n), ends, a.unknown,
		advantages, returns)
	left := c.annealed(a.steps - n)
	a.adam.LearningRate = c.LearningRate * left
	clip := c.Clip
	if c.AnnealClip {
		clip *= left
	}
	trials := c.Minibatch / c.Horizon
	for range c.Epochs {
		tasks := a.r.Perm(c.Envs)
		for from := 0; from < c.Envs; from += trials {
			if err := a.update(tasks[from:][:trials], advantages, returns, clip); err != nil {
				a.Skip(err)
			}
		}
	}
}

func (a *Recurrent) update(tasks []int, advantages, returns []float64, clip float64) error {
	c, m := a.c, a.shape
	n := c.Minibatch
	b := &Minibatch{
		Action:    make([]float64, n*c.Action()),
		LogProb:   make([]float64, n),
		Advantage: make([]float64, n),
		Return:    make([]float64, n),
		Overruled: make([]bool, n),
		Unknown:   make([]bool, n),
		Clip:      clip,
	}
	if a.legal != nil {
		b.Legal = make([]bool, n*c.NumActions)
	}
	for t := range c.Horizon {
		for k, task := range tasks {
			to, from := t*len(tasks)+k, t*c.Envs+task
			copy(a.scratch.input.Data[to*m.seen:][:m.seen], a.x[from*m.seen:])
			copy(b.Action[to*c.Action():][:c.Action()], a.action[from*c.Action():])
			b.LogProb[to] = a.logProb[from]
			b.Advantage[to], b.Return[to] = advantages[from], returns[from]
			b.Overruled[to], b.Unknown[to] = a.overruled[from], a.unknown[from]
			copy(nn.RowOf(b.Legal, to, c.NumActions), nn.RowOf(a.legal, from, c.NumActions))
		}
	}
	if _, rows := b.counts(); rows == 0 {
		return nil // no reward is known in it
	}
	b.normalise()
	a.batch = b
	g := a.scratch.graph
	copy(g.Theta, a.Theta)
	a.scratch.batch = b
	loss, err := g.Run()
	if err := nn.CheckGradient(loss, g.Grad, err); err != nil {
		return fmt.Errorf("updating recurrent ppo: %w", err)
	}
	a.Last = a.scratch.stats
	a.Last.Norm = nn.Clip(c.MaxGradNorm, g.Grad)
	a.adam.Update(a.Theta, g.Grad)
	return nil
}

// Stats are figures of how learning goes.
func (a *Recurrent) Stats() agent.Stats {
	return a.Skipped.Stats(a.c.LearningRate * a.c.annealed(a.steps-a.time*a.c.Envs))
}

// Save returns all state, also in the middle of a trial. A learner that is
// restored from it continues as if it had never stopped.
func (a *Recurrent) Save() (weights.File, error) { return a.checkpoint().Save() }

// Restore brings back what Save gave, of one of the same identity. On an error
// nothing has changed.
func (a *Recurrent) Restore(f weights.File) error { return a.checkpoint().Restore(f) }

func (a *Recurrent) checkpoint() weights.State {
	s := weights.NewState(Algorithm+"-recurrent", Encoding, a.c.identity(true), a.c)
	for name, data := range map[string][]float64{
		"theta":         a.Theta,
		"memory.policy": a.h,
		"memory.critic": a.v,
		"previous":      a.previous,
		"trial.x":       a.x,
		"trial.action":  a.action,
		"trial.logprob": a.logProb,
		"trial.value":   a.value,
		"trial.reward":  a.reward,
	} {
		s.Numbers[name] = data
	}
	a.adam.State(&s, "adam")
	a.Skipped.State(&s)
	n := len(a.value)
	s.Parts["trial.overruled"] = weights.Flags{At: &a.overruled, Length: n}
	s.Parts["trial.unknown"] = weights.Flags{At: &a.unknown, Length: n}
	s.Parts["trial.legal"] = weights.Flags{At: &a.legal, Length: n * a.c.NumActions, Optional: true}
	s.Counts["steps"], s.Counts["time"] = weights.Count{At: &a.steps}, weights.Count{
		At:    &a.time,
		Below: a.c.Horizon,
	}
	s.Parts["random"] = a.pcg
	return s
}
