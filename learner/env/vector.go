package env

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/mdp"
)

// Rows are one step of n environments, as a learner is given it. Row i of n is
// that of environment i.
type Rows struct {
	Executed    []float64    // n x Action().Dim(); the action that took force, the proposed one where the Env is no Executor
	Rewards     []float64    // n; 0 where it is not known
	RewardKnown []bool       // n; false: nothing is to be learned from the reward
	Effects     []mdp.Effect // n; of the actions
	Final       []float64    // n x Observation().Dim(); what the step led to, the true final observation where the episode ended
	FinalLegal  []bool       // n x Action().N; the choices that are legal at Final; nil when all are
	Terminated  []bool       // n; the task itself has ended
	Truncated   []bool       // n; the episode was cut off from outside
}

// Ended reports whether the episode of row i is over.
func (r Rows) Ended(i int) bool { return r.Terminated[i] || r.Truncated[i] }

// Vector is several environments of one kind that are stepped together. Where
// an episode ends, the next one starts in the same step, with a seed from the
// Vector's own random source. One goroutine uses it at a time.
//
// Reset and StepAll write its slices; they are for reading. Row i of n is that
// of environment i.
type Vector struct {
	Observations []float64 // n x Dim; what to act upon next: of the new episode where one has ended
	Legal        []bool    // n x N; the choices that are legal in the next step; nil when all are, always
	Rows                   // of the last step

	envs    []Env
	maskers []Masker // for each environment; nil where it is none
	source  rand.PCG // seeds of episodes
}

// NewVector joins environments of the same name and spaces. The Vector owns
// them from then on. Reset comes first.
func NewVector(seed uint64, envs ...Env) (*Vector, error) {
	if len(envs) == 0 {
		return nil, errors.New("vector of 0 environments: it must have at least one")
	}
	first := envs[0]
	for i, e := range envs {
		if e.Name() != first.Name() || !e.Observation().Equal(first.Observation()) ||
			!e.Action().Equal(first.Action()) {
			return nil, fmt.Errorf("vector of %s: environment %d is %s: all must have its name and spaces",
				first.Name(), i, e.Name())
		}
		for j := range i {
			if envs[j] == e {
				return nil, fmt.Errorf("vector of %s: environments %d and %d are the same one",
					first.Name(), j, i)
			}
		}
	}
	n, dim := len(envs), first.Observation().Dim()
	v := &Vector{
		Observations: make([]float64, n*dim),
		Rows: Rows{
			Executed:    make([]float64, n*first.Action().Dim()),
			Rewards:     make([]float64, n),
			RewardKnown: make([]bool, n),
			Effects:     make([]mdp.Effect, n),
			Final:       make([]float64, n*dim),
			Terminated:  make([]bool, n),
			Truncated:   make([]bool, n),
		},
		envs:    envs,
		maskers: make([]Masker, n),
	}
	for i, e := range envs {
		m, ok := e.(Masker)
		if !ok {
			continue
		}
		if first.Action().N == 0 {
			return nil, fmt.Errorf("vector of %s: its actions are continuous: a Masker must have discrete ones",
				first.Name())
		}
		v.maskers[i] = m
		if v.Legal == nil {
			v.Legal = make([]bool, n*first.Action().N)
			v.FinalLegal = make([]bool, n*first.Action().N)
		}
	}
	fill(v.Legal, true)
	v.source.Seed(seed, Stream)
	return v, nil
}

// Len is the number of environments.
func (v *Vector) Len() int { return len(v.envs) }

// Name is the name of every environment.
func (v *Vector) Name() string { return v.envs[0].Name() }

// Observation is the space of every row of Observations.
func (v *Vector) Observation() Space { return v.envs[0].Observation() }

// Action is the space of every row's action.
func (v *Vector) Action() Space { return v.envs[0].Action() }

// Reset starts an episode in every environment.
func (v *Vector) Reset() error {
	for i, e := range v.envs {
		err := e.Reset(v.source.Uint64(), row(v.Observations, i, len(v.envs)))
		if err == nil {
			err = v.readMask(v.Legal, i)
		}
		if err != nil {
			return fmt.Errorf("vector, environment %d: %w", i, err)
		}
	}
	v.forget()
	return nil
}

// readMask writes row i of a mask: what is legal in environment i now.
func (v *Vector) readMask(mask []bool, i int) error {
	if mask == nil {
		return nil
	}
	legal := row(mask, i, len(v.envs))
	if v.maskers[i] == nil {
		fill(legal, true)
		return nil
	}
	v.maskers[i].Legal(legal)
	if !slices.Contains(legal, true) {
		return fmt.Errorf("%s: none of %d choices is legal: at least one must be", v.Name(), len(legal))
	}
	return nil
}

// forget the last step.
func (v *Vector) forget() {
	clear(v.Executed)
	clear(v.Rewards)
	clear(v.RewardKnown)
	clear(v.Effects)
	copy(v.Final, v.Observations)
	copy(v.FinalLegal, v.Legal)
	clear(v.Terminated)
	clear(v.Truncated)
}

// StepAll carries out one action per environment, n x Action().Dim() numbers.
// When one of them is no value of the action space, or is not legal, none has
// been carried out.
func (v *Vector) StepAll(actions []float64) error {
	if err := v.check(actions); err != nil {
		return fmt.Errorf("step vector of %d %s: %w", len(v.envs), v.Name(), err)
	}
	for i := range v.envs {
		if err := v.step(i, row(actions, i, len(v.envs))); err != nil {
			return fmt.Errorf("step vector of %d %s, environment %d: %w", len(v.envs), v.Name(), i, err)
		}
	}
	return nil
}

