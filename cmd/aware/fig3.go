package main

import (
	"context"
	"encoding/json"

	"awarescale.dev/aware/cmd/draw"
	"awarescale.dev/aware/learner/bench/aware"
	"github.com/spf13/cobra"
)

func fig3Command() *cobra.Command {
	fig := aware.Fig3{
		Setting: aware.Published, Convergence: aware.Retrained, Life: aware.UsualLife, Repetitions: 20, Apps: 2, Early: 100, Seed: 1,
	}
	var out string
	var asJSON bool
	var first uint
	cmd := &cobra.Command{
		Use:   "fig3",
		Short: "What learning costs: other applications, updates, and the begin of training (fig. 3, table 3)",
		Args:  cobra.NoArgs,
		Long: "A policy that has converged in a workload meets another application, and each of the seven updates alone: what it\n" +
			"earns less there than after it is trained on, and for how many episodes that takes until it has converged. And an agent\n" +
			"that knows nothing begins in the workload, beside HPA and VPA, tuned for it, in the same episodes.\n\n" +
			"A policy has converged when the mean reward of ten evaluation episodes stays within 2 % of its best one for 20 episodes\n" +
			"of training.\n\n" +
			"Each repetition is kept in the folder of the report when it is done, and is not run again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fig.Check(); err != nil {
				return usage(err)
			}
			made := fig
			made.Repetitions = 0
			all, err := repetitions[aware.Cost]{
				out: out, made: made, first: first, n: fig.Repetitions, steps: fig.Runs() * fig.Apps,
				run: func(ctx context.Context, i int, done func(string)) ([]aware.Cost, error) {
					return fig.Repetition(ctx, i, done)
				},
				report: func(all []aware.Cost) error { return draw.Costs(out, fig, all) },
			}.all(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(draw.CostsData(fig, all))
			}
			return draw.PrintCosts(cmd.OutOrStdout(), fig, all)
		},
	}
	f := cmd.Flags()
	repetitionFlags(f, &fig.Repetitions, &first)
	f.IntVar(&fig.Apps, "apps", fig.Apps, "workloads in each repetition")
	f.IntVar(&fig.Convergence.Most, "train", fig.Convergence.Most, "episodes of training, and of each retraining, at most")
	f.IntVar(&fig.Early, "early", fig.Early, "episodes of the begin of training; table 3 has them in four parts")
	f.Uint64Var(&fig.Seed, "seed", fig.Seed, "of the division of the applications, and of all that is drawn")
	f.StringVar(&out, "out", "out/fig3", "folder of the report")
	f.BoolVar(&asJSON, "json", false, "print one line of JSON")
	return cmd
}
