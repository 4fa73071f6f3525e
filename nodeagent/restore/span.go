package restore

import "awarescale.dev/aware/nodeagent/cgroup"

// Span is a range of values of each limit. A limit that is 0 in both is in no range.
type Span struct {
	Low  cgroup.Limits `json:"low"`
	High cgroup.Limits `json:"high"`
}

// With is the span with further limits in it; 0 is none.
func (s Span) With(l cgroup.Limits) Span {
	if l.Quota > 0 {
		if s.Low.Quota <= 0 || less(l, s.Low) {
			s.Low.Quota, s.Low.Period = l.Quota, l.Period
		}
		if s.High.Quota <= 0 || less(s.High, l) {
			s.High.Quota, s.High.Period = l.Quota, l.Period
		}
	}
	if l.Memory > 0 {
		if s.Low.Memory <= 0 || l.Memory < s.Low.Memory {
			s.Low.Memory = l.Memory
		}
		s.High.Memory = max(s.High.Memory, l.Memory)
	}
	return s
}

// And is the span with another one in it.
func (s Span) And(o Span) Span { return s.With(o.Low).With(o.High) }

// Covers reports whether limits that are found in force are known for ours by the span;
// 0 is none, and is covered.
func (s Span) Covers(l cgroup.Limits) bool {
	known := s.of(l)
	return (l.Quota <= 0 || known.Quota > 0) && (l.Memory <= 0 || known.Memory > 0)
}

// less compares two CPU limits.
func less(a, b cgroup.Limits) bool { return a.Quota*b.Period < b.Quota*a.Period }

// of is those of the limits in force that a call of ours may have set; the others are
// 0. Of CPU limits between the ends of a range that is only those in whole steps, because the agent
// writes no others, and those with a longer period than the usual one: on cgroup v1, where quota and
// period are written one after the other, there is another limit in between.
func (s Span) of(inForce cgroup.Limits) cgroup.Limits {
	var l cgroup.Limits
	inCPU := s.Low.Quota > 0 && inForce.Quota > 0 && !less(inForce, s.Low) && !less(s.High, inForce)
	if inForce.SameCPU(s.Low) || inForce.SameCPU(s.High) || inCPU && (inForce.CPU()%CPUStep == 0 || longer(inForce.Period)) {
		l.Quota, l.Period = max(0, inForce.Quota), inForce.Period
	}
	if s.Low.Memory > 0 && inForce.Memory > 0 &&
		(inForce.Memory >= s.Low.Memory || inForce.SameMemory(s.Low)) && inForce.Memory <= s.High.Memory {
		l.Memory = inForce.Memory
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
