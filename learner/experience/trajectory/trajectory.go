package trajectory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"awarescale.dev/aware/learner/mdp"
)

// Store keeps transitions. It is safe for concurrent use. Reads return only
// written transitions; call Flush first to include the buffer.
type Store interface {
	// Append adds one transition to the buffer. It replaces an earlier one with
	// the same workload, episode and step. With an error the transition was not
	// added: [ErrBufferFull], [ErrClosed], or a description of an invalid
	// value.
	Append(ctx context.Context, workload string, episode, step int, t mdp.Transition) error

	// Flush writes the buffer. After an error the batches that were not written
	// stay in the buffer.
	Flush(ctx context.Context) error

	// Episode returns one episode with its steps in order, or [ErrNotFound]
	// when no step is stored.
	Episode(ctx context.Context, workload string, episode int) (mdp.Trajectory, error)

	// Top returns the m complete episodes with the highest total reward, the
	// best first. Of equal ones the newer is first.
	Top(ctx context.Context, workload string, m int) ([]mdp.Trajectory, error)

	// Rewards returns the total rewards of the n newest complete episodes, the
	// oldest first.
	Rewards(ctx context.Context, workload string, n int) ([]float64, error)

	// Transitions returns at most limit transitions, the newest by logical time
	// first. They are read during the iteration, which ends after an error.
	Transitions(ctx context.Context, workload string, limit int) iter.Seq2[mdp.Transition, error]

	// Workloads returns the names of workloads with stored transitions, sorted.
	Workloads(ctx context.Context) ([]string, error)

	// Figures returns the statistics of writing.
	Figures() Figures

	// Close writes the buffer and closes the store. Its error contains the
	// number of transitions that could not be written and are lost.
	Close() error
}

// Figures is the statistics of writing.
type Figures struct {
	Waiting int    // transitions in the buffer
	Written uint64 // transitions written since the store was opened, including replacements
	Dropped uint64 // transitions that Append rejected because the buffer was full
	Problem error  // error of the last write; nil after a success
}

// Errors for use with errors.Is.
var (
	ErrNotFound   = errors.New("no such episode")
	ErrBufferFull = errors.New("the buffer is full")
	ErrClosed     = errors.New("the store is closed")
)

// logicalBits is the number of bits of an episode and of a step. Both together
// fit into the timestamp of a point.
const logicalBits = 31

// last is the highest episode and the highest step.
const last = 1<<logicalBits - 1

// longestWorkload is in bytes: namespace/kind/name of Kubernetes is at most 253
// + 63 + 253 and two slashes.
const longestWorkload = 1024

// row is a transition with its key.
type row struct {
	workload   string
	episode    int
	step       int
	transition mdp.Transition
}

// String is the key, for error messages.
func (r *row) String() string {
	return fmt.Sprintf("workload %q episode %d step %d", r.workload, r.episode, r.step)
}

// check returns nil for a row that both stores can keep exactly. Otherwise the
// error names the value and the rule.
func (r *row) check() error {
	if err := checkWorkload(r.workload); err != nil {
		return err
	}
	if r.episode < 0 || r.episode > last {
		return fmt.Errorf("episode %d: it must be in [0, %d]", r.episode, last)
	}
	if r.step < 0 || r.step > last {
		return fmt.Errorf("step %d: it must be in [0, %d]", r.step, last)
	}
	t := &r.transition
	if !finite(float64(t.Reward)) {
		return fmt.Errorf("reward %v: it must be finite", float64(t.Reward))
	}
	if err := checkState(&t.State); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := checkState(&t.Next); err != nil {
		return fmt.Errorf("next state: %w", err)
	}
	if !t.Effect.Known() {
		return fmt.Errorf("effect %d: mdp has none of that number", t.Effect)
	}
	return checkSets(t.Action.Sets)
}

// checkWorkload accepts names that every store can represent. InfluxDB's line
// protocol cannot represent a line break, or a backslash at the end of a tag.
func checkWorkload(name string) error {
	switch {
	case name == "":
		return errors.New("the workload's name is empty")
	case len(name) > longestWorkload:
		return fmt.Errorf("the workload's name has %d bytes: it may have %d", len(name), longestWorkload)
	case !utf8.ValidString(name):
		return errors.New("the workload's name is not UTF-8")
	case strings.ContainsFunc(name, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }):
		return errors.New("the workload's name has a backslash or a control character")
	}
	return nil
}

// checkState rejects what cannot be read back: a signal that this package does
// not know, and a value that is not finite.
func checkState(s *mdp.State) error {
	if err := checkObserved(s.Observed); err != nil {
		return err
	}
	for one := range s.Observed.Signals() {
		if v := one.Value(s); !finite(v) {
			return fmt.Errorf("%v is %v: it must be finite, or not observed", one, v)
		}
	}
	return nil
}

// checkObserved rejects unknown signals.
func checkObserved(s mdp.Set) error {
	if extra := s.Without(mdp.All); extra != 0 {
		return fmt.Errorf("it observes %#x, signals that trajectory does not know", uint32(extra))
	}
	return nil
}

// checkSets rejects signals that are not knobs.
func checkSets(s mdp.Set) error {
	if extra := s.Without(mdp.Knobs); extra != 0 {
		return fmt.Errorf("action sets %v (%#x), which are not knobs", extra, uint32(extra))
	}
	return nil
}

// checkAsk checks the arguments of a read.
func checkAsk(workload, what string, n int) error {
	if err := checkWorkload(workload); err != nil {
		return err
	}
	if n < 1 {
		return fmt.Errorf("%s is %d: it must be at least 1", what, n)
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
