package ddpg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Algorithm and Encoding are written into saved weights: the algorithm, and the
// version of its format.
const (
	Algorithm = "ddpg"
	Encoding  = 2
)

// Agent learns in one environment. One goroutine uses it at a time.
type Agent struct {
	Policy *Policy
	agent.Skipped

	c       Config
	shape   agent.Shape
	scratch *scratch
	buffer  *replay.Uniform
	pcg     *rand.PCG
	r       *rand.Rand
	noise   []float64 // of an Ornstein-Uhlenbeck process
	obs     []float64
	action  []float64 // in [-1, 1], of the last Explore
	sent    []float64 // the same in the environment's bounds
	steps   int
	tape    *kernel.Tape[float64]
}

// New makes an Agent with graphs of its own.
func New(c Config) (*Agent, error) { return NewWith(c, nil) }

// scratch is what an update needs, and what is not the Agent's state.
type scratch struct {
	updater *Updater
	batch   *replay.Batch
}

func newScratch(c Config) (*scratch, error) {
	g, err := Gorgonia(c)
	if err != nil {
		return nil, fmt.Errorf("ddpg: %w", err)
	}
	batch, err := replay.NewBatch(c.replay(), c.Batch)
	if err != nil {
		return nil, fmt.Errorf("ddpg: %w", err)
	}
	return &scratch{NewUpdater(c, g), batch}, nil
}

func (c Config) replay() replay.Config {
	return replay.Config{Capacity: c.Capacity, State: c.State, Action: c.Action, Seed: c.Seed + 1}
}

// NewWith makes an Agent that shares graphs with the others of a Workspace.
func NewWith(c Config, w *agent.Workspace) (*Agent, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	s, err := agent.Lend(w, Algorithm, c.updates(), func() (*scratch, error) { return newScratch(c) })
	if err != nil {
		return nil, err
	}
	buffer, err := replay.NewUniform(c.replay())
	if err != nil {
		return nil, fmt.Errorf("ddpg: %w", err)
	}
	a := &Agent{
		c:       c,
		shape:   c.shape(),
		scratch: s,
		buffer:  buffer,
		pcg:     rand.NewPCG(c.Seed, 0xdd96),
		noise:   make([]float64, c.Action),
		obs:     make([]float64, c.State),
		action:  make([]float64, c.Action),
		sent:    make([]float64, c.Action),
		tape:    kernel.NewTape[float64](c.Actor(), 1),
	}
	a.r = rand.New(a.pcg)
	a.Policy = NewPolicy(c, a.r)
	return a, nil
}

// Envs is the number of environments that an Agent learns in at once.
func (a *Agent) Envs() int { return 1 }

// GreedyAction scales the actor's output to the environment's bounds, without
// exploration.
func (a *Agent) GreedyAction(out []float64, _ []bool, action []float64) {
	a.head().Action(out, nil, action)
}

func (a *Agent) head() kernel.Head {
	return kernel.Head{Kind: kernel.Interval, Low: a.c.Low, High: a.c.High}
}

// Explore decides with exploration: at random during the warmup, with noise
// after it.
func (a *Agent) Explore(obs []float64, legal []bool, action []float64) error {
	if err := a.shape.Explore(obs, legal, action); err != nil {
		return err
	}
	copy(a.obs, obs)
	if a.steps < a.c.Warmup {
		for i := range a.action {
			a.action[i] = 2*a.r.Float64() - 1
		}
	} else {
		copy(a.action, a.tape.Forward(a.Policy.Actor.Theta, obs, 1))
		sigma := a.c.Noise.After(a.steps)
		for i := range a.action {
			a.action[i] = max(-1, min(1, a.action[i]+a.disturb(i, sigma)))
		}
	}
	a.GreedyAction(a.action, nil, action)
	copy(a.sent, action)
	return nil
}

// disturb is the noise on the i-th number of an action.
func (a *Agent) disturb(i int, sigma float64) float64 {
	n := a.c.Noise
	if n.Theta == 0 {
		return sigma * a.r.NormFloat64()
	}
	a.noise[i] += -n.Theta*a.noise[i]*n.Step + sigma*math.Sqrt(n.Step)*a.r.NormFloat64()
	return a.noise[i]
}

// Watch takes what the action of Explore led to, for later updates. The buffer
// gets the action that took force. A row without a known reward is not stored.
// On an error, of rows that cannot be taken, nothing has changed.
func (a *Agent) Watch(rows env.Rows) error {
	if err := a.shape.Rows(rows); err != nil {
		return err
	}
	if err := a.store(rows); err != nil {
		return fmt.Errorf("ddpg: %w", err)
	}
	if rows.Ended(0) {
		clear(a.noise)
	}
	a.steps++
	return nil
}

