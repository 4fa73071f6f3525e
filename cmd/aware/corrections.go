package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/train/corrections"
	"github.com/spf13/cobra"
)

// correctionsOptions are the flags of bench corrections.
type correctionsOptions struct {
	env    string
	files  []string
	worlds int
	out    string
	json   bool
}

// correctionsReport is what bench corrections found.
type correctionsReport struct {
	Env     string                       `json:"env"`
	Choices []string                     `json:"choices"` // names, in the order of the counts
	Made    map[string]map[string]string `json:"made"`    // provenance, by policy file
	Rows    []corrections.Row            `json:"rows"`
}

func correctionsCommand() *cobra.Command {
	var o correctionsOptions
	cmd := &cobra.Command{
		Use:   "corrections",
		Short: "Compare learned corrections of the demand policy with the demand policy alone, in worlds no training sees",
		Args:  cobra.NoArgs,
		Long: "The policies are of aware train --env correct:APPLICATION/SERVICE: corrections (ppo, dqn, bcq-discrete), or\n" +
			"raw limits of the service (ddpg, td3). All play the same worlds, an hour of each, so that two of them differ by\n" +
			"the policy alone. In brackets is the 95 % interval of the difference from the demand policy alone. A policy is\n" +
			"better when it needs fewer cores by more than chance explains, and nothing else is worse. The second row lowers\n" +
			"the level of all services, always: what it saves needs no learning.",
		Example: "  aware bench corrections --env correct:social-network/nginx-web-server --policy out/train/policy.safetensors",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.env, "env", "correct:social-network/nginx-web-server", "environment")
	f.StringSliceVar(&o.files, "policy", nil, "policy files")
	f.IntVar(&o.worlds, "worlds", 50, "held-out worlds")
	f.StringVar(&o.out, "out", "out/corrections.json", "file of the report; empty for none")
	f.BoolVar(&o.json, "json", false, "print the report as one line of JSON")
	return cmd
}

func (o correctionsOptions) run(ctx context.Context, out, progress io.Writer) error {
	if o.worlds < 2 || o.worlds > 10_000 {
		return usage(fmt.Errorf("--worlds %d: it must be in [2, 10000]", o.worlds))
	}
	report := correctionsReport{Env: o.env, Choices: encode.Correct().Names(), Made: map[string]map[string]string{}}
	players := []corrections.Player{{Name: "demand policy alone"}, corrections.Lowered(2)}
	for _, path := range o.files {
		f, err := learned.Read(path)
		if err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
		name := f.Provenance["algorithm"] + ", seed " + f.Provenance["seed"]
		if f.Form.Corrections == nil {
			name += ", raw limits"
		}
		players = append(players, corrections.Player{Name: name, File: &f})
		report.Made[path] = f.Provenance
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := newProgress(progress, o.worlds*len(players))
	var err error
	report.Rows, err = corrections.Evaluate(ctx, o.env, corrections.HeldOut, players, o.worlds, func(int) {
		p.step("hours of held-out worlds")
	})
	if err != nil {
		return err
	}
	if o.out != "" {
		text, err := json.MarshalIndent(report, "", " ")
		if err != nil {
			return err
		}
		if err := writeAtomically(o.out, append(text, '\n')); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	if o.json {
		return json.NewEncoder(out).Encode(report)
	}
	return report.print(out)
}

// print writes the table, and which choices were taken.
func (r correctionsReport) print(out io.Writer) error {
	if err := printCorrections(out, r.Rows); err != nil {
		return err
	}
	for _, row := range r.Rows[1:] {
		counts := make([]int, len(r.Choices))
		for _, w := range row.Worlds {
			for i, n := range w.Choices {
				counts[i] += n
			}
		}
		var parts []string
		for i, n := range counts {
			if n > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", r.Choices[i], n))
			}
		}
		if len(parts) == 0 {
			continue // raw limits
		}
		if _, err := fmt.Fprintf(out, "%s chose: %s\n", row.Name, strings.Join(parts, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// printCorrections writes a table of players, with the differences from the first one.
func printCorrections(out io.Writer, rows []corrections.Row) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tcores\tmemory, GiB\tlate, %\twindows over, %\tworlds violated, %\treward\tverdict")
	for i, row := range rows {
		fmt.Fprint(t, row.Name)
		for _, size := range []corrections.Figure{row.Cores, row.Memory} {
			fmt.Fprintf(t, "\t%.2f", size.Mean)
			if i > 0 {
				low, high := size.Interval()
				fmt.Fprintf(t, " (%+.2f to %+.2f %%)", 100*math.Expm1(low), 100*math.Expm1(high))
			}
		}
		for _, one := range []struct {
			corrections.Figure
			digits int
			times  float64
		}{{row.Late, 3, 100}, {row.Windows, 2, 100}, {row.Violated, 0, 100}, {row.Reward, 4, 1}} {
			fmt.Fprintf(t, "\t%.*f", one.digits, one.times*one.Mean)
			if i > 0 {
				low, high := one.Interval()
				fmt.Fprintf(t, " (%+.*f to %+.*f)", one.digits, one.times*low, one.digits, one.times*high)
			}
		}
		if i > 0 {
			fmt.Fprintf(t, "\t%s", row.Verdict)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
