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

// Store keeps transitions. Its methods can be called by several goroutines at once. Reads see what was written, not what
// still waits: call Flush first to see everything.
type Store interface {
	// Append takes one transition, to be written later; it replaces an earlier one of the same workload, episode and step.
	// An error means that it was not taken: [ErrBufferFull], [ErrClosed], or something about the transition that cannot be kept.
	Append(ctx context.Context, workload string, episode, step int, t mdp.Transition) error

	// Flush writes what waits. After an error it all still waits, less the batches that were written before.
	Flush(ctx context.Context) error

	// Episode is one episode, its steps in order; [ErrNotFound] when nothing of it is stored.
	Episode(ctx context.Context, workload string, episode int) (mdp.Trajectory, error)

	// Top are the m complete episodes of the highest total reward, the best first; of equal ones the newer first.
	Top(ctx context.Context, workload string, m int) ([]mdp.Trajectory, error)

	// Rewards are the total rewards of the n newest complete episodes, the oldest of them first.
	Rewards(ctx context.Context, workload string, n int) ([]float64, error)

	// Transitions are the newest ones by logical time, at most limit, the newest first. They are read while the caller
	// takes them; after an error there are no more.
	Transitions(ctx context.Context, workload string, limit int) iter.Seq2[mdp.Transition, error]

	// Workloads are those of which something is stored, sorted.
	Workloads(ctx context.Context) ([]string, error)

	// Figures tells how the writing goes.
	Figures() Figures

	// Close writes what waits and lets go of the store. Its error says how many transitions could not be written; they are lost.
	Close() error
}

// Figures tells how the writing of a store goes.
type Figures struct {
	Waiting int    // transitions in the buffer
	Written uint64 // transitions since the store was opened, rewritten ones counted again
	Dropped uint64 // transitions that Append did not take because the buffer was full
	Problem error  // why the last write failed; nil when it did not
}

// The errors to ask for with errors.Is.
var (
	ErrNotFound   = errors.New("no such episode")
	ErrBufferFull = errors.New("the buffer is full")
	ErrClosed     = errors.New("the store is closed")
)

// logicalBits is how many bits an episode or a step has: both of them together fit the timestamp of a point.
const logicalBits = 31

// last is the highest episode and the highest step.
const last = 1<<logicalBits - 1

// longestWorkload is in bytes: namespace/kind/name of Kubernetes is at most 253 + 63 + 253 and two slashes.
const longestWorkload = 1024

// row is a transition with its key.
type row struct {
	workload   string
	episode    int
	step       int
	transition mdp.Transition
}

func (r *row) String() string {
	return fmt.Sprintf("workload %q episode %d step %d", r.workload, r.episode, r.step)
}

// check is nil for what both stores can keep exactly, and otherwise says which value breaks which rule.
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

// checkWorkload keeps to names that have one form in every store: line protocol has none for a line break, nor for
// a backslash at the end of a tag.
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

// checkState refuses what would not come back: a signal that is newer than this package's table, and a value that is not finite.
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

func checkObserved(s mdp.Set) error {
	if extra := s.Without(mdp.All); extra != 0 {
		return fmt.Errorf("it observes %#x, signals that trajectory does not know", uint32(extra))
	}
	return nil
}

func checkSets(s mdp.Set) error {
	if extra := s.Without(mdp.Knobs); extra != 0 {
		return fmt.Errorf("action sets %v (%#x), which are not knobs", extra, uint32(extra))
	}
	return nil
}

// checkAsk is for the arguments of reads.
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
