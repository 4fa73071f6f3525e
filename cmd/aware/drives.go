package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"awarescale.dev/aware/cmd/draw"
	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/meta/pretrain"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// drives is an experiment whose runs are drives: fig1, fig9 and fig10.
type drives struct {
	name        string // of the data's file, too
	title       string
	about       string
	arms        []aware.Arm
	repetitions *int
	apps        *int
	episodes    *int
	training    *aware.Convergence // nil: nothing is trained before it is measured
	life        *aware.Life
	setting     *aware.Setting
	seed        *uint64
	check       func() error
	made        func(repetitions int) any // the settings
	run         func(ctx context.Context, i int, p pretrain.Pretrained, done func(string)) ([]aware.Drive, error)
	meta        string // file of what was pretrained; empty: nothing is
	claims      func([]aware.Drive) []aware.Claim
}

func (d drives) command(short, long string) *cobra.Command {
	var out string
	var asJSON bool
	var first uint
	cmd := &cobra.Command{
		Use: d.name, Short: short, Args: cobra.NoArgs,
		Long: long + "\n\nEach repetition is kept in the folder of the report when it is done, and is not run again.",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return d.do(cmd, out, first, asJSON) }
	f := cmd.Flags()
	repetitionFlags(f, d.repetitions, &first)
	f.IntVar(d.apps, "apps", *d.apps, "workloads in each repetition")
	f.IntVar(d.episodes, "episodes", *d.episodes, "episodes that are measured, of all arms; of fig1 and fig9 in each phase")
	if d.training != nil {
		f.IntVar(&d.training.Most, "train", d.training.Most, "episodes of training of a policy that has converged")
	}
	f.Float64Var(&d.life.Above, "online", d.life.Above,
		"T_online: how much more than the fallback a step of what was learned must be worth before it drives")
	if d.training != nil {
		f.Float64Var(&d.life.Below, "serving", d.life.Below,
			"T_serving: how much less than by the converged policy a step may earn before it is trained on")
	}
	demandFlag(f, d.setting)
	if d.meta != "" {
		metaFlag(f, &d.meta)
	}
	f.Uint64Var(d.seed, "seed", *d.seed, "of the division of the applications, and of all that is drawn")
	f.StringVar(&out, "out", "out/"+d.name, "folder of the report")
	f.BoolVar(&asJSON, "json", false, "print one line of JSON")
	return cmd
}

// metaFlag is the flag of what was pretrained.
func metaFlag(f *pflag.FlagSet, file *string) {
	f.StringVar(file, "meta", *file, "what aware train meta has made")
}

// demandFlag is the flag of the second form of an experiment.
func demandFlag(f *pflag.FlagSet, s *aware.Setting) {
	f.BoolVar(&s.Demand, "demand", s.Demand, "the second form: the demand policy decides on CPU limits each second, beneath\n"+
		"ceilings that all arms set; without it they set the limits themselves, as in the paper")
}

func (d drives) do(cmd *cobra.Command, out string, first uint, asJSON bool) error {
	if err := d.check(); err != nil {
		return usage(err)
	}
	if d.training != nil && d.training.Most < 1 {
		return usage(fmt.Errorf("--train %d: it must be at least 1", d.training.Most))
	}
	for flag, v := range map[string]float64{"online": d.life.Above, "serving": d.life.Below} {
		if !(math.Abs(v) <= 100) { // far more than a step can be worth
			return usage(fmt.Errorf("--%s %v: it must be in [-100, 100]", flag, v))
		}
	}
	var p pretrain.Pretrained
	made := d.made
	if d.meta != "" {
		var err error
		if p, err = pretrained(d.meta, *d.seed, *d.setting); err != nil {
			return err
		}
		made = func(n int) any { return map[string]any{d.name: d.made(n), "meta": p.Provenance} }
	}
	report := draw.Drives{
		File: d.name + ".json", Title: d.title, About: d.about, Made: made(*d.repetitions), Arms: d.arms, Claims: d.claims,
	}
	all, err := repetitions[aware.Drive]{
		out: out, made: made(0), first: first, n: *d.repetitions, steps: len(d.arms) * *d.apps,
		run: func(ctx context.Context, i int, done func(string)) ([]aware.Drive, error) {
			return d.run(ctx, i, p, done)
		},
		report: func(all []aware.Drive) error { return report.Write(out, all) },
	}.all(cmd)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report.Data(all))
	}
	return report.Print(cmd.OutOrStdout(), all)
}

