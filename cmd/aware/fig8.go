package main

import (
	"context"
	"encoding/json"

	"awarescale.dev/aware/cmd/draw"
	"awarescale.dev/aware/learner/bench/aware"
	"github.com/spf13/cobra"
)

// fig8Options are the flags of bench fig8.
type fig8Options struct {
	fig   aware.Fig8
	first uint
	arms  []string
	meta  string
	out   string
	json  bool
}

func fig8Command() *cobra.Command {
	o := fig8Options{
		meta: madeMeta,
		fig: aware.Fig8{
			Setting: aware.Published, Convergence: aware.Usual, Trained: aware.Trained, Life: aware.UsualLife,
			Repetitions: 20, Apps: 10, Fine: aware.UsualFine, Seed: 1,
		},
	}
	cmd := &cobra.Command{
		Use:   "fig8",
		Short: "How soon AWARE adapts to workloads that it has not seen, beside transfer learning (TL, TL+)",
		Args:  cobra.NoArgs,
		Long: "In each repetition a policy is trained in one workload, and then adapted to others that it has not seen. TL begins\n" +
			"there with its weights; TL+ has a forecast of the load and a table of allocations in its state, too; AWARE begins with\n" +
			"what was pretrained (aware train meta), and has the meta-learner's embedding in its state. All have the same\n" +
			"algorithm, seeds and traces. AWARE learns nothing in its first episodes, while the embedding is made, and reads no\n" +
			"embedding from then on where it was better without. It learns in smaller steps than a beginner, and explores with less\n" +
			"noise. Where 30 episodes have brought nothing better, it goes on from its best policy as a beginner does.\n\n" +
			"A policy has converged when the mean reward of ten evaluation episodes stays within 2 % of that of the converged\n" +
			"policy for 20 episodes of training. An arm's policy is the one that was the best so far in ten other episodes, which\n" +
			"are not scored. The converged policy is the best one of a whole training that begins with the episodes of HPA and\n" +
			"VPA, as in figures 9 and 10.\n\n" +
			"Each repetition is kept in the folder of the report when it is done, and is not run again.",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	var all []string
	for _, arm := range aware.Arms {
		all = append(all, string(arm))
	}
	f := cmd.Flags()
	repetitionFlags(f, &o.fig.Repetitions, &o.first)
	f.IntVar(&o.fig.Apps, "apps", o.fig.Apps, "unseen workloads in each repetition")
	f.StringSliceVar(&o.arms, "arms", all, "which arms; what is claimed beside one that is not run cannot be said")
	f.IntVar(&o.fig.Convergence.Most, "episodes", o.fig.Convergence.Most, "episodes of training, at most")
	f.IntVar(&o.fig.Trained.Most, "train", o.fig.Trained.Most, "episodes of training of the converged policies")
	f.IntVar(&o.fig.Convergence.Every, "every", o.fig.Convergence.Every, "episodes of training from one evaluation to the next")
	f.IntVar(&o.fig.Trajectories, "trajectories", o.fig.Trajectories,
		"episodes that AWARE's embedding is made of, at most (M); 0: as many as the meta-learner was pretrained with")
	demandFlag(f, &o.fig.Setting)
	f.Uint64Var(&o.fig.Seed, "seed", o.fig.Seed, "of the division of the applications, and of all that is drawn")
	metaFlag(f, &o.meta)
	f.StringVar(&o.out, "out", "out/fig8", "folder of the report")
	f.BoolVar(&o.json, "json", false, "print one line of JSON")
	return cmd
}

func (o fig8Options) run(cmd *cobra.Command) error {
	for _, arm := range o.arms {
		o.fig.Arms = append(o.fig.Arms, aware.Arm(arm))
	}
	if err := o.fig.Check(); err != nil {
		return usage(err)
	}
	p, err := pretrained(o.meta, o.fig.Seed, o.fig.Setting)
	if err != nil {
		return err
	}
	made := o.fig
	made.Repetitions = 0
	all, err := repetitions[aware.Adaptation]{
		out: o.out, made: map[string]any{"fig8": made, "meta": p.Provenance}, first: o.first,
		n: o.fig.Repetitions, steps: o.fig.Steps(),
		run: func(ctx context.Context, i int, done func(string)) ([]aware.Adaptation, error) {
			return o.fig.Repetition(ctx, i, p, done)
		},
		report: func(all []aware.Adaptation) error { return draw.Adaptations(o.out, o.fig, all) },
	}.all(cmd)
	if err != nil {
		return err
	}
	if o.json {
		data := draw.AdaptationsData(o.fig, all)
		data["meta"] = p.Provenance
		return json.NewEncoder(cmd.OutOrStdout()).Encode(data)
	}
	return draw.PrintAdaptations(cmd.OutOrStdout(), o.fig, all)
}
