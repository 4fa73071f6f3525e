package mdp

import "errors"

// Join makes one Policy of several, each with knobs of its own: CPU by one
// rule, memory by another. Where two set the same knob the later one has it. A
// part that does not know enough leaves its knobs alone; Join fails only when
// every part did.
func Join(parts ...Policy) Policy { return joined(parts) }

type joined []Policy

func (j joined) Decide(s State) (Action, error) {
	var all Action
	var errs []error
	for _, part := range j {
		a, err := part.Decide(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = all.With(a)
	}
	if len(errs) == len(j) {
		return Action{}, errors.Join(errs...)
	}
	return all, nil
}