func fig10Command() *cobra.Command {
	f := &aware.Fig10{
		Setting: aware.Published, Convergence: aware.Trained, Life: aware.UsualLife, Repetitions: 20, Apps: 2,
		Episodes: 100, Seed: 1,
	}
	return drives{
		name: "fig10", title: "The begin of training, with and without bootstrapping", arms: aware.Fig10Arms,
		about: "Means over all workloads, episode by episode (means of 10 episodes). All arms have the same seeds and " +
			"loads. Intervals are 95 % ones over the repetitions.",
		repetitions: &f.Repetitions, apps: &f.Apps, episodes: &f.Episodes, training: &f.Convergence, life: &f.Life, setting: &f.Setting,
		seed:  &f.Seed,
		check: func() error { return f.Check() },
		made:  func(n int) any { made := *f; made.Repetitions = n; return made },
		run: func(ctx context.Context, i int, _ pretrain.Pretrained, done func(string)) ([]aware.Drive, error) {
			return f.Repetition(ctx, i, done)
		},
		claims: func(all []aware.Drive) []aware.Claim { return f.Claims(all) },
	}.command("What bootstrapping saves at the begin of training",
		"An agent that begins from nothing drives a workload: alone (no bootstrap), or as Algorithm 1 has it (AWARE), where HPA\n"+
			"and VPA drive until what was learned from them is worth as much by an off-policy evaluation. Beside them are HPA\n"+
			"and VPA (rule), tuned for the workload on other seeds, and a policy that was trained beforehand (converged).")
}

func fig1Command() *cobra.Command {
	f := &aware.Fig1{
		Setting: aware.Published, Tuned: aware.Trained.Episodes, Life: aware.UsualLife, Repetitions: 20, Apps: 2, Episodes: 60, Seed: 1,
	}
	return drives{
		name: "fig1", title: "A whole life: the begin, three updates, another application", arms: aware.Fig1Arms,
		about: "Each phase has the same number of episodes. Means over all workloads, episode by episode (means of 10 " +
			"episodes). All arms have the same seeds and loads, and begin from nothing. Intervals are 95 % ones over the repetitions.",
		repetitions: &f.Repetitions, apps: &f.Apps, episodes: &f.Episodes, life: &f.Life, setting: &f.Setting, seed: &f.Seed,
		check: func() error { return f.Check() },
		made:  func(n int) any { made := *f; made.Repetitions = n; return made },
		run: func(ctx context.Context, i int, _ pretrain.Pretrained, done func(string)) ([]aware.Drive, error) {
			return f.Repetition(ctx, i, done)
		},
		claims: func(all []aware.Drive) []aware.Claim { return f.Claims(all) },
	}.command("A whole life of an agent: it begins, its workload is updated, and it gets another application",
		"An agent that knows nothing begins in a workload. Three of the paper's seven updates follow one after the other, and\n"+
			"then another application. FIRM's agent drives and learns all the time; AWARE lives by Algorithm 1, with HPA and VPA\n"+
			"(rule) as its fallback, which are tuned for the first workload.")
}

func fig9Command() *cobra.Command {
	f := &aware.Fig9{
		Setting: aware.Published, Convergence: aware.Trained, Life: aware.AdaptedLife, Repetitions: 20, Apps: 2,
		Episodes: 20, Seed: 1,
	}
	return drives{
		name: "fig9", title: "Serving while the workload is updated", arms: aware.Fig9Arms,
		about: "Seven updates, one after the other, in another order in each workload. Means over all workloads, episode by " +
			"episode (means of 10 episodes). All arms have the same seeds and " +
			"loads. Intervals are 95 % ones over the repetitions.",
		repetitions: &f.Repetitions, apps: &f.Apps, episodes: &f.Episodes, training: &f.Convergence, life: &f.Life, setting: &f.Setting,
		seed:  &f.Seed,
		check: func() error { return f.Check() },
		made:  func(n int) any { made := *f; made.Repetitions = n; return made },
		run: func(ctx context.Context, i int, p pretrain.Pretrained, done func(string)) ([]aware.Drive, error) {
			return f.Repetition(ctx, i, p, done)
		},
		meta:   madeMeta,
		claims: func(all []aware.Drive) []aware.Claim { return f.Claims(all) },
	}.command("What a policy is worth while the workload is updated",
		"A policy that has converged serves a workload, and then the workload changes by the paper's seven updates, one after\n"+
			"the other. It goes on as it is (no retraining), or AWARE, with what was pretrained (aware train meta), sees the change\n"+
			"and adapts to what the workload is then. Beside them are HPA\n"+
			"and VPA (rule), tuned before the first update, and a policy that was trained after each update, before it is\n"+
			"measured (converged).")
}
