package meta

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"math"
	"slices"

	"awarescale.dev/aware/learner/env"
)

// Memory is what is known of one workload: some of its episodes, and their embedding. One goroutine uses it at a time.
type Memory struct {
	learner   *Learner
	kept      Kept
	hidden    bool // it shows no embedding
	embedding []float64
}

// NewMemory is that of a workload of which nothing is known. Several may share a meta-learner, on one goroutine.
func NewMemory(l *Learner) *Memory {
	return &Memory{learner: l, kept: Kept{Most: l.Config.Bundle}, embedding: make([]float64, l.Config.Embedding)}
}

// Keep makes it remember at most n episodes from now on: no more than the meta-learner reads.
func (m *Memory) Keep(n int) error {
	if n < 1 || n > m.learner.Config.Bundle {
		return fmt.Errorf("a memory of %d episodes: it must be in [1, %d], as many as the meta-learner reads",
			n, m.learner.Config.Bundle)
	}
	all := m.kept.Episodes
	m.kept = Kept{Most: n}
	for _, e := range all {
		m.kept.Add(e)
	}
	m.Refresh()
	return nil
}

// Add takes in an episode. Where it is kept the embedding is another one then.
func (m *Memory) Add(e Episode) {
	if m.kept.Add(e) {
		m.Refresh()
	}
}

// Refresh makes the embedding again, by the parameters that the meta-learner has now.
func (m *Memory) Refresh() {
	shown := m.kept.Episodes
	if m.hidden {
		shown = nil
	}
	m.learner.Embed(shown, m.embedding)
}

// Forget makes it the memory of a workload of which nothing is known.
func (m *Memory) Forget() {
	m.kept.Episodes, m.hidden = nil, false
	m.Refresh()
}

// Hide makes the embedding that of a workload of which nothing is known, until it forgets: for a policy that is worse with what
// is known. Episodes are kept all the same.
func (m *Memory) Hide() {
	m.hidden = true
	m.Refresh()
}

// Most is how many episodes the embedding is made of, at most (M).
func (m *Memory) Most() int { return m.kept.Most }

// Episodes are those that are kept, at most M, the oldest first. They are for reading.
func (m *Memory) Episodes() []Episode { return m.kept.Episodes }

// Embedding is for reading, until the next Add.
func (m *Memory) Embedding() []float64 { return m.embedding }

// Condition appends the embedding of a memory to each observation of an environment. With keep set the environment's
// episodes go into the memory. Where choices are masked, or other actions take force than the proposed ones, that stays so.
func Condition(inner env.Env, m *Memory, keep bool) (env.Env, error) {
	if f := FormOf(inner); f != m.learner.Config.Form {
		return nil, fmt.Errorf("conditioning %s on embeddings: its episodes have the form %+v, and the meta-learner reads %+v",
			inner.Name(), f, m.learner.Config.Form)
	}
	c := &conditioned{inner: inner, memory: m, keep: keep}
	c.executor, _ = inner.(env.Executor)
	high := slices.Clone(inner.Observation().High)
	low := slices.Clone(inner.Observation().Low)
	if inner.Observation().N > 0 {
		return nil, fmt.Errorf("conditioning %s on embeddings: its observations must be numbers, and are choices", inner.Name())
	}
	for range m.learner.Config.Embedding {
		low, high = append(low, -1), append(high, 1)
	}
	c.space = env.Space{Low: low, High: high}
	c.embedding = make([]float64, m.learner.Config.Embedding)
	c.executed = make([]float64, inner.Action().Dim())
	if masker, ok := inner.(env.Masker); ok {
		return masked{c, masker}, nil
	}
	return c, nil
}

// masked is a conditioned environment in which not every choice is legal at all times.
type masked struct {
	*conditioned
	env.Masker
}

// conditioned is an environment with an embedding in its observations.
type conditioned struct {
	inner    env.Env
	executor env.Executor // nil: what was proposed takes force
	memory   *Memory
	keep     bool
	space    env.Space

	embedding []float64 // of the running episode
	seen      []float64 // the inner observation before the step
	executed  []float64
	episode   Episode
}

// Name implements [env.Env].
func (c *conditioned) Name() string { return c.inner.Name() }

// Observation is that of the inner environment, and the embedding.
func (c *conditioned) Observation() env.Space { return c.space }

// Action implements [env.Env].
func (c *conditioned) Action() env.Space { return c.inner.Action() }

// split is the inner environment's part of an observation.
func (c *conditioned) split(obs []float64) ([]float64, error) {
	if len(obs) != c.space.Dim() {
		return nil, fmt.Errorf("%s: obs has length %d: it must have %d", c.Name(), len(obs), c.space.Dim())
	}
	n := len(obs) - len(c.embedding)
	copy(obs[n:], c.embedding)
	return obs[:n:n], nil
}

