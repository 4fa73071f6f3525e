package cgroup

import "awarescale.dev/aware/learner/mdp"

// Knob is one limit of a group, with all that is particular to it. What is alike for all limits walks over
// [Knobs]: whose a limit is, in which range it was written, what is restored, in which order
// limits are written. So another limit is another row, a field of [Limits], and its
// reading in [Group.Limits].
type Knob struct {
	Signal mdp.Signal
	Has    func(Limits) bool                  // there is such a limit
	Same   func(inForce, written Limits) bool // what is in force is what was written, as it is rounded
	Less   func(a, b Limits) bool             // the first one is lower; both have it
	Copy   func(to *Limits, from Limits)      // takes the limit from the other one, also that there is none
	write  func(t *Tree, path string, now, to Limits) error
}

// Knobs is the table, in the order in which limits are raised. They are lowered in the opposite one: memory
// becomes tight last.
var Knobs = []Knob{
	{
		Signal: mdp.MemoryLimit,
		Has:    func(l Limits) bool { return l.Memory > 0 },
		Same:   Limits.SameMemory,
		Less:   func(a, b Limits) bool { return a.Memory < b.Memory },
		Copy:   func(to *Limits, from Limits) { to.Memory = from.Memory },
		write:  func(t *Tree, path string, now, to Limits) error { return t.writeMemory(path, now.Memory, to.Memory) },
	},
	{
		Signal: mdp.CPULimit,
		Has:    func(l Limits) bool { return l.Quota > 0 },
		Same:   Limits.SameCPU,
		Less:   func(a, b Limits) bool { return a.Quota*b.Period < b.Quota*a.Period },
		Copy:   func(to *Limits, from Limits) { to.Quota, to.Period = from.Quota, from.Period },
		write:  func(t *Tree, path string, _, to Limits) error { return t.writeCPU(path, to.Quota, to.Period) },
	},
}

// Sets is which limits there are.
func (l Limits) Sets() mdp.Set {
	var s mdp.Set
	for _, k := range Knobs {
		if k.Has(l) {
			s |= mdp.SetOf(k.Signal)
		}
	}
	return s
}

// Empty reports whether there is no limit at all.
func (l Limits) Empty() bool { return l.Sets() == 0 }

// With is the limits, with those that another one has in their place.
func (l Limits) With(change Limits) Limits {
	for _, k := range Knobs {
		if k.Has(change) {
			k.Copy(&l, change)
		}
	}
	return l
}

// Only is those of the limits that are in the set.
func (l Limits) Only(set mdp.Set) Limits {
	for _, k := range Knobs {
		if !set.Has(k.Signal) {
			k.Copy(&l, Limits{})
		}
	}
	return l
}

// Differ is the limits that are not the same in what is in force and in what was written.
func Differ(inForce, written Limits) mdp.Set {
	var s mdp.Set
	for _, k := range Knobs {
		if !k.Same(inForce, written) {
			s |= mdp.SetOf(k.Signal)
		}
	}
	return s
}

// order is the knobs that a change sets, in the order in which they are written: what is raised goes first.
func order(now, change Limits) []Knob {
	raised, lowered := make([]Knob, 0, len(Knobs)), make([]Knob, 0, len(Knobs))
	for _, k := range Knobs {
		switch {
		case !k.Has(change):
		case !k.Has(now) || k.Less(change, now):
			lowered = append([]Knob{k}, lowered...)
		default:
			raised = append(raised, k)
		}
	}
	return append(raised, lowered...)
}