func (v *Vector) check(actions []float64) error {
	n, space := len(v.envs), v.Action()
	if len(actions) != n*space.Dim() {
		return fmt.Errorf("%d numbers for actions: it must be %d", len(actions), n*space.Dim())
	}
	for i := range v.envs {
		action := row(actions, i, n)
		if err := space.Check(action); err != nil {
			return fmt.Errorf("environment %d: %w", i, err)
		}
		if v.Legal != nil && !row(v.Legal, i, n)[int(action[0])] {
			return fmt.Errorf("environment %d: action %v is not legal now: legal are %v", i, action[0],
				row(v.Legal, i, n))
		}
	}
	return nil
}

// step carries out an action in environment i, and resets it at an episode's
// end.
func (v *Vector) step(i int, action []float64) error {
	e, n := v.envs[i], len(v.envs)
	final, next := row(v.Final, i, n), row(v.Observations, i, n)
	out, err := e.Step(action, final)
	if err != nil {
		return err
	}
	v.Rewards[i], v.RewardKnown[i] = out.Reward, out.RewardKnown
	if !out.RewardKnown {
		v.Rewards[i] = 0
	}
	v.Effects[i] = out.Effect
	v.Terminated[i], v.Truncated[i] = out.Terminated, out.Truncated
	executed := row(v.Executed, i, n)
	copy(executed, action)
	if x, ok := e.(Executor); ok {
		x.Executed(executed)
		if err := v.Action().Check(executed); err != nil {
			return fmt.Errorf("executed %w", err)
		}
	}
	if err := v.readMask(v.FinalLegal, i); err != nil {
		return err
	}
	if !out.Ended() {
		copy(next, final)
		if v.Legal != nil {
			copy(row(v.Legal, i, n), row(v.FinalLegal, i, n))
		}
		return nil
	}
	if err := e.Reset(v.source.Uint64(), next); err != nil {
		return err
	}
	return v.readMask(v.Legal, i)
}

func fill(all []bool, value bool) {
	for i := range all {
		all[i] = value
	}
}

// row is number i of n equal parts.
func row[T any](flat []T, i, n int) []T {
	dim := len(flat) / n
	return flat[i*dim : (i+1)*dim : (i+1)*dim]
}

// A saved Vector, little-endian:
//
//	"aware vector 1\n" | environments, 4 | random source, 20 | for each: length, 4, and the saved environment | CRC-32C, 4
const vectorHeader = "aware vector 1\n"

// MarshalBinary saves all state. The Rows of the last step are not state: the
// caller uses them before it saves.
func (v *Vector) MarshalBinary() ([]byte, error) {
	source, err := v.source.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("save vector: random source: %w", err)
	}
	b := binary.LittleEndian.AppendUint32([]byte(vectorHeader), uint32(len(v.envs)))
	b = append(b, source...)
	for i, e := range v.envs {
		saved, err := e.MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("save vector, environment %d: %w", i, err)
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(len(saved)))
		b = append(b, saved...)
	}
	return Seal(b), nil
}

// UnmarshalBinary restores what was saved of a Vector of as many environments
// of the same name. On an error nothing has changed.
func (v *Vector) UnmarshalBinary(data []byte) error {
	n := len(v.envs)
	fail := func(format string, a ...any) error {
		return fmt.Errorf("restore vector of %d %s from %d bytes: %w", n, v.envs[0].Name(), len(data),
			fmt.Errorf(format, a...))
	}
	b, err := Unseal(data, vectorHeader)
	if err != nil {
		return fail("%w", err)
	}
	if len(b) < 4+20 {
		return fail("truncated data")
	}
	if got := binary.LittleEndian.Uint32(b); uint64(got) != uint64(n) {
		return fail("%d environments: it must be %d", got, n)
	}
	var source rand.PCG
	if err := source.UnmarshalBinary(b[4:24]); err != nil {
		return fail("random source: %w", err)
	}
	// An environment is restored in place, so what it was is kept until all
	// have succeeded.
	was, err := v.MarshalBinary()
	if err != nil {
		return fail("saving what it is: %w", err)
	}
	if i, err := v.restore(b[24:]); err != nil {
		if _, back := v.restore(was[len(vectorHeader)+24 : len(was)-4]); back != nil {
			return fail("environment %d: %w; and restoring what it was: %w", i, err, back)
		}
		return fail("environment %d: %w", i, err)
	}
	v.source = source
	v.forget()
	return nil
}

// restore the environments one after the other; it gives the one that failed.
func (v *Vector) restore(b []byte) (int, error) {
	for i, e := range v.envs {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
			return i, errors.New("truncated data")
		}
		saved := b[4 : 4+binary.LittleEndian.Uint32(b)]
		if err := e.UnmarshalBinary(saved); err != nil {
			return i, err
		}
		if err := v.observe(i); err != nil {
			return i, err
		}
		b = b[4+len(saved):]
	}
	if len(b) > 0 {
		return len(v.envs) - 1, fmt.Errorf("%d bytes are left over", len(b))
	}
	return 0, nil
}

// observe reads again what a restored environment shows.
func (v *Vector) observe(i int) error {
	obs := row(v.Observations, i, len(v.envs))
	if v.envs[i].Observe(obs) == nil {
		return v.readMask(v.Legal, i)
	}
	clear(obs) // never Reset: nothing can be observed yet
	if v.Legal != nil {
		fill(row(v.Legal, i, len(v.envs)), true)
	}
	return nil
}
