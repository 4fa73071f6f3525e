package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"awarescale.dev/aware/cmd/draw"
	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/train"
	"awarescale.dev/aware/learner/train/corrections"
	"awarescale.dev/aware/learner/train/presets"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/plot/plotter"
)

// trainOptions are train's flags.
type trainOptions struct {
	env       string
	algorithm string
	out       string
	resume    string
	steps     int
	every     int
	worlds    int // of validation
	seed      uint64
	json      bool
}

func trainCommand() *cobra.Command {
	var o trainOptions
	cmd := &cobra.Command{
		Use:   "train",
		Short: "Let an algorithm learn in an environment",
		Args:  cobra.NoArgs,
		Long: "Trains by settings that are known to work, evaluates the actor without exploration now and then, keeps the\n" +
			"best one, and at the end plays 100 new episodes with it: their mean return is the result.\n\n" +
			"Environments: " + strings.Join(classic.Names(), ", ") + ",\n" +
			"simulated workloads: sim:APPLICATION/TRACE or sim:APPLICATION/TRACE/SERVICE,\n" +
			"and corrections of the demand policy in random worlds: correct:APPLICATION/SERVICE\n" +
			"(" + strings.Join(bench.Applications(), ", ") + ").\n" +
			"Algorithms: " + strings.Join(presets.Algorithms(), ", ") + "; for corrections also bcq-discrete, which learns of\n" +
			"the demand policy with random choices. There ddpg and td3 set the raw limits of the service.\n\n" +
			"A checkpoint (checkpoint.safetensors) is written on the way and at an interrupt; --resume continues from it as\n" +
			"if there had been no stop. The best actor is in actor.safetensors; of a simulated workload it is also in\n" +
			"policy.safetensors, which aware simulate --policy and aware bench baselines --policy take.\n\n" +
			"Corrections are compared with the demand policy alone instead, in worlds that training has not seen. Where they\n" +
			"do not save cores by more than chance explains, or something else is worse, there is no policy.safetensors: no\n" +
			"correction is the result, and what was learned is in rejected.safetensors.",
		Example: "  aware train --env CartPole-v1 --algo ppo --seed 1\n" +
			"  aware train --env Pendulum-v1 --algo ddpg --resume out/train/checkpoint.safetensors\n" +
			"  aware train --env sim:social-network/bursty --algo ppo\n" +
			"  aware train --env correct:social-network/nginx-web-server --algo bcq-discrete",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.env, "env", "CartPole-v1", "environment")
	f.StringVar(&o.algorithm, "algo", "ppo", "algorithm")
	f.IntVar(&o.steps, "steps", 0, "steps of all environments together; 0 is the preset's number")
	f.Uint64Var(&o.seed, "seed", 1, "the same seed gives the same run")
	f.StringVar(&o.out, "out", "out/train", "folder of report, weights and checkpoints; empty for none")
	f.IntVar(&o.every, "checkpoint", 20_000, "steps from one checkpoint to the next; 0 for none")
	f.IntVar(&o.worlds, "validation", 40, "worlds in which corrections are compared with the demand policy alone, an hour of each")
	f.StringVar(&o.resume, "resume", "", "checkpoint to continue from")
	f.BoolVar(&o.json, "json", false, "print one line of JSON")
	addProducts(cmd)
	cmd.AddCommand(marginsCommand(), commonCommand(), affordCommand(), metaCommand(), proveCommand())
	return cmd
}

