package trajectory

import "awarescale.dev/aware/learner/mdp"

// asState converts an Action to a State with the values that it sets. States
// and Actions then have the same encoding.
func asState(a mdp.Action) mdp.State {
	var s mdp.State
	for k := range a.Sets.Signals() {
		v, _ := a.Knob(k)
		k.SetInt(&s, v)
	}
	s.Observed = a.Sets
	return s
}

// asAction is the inverse of asState.
func asAction(s mdp.State, clipped mdp.Clips) mdp.Action {
	a := mdp.Action{Clipped: clipped}
	for k := range s.Observed.Signals() {
		a = a.WithKnob(k, k.Int(&s))
	}
	return a
}
