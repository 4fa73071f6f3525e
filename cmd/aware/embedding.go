package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"awarescale.dev/aware/cmd/draw"
	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/meta/pretrain"
	"github.com/spf13/cobra"
)

func embeddingCommand() *cobra.Command {
	fig := aware.Embedding{
		Setting: aware.Published, Convergence: aware.Retrained, Life: aware.UsualLife, Repetitions: 20, Apps: 4, Seed: 1,
	}
	out, file := "", madeMeta
	var asJSON bool
	var first uint
	cmd := &cobra.Command{
		Use:   "embedding",
		Short: "What the meta-learner's embeddings foretell: lost reward, retraining, workloads unlike those of the training",
		Args:  cobra.NoArgs,
		Long: "In each repetition a policy is trained in each of some workloads that the meta-learner has not seen, and is trained\n" +
			"on in each of the others. Beside what it earns less there at first, and how long it takes to converge, stands how\n" +
			"similar the embeddings of both workloads are. Each workload is compared with those of the training (aware train\n" +
			"meta), as it is and under pulses of load, which none of these has.\n\n" +
			"Each repetition is kept in the folder of the report when it is done, and is not run again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fig.Check(); err != nil {
				return usage(err)
			}
			p, err := pretrained(file, fig.Seed, fig.Setting)
			if err != nil {
				return err
			}
			made := fig
			made.Repetitions = 0
			all, err := repetitions[aware.Embedded]{
				out: out, made: map[string]any{"embedding": made, "meta": p.Provenance}, first: first,
				n: fig.Repetitions, steps: fig.Runs(),
				run: func(ctx context.Context, i int, done func(string)) ([]aware.Embedded, error) {
					one, err := fig.Repetition(ctx, i, p, done)
					return []aware.Embedded{one}, err
				},
				report: func(all []aware.Embedded) error { return draw.Embeddings(out, fig, all) },
			}.all(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(draw.EmbeddingsData(fig, all))
			}
			return draw.PrintEmbeddings(cmd.OutOrStdout(), all)
		},
	}
	f := cmd.Flags()
	repetitionFlags(f, &fig.Repetitions, &first)
	f.IntVar(&fig.Apps, "apps", fig.Apps, "unseen workloads in each repetition, of which all pairs are made")
	f.IntVar(&fig.Convergence.Most, "train", fig.Convergence.Most, "episodes of training, and of each retraining, at most")
	f.Uint64Var(&fig.Seed, "seed", fig.Seed, "of the division of the applications, and of all that is drawn")
	metaFlag(f, &file)
	f.StringVar(&out, "out", "out/embedding", "folder of the report")
	f.BoolVar(&asJSON, "json", false, "print one line of JSON")
	return cmd
}

// pretrained reads what was pretrained, for an experiment of a seed and a form.
func pretrained(file string, seed uint64, s aware.Setting) (pretrain.Pretrained, error) {
	p, err := pretrain.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("--meta: %w: aware train meta makes it", err)
	}
	if err != nil {
		return p, fmt.Errorf("--meta: %w", err)
	}
	return p, fits(p, seed, s)
}

// fits refuses a meta-learner that may have seen the workloads that it is to be judged by, or that is of the other form: what it
// has learned to set is something else there.
func fits(p pretrain.Pretrained, seed uint64, s aware.Setting) error {
	if split := p.Provenance["split"]; split != fmt.Sprint(seed) {
		return usage(fmt.Errorf("--seed %d: the meta-learner is of the division %s, and may have seen the workloads of this one",
			seed, split))
	}
	if demand := p.Provenance["demand"] == "true"; demand != s.Demand {
		return usage(fmt.Errorf("--demand=%v: the meta-learner was trained with --demand=%v: it must be the same form", s.Demand,
			demand))
	}
	return nil
}
