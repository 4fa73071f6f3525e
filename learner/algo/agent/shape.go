package agent

import (
	"fmt"
	"slices"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
)

// Shape is the sizes of what an agent is given. Its checks are the same for all
// algorithms: they name the algorithm, what is wrong, and where. What is not a
// finite number gives nn.ErrNotFinite. Agents check before they change anything.
type Shape struct {
	Algorithm  string // named in errors
	Envs       int    // environments, that is rows, of a step
	State      int    // numbers in an observation
	Action     int    // numbers in an action; 1 for a discrete one
	NumActions int    // choices of a discrete action; 0 is continuous
}

// Explore checks observations [Envs][State], the legal choices [Envs][NumActions]
// or nil for all, and the length of the slice for actions [Envs][Action].
func (s Shape) Explore(obs []float64, legal []bool, actions []float64) error {
	if err := s.numbers("observation", obs, s.State); err != nil {
		return fmt.Errorf("%s: exploring: %w", s.Algorithm, err)
	}
	if err := s.length("actions", len(actions), s.Action); err != nil {
		return fmt.Errorf("%s: exploring: %w", s.Algorithm, err)
	}
	if err := s.mask(legal); err != nil {
		return fmt.Errorf("%s: exploring: %w", s.Algorithm, err)
	}
	return nil
}

// Rows checks what the actions led to.
func (s Shape) Rows(r env.Rows) error {
	if err := s.rows(r); err != nil {
		return fmt.Errorf("%s: learning: %w", s.Algorithm, err)
	}
	return nil
}

func (s Shape) rows(r env.Rows) error {
	for _, column := range []struct {
		name   string
		length int
	}{
		{"known rewards", len(r.RewardKnown)}, {"effects", len(r.Effects)},
		{"terminations", len(r.Terminated)}, {"truncations", len(r.Truncated)},
	} {
		if err := s.length(column.name, column.length, 1); err != nil {
			return err
		}
	}
	if err := s.numbers("reward", r.Rewards, 1); err != nil {
		return err
	}
	if err := s.numbers("final observation", r.Final, s.State); err != nil {
		return err
	}
	if err := s.numbers("executed action", r.Executed, s.Action); err != nil {
		return err
	}
	if s.NumActions > 0 {
		if err := s.choices("executed action of environment", r.Executed); err != nil {
			return err
		}
	}
	return s.mask(r.FinalLegal)
}

// Batch checks n transitions.
func (s Shape) Batch(b *replay.Batch, n int) error {
	rows := s
	rows.Envs = n
	if err := rows.batch(b); err != nil {
		return fmt.Errorf("updating %s: %w", s.Algorithm, err)
	}
	return nil
}

func (s Shape) batch(b *replay.Batch) error {
	if b.Size() != s.Envs {
		return fmt.Errorf("a batch of %d transitions: it must be of %d", b.Size(), s.Envs)
	}
	for _, column := range []struct {
		name  string
		data  []float64
		width int
	}{
		{"state", b.State, s.State}, {"action", b.Action, s.Action}, {"next", b.Next, s.State},
		{"reward", b.Reward, 1}, {"bootstrap", b.Bootstrap, 1}, {"weight", b.Weight, 1},
	} {
		if len(column.data) != s.Envs*column.width {
			return fmt.Errorf("a batch of %d %s numbers: it must be %d", len(column.data), column.name,
				s.Envs*column.width)
		}
		if i := notFinite(column.data); i >= 0 {
			return fmt.Errorf("%s of row %d: number %d is %v: %w", column.name, i/column.width,
				i%column.width, column.data[i], nn.ErrNotFinite)
		}
	}
	if s.NumActions > 0 {
		if err := s.choices("action of row", b.Action); err != nil {
			return err
		}
	}
	if b.NextLegal != nil && len(b.NextLegal) != s.Envs*s.NumActions {
		return fmt.Errorf("a mask of %d: it must be of %d", len(b.NextLegal), s.Envs*s.NumActions)
	}
	return nil
}

func (s Shape) length(what string, n, width int) error {
	if n != s.Envs*width {
		return fmt.Errorf("%s have length %d: it must be %d", what, n, s.Envs*width)
	}
	return nil
}

func (s Shape) numbers(what string, data []float64, width int) error {
	if len(data) != s.Envs*width {
		return fmt.Errorf("%ss have length %d: it must be %d", what, len(data), s.Envs*width)
	}
	if i := notFinite(data); i >= 0 {
		return fmt.Errorf("%s of environment %d: number %d is %v: %w", what, i/width, i%width, data[i],
			nn.ErrNotFinite)
	}
	return nil
}

func (s Shape) choices(what string, actions []float64) error {
	for i, a := range actions {
		if !env.IsIndex(a, s.NumActions) {
			return fmt.Errorf("%s %d is %v: it must be a whole number from 0 to %d", what, i, a, s.NumActions-1)
		}
	}
	return nil
}

func (s Shape) mask(legal []bool) error {
	if legal == nil {
		return nil
	}
	if s.NumActions == 0 {
		return fmt.Errorf("a mask of %d: there must be none, as actions are continuous", len(legal))
	}
	if len(legal) != s.Envs*s.NumActions {
		return fmt.Errorf("a mask of %d: it must be of %d", len(legal), s.Envs*s.NumActions)
	}
	for i := range s.Envs {
		if !slices.Contains(legal[i*s.NumActions:(i+1)*s.NumActions], true) {
			return fmt.Errorf("the mask of environment %d: none of %d choices is legal", i, s.NumActions)
		}
	}
	return nil
}

// notFinite is the place of the first number that is NaN or infinite, or -1.
func notFinite(data []float64) int {
	if nn.Finite(data) {
		return -1
	}
	return slices.IndexFunc(data, func(v float64) bool { return v-v != 0 })
}
