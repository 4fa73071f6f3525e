package env

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// Vector is several environments of one kind, stepped together. Where an episode ends, the next one begins in the same
// step, with a seed of the Vector's own random numbers. It is used by one goroutine at a time.
//
// Its slices are written by Reset and StepAll and are for reading; row i of n is that of environment i.
type Vector struct {
	Observations []float64 // n x Dim; what to act upon next: of the new episode where one has ended
	Final        []float64 // n x Dim; what the last step led to: the true final observation where the episode has ended.
	// It is the Next of a transition in every row, and as Observations where none ended.
	Rewards               []float64 // n; of the last step
	Terminated, Truncated []bool    // n; of the last step

	envs   []Env
	source rand.PCG // seeds of episodes
}

// NewVector joins environments of the same name and spaces, which it owns from then on. Reset comes first.
func NewVector(seed uint64, envs ...Env) (*Vector, error) {
	if len(envs) == 0 {
		return nil, errors.New("vector of 0 environments: it must have at least one")
	}
	first := envs[0]
	for i, e := range envs {
		if e.Name() != first.Name() || !e.Observation().Equal(first.Observation()) || !e.Action().Equal(first.Action()) {
			return nil, fmt.Errorf("vector of %s: environment %d is %s: all must have its name and spaces", first.Name(), i, e.Name())
		}
		for j := range i {
			if envs[j] == e {
				return nil, fmt.Errorf("vector of %s: environments %d and %d are the same one", first.Name(), j, i)
			}
		}
	}
	n, dim := len(envs), first.Observation().Dim()
	v := &Vector{
		Observations: make([]float64, n*dim),
		Final:        make([]float64, n*dim),
		Rewards:      make([]float64, n),
		Terminated:   make([]bool, n),
		Truncated:    make([]bool, n),
		envs:         envs,
	}
	v.source.Seed(seed, Stream)
	return v, nil
}

// Len is the number of environments.
func (v *Vector) Len() int { return len(v.envs) }

// Observation is the space of every row of Observations.
func (v *Vector) Observation() Space { return v.envs[0].Observation() }

// Action is the space of every row's action.
func (v *Vector) Action() Space { return v.envs[0].Action() }

// Reset begins an episode in every environment.
func (v *Vector) Reset() error {
	for i, e := range v.envs {
		if err := e.Reset(v.source.Uint64(), row(v.Observations, i, len(v.envs))); err != nil {
			return fmt.Errorf("vector, environment %d: %w", i, err)
		}
	}
	v.forget()
	return nil
}

// forget the last step.
func (v *Vector) forget() {
	copy(v.Final, v.Observations)
	clear(v.Rewards)
	clear(v.Terminated)
	clear(v.Truncated)
}

// StepAll carries out one action per environment, n x Action().Dim() numbers. When one of them is refused, none has been
// carried out.
func (v *Vector) StepAll(actions []float64) error {
	n, space := len(v.envs), v.Action()
	if len(actions) != n*space.Dim() {
		return fmt.Errorf("step vector of %d %s: %d numbers for actions: it must be %d", n, v.envs[0].Name(), len(actions), n*space.Dim())
	}
	for i, e := range v.envs {
		if err := space.Check(row(actions, i, n)); err != nil {
			return fmt.Errorf("step vector, environment %d: %s: %w", i, e.Name(), err)
		}
	}
	var err error
	for i, e := range v.envs {
		final, next := row(v.Final, i, n), row(v.Observations, i, n)
		v.Rewards[i], v.Terminated[i], v.Truncated[i], err = e.Step(row(actions, i, n), final)
		if err == nil && (v.Terminated[i] || v.Truncated[i]) {
			err = e.Reset(v.source.Uint64(), next)
		} else {
			copy(next, final)
		}
		if err != nil {
			return fmt.Errorf("step vector, environment %d: %w", i, err)
		}
	}
	return nil
}

// row is number i of n equal parts.
func row(flat []float64, i, n int) []float64 {
	dim := len(flat) / n
	return flat[i*dim : (i+1)*dim : (i+1)*dim]
}

// A saved Vector, little-endian:
//
//	"aware vector 1\n" | environments, 4 | random source, 20 | for each: length, 4, and the saved environment | CRC-32C, 4
const vectorHeader = "aware vector 1\n"

// MarshalBinary saves all state. The last step's Final, Rewards, Terminated and Truncated are no state: they are for the
// caller to use before it saves.
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

// UnmarshalBinary restores what was saved of a Vector of as many environments of the same name. On an error nothing has
// changed.
func (v *Vector) UnmarshalBinary(data []byte) error {
	n := len(v.envs)
	fail := func(format string, a ...any) error {
		return fmt.Errorf("restore vector of %d %s from %d bytes: %w", n, v.envs[0].Name(), len(data), fmt.Errorf(format, a...))
	}
	b, err := Unseal(data, vectorHeader)
	if err != nil {
		return fail("%w", err)
	}
	if len(b) < 4+20 {
		return fail("cut short")
	}
	if got := binary.LittleEndian.Uint32(b); uint64(got) != uint64(n) {
		return fail("%d environments: it must be %d", got, n)
	}
	var source rand.PCG
	if err := source.UnmarshalBinary(b[4:24]); err != nil {
		return fail("random source: %w", err)
	}
	// An environment is restored in place, so what it was is kept until all have succeeded.
	was, err := v.MarshalBinary()
	if err != nil {
		return fail("keeping what it is: %w", err)
	}
	if i, err := v.restore(b[24:]); err != nil {
		if _, back := v.restore(was[len(vectorHeader)+24 : len(was)-4]); back != nil {
			return fail("environment %d: %w; and back again: %w", i, err, back)
		}
		return fail("environment %d: %w", i, err)
	}
	v.source = source
	for i, e := range v.envs {
		if obs := row(v.Observations, i, n); e.Observe(obs) != nil { // never Reset: there is nothing to see yet
			clear(obs)
		}
	}
	v.forget()
	return nil
}

// restore the environments one after the other; it gives the one that failed.
func (v *Vector) restore(b []byte) (int, error) {
	for i, e := range v.envs {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
			return i, errors.New("cut short")
		}
		saved := b[4 : 4+binary.LittleEndian.Uint32(b)]
		if err := e.UnmarshalBinary(saved); err != nil {
			return i, err
		}
		b = b[4+len(saved):]
	}
	if len(b) != 0 {
		return len(v.envs) - 1, fmt.Errorf("%d bytes are left over", len(b))
	}
	return 0, nil
}
