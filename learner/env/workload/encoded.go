package workload

import (
	"context"
	"fmt"
	"math"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
)

// Encoded is an Environment in numbers. Its actions are encode's, its episodes
// are truncated after a number of steps. With discrete choices it is an
// env.Masker as well.
type Encoded interface {
	env.Env
	env.Executor
	// Form is how states and actions are encoded.
	Form() encode.Form
}

// masked is an encoded Environment with discrete choices.
type masked struct{ *encoded }

// Legal implements [env.Masker].
func (m masked) Legal(legal []bool) { m.encoder.Legal(m.state, legal) }

// encoded is an Environment with a box of actions, and what both kinds have in common.
//
// A simulated world is saved as it is. A real workload cannot be saved.
type encoded struct {
	name    string
	inner   Environment
	encoder *encode.Encoder
	length  int // steps of an episode

	steps    int // since Reset
	started  bool
	running  bool
	state    mdp.State
	executed []float64
	space    env.Space
	action   env.Space
}

// Encode makes an [Encoded] of an Environment: its form's knobs are those of
// the environment's that it has.
func Encode(name string, inner Environment, form encode.Form, length int) (Encoded, error) {
	s := inner.Spaces()
	if !s.Knobs.Contains(form.Knobs) {
		return nil, fmt.Errorf("environment %s: knobs %v: %s has %v", name, form.Knobs, s.Workload, s.Knobs)
	}
	if length < 1 {
		return nil, fmt.Errorf("environment %s: episodes of %d steps: they must have at least 1", name, length)
	}
	e, err := s.Encoder(form)
	if err != nil {
		return nil, fmt.Errorf("environment %s: %w", name, err)
	}
	c := &encoded{
		name:     name,
		inner:    inner,
		encoder:  e,
		length:   length,
		executed: make([]float64, form.ActionDim()),
	}
	high := make([]float64, form.Dim())
	for i := range high {
		high[i] = math.Inf(1)
	}
	c.space = env.Box(high...)
	if n := form.NumActions(); n > 0 {
		c.action = env.Discrete(n)
		return masked{c}, nil
	}
	one := make([]float64, form.ActionDim())
	for i := range one {
		one[i] = 1
	}
	c.action = env.Box(one...)
	return c, nil
}

// Name is the name that Encode was given, such as sim:social-network/bursty.
func (c *encoded) Name() string { return c.name }

// Form is how states and actions are encoded.
func (c *encoded) Form() encode.Form { return c.encoder.Form() }

// Observation is the space of states.
func (c *encoded) Observation() env.Space { return c.space }

// Action is the space of actions: choices, or a box.
func (c *encoded) Action() env.Space { return c.action }

// Reset implements [env.Env].
func (c *encoded) Reset(seed uint64, obs []float64) error {
	s, err := c.inner.Reset(context.Background(), seed)
	if err == nil {
		err = c.encoder.Observe(s, obs)
	}
	if err != nil {
		return fmt.Errorf("%s: reset: %w", c.name, err)
	}
	c.steps = 0
	c.state = s
	c.started = true
	c.running = true
	return nil
}

// Step implements [env.Env].
func (c *encoded) Step(action, obs []float64) (env.Outcome, error) {
	fail := func(err error) (env.Outcome, error) {
		return env.Outcome{}, fmt.Errorf("%s: step after %d: %w", c.name, c.steps, err)
	}
	if !c.running {
		return fail(env.ErrNotRunning)
	}
	if err := c.action.Check(action); err != nil {
		return fail(err)
	}
	if len(obs) != c.space.Dim() {
		return fail(fmt.Errorf("obs has length %d: it must have %d", len(obs), c.space.Dim()))
	}
	proposed, err := c.decode(action)
	if err != nil {
		return fail(err)
	}
	before := c.state
	out, err := c.inner.Step(context.Background(), proposed)
	if err == nil {
		err = c.encoder.Observe(out.State, obs)
	}
	if err == nil {
		err = c.encodeExecuted(before, action, proposed, out.Executed)
	}
	if err != nil {
		c.running = false // how far the step came is not known
		return fail(err)
	}
	c.steps++
	c.state = out.State
	c.running = c.steps < c.length
	return env.Outcome{
		Reward: float64(out.Reward), RewardKnown: out.RewardKnown, Effect: out.Effect, Truncated: !c.running,
	}, nil
}

// decode makes an Action of numbers.
func (c *encoded) decode(action []float64) (mdp.Action, error) {
	if c.action.N > 0 {
		return c.encoder.Choice(c.state, int(action[0]))
	}
	return c.encoder.FromBox(action)
}

// encodeExecuted keeps what took force, as an action of the space. When that is
// what was proposed, it is the same numbers: two choices can come to one value
// at a bound, and a limit is rounded, but neither is another action.
func (c *encoded) encodeExecuted(before mdp.State, action []float64, proposed, executed mdp.Action) error {
	switch {
	case executed == proposed && c.action.N > 0:
		c.executed[0] = action[0]
		return nil
	case executed == proposed:
		for i, v := range action {
			c.executed[i] = max(-1, min(1, v))
		}
		return nil
	case c.action.N > 0:
		c.executed[0] = float64(c.encoder.Nearest(before, executed))
		return nil
	}
	return c.encoder.ToBox(before, executed, c.executed)
}

// Executed implements [env.Executor].
func (c *encoded) Executed(action []float64) { copy(action, c.executed) }

// Observe implements [env.Env].
func (c *encoded) Observe(obs []float64) error {
	if !c.started {
		return fmt.Errorf("%s: observe: %w", c.name, env.ErrNotRunning)
	}
	if err := c.encoder.Observe(c.state, obs); err != nil {
		return fmt.Errorf("%s: observe: %w", c.name, err)
	}
	return nil
}