// Learn takes what [Agent.Watch] takes, and updates when it is time. An update
// that fails is counted and learning goes on; the error is that of Watch.
func (a *Agent) Learn(rows env.Rows) error {
	if err := a.Watch(rows); err != nil {
		return err
	}
	if a.steps < max(a.c.Warmup, a.c.Batch) || a.steps%a.c.Every != 0 ||
		a.buffer.Len() < max(1, min(a.c.Batch, a.c.Warmup)) {
		return nil
	}
	for range a.c.Updates {
		err := a.buffer.Sample(a.scratch.batch)
		if err == nil {
			a.scratch.updater.Imitation = a.c.Imitation
			_, err = a.scratch.updater.Update(a.Policy, a.scratch.batch, a.r)
		}
		if err != nil {
			a.Skip(err)
		}
	}
	return nil
}

// Imitate changes Config.Imitation from now on. It is not saved.
func (a *Agent) Imitate(weight float64) { a.c.Imitation = weight }

// Retune changes the step sizes, the noise of exploration and the imitation to those of c from now on. It is not saved.
func (a *Agent) Retune(c Config) {
	a.c.ActorLearningRate, a.c.CriticLearningRate = c.ActorLearningRate, c.CriticLearningRate
	a.c.Noise, a.c.Imitation = c.Noise, c.Imitation
	a.Policy.Actor.Adam.LearningRate = c.ActorLearningRate
	for _, critic := range a.Policy.Critics {
		critic.Adam.LearningRate = c.CriticLearningRate
	}
}

func (a *Agent) store(rows env.Rows) error {
	if !rows.RewardKnown[0] {
		a.SkippedRows++
		return nil
	}
	if !slices.Equal(rows.Executed, a.sent) {
		kernel.Inward(a.action, rows.Executed, a.c.Low, a.c.High)
	}
	return a.buffer.Add(replay.Transition{
		State:      a.obs,
		Action:     a.action,
		Reward:     rows.Rewards[0],
		Next:       rows.Final,
		Discount:   a.discount(),
		Terminated: rows.Terminated[0],
		Truncated:  rows.Truncated[0],
	})
}

// Stats are figures of how learning goes. The learning rate is the actor's.
func (a *Agent) Stats() agent.Stats { return a.Skipped.Stats(a.c.ActorLearningRate) }

// discount is gamma, as the buffer takes it: above zero.
func (a *Agent) discount() float64 { return max(a.c.Gamma, math.SmallestNonzeroFloat64) }

// Save returns all state. A learner that is restored from it continues as if it
// had never stopped.
func (a *Agent) Save() (weights.File, error) { return a.checkpoint().Save() }

// SavePolicy is the state without the replay, which is most of it.
func (a *Agent) SavePolicy() (weights.File, error) { return a.checkpoint().SavePolicy() }

// Restore brings back what Save or SavePolicy gave, of an Agent of the same
// identity: shape, bounds, activation, variant. After SavePolicy the replay
// buffer is empty. On an error nothing has changed.
func (a *Agent) Restore(f weights.File) error { return a.checkpoint().Restore(f) }

// GoBack brings back a policy as Restore does, and keeps the replay: what has been seen since is learned from again.
func (a *Agent) GoBack(f weights.File) error {
	s := a.checkpoint()
	s.Replay = nil
	return s.Restore(f)
}

func (a *Agent) checkpoint() weights.State {
	s := weights.NewState(Algorithm, Encoding, a.c.identity(), a.c)
	a.Policy.Actor.State(&s, "actor")
	for i, critic := range a.Policy.Critics {
		critic.State(&s, fmt.Sprintf("critic%d", i))
	}
	a.Skipped.State(&s)
	s.Numbers["noise"] = a.noise
	s.Counts["steps"], s.Counts["updates"] = weights.Count{At: &a.steps}, weights.Count{At: &a.Policy.Updates}
	s.Parts["random"] = a.pcg
	s.Replay["replay"] = a.buffer
	return s
}

// Snapshot is the actor as it can be served; GreedyAction makes actions of its
// output. Its parameters are not copied.
func (a *Agent) Snapshot() kernel.Snapshot {
	return kernel.Snapshot{
		Version: uint64(a.Policy.Updates),
		MLP:     a.c.Actor(),
		Theta:   a.Policy.Actor.Theta,
		Head:    a.head(),
	}
}
