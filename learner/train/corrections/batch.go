package corrections

import (
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/experience/replay"
)

// Batch is discrete BCQ that learns of what the demand policy does, with a random legal choice now and then. It is a
// train.Learner of one environment.
type Batch struct {
	*discrete.Agent

	data  *replay.Uniform
	obs   []float64 // of the last Explore
	legal []bool
	rate  float64
}

// Gamma is the discount of a step of half a minute: five minutes count.
const Gamma = 0.9

// Settings of a Batch.
const (
	jitter  = 0.5 // share of the steps with a random choice; without it nothing but "keep" could be learned
	fewest  = 500 // transitions, before the first update
	updates = 4   // for each transition
	// batchThreshold allows the choices of the jitter: each has an eighth of the probability of keeping.
	batchThreshold = 0.05
)

// NewBatch makes a Batch for observations of a length and a number of choices, with room for all steps.
func NewBatch(state, choices, steps int, seed uint64) (*Batch, error) {
	data, err := replay.NewUniform(replay.Config{
		Capacity: max(1, steps), State: state, Action: 1, NumActions: choices, Seed: seed,
	})
	if err != nil {
		return nil, err
	}
	c := discrete.Default(state, choices)
	c.Seed, c.Threshold = seed, batchThreshold
	a, err := discrete.New(c, data)
	if err != nil {
		return nil, err
	}
	return &Batch{Agent: a, data: data, obs: make([]float64, state), legal: make([]bool, choices), rate: c.LearningRate}, nil
}

// Envs is 1.
func (b *Batch) Envs() int { return 1 }

// Explore keeps, or takes a random legal choice.
func (b *Batch) Explore(obs []float64, legal []bool, actions []float64) error {
	copy(b.obs, obs)
	actions[0] = 0
	if b.Acting.Float64() >= jitter {
		return nil
	}
	for i := range b.legal {
		b.legal[i] = legal == nil || legal[i]
	}
	for {
		if k := b.Acting.IntN(len(b.legal)); b.legal[k] {
			actions[0] = float64(k)
			return nil
		}
	}
}

// Learn adds what a choice led to. A step without a known reward teaches nothing.
func (b *Batch) Learn(r env.Rows) error {
	if !r.RewardKnown[0] {
		b.SkippedRows++
		return nil
	}
	if err := b.data.Add(replay.Transition{
		State: b.obs, Action: r.Executed[:1], Reward: r.Rewards[0], Next: r.Final, NextLegal: slices.Clone(r.FinalLegal),
		Discount: Gamma, Terminated: r.Terminated[0], Truncated: r.Truncated[0],
	}); err != nil {
		return err
	}
	if b.data.Len() < fewest {
		return nil
	}
	return b.Agent.Learn(updates)
}

// Stats are figures of how learning goes.
func (b *Batch) Stats() agent.Stats { return b.Skipped.Stats(b.rate) }
