package pretrain

import (
	"fmt"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
)

// base is the base-learner of a run.
type base interface {
	// actor makes what plays an episode, with memory of its own: several are played at the same time. steps is how many the
	// policy has played before.
	actor(steps int, random *rand.Rand) actor
	// pace sets the learning rates, as a share of the settings', and how much of the guides is imitated.
	pace(rate, imitation float64)
	// update improves the policy by a batch; with on its gradient goes on into the meta-learner.
	update(batch *replay.Batch, on bool, random *rand.Rand) (loss float64, err error)
	// through is what such an update goes through.
	through() *through
	// average takes the parameters as they are into the mean that is the result.
	average()
	// forget begins a new mean.
	forget()
}

// actor writes an action, with exploration.
type actor func(obs []float64, legal []bool, action []float64)

// sizes are those of a base-learner.
type sizes struct {
	state, action, choices, batch int
	gamma                         float64
}

// sizes are those of the base-learner that is meant.
func (c Config) sizes() sizes {
	if b := c.Choices; b != nil {
		return sizes{state: b.State, action: 1, choices: b.NumActions, batch: b.Batch, gamma: b.Gamma}
	}
	return sizes{state: c.Base.State, action: c.Base.Action, batch: c.Base.Batch, gamma: c.Base.Gamma}
}

// newBase makes the base-learner.
func (c Config) newBase(random *rand.Rand) (base, error) {
	if c.Choices != nil {
		t, err := newThroughValues(c.Meta, c.Choices.Config, c.Tasks)
		if err != nil {
			return nil, err
		}
		return &choosing{
			c: *c.Choices, policy: discrete.NewPolicy(c.Choices.Config, random), values: t,
			plain: discrete.NewUpdater(c.Choices.Config, t.Gradients), whole: discrete.NewUpdater(c.Choices.Config, t),
		}, nil
	}
	t, err := newThroughCritic(c.Meta, c.Base, c.Tasks)
	if err != nil {
		return nil, err
	}
	return &continuous{
		c: c.Base, policy: ddpg.NewPolicy(c.Base, random), critic: t,
		plain: ddpg.NewUpdater(c.Base, t.Gradients), whole: ddpg.NewUpdater(c.Base, t),
	}, nil
}

// continuous is DDPG.
type continuous struct {
	c      ddpg.Config
	policy *ddpg.Policy
	plain  *ddpg.Updater // embeddings as they are
	whole  *ddpg.Updater // through the meta-learner
	critic *throughCritic
	means  []mean // of the actor and the critics
}

// networks are the actor and the critics.
func networks(p *ddpg.Policy) []*nn.Network { return append([]*nn.Network{p.Actor}, p.Critics...) }

func (b *continuous) average() {
	all := networks(b.policy)
	if b.means == nil {
		b.means = make([]mean, len(all))
	}
	for i, n := range all {
		b.means[i].add(n.Theta)
	}
}

func (b *continuous) forget() { b.means = nil }

// result writes the mean of the parameters into a policy, or the last ones where there is none.
func (b *continuous) result(into *ddpg.Policy) {
	to := networks(into)
	for i, n := range networks(b.policy) {
		copy(to[i].Theta, n.Theta)
		copy(to[i].Target, n.Target)
		if b.means != nil {
			copy(to[i].Theta, b.means[i].or(nil))
			copy(to[i].Target, to[i].Theta)
		}
	}
}

func (b *continuous) actor(steps int, random *rand.Rand) actor {
	tape := kernel.NewTape[float64](b.c.Actor(), 1)
	deviation := b.c.Noise.After(steps)
	return func(obs []float64, _ []bool, action []float64) {
		for i, v := range tape.Forward(b.policy.Actor.Theta, obs, 1) {
			action[i] = max(-1, min(1, v+deviation*random.NormFloat64()))
		}
	}
}

func (b *continuous) pace(rate, imitation float64) {
	b.plain.Imitation, b.whole.Imitation = imitation, imitation
	b.policy.Actor.Adam.LearningRate = rate * b.c.ActorLearningRate
	for _, critic := range b.policy.Critics {
		critic.Adam.LearningRate = rate * b.c.CriticLearningRate
	}
}

