package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

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

// correctionsFile is the report.
type correctionsFile struct {
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
			"raw limits of the service (ddpg, td3). All play the same worlds, so that two of them differ by the policy alone.\n" +
			"A difference counts where it is more than twice its standard error; it is then marked with *.",
		Example: "  aware bench corrections --env correct:social-network/nginx-web-server --policy out/ppo/policy.safetensors",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.env, "env", "correct:social-network/nginx-web-server", "environment")
	f.StringSliceVar(&o.files, "policy", nil, "policy files")
	f.IntVar(&o.worlds, "worlds", 100, "held-out worlds of half an hour")
	f.StringVar(&o.out, "out", "out/corrections.json", "file of the report; empty for none")
	f.BoolVar(&o.json, "json", false, "print the report as one line of JSON")
	return cmd
}

func (o correctionsOptions) run(cmd *cobra.Command) error {
	if o.worlds < 2 || o.worlds > 10_000 {
		return usage(fmt.Errorf("--worlds %d: it must be in [2, 10000]", o.worlds))
	}
	report := correctionsFile{Env: o.env, Choices: encode.Correct().Names(), Made: map[string]map[string]string{}}
	players := []corrections.Player{{Name: "demand policy alone"}}
	for _, path := range o.files {
		f, err := learned.Read(path)
		if err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
		name := filepath.Base(filepath.Dir(path))
		if a := f.Provenance["algorithm"]; a != "" {
			name = a + ", seed " + f.Provenance["seed"]
		}
		if f.Form.Corrections == nil {
			name += ", raw limits"
		}
		players = append(players, corrections.Player{Name: name, File: &f})
		report.Made[path] = f.Provenance
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := newProgress(cmd.ErrOrStderr(), o.worlds*len(players))
	var err error
	report.Rows, err = corrections.Evaluate(ctx, o.env, players, o.worlds, func(of int) {
		if p.done++; p.done%100 == 0 || p.done == of {
			p.done--
			p.step("held-out worlds")
		}
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
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
	}
	return report.print(cmd.OutOrStdout())
}

// print writes the table.
func (r correctionsFile) print(out io.Writer) error {
	show := func(f corrections.Figure, format string, times float64) string {
		text := fmt.Sprintf(format+" (%+.3g", times*f.Mean, times*f.More)
		if f.Clear() {
			text += "*"
		}
		return text + ")"
	}
	fmt.Fprintf(out, "%-30s %-22s %-20s %-20s %-20s %s\n",
		"", "cores", "% of requests late", "% of windows over", "reward", "violated")
	for _, row := range r.Rows {
		fmt.Fprintf(out, "%-30s %-22s %-20s %-20s %-20s %d of %d\n", row.Name, show(row.Cores, "%.3f", 1), show(row.Late, "%.2f", 100),
			show(row.Windows, "%.1f", 100), show(row.Reward, "%.4f", 1), row.Violates, len(row.Worlds))
	}
	for _, row := range r.Rows {
		counts := make([]int, len(r.Choices))
		for _, w := range row.Worlds {
			for i, n := range w.Choices {
				counts[i] += n
			}
		}
		if len(row.Worlds[0].Choices) == 0 {
			continue
		}
		var parts []string
		for i, n := range counts {
			if n > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", r.Choices[i], n))
			}
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", row.Name, strings.Join(parts, ", ")); err != nil {
			return err
		}
	}
	return nil
}