func (o trainOptions) run(ctx context.Context, out, progress io.Writer) error {
	if o.steps < 0 || o.every < 0 {
		return usage(fmt.Errorf("--steps %d, --checkpoint %d: they must not be negative", o.steps, o.every))
	}
	if o.corrects() && (o.worlds < 2 || o.worlds > 10_000) {
		return usage(fmt.Errorf("--validation %d: it must be in [2, 10000]", o.worlds))
	}
	if o.steps == 0 {
		o.steps = presets.Steps(o.env)
	}
	r, err := presets.Make(o.algorithm, o.env, o.steps, o.seed)
	if err != nil {
		return usage(err)
	}
	if o.resume != "" {
		f, err := weights.Read(o.resume)
		if err == nil {
			err = r.Restore(f)
		}
		if err != nil {
			return fmt.Errorf("--resume %s: %w", o.resume, err)
		}
	}
	if o.out != "" {
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	if rate := r.Stats().LearningRate; o.resume != "" && rate == 0 {
		fmt.Fprintf(progress,
			"the learning rate is 0 at step %d: it was annealed, and nothing more will be learned\n", r.Steps)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	begin := time.Now()
	if err := o.walk(ctx, r, progress); err != nil {
		return err
	}
	result := map[string]any{
		"env":   o.env,
		"algo":  o.algorithm,
		"seed":  o.seed,
		"steps": r.Steps,
		"gemm":  graph.Used(),
		"blas":  graph.Used(), // gemm is the former name
	}
	says, kept, err := o.judge(ctx, r, result, progress)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	result["wall_s"] = took.Seconds()
	if err := o.report(r, result, kept, progress); err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(out).Encode(result)
	}
	if rows, ok := result["validation"].([]corrections.Row); ok {
		if err := printCorrections(out, rows); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%s on %s, seed %d: %s, after %d steps in %v\n",
		o.algorithm, o.env, o.seed, says, r.Steps, took.Round(100*time.Millisecond))
	return err
}

// judge says what the best actor is worth, and whether it is kept: one that corrects the demand policy only when it is better.
func (o trainOptions) judge(ctx context.Context, r *train.Run, result map[string]any, progress io.Writer) (
	says string, kept bool, err error) {
	if !o.corrects() {
		returns, err := r.Final(100)
		if err != nil {
			return "", false, err
		}
		mean, deviation := stat.MeanStdDev(returns, nil)
		result["mean100"], result["std100"] = mean, deviation
		return fmt.Sprintf("mean return of 100 new episodes %.1f, deviation %.1f", mean, deviation), true, nil
	}
	f, err := o.policy(r.Best(), r.Steps)
	if err != nil {
		return "", false, err
	}
	p := newProgress(progress, 2*o.worlds)
	rows, err := corrections.Validate(ctx, *f, o.worlds, func(int) { p.step("hours of worlds of validation") })
	if err != nil {
		return "", false, err
	}
	kept = rows[1].Verdict == corrections.Better
	result["validation"], result["kept"] = rows, kept
	if says = "no correction"; kept {
		says = "corrections that are better than none"
	}
	return says, kept, nil
}

// corrects reports whether corrections of the demand policy are learned, or raw limits in their place.
func (o trainOptions) corrects() bool { return strings.HasPrefix(o.env, corrections.Prefix) }

// walk trains to the end, and prints progress and writes checkpoints on the way.
func (o trainOptions) walk(ctx context.Context, r *train.Run, progress io.Writer) error {
	file, ok := progress.(*os.File)
	live := ok && term.IsTerminal(int(file.Fd()))
	begin := time.Now()
	first := r.Steps
	last := r.Steps
	for tell := time.Now(); !r.Done(); {
		err := r.Train(ctx, r.Steps+500)
		stopped := err != nil && ctx.Err() != nil
		if err != nil && !stopped {
			return err
		}
		if o.out != "" && o.every > 0 && (stopped || r.Steps-last >= o.every) {
			last = r.Steps
			failed := o.checkpoint(r)
			if failed != nil { // such as a full disk: the last checkpoint is still there, and there will be a next one
				fmt.Fprintf(progress, "no checkpoint at step %d, training continues: %v\n", r.Steps, failed)
			} else if stopped {
				fmt.Fprintf(progress, "continue with --resume %s\n", o.path("checkpoint.safetensors"))
			}
		}
		if stopped {
			return fmt.Errorf("interrupted at step %d", r.Steps)
		}
		if every := time.Second; live && time.Since(tell) > every/5 || time.Since(tell) > 10*every || r.Done() {
			tell = time.Now()
			rate := float64(r.Steps-first) / time.Since(begin).Seconds()
			left := time.Duration(float64(o.steps-r.Steps) / rate * float64(time.Second))
			line := fmt.Sprintf("%d of %d steps, %.0f/s, %v left; %d episodes, last 20 returned %.1f%s",
				r.Steps, o.steps, rate, left.Round(time.Second), r.Episodes, r.Recent(),
				evaluated(r)+skipped(r.Stats(), r.Done()))
			if live {
				fmt.Fprintf(progress, "\r\x1b[K%s", line)
				if r.Done() {
					fmt.Fprintln(progress)
				}
			} else {
				fmt.Fprintln(progress, line)
			}
		}
	}
	return nil
}

// skipped is what could not be learned from, and a learning rate that is zero
// before the end, for the line of progress; usually it is empty.
func skipped(s agent.Stats, done bool) string {
	text := ""
	if s.SkippedUpdates > 0 {
		text += fmt.Sprintf("; %d updates skipped", s.SkippedUpdates)
		if s.LastError != "" {
			text += " (" + s.LastError + ")"
		}
	}
	if s.SkippedRows > 0 {
		text += fmt.Sprintf("; %d rows skipped", s.SkippedRows)
	}
	if s.LearningRate == 0 && !done {
		text += "; learning rate 0"
	}
	return text
}

func evaluated(r *train.Run) string {
	if n := len(r.Evaluations); n > 0 {
		return fmt.Sprintf("; without exploration %.1f", r.Evaluations[n-1].Mean)
	}
	return ""
}

func (o trainOptions) path(name string) string { return filepath.Join(o.out, name) }

func (o trainOptions) checkpoint(r *train.Run) error {
	f, err := r.Save()
	if err != nil {
		return err
	}
	return weights.Write(o.path("checkpoint.safetensors"), f)
}

// policy is the actor of a simulated workload as a policy that can be served; nil in other environments.
func (o trainOptions) policy(actor kernel.Snapshot, steps int) (*learned.File, error) {
	e, err := presets.Environment(o.algorithm, o.env)
	if err != nil {
		return nil, err
	}
	encoded, ok := e.(interface{ Form() encode.Form })
	if !ok {
		return nil, nil
	}
	step := workload.Step
	if e, ok := e.(interface{ Interval() time.Duration }); ok {
		step = e.Interval()
	}
	return &learned.File{
		Form:     encoded.Form(),
		Snapshot: actor,
		Step:     step,
		Provenance: map[string]string{
			"algorithm":   o.algorithm,
			"environment": o.env,
			"seed":        fmt.Sprint(o.seed),
			"steps":       fmt.Sprint(steps),
		},
	}, nil
}

// writePolicy writes the actor as a policy. One of a training before, of the other name, is removed.
func (o trainOptions) writePolicy(actor kernel.Snapshot, steps int, kept bool) error {
	f, err := o.policy(actor, steps)
	if f == nil || err != nil {
		return err
	}
	name, other := "policy.safetensors", "rejected.safetensors"
	if !kept {
		name, other = other, name
	}
	if err := os.Remove(o.path(other)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--out: %w", err)
	}
	return f.Write(o.path(name))
}

func (o trainOptions) report(r *train.Run, result map[string]any, keep bool, progress io.Writer) error {
	if o.out == "" {
		return nil
	}
	kept := r.Best()
	layers := make([]string, len(kept.MLP))
	for i, d := range kept.MLP {
		layers[i] = fmt.Sprintf("%dx%d %v", d.In, d.Out, d.Act)
	}
	f := weights.File{
		Meta: map[string]string{
			"algorithm": o.algorithm,
			"env":       o.env,
			"seed":      fmt.Sprint(o.seed),
			"layers":    strings.Join(layers, ", "),
		},
		Tensors: map[string]weights.Tensor{},
	}
	for name, data := range map[string][]float64{"theta": kept.Theta, "mean": kept.Mean, "scale": kept.Scale} {
		f.Tensors[name] = weights.Tensor{Shape: []int{len(data)}, Data: data}
	}
	if err := weights.Write(o.path("actor.safetensors"), f); err != nil {
		return err
	}
	if err := o.writePolicy(kept, r.Steps, keep); err != nil {
		return err
	}
	line := func(name string, points []train.Point) draw.Line {
		l := draw.Line{Name: name}
		for _, p := range points {
			l.Points = append(l.Points, plotter.XY{X: float64(p.Step), Y: p.Mean})
		}
		return l
	}
	curve, err := draw.Lines("return", "steps", "mean return", nil,
		line("last 20 episodes, with exploration", r.Curve), line("10 episodes, without", r.Evaluations))
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	if err := draw.Write(o.out, "train.json", map[string]any{
		"result": result, "curve": r.Curve, "evaluations": r.Evaluations, "stats": r.Stats(),
	}, draw.Page{
		Title: fmt.Sprintf("%s on %s", o.algorithm, o.env),
		About: "mean100 is the mean return of 100 new episodes, without exploration, by the best actor. validation compares " +
			"corrections with the demand policy alone, in the same worlds.",
		Text:     string(text),
		Pictures: []draw.Picture{curve},
	}); err != nil {
		return err
	}
	fmt.Fprintf(progress, "report: %s\n", o.path("index.html"))
	return nil
}
