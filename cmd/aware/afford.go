package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/train/margins"
	"github.com/spf13/cobra"
)

// affordOptions are the flags of train predicted-margins.
type affordOptions struct {
	fig  aware.Afford
	of   []string // applications of the bench
	meta string
	out  string
	json bool
}

func affordCommand() *cobra.Command {
	o := affordOptions{
		meta: madeMeta,
		fig: aware.Afford{
			Setting: aware.Published, Policy: bench.Choice{Encoding: bench.Encoding, Policy: "demand"}, Apps: 800, Held: 200,
			Seed: 1, Split: 1,
		},
	}
	windows := 0.035
	cmd := &cobra.Command{
		Use:   "predicted-margins",
		Short: "Predict margins of the demand policy for services of which nothing is known, by the meta-learner's embedding",
		Args:  cobra.NoArgs,
		Long: "Some margins are tried in an hour of each of many of the published applications, from the policy's first minute on.\n" +
			"A service gets the one that suits the applications that are most like it: of some of them, by their embeddings, the one\n" +
			"with the fewest cores with which no more of them miss their SLO than without a margin. How many are asked is found by\n" +
			"asking for each application all the others. It is judged in applications that were not used, beside no margin, and\n" +
			"beside what would come of knowing each hour before.\n\n" +
			"For applications of the bench it writes predicted-APPLICATION.json, a policy file that aware simulate --policy and\n" +
			"aware bench baselines --policy take. Where no margin at all is as good there is none in it.",
		Example: "  aware train meta && aware train predicted-margins",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(windows > 0 && windows <= 1) {
				return usage(fmt.Errorf("--windows %v: it must be above 0 and at most 1", windows))
			}
			o.fig.Policy = o.fig.Policy.With([]string{"windows"}, []float64{windows})
			if err := o.fig.Check(); err != nil {
				return usage(err)
			}
			for _, one := range o.of {
				if !slices.Contains(bench.Applications(), one) {
					return usage(fmt.Errorf("--of %q: known are %v", one, bench.Applications()))
				}
			}
			p, err := pretrained(o.meta, o.fig.Split, o.fig.Setting)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), p, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.fig.Apps, "apps", o.fig.Apps, "applications in which margins are tried, of the 800 that may be used")
	f.IntVar(&o.fig.Held, "held-out", o.fig.Held, "applications of the other 200 in which the predicted margins are judged")
	f.Uint64Var(&o.fig.Seed, "seed", o.fig.Seed, "the same seed gives the same result")
	f.Uint64Var(&o.fig.Split, "split", o.fig.Split, "seed of the division of the applications; that of aware train meta")
	f.Float64Var(&windows, "windows", windows, "share of windows of ten seconds that may be over the SLO")
	f.StringSliceVar(&o.of, "of", bench.Applications(), "applications of the bench whose services are given margins")
	metaFlag(f, &o.meta)
	f.StringVar(&o.out, "out", "out/margins", "folder of the policy files")
	f.BoolVar(&o.json, "json", false, "print one line of JSON")
	return cmd
}

func (o affordOptions) run(ctx context.Context, p pretrain.Pretrained, out, told io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	progress := newProgress(told, o.fig.Runs())
	got, err := o.fig.Learn(ctx, p, progress.step)
	if err != nil {
		return err
	}
	cells, err := bench.Cells()
	if err != nil {
		return err
	}
	policies := map[string]bench.Choice{}
	for _, cell := range cells {
		if _, ok := policies[cell.Application]; ok || !slices.Contains(o.of, cell.Application) {
			continue
		}
		levels, err := got.Margins(ctx, cell, o.fig.Seed)
		if err != nil {
			return err
		}
		choice := o.fig.Policy
		for _, service := range slices.Sorted(maps.Keys(levels)) {
			choice = choice.With([]string{"margin." + service}, []float64{levels[service]})
		}
		policies[cell.Application] = choice
		text, err := json.MarshalIndent(choice, "", " ")
		if err == nil {
			err = writeAtomically(filepath.Join(o.out, "predicted-"+cell.Application+".json"), append(text, '\n'))
		}
		if err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	if o.json {
		return json.NewEncoder(out).Encode(map[string]any{"afford": o.fig, "meta": p.Provenance, "got": got, "policies": policies})
	}
	return o.print(out, got)
}

func (o affordOptions) print(out io.Writer, got *aware.Afforded) error {
	line := func(name string, p margins.Part, apps int) {
		fmt.Fprintf(out, "%s: %.3f times the cores without a margin; %.2f %% of requests late, %.2f %% of windows over; "+
			"%d of %d miss their SLO\n", name, p.Cores, 100*p.Late, 100*p.Windows, p.Broken, apps)
	}
	line("no margin", got.Tried[0], o.fig.Apps)
	for i, n := range margins.Neighbours {
		line(fmt.Sprintf("of the %d most alike", n), got.Tried[i+1], o.fig.Apps)
	}
	says := "no margin is predicted"
	if got.Neighbours > 0 {
		says = fmt.Sprintf("margins are those of the %d most alike", got.Neighbours)
	}
	fmt.Fprintln(out, says)
	for i, name := range []string{"in others, no margin", "in others, predicted", "in others, to know each hour before"} {
		line(name, got.Held[i], o.fig.Held)
	}
	_, err := fmt.Fprintf(out, "policies: %s\n", filepath.Join(o.out, "predicted-*.json"))
	return err
}
