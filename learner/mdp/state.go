package mdp

// Knows reports whether every given signal was observed.
func (s State) Knows(signals ...Signal) bool { return s.Observed.Has(signals...) }

// Mask is the State with only the given signals: every other value is zero and
// not observed.
func (s State) Mask(keep Set) State {
	m := State{At: s.At, Observed: s.Observed & keep}
	for i := range signals {
		if keep.Has(Signal(i)) {
			signals[i].set(&m, signals[i].get(&s))
		}
	}
	return m
}

// UnknownError says that a decision needs signals that were not observed.
type UnknownError struct {
	Who     string // the policy or part that needs them
	Missing Set
}

func (e *UnknownError) Error() string { return e.Who + ": not observed: " + e.Missing.String() }

// Require is nil when the State knows every given signal, and an [*UnknownError]
// that names the missing ones otherwise.
func (s State) Require(who string, signals ...Signal) error {
	if missing := SetOf(signals...).Without(s.Observed); missing != 0 {
		return &UnknownError{Who: who, Missing: missing}
	}
	return nil
}
