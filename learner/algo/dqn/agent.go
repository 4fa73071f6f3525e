package dqn

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Algorithm and Encoding say in saved weights what they are of.
const (
	Algorithm = "dqn"
	Encoding  = 1
)

// memory is a replay buffer of either kind.
type memory interface {
	replay.Adder
	weights.Part
	Sample(*replay.Batch) error
}

// Agent learns in one environment. One goroutine uses it at a time.
type Agent struct {
	Values         *nn.Network
	SkippedUpdates int // updates that came to no number, or could not be computed; the last one's reason is in Trouble
	LastError      error

	c           Config
	updater     *Updater
	buffer      memory
	prioritised *replay.Prioritised // the buffer, when it is one
	steps       *replay.NStep
	batch       *replay.Batch
	pcg         *rand.PCG
	r           *rand.Rand
	tape        *kernel.Tape[float64]
	obs, action []float64
	taken       int // steps
}

// New makes an Agent.
func New(c Config) (*Agent, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	g, err := Gorgonia(c)
	if err != nil {
		return nil, fmt.Errorf("dqn: %w", err)
	}
	m := c.Network()
	a := &Agent{
		c: c, updater: NewUpdater(c, g), pcg: rand.NewPCG(c.Seed, 0xd90), tape: kernel.NewTape[float64](m, 1),
		obs: make([]float64, c.State), action: make([]float64, 1),
	}
	a.r = rand.New(a.pcg)
	a.Values = nn.NewNetwork(m, c.LearningRate, 0, true, a.r)
	room := replay.Config{Capacity: c.Capacity, State: c.State, Action: 1, Seed: c.Seed + 1}
	if c.Prioritised {
		a.prioritised, err = replay.NewPrioritised(replay.PrioritisedConfig{Config: room, Alpha: c.Alpha, Beta: c.Beta, Epsilon: 1e-6})
		a.buffer = a.prioritised
	} else {
		a.buffer, err = replay.NewUniform(room)
	}
	if err == nil {
		a.batch, err = replay.NewBatch(room, c.Batch)
	}
	if err == nil {
		a.steps, err = replay.NewNStep(replay.NStepConfig{Steps: c.Steps, State: c.State, Action: 1}, a.buffer)
	}
	if err != nil {
		return nil, fmt.Errorf("dqn: %w", err)
	}
	return a, nil
}

// Envs is the number of environments that an Agent learns in at once.
func (a *Agent) Envs() int { return 1 }

// Head is the best choice by the network's output.
func (a *Agent) GreedyAction(out []float64, _ []bool, action []float64) {
	var best [1]int
	argmax(out, len(out), best[:])
	action[0] = float64(best[0])
}

// Explore chooses at random with probability epsilon, and the best otherwise.
func (a *Agent) Explore(obs []float64, _ []bool, action []float64) error {
	copy(a.obs, obs)
	if a.r.Float64() < a.c.epsilon(a.taken) {
		a.action[0] = float64(a.r.IntN(a.c.NumActions))
	} else {
		a.GreedyAction(a.tape.Forward(a.Values.Theta, obs, 1), nil, a.action)
	}
	copy(action, a.action)
	return nil
}

// Learn takes what the choice of Explore led to: the reward, the true next observation (final, where the episode ended) and
// how it ended. It updates when it is time to. Trouble of an update is remembered and counted, and learning goes on; the
// error is of experience that could not be taken.
func (a *Agent) Learn(rows env.Rows) error {
	if err := a.steps.Add(replay.Transition{
		State: a.obs, Action: a.action, Reward: rows.Rewards[0], Next: rows.Final, Discount: a.c.Gamma,
		Terminated: rows.Terminated[0], Truncated: rows.Truncated[0],
	}); err != nil {
		return fmt.Errorf("dqn: %w", err)
	}
	a.taken++
	if a.taken%a.c.TargetUpdateEvery == 0 {
		nn.SoftUpdate(a.Values.Target, a.Values.Theta, 1)
	}
	if a.taken < max(a.c.Warmup, a.c.Steps) || a.taken%a.c.Every != 0 {
		return nil
	}
	for range a.c.Updates {
		if err := a.update(); err != nil {
			a.SkippedUpdates++
			a.LastError = err
		}
	}
	return nil
}

func (a *Agent) update() error {
	if a.prioritised != nil {
		if err := a.prioritised.SetBeta(a.c.Beta + min(1, float64(a.taken)/float64(a.c.AnnealSteps))*(1-a.c.Beta)); err != nil {
			return err
		}
	}
	if err := a.buffer.Sample(a.batch); err != nil {
		return err
	}
	if _, err := a.updater.Update(a.Values, a.batch); err != nil {
		return err
	}
	if a.prioritised != nil {
		return a.prioritised.Update(a.batch.Index, a.updater.Errors)
	}
	return nil
}

// Snapshot is the network as it can be served; Head makes choices of its output. Its parameters are the Agent's own.
func (a *Agent) Snapshot() kernel.Snapshot {
	return kernel.Snapshot{Version: uint64(a.Values.Adam.Steps), MLP: a.c.Network(), Theta: a.Values.Theta}
}

// Save is all state: that of a learner who goes on as if never stopped.
func (a *Agent) Save() (weights.File, error) { return a.checkpoint().Save() }

// Restore brings back what Save gave, of an Agent of the same shape. On an error nothing has changed.
func (a *Agent) Restore(f weights.File) error { return a.checkpoint().Restore(f) }

func (a *Agent) checkpoint() weights.State {
	s := weights.NewState(Algorithm, Encoding, a.c)
	a.Values.State(&s, "values")
	s.Counts["taken"] = weights.Count{At: &a.taken}
	s.Parts["random"], s.Parts["replay"], s.Parts["steps"] = a.pcg, a.buffer, a.steps
	return s
}
