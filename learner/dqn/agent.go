package dqn

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/replay"
)

// Algorithm and Encoding say in saved weights what they are of.
const (
	Algorithm = "dqn"
	Encoding  = 1
)

// memory is a replay buffer of either kind.
type memory interface {
	replay.Adder
	Sample(*replay.Batch) error
	MarshalBinary() ([]byte, error)
	UnmarshalBinary([]byte) error
}

// Agent learns in one environment. One goroutine uses it at a time.
type Agent struct {
	Values  *Values
	Refused int // updates that came to no number, or could not be computed; the last one's reason is in Trouble
	Trouble error

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
		Values: &Values{Theta: make([]float64, m.Params()), Target: make([]float64, m.Params()), Adam: nn.NewAdam(m.Params(), c.Rate, 1e-8)},
	}
	a.r = rand.New(a.pcg)
	nn.UniformMLP(m, a.Values.Theta, 0, a.r)
	nn.Follow(a.Values.Target, a.Values.Theta, 1)
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
func (a *Agent) Head(out, action []float64) {
	var best [1]int
	argmax(out, len(out), best[:])
	action[0] = float64(best[0])
}

// Explore chooses at random with probability epsilon, and the best otherwise.
func (a *Agent) Explore(obs, action []float64) error {
	copy(a.obs, obs)
	if a.r.Float64() < a.c.epsilon(a.taken) {
		a.action[0] = float64(a.r.IntN(a.c.Choices))
	} else {
		a.Head(a.tape.Forward(a.Values.Theta, obs, 1), a.action)
	}
	copy(action, a.action)
	return nil
}

// Learn takes what the choice of Explore led to: the reward, the true next observation (final, where the episode ended) and
// how it ended. It updates when it is time to. Trouble of an update is remembered and counted, and learning goes on; the
// error is of experience that could not be taken.
func (a *Agent) Learn(rewards, final []float64, terminated, truncated []bool) error {
	if err := a.steps.Add(replay.Transition{
		State: a.obs, Action: a.action, Reward: rewards[0], Next: final, Discount: a.c.Gamma, Terminated: terminated[0], Truncated: truncated[0],
	}); err != nil {
		return fmt.Errorf("dqn: %w", err)
	}
	a.taken++
	if a.taken%a.c.Copy == 0 {
		nn.Follow(a.Values.Target, a.Values.Theta, 1)
	}
	if a.taken < max(a.c.Warmup, a.c.Steps) || a.taken%a.c.Every != 0 {
		return nil
	}
	for range a.c.Updates {
		if err := a.update(); err != nil {
			a.Refused++
			a.Trouble = err
		}
	}
	return nil
}

func (a *Agent) update() error {
	if a.prioritised != nil {
		if err := a.prioritised.SetBeta(a.c.Beta + min(1, float64(a.taken)/float64(a.c.Over))*(1-a.c.Beta)); err != nil {
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

// saved is what weights have of an Agent beside numbers.
type saved struct {
	Config           Config
	Taken, AdamSteps int
}

func (a *Agent) numbers() map[string]*[]float64 {
	return map[string]*[]float64{"theta": &a.Values.Theta, "target": &a.Values.Target, "adam.m": &a.Values.Adam.M, "adam.v": &a.Values.Adam.V}
}

// Save is all state: that of a learner who goes on as if never stopped.
func (a *Agent) Save() (weights.File, error) {
	f := weights.File{Meta: map[string]string{}, Tensors: map[string]weights.Tensor{}, Blobs: map[string][]byte{}}
	for name, data := range a.numbers() {
		f.Tensors[name] = weights.Tensor{Shape: []int{len(*data)}, Data: append([]float64(nil), *data...)}
	}
	text, err := json.Marshal(saved{a.c, a.taken, a.Values.Adam.Steps})
	if err != nil {
		return f, fmt.Errorf("saving dqn: %w", err)
	}
	f.Meta["algorithm"], f.Meta["encoding"], f.Meta["state"] = Algorithm, fmt.Sprint(Encoding), string(text)
	for name, part := range map[string]interface{ MarshalBinary() ([]byte, error) }{"random": a.pcg, "replay": a.buffer, "steps": a.steps} {
		if f.Blobs[name], err = part.MarshalBinary(); err != nil {
			return f, fmt.Errorf("saving dqn: %s: %w", name, err)
		}
	}
	return f, nil
}

// Restore brings back what Save gave, of an Agent of the same shape. On an error nothing has changed.
func (a *Agent) Restore(f weights.File) error {
	if err := a.restore(f); err != nil {
		return fmt.Errorf("restoring dqn: %w", err)
	}
	return nil
}

func (a *Agent) restore(f weights.File) error {
	if f.Meta["algorithm"] != Algorithm || f.Meta["encoding"] != fmt.Sprint(Encoding) {
		return fmt.Errorf("weights of %q, encoding %q: it must be %q, encoding %d", f.Meta["algorithm"], f.Meta["encoding"], Algorithm, Encoding)
	}
	var s saved
	if err := json.Unmarshal([]byte(f.Meta["state"]), &s); err != nil {
		return fmt.Errorf("metadata \"state\": %w", err)
	}
	read := map[string][]float64{}
	for name, data := range a.numbers() {
		from, err := f.Take(name, len(*data))
		if err != nil {
			return err
		}
		if !nn.Finite(from) {
			return fmt.Errorf("tensor %q holds what is no number", name)
		}
		read[name] = from
	}
	var pcg rand.PCG
	if err := pcg.UnmarshalBinary(f.Blobs["random"]); err != nil {
		return fmt.Errorf("random source: %w", err)
	}
	before, err := a.steps.MarshalBinary()
	if err != nil {
		return err
	}
	if err := a.steps.UnmarshalBinary(f.Blobs["steps"]); err != nil {
		return err
	}
	if err := a.buffer.UnmarshalBinary(f.Blobs["replay"]); err != nil {
		if back := a.steps.UnmarshalBinary(before); back != nil {
			return fmt.Errorf("%w; and back again: %w", err, back)
		}
		return err
	}
	for name, to := range a.numbers() {
		copy(*to, read[name])
	}
	*a.pcg, a.taken, a.Values.Adam.Steps = pcg, s.Taken, s.AdamSteps
	return nil
}
