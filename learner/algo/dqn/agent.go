package dqn

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Algorithm and Encoding are written into saved weights: the algorithm, and the
// version of its format.
const (
	Algorithm = "dqn"
	Encoding  = 2
)

// memory is a replay buffer, uniform or prioritised.
type memory interface {
	replay.Adder
	weights.Experience
	Sample(*replay.Batch) error
	Len() int
}

// Agent learns in one environment. One goroutine uses it at a time.
type Agent struct {
	Values *nn.Network
	agent.Skipped

	c           Config
	shape       agent.Shape
	scratch     *scratch
	buffer      memory
	prioritised *replay.Prioritised // the buffer, when it is one
	steps       *replay.NStep
	pcg         *rand.PCG
	r           *rand.Rand
	tape        *kernel.Tape[float64]
	obs         []float64 // of the last Explore
	taken       int       // steps
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
		return nil, fmt.Errorf("dqn: %w", err)
	}
	batch, err := replay.NewBatch(c.replay(), c.Batch)
	if err != nil {
		return nil, fmt.Errorf("dqn: %w", err)
	}
	return &scratch{NewUpdater(c, g), batch}, nil
}

func (c Config) replay() replay.Config {
	return replay.Config{
		Capacity:   c.Capacity,
		State:      c.State,
		Action:     1,
		NumActions: c.NumActions,
		Seed:       c.Seed + 1,
	}
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
	m := c.Network()
	a := &Agent{
		c:       c,
		shape:   c.shape(),
		scratch: s,
		pcg:     rand.NewPCG(c.Seed, 0xd90),
		tape:    kernel.NewTape[float64](m, 1),
		obs:     make([]float64, c.State),
	}
	a.r = rand.New(a.pcg)
	a.Values = nn.NewNetwork(m, c.LearningRate, 0, true, a.r)
	room := c.replay()
	if c.Prioritised {
		a.prioritised, err = replay.NewPrioritised(replay.PrioritisedConfig{
			Config:  room,
			Alpha:   c.Alpha,
			Beta:    c.Beta,
			Epsilon: 1e-6,
		})
		a.buffer = a.prioritised
	} else {
		a.buffer, err = replay.NewUniform(room)
	}
	if err == nil {
		steps := replay.NStepConfig{Steps: c.Steps, State: c.State, Action: 1, NumActions: c.NumActions}
		a.steps, err = replay.NewNStep(steps, a.buffer)
	}
	if err != nil {
		return nil, fmt.Errorf("dqn: %w", err)
	}
	return a, nil
}

// Envs is the number of environments that an Agent learns in at once.
func (a *Agent) Envs() int { return 1 }

// GreedyAction is the legal choice of largest value by the network's output.
func (a *Agent) GreedyAction(out []float64, legal []bool, action []float64) {
	kernel.Head{Kind: kernel.Argmax}.Action(out, legal, action)
}

// Explore takes a random legal choice with probability epsilon, and otherwise
// the best one.
func (a *Agent) Explore(obs []float64, legal []bool, action []float64) error {
	if err := a.shape.Explore(obs, legal, action); err != nil {
		return err
	}
	copy(a.obs, obs)
	if a.r.Float64() < a.c.epsilon(a.taken) {
		action[0] = float64(a.random(legal))
	} else {
		a.GreedyAction(a.tape.Forward(a.Values.Theta, obs, 1), legal, action)
	}
	return nil
}

// random is a choice among the legal ones, each with the same probability.
func (a *Agent) random(legal []bool) int {
	if legal == nil {
		return a.r.IntN(a.c.NumActions)
	}
	n := 0
	for _, ok := range legal {
		if ok {
			n++
		}
	}
	k := a.r.IntN(n)
	for j, ok := range legal {
		if !ok {
			continue
		}
		if k == 0 {
			return j
		}
		k--
	}
	panic("dqn: fewer legal choices than were counted")
}

// Learn takes what the choice of Explore led to, and updates when it is time.
// The buffer gets the choice that took force. A row without a known reward is
// not stored, and a return of several steps ends before it. An update that
// fails is counted and learning goes on; the error is of rows that cannot be
// taken, and then nothing has changed.
func (a *Agent) Learn(rows env.Rows) error {
	if err := a.shape.Rows(rows); err != nil {
		return err
	}
	if err := a.store(rows); err != nil {
		return fmt.Errorf("dqn: %w", err)
	}
	a.taken++
	if a.taken%a.c.TargetUpdateEvery == 0 {
		nn.SoftUpdate(a.Values.Target, a.Values.Theta, 1)
	}
	if a.taken < max(a.c.Warmup, a.c.Steps) || a.taken%a.c.Every != 0 ||
		a.buffer.Len() < max(1, min(a.c.Batch, a.c.Warmup)) {
		return nil
	}
	for range a.c.Updates {
		if err := a.update(); err != nil {
			a.Skip(err)
		}
	}
	return nil
}

func (a *Agent) store(rows env.Rows) error {
	if !rows.RewardKnown[0] {
		a.SkippedRows++
		return a.steps.Cut()
	}
	return a.steps.Add(replay.Transition{
		State:      a.obs,
		Action:     rows.Executed,
		Reward:     rows.Rewards[0],
		Next:       rows.Final,
		NextLegal:  rows.FinalLegal,
		Discount:   a.c.Gamma,
		Terminated: rows.Terminated[0],
		Truncated:  rows.Truncated[0],
	})
}

// Stats are figures of how learning goes.
func (a *Agent) Stats() agent.Stats { return a.Skipped.Stats(a.c.LearningRate) }

func (a *Agent) update() error {
	if a.prioritised != nil {
		if err := a.prioritised.SetBeta(a.c.Beta + min(1, float64(a.taken)/float64(a.c.AnnealSteps))*(1-a.c.Beta)); err != nil {
			return err
		}
	}
	if err := a.buffer.Sample(a.scratch.batch); err != nil {
		return err
	}
	if _, err := a.scratch.updater.Update(a.Values, a.scratch.batch); err != nil {
		return err
	}
	if a.prioritised != nil {
		return a.prioritised.Update(a.scratch.batch.Index, a.scratch.updater.Errors)
	}
	return nil
}

// Snapshot is the network as it can be served; GreedyAction makes choices of its
// output. Its parameters are not copied.
func (a *Agent) Snapshot() kernel.Snapshot {
	return kernel.Snapshot{
		Version: uint64(a.Values.Adam.Steps),
		MLP:     a.c.Network(),
		Theta:   a.Values.Theta,
		Head:    kernel.Head{Kind: kernel.Argmax},
	}
}

// Save returns all state. A learner that is restored from it continues as if it
// had never stopped.
func (a *Agent) Save() (weights.File, error) { return a.checkpoint().Save() }

// SavePolicy is the state without the replay, which is most of it.
func (a *Agent) SavePolicy() (weights.File, error) { return a.checkpoint().SavePolicy() }

// Restore brings back what Save or SavePolicy gave, of an Agent of the same
// identity: shape, activation, variant. After SavePolicy the replay buffer is
// empty. On an error nothing has changed.
func (a *Agent) Restore(f weights.File) error { return a.checkpoint().Restore(f) }

func (a *Agent) checkpoint() weights.State {
	s := weights.NewState(Algorithm, Encoding, a.c.identity(), a.c)
	a.Values.State(&s, "values")
	a.Skipped.State(&s)
	s.Counts["taken"] = weights.Count{At: &a.taken}
	s.Parts["random"] = a.pcg
	s.Replay["replay"], s.Replay["steps"] = a.buffer, a.steps
	return s
}
