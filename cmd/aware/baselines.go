package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/train/corrections"
	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
)

func tuneCommand() *cobra.Command {
	var out string
	var seeds int
	var apps, policies []string
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Find each baseline's settings for each cell on the warm-up trace",
		Args:  cobra.NoArgs,
		Long: "Each point of a baseline's grid drives the application for an hour of the warm-up trace, at the cell's mean rate.\n" +
			"The chosen settings take the fewest cores among all that keep the objective with every seed. The output is a file\n" +
			"that aware bench baselines --tuned reads; one is built in.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seeds < 1 || seeds > 100 {
				return usage(fmt.Errorf("--seeds %d: it must be in [1, 100]", seeds))
			}
			cells, err := chosenCells(apps)
			if err != nil {
				return err
			}
			if len(policies) == 0 {
				policies = bench.Tunable()
			}
			for _, p := range policies {
				if _, err := bench.Named(p); err != nil {
					return usage(fmt.Errorf("--policies: %w", err))
				}
			}
			p := newProgress(cmd.ErrOrStderr(), len(cells)*len(policies))
			tuned, err := bench.TuneAll(cmd.Context(), cells, policies, seeds, func(t bench.Tuned) {
				p.step(fmt.Sprintf("%s under %s: %s %s",
					t.App, t.Trace, t.Choice.Policy, shortSettings(t.Choice)))
			})
			if err != nil {
				return err
			}
			text, err := json.MarshalIndent(tuned, "", " ")
			if err != nil {
				return err
			}
			if out == "-" {
				_, err = cmd.OutOrStdout().Write(append(text, '\n'))
				return err
			}
			return writeAtomically(out, append(text, '\n'))
		},
	}
	cmd.Flags().StringVar(&out, "out", "out/tuned.json", "file to write the settings to; - is standard output")
	cmd.Flags().IntVar(&seeds, "seeds", bench.TuningSeeds, "runs of each point")
	cmd.Flags().StringSliceVar(&apps, "app", nil,
		"only these applications ("+strings.Join(bench.Applications(), ", ")+")")
	cmd.Flags().StringSliceVar(&policies, "policies", nil, "only these baselines")
	return cmd
}

// chosenCells are the cells of the named applications, or of all.
func chosenCells(apps []string) ([]bench.Cell, error) {
	for _, a := range apps {
		if !slices.Contains(bench.Applications(), a) {
			return nil, usage(fmt.Errorf("--app %q: known are %s", a, strings.Join(bench.Applications(), ", ")))
		}
	}
	cells, err := bench.Cells()
	return slices.DeleteFunc(cells, func(c bench.Cell) bool {
		return len(apps) > 0 && !slices.Contains(apps, c.Application)
	}), err
}

// contestants are the named baselines, or all, and the policies of files and addresses.
func contestants(policies, files []string) ([]bench.Contestant, error) {
	names, _ := bench.Policies()
	if len(policies) == 0 {
		policies = names
	}
	var all []bench.Contestant
	for _, p := range policies {
		if _, err := bench.Named(p); err != nil {
			return nil, usage(fmt.Errorf("--policies: %w", err))
		}
		all = append(all, bench.Contestant{Name: p})
	}
	for _, file := range files {
		c, err := openChoice(file)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		if isServed(file) {
			name = file
		}
		all = append(all, bench.Contestant{Name: name, Choice: &c})
	}
	return all, nil
}

// openChoice reads a policy file: a learned policy (.safetensors), or a rule with
// its settings in JSON. An address is a policy that another program serves.
func openChoice(file string) (bench.Choice, error) {
	if isServed(file) {
		p, err := newServed(file)
		if err != nil {
			return bench.Choice{}, usage(err)
		}
		return bench.Served(file, p), nil
	}
	if filepath.Ext(file) == ".safetensors" {
		f, err := learned.Read(file)
		if err != nil {
			return bench.Choice{}, err
		}
		if f.Form.Corrections != nil {
			application, service, err := corrections.Parse(f.Provenance["environment"])
			if err != nil {
				return bench.Choice{}, fmt.Errorf("policy %s: its corrections are of no known service: %w", file, err)
			}
			return bench.Law(application).CorrectedBy(service, f), nil
		}
		return bench.Learned(f), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return bench.Choice{}, fmt.Errorf("policy: %w", err)
	}
	defer f.Close()
	return bench.ReadChoice(file, f)
}

// openTuned reads tuned settings from a file, or takes the built-in ones.
func openTuned(file string) (bench.TunedSettings, error) {
	if file == "" {
		return bench.Shipped()
	}
	f, err := os.Open(file)
	if err != nil {
		return bench.TunedSettings{}, fmt.Errorf("tuned settings: %w", err)
	}
	defer f.Close()
	return bench.ReadTunedSettings(file, f)
}

func shortSettings(c bench.Choice) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c.Settings)) {
		if !strings.Contains(k, ".") { // those of one service are too many
			fmt.Fprintf(&b, "%s=%g ", k, c.Settings[k])
		}
	}
	return strings.TrimSpace(b.String())
}

// writeAtomically replaces a file atomically.
func writeAtomically(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, text, 0o644)
}

// progress reports a long job: a line for each step, with the time that remains.
type progress struct {
	out   io.Writer
	all   int // steps in total
	done  int // steps so far
	start time.Time
}

func newProgress(out io.Writer, all int) *progress {
	return &progress{out: out, all: all, start: time.Now()}
}

func (p *progress) step(what string) {
	p.done++
	took := time.Since(p.start)
	left := took / time.Duration(p.done) * time.Duration(p.all-p.done)
	fmt.Fprintf(p.out, "%d/%d, %v left: %s\n", p.done, p.all, left.Round(time.Second), what)
}
