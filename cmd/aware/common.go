package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/sim/workload"
	"awarescale.dev/aware/learner/train/margins"
	"github.com/spf13/cobra"
)

// commonOptions are the flags of train common-margin.
type commonOptions struct {
	apps   int
	held   int
	seed   uint64
	split  uint64
	policy bench.Choice // only its windows are the caller's
	out    string
	into   string
	json   bool
}

func commonCommand() *cobra.Command {
	o := commonOptions{policy: bench.Choice{Encoding: bench.Encoding, Policy: "demand"}}
	windows := 0.035
	cmd := &cobra.Command{
		Use:   "common-margin",
		Short: "Learn one margin of the demand policy for services of which nothing is known, over AWARE's published applications",
		Args:  cobra.NoArgs,
		Long: "Some margins are tried in an hour of each of many of the published applications, from the policy's first minute on.\n" +
			"The one with the fewest cores is taken, in the mean over the applications, of those with which no more of them miss their\n" +
			"SLO than without a margin; and it is compared with none in the 200 applications that were not used.\n\n" +
			"It writes common-margin.json, a policy file that aware simulate --policy and aware bench baselines --policy take.",
		Example: "  aware train common-margin --apps 800",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !(windows > 0 && windows <= 1) {
				return usage(fmt.Errorf("--windows %v: it must be above 0 and at most 1", windows))
			}
			o.policy = o.policy.With([]string{"windows"}, []float64{windows})
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.apps, "apps", 200, "applications, of the 800 that may be used")
	f.IntVar(&o.held, "held-out", 200, "applications of the other 200 in which the result is compared with no margin; 0 is none")
	f.Uint64Var(&o.seed, "seed", 1, "the same seed gives the same result")
	f.Uint64Var(&o.split, "split", 1, "seed of the division of the applications; that of aware bench fig8")
	f.Float64Var(&windows, "windows", windows, "share of windows of ten seconds that may be over the SLO")
	f.StringVar(&o.out, "out", "out/margins", "folder of the policy file")
	f.StringVar(&o.into, "into", "", "file with the margins of several applications, into which this one is written, too")
	f.BoolVar(&o.json, "json", false, "print one line of JSON")
	return cmd
}

func (o commonOptions) run(ctx context.Context, out, told io.Writer) error {
	seen, unseen := workload.Split(o.split)
	if o.apps < 2 || o.apps > len(seen) {
		return usage(fmt.Errorf("--apps %d: it must be in [2, %d]", o.apps, len(seen)))
	}
	if o.held < 0 || o.held == 1 || o.held > len(unseen) {
		return usage(fmt.Errorf("--held-out %d: it must be 0, or in [2, %d]", o.held, len(unseen)))
	}
	if o.into != "" {
		if _, err := readMargins(o.into); err != nil { // before all the work
			return fmt.Errorf("--into: %w", err)
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	parts := margins.CommonLevels()
	p := newProgress(told, o.apps*len(parts)+o.held*2)
	try := func(indexes []int, n int, parts []margins.Part, world func(k int) uint64) (margins.Part, error) {
		workloads, err := aware.Some(indexes, n, o.seed)
		if err != nil {
			return margins.Part{}, err
		}
		var cells []bench.Cell
		for _, w := range workloads {
			c, err := w.Cell()
			if err != nil {
				return margins.Part{}, err
			}
			cells = append(cells, c)
		}
		best, err := margins.Common(ctx, cells, o.policy, parts, world, func(int) { p.step("hours of an application") })
		return parts[best], err
	}
	best, err := try(seen, o.apps, parts, func(k int) uint64 { return o.seed<<20 + uint64(k) })
	if err != nil {
		return err
	}
	var held []margins.Part // none where there is nothing to compare
	if o.held > 0 && best.Level != 0 {
		held = []margins.Part{{}, {Level: best.Level}}
		if _, err := try(unseen, o.held, held, margins.HeldOutWorld); err != nil {
			return err
		}
	}
	choice := o.policy.With([]string{"margin"}, []float64{best.Level})
	text, err := json.MarshalIndent(choice, "", " ")
	if err != nil {
		return err
	}
	file := filepath.Join(o.out, "common-margin.json")
	if err := writeAtomically(file, append(text, '\n')); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err := o.ship(best.Level); err != nil {
		return fmt.Errorf("--into: %w", err)
	}
	if o.json {
		return json.NewEncoder(out).Encode(map[string]any{
			"apps": o.apps, "seed": o.seed, "split": o.split, "tried": parts, "held_out": held, "policy": choice,
		})
	}
	table := func(name string, parts []margins.Part, apps int) {
		for _, p := range parts {
			fmt.Fprintf(out, "%s, margin %+.1f: %.3f times the cores without one; %.2f %% of requests late, %.2f %% of windows over; "+
				"%d of %d miss their SLO\n", name, p.Level, p.Cores, 100*p.Late, 100*p.Windows, p.Broken, apps)
		}
	}
	table("tried", parts, o.apps)
	table("in other applications", held, o.held)
	_, err = fmt.Fprintf(out, "policy: %s\n", file)
	return err
}

// ship writes the margin into a file that has those of applications, too.
func (o commonOptions) ship(margin float64) error {
	if o.into == "" {
		return nil
	}
	all, err := readMargins(o.into)
	if err != nil {
		return err
	}
	all.Common = &bench.CommonMargin{
		Made: fmt.Sprintf("aware train common-margin --apps %d --held-out %d --seed %d --split %d --windows %g, on %s", o.apps, o.held,
			o.seed, o.split, o.policy.Settings["windows"], time.Now().Format(time.DateOnly)),
		Margin: margin,
	}
	return writeMargins(o.into, all)
}

// readMargins reads the margins of several applications; a file that is not there has none.
func readMargins(file string) (bench.ServiceMargins, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return bench.ServiceMargins{Encoding: bench.Encoding}, nil
	}
	if err != nil {
		return bench.ServiceMargins{}, err
	}
	return bench.ReadServiceMargins(file, text)
}

func writeMargins(file string, all bench.ServiceMargins) error {
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return writeAtomically(file, append(text, '\n'))
}
