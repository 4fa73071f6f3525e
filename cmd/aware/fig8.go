package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"awarescale.dev/aware/cmd/draw"
	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/meta/pretrain"
	"github.com/spf13/cobra"
)

// fig8Options are the flags of bench fig8.
type fig8Options struct {
	fig  aware.Fig8
	meta string
	out  string
	json bool
}

// keptRepetition is the file of a repetition that is done.
type keptRepetition struct {
	Made        aware.Fig8         `json:"made"` // without the number of repetitions
	Meta        map[string]string  `json:"meta"` // provenance of the meta-learner
	Adaptations []aware.Adaptation `json:"adaptations"`
}

func fig8Command() *cobra.Command {
	o := fig8Options{fig: aware.Fig8{Setting: aware.Published, Convergence: aware.Usual, Repetitions: 20, Apps: 10, Seed: 1}}
	cmd := &cobra.Command{
		Use:   "fig8",
		Short: "How soon AWARE adapts to workloads that it has not seen, beside transfer learning (TL, TL+)",
		Args:  cobra.NoArgs,
		Long: "In each repetition a policy is trained in one workload, and then adapted to others that it has not seen. TL begins\n" +
			"there with its weights; TL+ has a forecast of the load and a table of allocations in its state, too; AWARE begins with\n" +
			"what was pretrained (aware train meta), and has the meta-learner's embedding in its state. All have the same\n" +
			"algorithm, seeds and traces.\n\n" +
			"A policy has converged when the mean reward of ten evaluation episodes stays within 2 % of that of the converged\n" +
			"policy, which is the best one of a training from nothing, for 20 episodes of training.\n\n" +
			"Each repetition is kept in the folder of the report when it is done, and is not run again.",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVar(&o.fig.Repetitions, "repetitions", o.fig.Repetitions, "how often")
	f.IntVar(&o.fig.Apps, "apps", o.fig.Apps, "unseen workloads in each repetition")
	f.IntVar(&o.fig.Convergence.Most, "episodes", o.fig.Convergence.Most, "episodes of training, at most")
	f.IntVar(&o.fig.Convergence.Every, "every", o.fig.Convergence.Every, "episodes of training from one evaluation to the next")
	f.Uint64Var(&o.fig.Seed, "seed", o.fig.Seed, "of the division of the applications, and of all that is drawn")
	f.StringVar(&o.meta, "meta", "out/meta.safetensors", "what aware train meta has made")
	f.StringVar(&o.out, "out", "out/fig8", "folder of the report")
	f.BoolVar(&o.json, "json", false, "print one line of JSON")
	return cmd
}

func (o fig8Options) run(cmd *cobra.Command) error {
	if err := o.fig.Check(); err != nil {
		return usage(err)
	}
	p, err := pretrain.Read(o.meta)
	if err != nil {
		return fmt.Errorf("--meta: %w", err)
	}
	if split := p.Provenance["split"]; split != fmt.Sprint(o.fig.Seed) {
		return usage(fmt.Errorf("--seed %d: the meta-learner is of the division %s, and may have seen the workloads of this one",
			o.fig.Seed, split))
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var all []aware.Adaptation
	progress := newProgress(cmd.ErrOrStderr(), o.fig.Repetitions*(2+4*o.fig.Apps))
	var one sync.Mutex
	for i := range o.fig.Repetitions {
		done, err := o.kept(i, p)
		if err != nil {
			return err
		}
		if done == nil {
			done, err = o.fig.Repetition(ctx, i, p, func(what string) {
				one.Lock()
				defer one.Unlock()
				progress.step(what)
			})
			if err != nil {
				return err
			}
			if err := o.keep(i, p, done); err != nil {
				return err
			}
		}
		all = append(all, done...)
		if err := draw.Adaptations(o.out, o.fig, all); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", filepath.Join(o.out, "index.html"))
	summaries := aware.Summarise(all)
	if o.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"made": o.fig, "meta": p.Provenance, "arms": summaries})
	}
	return draw.PrintAdaptations(cmd.OutOrStdout(), summaries)
}

func (o fig8Options) path(repetition int) string {
	return filepath.Join(o.out, fmt.Sprintf("repetition-%03d.json", repetition))
}

// made is what tells the files of another run.
func (o fig8Options) made() aware.Fig8 {
	f := o.fig
	f.Repetitions = 0
	return f
}

// kept is a repetition that is done; nil: it is not.
func (o fig8Options) kept(repetition int, p pretrain.Pretrained) ([]aware.Adaptation, error) {
	text, err := os.ReadFile(o.path(repetition))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var k keptRepetition
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("%s: %w", o.path(repetition), err)
	}
	if k.Made != o.made() || fmt.Sprint(k.Meta) != fmt.Sprint(p.Provenance) {
		return nil, fmt.Errorf("%s is of another run: %+v with the meta-learner of %v; give another --out",
			o.path(repetition), k.Made, k.Meta)
	}
	return k.Adaptations, nil
}

func (o fig8Options) keep(repetition int, p pretrain.Pretrained, done []aware.Adaptation) error {
	text, err := json.Marshal(keptRepetition{o.made(), p.Provenance, done})
	if err != nil {
		return err
	}
	return writeAtomically(o.path(repetition), text)
}
