package meta

import (
	"fmt"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Form is what a step of an episode consists of. A meta-learner reads episodes of one form.
type Form struct {
	Observation int `json:"observation"` // numbers of an observation
	Action      int `json:"action"`      // numbers of an action; 0 where actions are choices
	Choices     int `json:"choices"`     // choices of an action; 0 where actions are numbers
}

// FormOf is the form of an environment's episodes.
func FormOf(e env.Env) Form {
	f := Form{Observation: e.Observation().Dim(), Choices: e.Action().N}
	if f.Choices == 0 {
		f.Action = e.Action().Dim()
	}
	return f
}

// Width is how many numbers a step has: the observation, the action (one number for each choice: 1 for the one that took force),
// the reward, and whether it is known.
func (f Form) Width() int { return f.Observation + f.Action + f.Choices + 2 }

// Config is the shape of a meta-learner.
type Config struct {
	Form      Form `json:"form"`
	Hidden    int  `json:"hidden"`    // units of a recurrent layer, in each direction
	Layers    int  `json:"layers"`    // recurrent layers
	Dense     int  `json:"dense"`     // units of the dense layer before the last
	Embedding int  `json:"embedding"` // numbers of an embedding
	Bundle    int  `json:"bundle"`    // episodes of a workload that are read: M
	Length    int  `json:"length"`    // steps of an episode that are read, from its end
}

// Paper is the published shape (§4): two layers of 256 units, 20 episodes of 100 steps, an embedding of 64.
func Paper(f Form) Config {
	return Config{Form: f, Hidden: 256, Layers: 2, Dense: 256, Embedding: 64, Bundle: 20, Length: 100}
}

// Small is a shape that takes about a thirtieth of the published one's time: two CPU cores pretrain it on hundreds of workloads
// within an hour.
func Small(f Form) Config {
	return Config{Form: f, Hidden: 64, Layers: 2, Dense: 64, Embedding: 16, Bundle: 5, Length: 100}
}

// Check is nil for a shape that makes sense. Otherwise the error names the field, its value and the rule.
func (c Config) Check() error {
	f := c.Form
	if f.Observation < 1 || f.Action < 0 || f.Choices < 0 || (f.Action > 0) == (f.Choices > 0) {
		return fmt.Errorf("meta-learner: form %+v: it must have an observation, and an action of numbers or of choices", f)
	}
	for _, field := range []struct {
		name  string
		value int
	}{
		{"hidden", c.Hidden}, {"layers", c.Layers}, {"dense", c.Dense}, {"embedding", c.Embedding},
		{"bundle", c.Bundle}, {"length", c.Length},
	} {
		if field.value < 1 || field.value > most {
			return fmt.Errorf("meta-learner: %s %d: it must be in [1, %d]", field.name, field.value, most)
		}
	}
	return nil
}

// most bounds each number of a shape, so that a damaged file cannot ask for all memory.
const most = 1 << 14

// Recurrent is the recurrent layers, from the episodes on.
func (c Config) Recurrent() []kernel.GRU {
	layers := make([]kernel.GRU, c.Layers)
	in := c.Form.Width()
	for i := range layers {
		layers[i] = kernel.GRU{In: in, Hidden: c.Hidden, Bidirectional: true}
		in = layers[i].Out()
	}
	return layers
}

// Head is the dense layers, up to the embedding.
func (c Config) Head() kernel.MLP {
	return kernel.NewMLP(kernel.ReLU, kernel.Tanh, 2*c.Hidden, c.Dense, c.Embedding)
}

// Params is the number of parameters: those of the recurrent layers, and then of the dense ones.
func (c Config) Params() int {
	n := c.Head().Params()
	for _, g := range c.Recurrent() {
		n += g.Params()
	}
	return n
}
