package restore

import (
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// Span is a range of values of each limit. A limit that is 0 in both is in no range.
type Span struct {
	Low  cgroup.Limits `json:"low"`
	High cgroup.Limits `json:"high"`
}

// With is the span with further limits in it; 0 is none.
func (s Span) With(l cgroup.Limits) Span {
	for _, k := range cgroup.Knobs {
		if !k.Has(l) {
			continue
		}
		if !k.Has(s.Low) || k.Less(l, s.Low) {
			k.Copy(&s.Low, l)
		}
		if !k.Has(s.High) || k.Less(s.High, l) {
			k.Copy(&s.High, l)
		}
	}
	return s
}

// And is the span with another one in it.
func (s Span) And(o Span) Span { return s.With(o.Low).With(o.High) }

// Covers reports whether limits that are found in force are known for ours by the span;
// 0 is none, and is covered.
func (s Span) Covers(l cgroup.Limits) bool { return s.of(l).Sets().Contains(l.Sets()) }

// of is those of the limits in force that a call of ours may have set; the others are
// 0. Of CPU limits between the ends of a range that is only those in whole steps, because the agent
// writes no others, and those with a longer period than the usual one: on cgroup v1, where quota and
// period are written one after the other, there is another limit in between.
func (s Span) of(inForce cgroup.Limits) cgroup.Limits {
	var l cgroup.Limits
	for _, k := range cgroup.Knobs {
		if !k.Has(s.Low) || !k.Has(inForce) {
			continue
		}
		between := !k.Less(inForce, s.Low) && !k.Less(s.High, inForce) &&
			(k.Signal != mdp.CPULimit || inForce.CPU()%CPUStep == 0 || longer(inForce.Period))
		if between || k.Same(inForce, s.Low) || k.Same(inForce, s.High) {
			k.Copy(&l, inForce)
		}
	}
	return l
}

// longer reports whether a period is one that only we set.
func longer(period int64) bool { return period > usualPeriod && period%PeriodStep == 0 }

// usualPeriod is the CFS period that kubelets set, unless their configuration says another one, in
// microseconds.
const usualPeriod = 100_000

// PeriodStep is what the periods that the agent writes are whole numbers of, in microseconds: a limit
// in whole millicores has a quota in whole microseconds then.
const PeriodStep = 10_000

// CPUStep is the step of the CPU limits that the agent writes, in millicores. In systemd,
// which rounds to it, our limits stay what we wrote.
const CPUStep = 10
