package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// repetitions is an experiment that is repeated. Each repetition is kept in the folder of the report when it is done, and is
// not run again.
type repetitions[T any] struct {
	out    string // folder of the report
	made   any    // what tells the files of another run: all settings but the number of repetitions
	first  uint   // number of the first one: what it draws depends on its number
	n      int
	steps  int // of each repetition, of which progress is told
	run    func(ctx context.Context, i int, done func(what string)) ([]T, error)
	report func(all []T) error // writes the report of what is done
}

// repetitionFlags are which repetitions are run.
func repetitionFlags(f *pflag.FlagSet, n *int, first *uint) {
	f.IntVar(n, "repetitions", *n, "how often")
	f.UintVar(first, "first", *first, "number of the first repetition, for others than those that something was chosen by")
}

// mostRepetitions is how many numbers have seeds of their own beside those of other values of --seed.
const mostRepetitions = 1024

// keptRepetition is the file of a repetition that is done.
type keptRepetition[T any] struct {
	Made json.RawMessage `json:"made"`
	Runs []T             `json:"runs"`
}

// all runs what is not kept, and returns all.
func (r repetitions[T]) all(cmd *cobra.Command) ([]T, error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if last := uint64(r.first) + uint64(max(0, r.n)); last < uint64(r.first) || last > mostRepetitions {
		return nil, usage(fmt.Errorf("--first %d with --repetitions %d: numbers must be below %d, so that no two draw the same",
			r.first, r.n, mostRepetitions))
	}
	var all []T
	var one sync.Mutex
	progress := newProgress(cmd.ErrOrStderr(), r.n*r.steps)
	for k := range r.n {
		i := int(r.first) + k
		done, err := r.kept(i)
		if err != nil {
			return nil, err
		}
		if done != nil {
			progress.all -= r.steps
		} else {
			if done, err = r.run(ctx, i, func(what string) {
				one.Lock()
				defer one.Unlock()
				progress.step(what)
			}); err != nil {
				return nil, err
			}
			if err := r.keep(i, done); err != nil {
				return nil, err
			}
		}
		all = append(all, done...)
		if err := r.report(all); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", filepath.Join(r.out, "index.html"))
	return all, nil
}

func (r repetitions[T]) path(i int) string {
	return filepath.Join(r.out, fmt.Sprintf("repetition-%03d.json", i))
}

// kept is a repetition that is done; nil: it is not.
func (r repetitions[T]) kept(i int) ([]T, error) {
	text, err := os.ReadFile(r.path(i))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var k keptRepetition[T]
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s: %w", r.path(i), err)
	}
	made, err := json.Marshal(r.made)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(k.Made, made) {
		return nil, fmt.Errorf("%s is of another run: %s; give another --out", r.path(i), k.Made)
	}
	return k.Runs, nil
}

func (r repetitions[T]) keep(i int, done []T) error {
	made, err := json.Marshal(r.made)
	if err != nil {
		return err
	}
	text, err := json.Marshal(keptRepetition[T]{made, done})
	if err != nil {
		return err
	}
	return writeAtomically(r.path(i), text)
}