// Reset begins an episode with the embedding that the memory has now.
func (c *conditioned) Reset(seed uint64, obs []float64) error {
	copy(c.embedding, c.memory.Embedding())
	inner, err := c.split(obs)
	if err != nil {
		return err
	}
	if err := c.inner.Reset(seed, inner); err != nil {
		return err
	}
	c.seen = append(c.seen[:0], inner...)
	c.episode = Episode{}
	return nil
}

// Step implements [env.Env].
func (c *conditioned) Step(action, obs []float64) (env.Outcome, error) {
	inner, err := c.split(obs)
	if err != nil {
		return env.Outcome{}, err
	}
	out, err := c.inner.Step(action, inner)
	if err != nil {
		return out, err
	}
	copy(c.executed, action)
	if c.executor != nil {
		c.executor.Executed(c.executed)
	}
	if !c.keep {
		return out, nil
	}
	c.episode.Add(c.memory.learner.Config.Form, c.seen, c.executed, out.Reward, out.RewardKnown)
	c.seen = append(c.seen[:0], inner...)
	if out.Ended() {
		c.memory.Add(c.episode)
		c.episode = Episode{}
	}
	return out, nil
}

// Executed implements [env.Executor].
func (c *conditioned) Executed(action []float64) { copy(action, c.executed) }

// Observe implements [env.Env].
func (c *conditioned) Observe(obs []float64) error {
	inner, err := c.split(obs)
	if err != nil {
		return err
	}
	return c.inner.Observe(inner)
}

// kept is a conditioned environment in a file, and the memory where it keeps its episodes there.
type kept struct {
	Inner     []byte
	Embedding []float64
	Seen      []float64
	Executed  []float64
	Episode   Episode
	Keeps     bool
	Best      []Episode
	Hidden    bool
}

const keptHeader = "aware conditioned environment 1\n"

// MarshalBinary saves the environment, and the memory where its episodes go into it.
func (c *conditioned) MarshalBinary() ([]byte, error) {
	inner, err := c.inner.MarshalBinary()
	if err != nil {
		return nil, err
	}
	k := kept{Inner: inner, Embedding: c.embedding, Seen: c.seen, Executed: c.executed, Episode: c.episode, Keeps: c.keep}
	if c.keep {
		k.Best, k.Hidden = c.memory.kept.Episodes, c.memory.hidden
	}
	b := bytes.NewBufferString(keptHeader)
	if err := gob.NewEncoder(b).Encode(k); err != nil {
		return nil, fmt.Errorf("save conditioned %s: %w", c.Name(), err)
	}
	return env.Seal(b.Bytes()), nil
}

// UnmarshalBinary restores what was saved of an environment of the same name. On an error nothing has changed.
func (c *conditioned) UnmarshalBinary(data []byte) error {
	fail := func(err error) error {
		return fmt.Errorf("restore conditioned %s from %d bytes: %w", c.Name(), len(data), err)
	}
	b, err := env.Unseal(data, keptHeader)
	if err != nil {
		return fail(err)
	}
	var k kept
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&k); err != nil {
		return fail(err)
	}
	if err := c.check(k); err != nil {
		return fail(err)
	}
	if err := c.inner.UnmarshalBinary(k.Inner); err != nil {
		return fail(err)
	}
	copy(c.embedding, k.Embedding)
	copy(c.executed, k.Executed)
	c.seen = k.Seen
	c.episode = k.Episode
	if c.keep {
		c.memory.kept.Episodes, c.memory.hidden = k.Best, k.Hidden
		c.memory.Refresh()
	}
	return nil
}

func (c *conditioned) check(k kept) error {
	width := c.memory.learner.Config.Form.Width()
	switch {
	case k.Keeps != c.keep:
		return fmt.Errorf("it keeps its episodes: %v: it must be %v", k.Keeps, c.keep)
	case len(k.Embedding) != len(c.embedding) || len(k.Executed) != len(c.executed):
		return fmt.Errorf("an embedding of %d and an action of %d numbers: they must be %d and %d", len(k.Embedding),
			len(k.Executed), len(c.embedding), len(c.executed))
	case len(k.Seen) != 0 && len(k.Seen) != c.inner.Observation().Dim():
		return fmt.Errorf("an observation of %d numbers: it must be %d", len(k.Seen), c.inner.Observation().Dim())
	case len(k.Best) > c.memory.kept.Most:
		return fmt.Errorf("%d episodes: at most %d", len(k.Best), c.memory.kept.Most)
	}
	for _, e := range append([]Episode{k.Episode}, k.Best...) {
		if len(e.Steps)%width != 0 || e.Known < 0 || e.Known > len(e.Steps)/width || math.IsNaN(e.Sum) {
			return fmt.Errorf("an episode of %d numbers, %d rewards known: a step has %d", len(e.Steps), e.Known, width)
		}
	}
	return nil
}
