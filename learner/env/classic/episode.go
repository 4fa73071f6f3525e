package classic

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
)

// kind is the name, the sizes and the rules of an environment.
type kind struct {
	name        string
	observation env.Space
	action      env.Space
	states      int // numbers in the state
	limit       int // steps after which an episode is truncated
	model       model
}

// model is the rules of a world, over a state that it does not keep. It is
// never given an action that the env.Space refuses.
type model interface {
	// begin draws the initial state.
	begin(r *rand.Rand, state []float64)
	// step turns state into the next one.
	step(r *rand.Rand, state, action []float64) (reward float64, terminated bool)
	observe(state, obs []float64)
	// possible reports whether step may be given the state.
	possible(state []float64) bool
}

// episode makes an env.Env of a kind: the time limit, the random numbers, the
// checks and the saving are the same for all.
type episode struct {
	kind
	state   []float64
	steps   int  // since Reset
	running bool // false and steps = 0: never Reset
	source  rand.PCG
	random  *rand.Rand // of source
}

func newEpisode(k kind) *episode {
	e := &episode{kind: k, state: make([]float64, k.states)}
	e.random = rand.New(&e.source)
	return e
}

func (e *episode) Name() string           { return e.name }
func (e *episode) Observation() env.Space { return e.observation }
func (e *episode) Action() env.Space      { return e.action }

func (e *episode) Reset(seed uint64, obs []float64) error {
	if err := e.fits(obs); err != nil {
		return fmt.Errorf("%s: reset: %w", e.name, err)
	}
	e.source.Seed(seed, env.Stream)
	e.model.begin(e.random, e.state)
	e.steps, e.running = 0, true
	e.model.observe(e.state, obs)
	return nil
}

func (e *episode) Step(action, obs []float64) (env.Outcome, error) {
	fail := func(err error) (env.Outcome, error) {
		return env.Outcome{}, fmt.Errorf("%s: step after %d: %w", e.name, e.steps, err)
	}
	if !e.running {
		return fail(env.ErrNotRunning)
	}
	if err := e.action.Check(action); err != nil {
		return fail(err)
	}
	if err := e.fits(obs); err != nil {
		return fail(err)
	}
	out := env.Outcome{RewardKnown: true, Effect: mdp.Applied}
	out.Reward, out.Terminated = e.model.step(e.random, e.state, action)
	e.steps++
	out.Truncated = e.steps >= e.limit // also when terminated, as in Gymnasium's TimeLimit
	e.running = !out.Ended()
	e.model.observe(e.state, obs)
	return out, nil
}

func (e *episode) Observe(obs []float64) error {
	if !e.running && e.steps == 0 {
		return fmt.Errorf("%s: observe: %w", e.name, env.ErrNotRunning)
	}
	if err := e.fits(obs); err != nil {
		return fmt.Errorf("%s: observe: %w", e.name, err)
	}
	e.model.observe(e.state, obs)
	return nil
}

func (e *episode) fits(obs []float64) error {
	if n := e.observation.Dim(); len(obs) != n {
		return fmt.Errorf("obs has length %d: it must have %d", len(obs), n)
	}
	return nil
}

// A saved environment, little-endian:
//
//	"aware env 1\n" | length of name, 1 byte | name | running, 1 byte | steps, 4 | random source, 20 | state, 8 each | CRC-32C, 4
const envHeader = "aware env 1\n"

// MarshalBinary is for env.Env.
func (e *episode) MarshalBinary() ([]byte, error) {
	source, err := e.source.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("%s: save: random source: %w", e.name, err)
	}
	b := append([]byte(envHeader), byte(len(e.name)))
	b = append(b, e.name...)
	b = append(b, bit(e.running))
	b = binary.LittleEndian.AppendUint32(b, uint32(e.steps))
	b = append(b, source...)
	for _, x := range e.state {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	return env.Seal(b), nil
}

// farthest is a bound on every number of every state: no world here gets
// anywhere near.
const farthest = 1e6

// UnmarshalBinary is for env.Env.
func (e *episode) UnmarshalBinary(data []byte) error {
	fail := func(format string, a ...any) error {
		return fmt.Errorf("%s: restore from %d bytes: %w", e.name, len(data), fmt.Errorf(format, a...))
	}
	head := append([]byte(envHeader), byte(len(e.name)))
	head = append(head, e.name...)
	b, err := env.Unseal(data, string(head))
	if err != nil {
		return fail("%w", err)
	}
	if want := 1 + 4 + 20 + 8*len(e.state); len(b) != want {
		return fail("%d bytes of state: it must be %d", len(b), want)
	}
	running, steps := b[0], int(binary.LittleEndian.Uint32(b[1:]))
	switch {
	case running > 1:
		return fail("running is %d: it must be 0 or 1", running)
	case running == 1 && steps >= e.limit, steps > e.limit:
		return fail("running is %d after %d steps: an episode has at most %d", running, steps, e.limit)
	}
	var source rand.PCG
	if err := source.UnmarshalBinary(b[5:25]); err != nil {
		return fail("random source: %w", err)
	}
	state := make([]float64, len(e.state))
	for i := range state {
		state[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[25+8*i:]))
		if !(math.Abs(state[i]) <= farthest) {
			return fail("state[%d] = %v: it must be within ±%v", i, state[i], float64(farthest))
		}
	}
	if !e.model.possible(state) {
		return fail("state %v: %s has no such state", state, e.name)
	}
	copy(e.state, state)
	e.source = source
	e.steps = steps
	e.running = running == 1
	return nil
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// uniform draws from [low, high).
func uniform(r *rand.Rand, low, high float64) float64 { return low + (high-low)*r.Float64() }

func clip(x, low, high float64) float64 { return min(max(x, low), high) }
