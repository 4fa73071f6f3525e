package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/train/lesson"
	"github.com/spf13/cobra"
)

// metaOptions are the flags of train meta.
type metaOptions struct {
	apps    int
	rounds  int
	seed    uint64
	split   uint64
	paper   bool
	embed   bool
	setting aware.Setting
	out     string
	json    bool
}

// madeMeta is where train meta writes to, and where the experiments read it from.
const madeMeta = "out/meta.safetensors"

func metaCommand() *cobra.Command {
	o := metaOptions{setting: aware.Published}
	cmd := &cobra.Command{
		Use:   "meta",
		Short: "Pretrain the meta-learner and a base-learner over many simulated workloads",
		Args:  cobra.NoArgs,
		Long: "The workloads are AWARE's published applications under loads of the Azure Functions trace, half of them after some\n" +
			"of the seven updates; 200 of the 1,000 are never used here (aware bench fig8 adapts to them). In each round some\n" +
			"workloads take their turn for an episode by the policy as it is, the first one by HPA and VPA, and then the policy is\n" +
			"improved, and through it the meta-learner.\n\n" +
			"The result is one file with both and its provenance. It is written every 50 rounds, and at the end.",
		Example: "  aware train meta --out out/meta.safetensors",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVar(&o.apps, "apps", 800, "applications, of the 800 that may be used")
	f.IntVar(&o.rounds, "rounds", 400, "rounds of sixteen episodes; of four with --central")
	f.Uint64Var(&o.seed, "seed", 1, "the same seed gives the same result")
	f.Uint64Var(&o.split, "split", 1, "seed of the division of the applications; that of aware bench fig8")
	f.BoolVar(&o.paper, "paper", false, "the published shape of the meta-learner, which takes some thirty times as long")
	demandFlag(f, &o.setting)
	f.BoolVar(&o.setting.Central, "central", false, "what the lessons of aware-central begin with: reservations, replicas and\n"+
		"memory limits are set by choices, behind its guards, and the base-learner is discrete BCQ")
	f.BoolVar(&o.embed, "embed", false, "with --central: lessons begin with the embedding of their workload; without it they\n"+
		"begin with none, which has earned more in workloads that the pretraining has not seen")
	f.StringVar(&o.out, "out", madeMeta, "file of the result")
	f.BoolVar(&o.json, "json", false, "print one line of JSON")
	return cmd
}

func (o metaOptions) run(cmd *cobra.Command) error {
	if o.embed && !o.setting.Central {
		return usage(fmt.Errorf("--embed: it is of what central's lessons begin with (--central)"))
	}
	if o.setting.Central && (o.setting.Demand || o.paper) {
		return usage(fmt.Errorf("--central: it is neither the second form (--demand) nor of the published shape (--paper)"))
	}
	tasks, err := o.setting.Pool(o.apps, o.split, o.seed)
	if err != nil {
		return usage(fmt.Errorf("--apps %d: %w", o.apps, err))
	}
	shape := o.setting.Shape(meta.FormOf(tasks[0].Env))
	if o.paper {
		shape = meta.Paper(shape.Form)
	}
	run, err := pretrain.New(o.setting.Pretraining(shape, o.rounds, o.seed), tasks)
	if err != nil {
		return usage(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	begin := time.Now()
	// Once before the first round, too: who has given no good place hears it before an hour of training.
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err := o.write(run, 0); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	p := newProgress(cmd.ErrOrStderr(), o.rounds)
	const every = 50
	for run.Rounds < o.rounds {
		if err := run.Train(ctx, run.Rounds+1); err != nil {
			return err
		}
		last := run.Curve[len(run.Curve)-1]
		p.step(fmt.Sprintf("reward %.3f a step, critic's loss %.3g", last.Reward, last.Loss))
		if run.Rounds%every == 0 || run.Rounds == o.rounds {
			if err := o.write(run, time.Since(begin)); err != nil {
				return fmt.Errorf("--out: %w", err)
			}
		}
	}
	if o.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{
			"apps": o.apps, "rounds": run.Rounds, "curve": run.Curve, "wall_s": time.Since(begin).Seconds(), "out": o.out,
		})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d workloads, %d rounds in %v: %s\n",
		o.apps, run.Rounds, time.Since(begin).Round(time.Second), o.out)
	return err
}

func (o metaOptions) write(run *pretrain.Run, took time.Duration) error {
	made := map[string]string{
		"made": fmt.Sprintf("aware train meta --apps %d --rounds %d --seed %d --split %d --demand=%v --central=%v",
			o.apps, o.rounds, o.seed, o.split, o.setting.Demand, o.setting.Central),
		"demand": strconv.FormatBool(o.setting.Demand), "split": fmt.Sprint(o.split),
		"took": took.Round(time.Second).String(), "paper": strconv.FormatBool(o.paper),
		"blas": graph.Used(),
	}
	if o.setting.Central {
		s, err := lesson.NewStart(central.Form(), aware.Shown, run)
		if err != nil {
			return err
		}
		s.Embeds = o.embed
		maps.Copy(s.Provenance, made)
		return s.Write(o.out)
	}
	p, err := run.Pretrained()
	if err != nil {
		return err
	}
	maps.Copy(p.Provenance, made)
	return p.Write(o.out)
}
