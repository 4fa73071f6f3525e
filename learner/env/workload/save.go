package workload

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

// savedSimulation is a Simulation as JSON.
type savedSimulation struct {
	Seed    uint64    `json:"seed"`    // of the episode, from which its Config is made again
	Running bool      `json:"running"` // it may be stepped
	State   mdp.State `json:"state"`   // the last one that was sensed
	World   []byte    `json:"world"`   // sim.World; without one there was no Reset yet
	Sensor  []byte    `json:"sensor"`
	Guards  []byte    `json:"guards"`
}

// errBeneath is of a world whose nodes have a policy of their own, which is not saved.
var errBeneath = errors.New("a world with a policy beneath cannot be saved")

// MarshalBinary implements [Saver].
func (s *Simulation) MarshalBinary() ([]byte, error) {
	a, part := s.app, s.app.parts[0]
	if a.options.Beneath != nil {
		return nil, errBeneath
	}
	saved := savedSimulation{Seed: a.seed, Running: a.running, State: part.state}
	if a.now == nil || part.guards == nil {
		return json.Marshal(savedSimulation{})
	}
	var err error
	if saved.World, err = a.now.Save(); err != nil {
		return nil, err
	}
	if saved.Sensor, err = save(part.pair.Sensor); err != nil {
		return nil, err
	}
	if saved.Guards, err = save(part.guards); err != nil {
		return nil, err
	}
	return json.Marshal(saved)
}

// UnmarshalBinary implements [Saver].
func (s *Simulation) UnmarshalBinary(data []byte) error {
	a, part := s.app, s.app.parts[0]
	fail := func(err error) error { return fmt.Errorf("restore a simulation of %s: %w", part.spaces.Workload, err) }
	if a.options.Beneath != nil {
		return fail(errBeneath)
	}
	var saved savedSimulation
	if err := json.Unmarshal(data, &saved); err != nil {
		return fail(err)
	}
	if len(saved.World) == 0 {
		s.app = &Application{world: a.world, options: a.options, parts: []*episode{{spaces: part.spaces}}}
		return nil
	}
	c, err := a.world(saved.Seed)
	if err != nil {
		return fail(err)
	}
	w, err := sim.Restore(c, saved.World)
	if err != nil {
		return fail(err)
	}
	pairs, err := a.pairsOf(w)
	if err != nil {
		return fail(err)
	}
	guards := part.newGuards()
	if err := restore(pairs[0].Sensor, saved.Sensor); err != nil {
		return fail(err)
	}
	if err := restore(guards, saved.Guards); err != nil {
		return fail(err)
	}
	a.enter(saved.Seed, w, pairs, c.App.SLO)
	part.guards = guards
	part.state = saved.State
	a.running = saved.Running
	return nil
}

// save and restore are for parts that are known to be savable: a sensor of sim,
// a chain of guard.
func save(part any) ([]byte, error) { return part.(encoding.BinaryMarshaler).MarshalBinary() }

func restore(part any, data []byte) error {
	return part.(encoding.BinaryUnmarshaler).UnmarshalBinary(data)
}

// A saved encoded environment:
//
//	"aware workload 2\n" | length of name, 1 byte | name | savedEncoded as JSON | CRC-32C, 4
const savedHeader = "aware workload 2\n"

// savedEncoded is an encoded Environment as JSON.
type savedEncoded struct {
	Started  bool      `json:"started"` // there was a Reset
	Running  bool      `json:"running"` // the episode goes on
	Steps    int       `json:"steps"`   // of the episode
	State    mdp.State `json:"state"`   // that is observed
	Executed []float64 `json:"executed"`
	Inner    []byte    `json:"inner"` // the Environment
}

// MarshalBinary saves all state, the simulated world included.
func (c *encoded) MarshalBinary() ([]byte, error) {
	inner, ok := c.inner.(Saver)
	if !ok {
		return nil, fmt.Errorf("%s: save: a real workload cannot be saved", c.name)
	}
	saved := savedEncoded{Started: c.started, Running: c.running, Steps: c.steps, State: c.state, Executed: c.executed}
	var err error
	if saved.Inner, err = inner.MarshalBinary(); err != nil {
		return nil, fmt.Errorf("%s: save: %w", c.name, err)
	}
	text, err := json.Marshal(saved)
	if err != nil {
		return nil, fmt.Errorf("%s: save: %w", c.name, err)
	}
	return env.Seal(append(c.head(), text...)), nil
}

// head is what the saved environment begins with.
func (c *encoded) head() []byte {
	return append(append([]byte(savedHeader), byte(len(c.name))), c.name...)
}

// UnmarshalBinary restores what an environment of the same name has saved. On an
// error nothing has changed.
func (c *encoded) UnmarshalBinary(data []byte) error {
	fail := func(err error) error { return fmt.Errorf("%s: restore from %d bytes: %w", c.name, len(data), err) }
	inner, ok := c.inner.(Saver)
	if !ok {
		return fail(errors.New("a real workload cannot be restored"))
	}
	b, err := env.Unseal(data, string(c.head()))
	if err != nil {
		return fail(err)
	}
	var saved savedEncoded
	if err := json.Unmarshal(b, &saved); err != nil {
		return fail(err)
	}
	switch {
	case saved.Steps < 0 || saved.Steps > c.length || saved.Running && saved.Steps == c.length:
		return fail(fmt.Errorf("steps %d, running %v: an episode has at most %d steps", saved.Steps, saved.Running, c.length))
	case len(saved.Executed) != len(c.executed):
		return fail(fmt.Errorf("executed action of %d numbers: it must have %d", len(saved.Executed), len(c.executed)))
	case saved.Running && !saved.Started:
		return fail(errors.New("running without a Reset"))
	}
	if saved.Started {
		if err := c.encoder.Observe(saved.State, make([]float64, c.space.Dim())); err != nil {
			return fail(err)
		}
	}
	if err := inner.UnmarshalBinary(saved.Inner); err != nil {
		return fail(err)
	}
	c.started = saved.Started
	c.running = saved.Running
	c.steps = saved.Steps
	c.state = saved.State
	copy(c.executed, saved.Executed)
	return nil
}
