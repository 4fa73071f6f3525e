package api

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"awarescale.dev/aware/learner/mdp"
)

const (
	// MaxProblem is the length of the longest problem's text, in bytes.
	MaxProblem = 256
	// MaxBuckets is how many buckets a histogram may have.
	MaxBuckets = 100
	// maxCount is more than any container has of anything that is counted.
	maxCount = 1 << 40
	// jitter is how far a rate may be above what the node has: it is measured over a
	// short time, and time is not measured exactly.
	jitter = 1.5
)

// Clean is a text of a node or a pod as people may be shown it: valid, printable,
// in one line, and of at most MaxProblem bytes.
func Clean(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == unicode.ReplacementChar || !unicode.IsPrint(r) && !unicode.IsSpace(r):
			return -1
		case unicode.IsSpace(r):
			return ' '
		}
		return r
	}, text)
	if len(text) <= MaxProblem {
		return text
	}
	const more = " ..."
	return strings.ToValidUTF8(text[:MaxProblem-len(more)], "") + more
}

// Check is nil for a summary that a container on a node of this size can have.
// Otherwise it names the value and the rule. A limit may be above what the node
// has, as the API allows; what is used may not.
func (s Summary) Check(node mdp.Size) error {
	for one := range s.State.Observed.Signals() {
		v := one.Value(&s.State)
		most := math.MaxFloat64
		switch one {
		case mdp.CPUUsage, mdp.CPUPeak, mdp.CPUDeviation:
			most = jitter * float64(node.CPU)
		case mdp.MemoryUsage:
			most = float64(node.Memory)
		case mdp.Throttled, mdp.CPUPressure, mdp.MemoryPressure, mdp.IOPressure:
			most = jitter
		}
		switch {
		case one.Merge() == mdp.OfWorkload:
			return fmt.Errorf("%v: it is of a workload, and no node observes it", one)
		case !(v >= 0 && v <= most): // not for NaN either
			return fmt.Errorf("%v is %v: it must be in [0, %v]", one, v, most)
		}
	}
	for k := range mdp.Knobs.Signals() {
		if r := s.Bounds.Knob(k); r.Min < 0 || r.Max < r.Min {
			return fmt.Errorf("bounds of %v from %d to %d: need 0 <= min <= max", k, r.Min, r.Max)
		}
		if v, set := s.Want.Knob(k); set && v < 0 {
			return fmt.Errorf("wanted %v is %d: it must not be negative", k, v)
		}
	}
	if err := s.Course.check(node.CPU); err != nil {
		return err
	}
	if s.Resizes > maxCount || s.Conflicts > maxCount {
		return fmt.Errorf("%d resizes and %d conflicts: at most %d of each", s.Resizes, s.Conflicts, uint64(maxCount))
	}
	if s.Mode != "" {
		if _, err := ParseMode(string(s.Mode)); err != nil {
			return err
		}
	}
	return nil
}

// closeTo is how much a signal may differ, as a share of its value, without being
// reported again.
const closeTo = 0.02

// Near reports whether central learns nothing that matters from s when it has the
// other: nothing is different but times, signals by less than 2 %, and the course of what hardly differs.
func (s Summary) Near(other Summary) bool {
	if !slices.Equal(s.Latency.Upper, other.Latency.Upper) || !slices.Equal(s.Latency.Counts, other.Latency.Counts) ||
		!s.Latency.At.Equal(other.Latency.At) || s.State.Observed != other.State.Observed {
		return false
	}
	for one := range s.State.Observed.Signals() {
		a, b := one.Value(&s.State), one.Value(&other.State)
		if math.Abs(a-b) > closeTo*max(math.Abs(a), math.Abs(b)) {
			return false
		}
	}
	return s.Container == other.Container && s.Bounds == other.Bounds && s.Mode == other.Mode && s.Want == other.Want &&
		s.Effect == other.Effect && s.Resizes == other.Resizes && s.Conflicts == other.Conflicts && s.Problem == other.Problem
}