func (b *continuous) update(batch *replay.Batch, on bool, random *rand.Rand) (float64, error) {
	by := b.plain
	if on {
		by = b.whole
	}
	s, err := by.Update(b.policy, batch, random)
	return s.Critic, err
}

func (b *continuous) through() *through { return b.critic.through }

// Choices is the settings of a base-learner that chooses: discrete BCQ, whose behaviour network is what keeps it to what was
// tried.
type Choices struct {
	discrete.Config
	Gamma float64 // discount of a step's future
	Tries float64 // share of the steps in which any legal choice is taken
}

// Check is nil for valid settings.
func (c Choices) Check() error {
	if !(c.Gamma > 0 && c.Gamma < 1) || !(c.Tries >= 0 && c.Tries < 1) {
		return fmt.Errorf("pretraining: gamma %v, tries %v: they must be in (0, 1) and [0, 1)", c.Gamma, c.Tries)
	}
	return c.Config.Check()
}

// choosing is discrete BCQ.
type choosing struct {
	c      Choices
	policy *discrete.Policy
	plain  *discrete.Updater
	whole  *discrete.Updater
	values *throughValues

	means [2]mean // of the values and the behaviour
}

func (b *choosing) average() {
	b.means[0].add(b.policy.Values.Theta)
	b.means[1].add(b.policy.Behaviour.Theta)
}

func (b *choosing) forget() { b.means = [2]mean{} }

// result is the mean of the parameters of the values and of the behaviour, or the last ones where there is none.
func (b *choosing) result() (values, behaviour []float64) {
	return b.means[0].or(b.policy.Values.Theta), b.means[1].or(b.policy.Behaviour.Theta)
}

func (b *choosing) actor(_ int, random *rand.Rand) actor {
	tape := func() *kernel.Tape[float64] { return kernel.NewTape[float64](b.c.Network(), 1) }
	values, behaviour := tape(), tape()
	return func(obs []float64, legal []bool, action []float64) {
		if random.Float64() < b.c.Tries {
			action[0] = float64(anyOf(legal, b.c.NumActions, random))
			return
		}
		q := values.Forward(b.policy.Values.Theta, obs, 1)
		action[0] = float64(b.c.Choose(q, behaviour.Forward(b.policy.Behaviour.Theta, obs, 1), legal))
	}
}

// anyOf is a legal one of n choices; nil makes all legal.
func anyOf(legal []bool, n int, random *rand.Rand) int {
	for {
		if i := random.IntN(n); legal == nil || legal[i] {
			return i
		}
	}
}

func (b *choosing) pace(rate, _ float64) {
	b.policy.Values.Adam.LearningRate = rate * b.c.LearningRate
	b.policy.Behaviour.Adam.LearningRate = rate * b.c.LearningRate
}

func (b *choosing) update(batch *replay.Batch, on bool, _ *rand.Rand) (float64, error) {
	by := b.plain
	if on {
		by = b.whole
	}
	s, err := by.Update(b.policy, batch)
	return s.Values, err
}

func (b *choosing) through() *through { return b.values.through }

// positive is a discount as a transition has it: never zero, so that zero says that there is none.
func positive(gamma float64) float64 { return max(gamma, math.SmallestNonzeroFloat64) }

// fits is nil where a base-learner's sizes and a meta-learner's fit.
func (s sizes) fits(m meta.Config) error {
	f := m.Form
	switch {
	case f.Choices != s.choices || f.Choices == 0 && f.Action != s.action:
		return fmt.Errorf("pretraining: actions of %d numbers and %d choices, episodes of the form %+v: they must be equal",
			s.action, s.choices, f)
	case s.state != f.Observation+m.Embedding:
		return fmt.Errorf("pretraining: states of %d numbers: an observation of %d and an embedding of %d are %d",
			s.state, f.Observation, m.Embedding, f.Observation+m.Embedding)
	}
	return nil
}
