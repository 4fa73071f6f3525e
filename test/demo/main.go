// Command demo is the program of "make demo". It runs one application under one bursty
// load three times, on a real Kubernetes on this machine.
//
//	static   requests and limits that are set for the peak; two replicas
//	hpa-vpa  the HorizontalPodAutoscaler on CPU and the VerticalPodAutoscaler on memory
//	aware    AWARE, opted in with annotations on the same pod template
//
// The runs are sequential, on the same trace with the same seed. In parallel they would
// disturb each other on a machine with two cores.
//
//	go run ./test/demo                      # everything; about a quarter of an hour
//	go run ./test/demo --runs aware --keep  # one run, and the cluster stays
//
// It writes result.json, report.html, summary.png and the applied manifests into the
// folder --out. While it runs it shows a table.
//
// Exit codes: 0 all runs ended, and AWARE's with resizes on the node and through
// the API, without a restart or an eviction; 1 otherwise, and the reason is on
// standard error; 2 for a wrong command line; 3 this machine cannot run the
// cluster; 130 interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"awarescale.dev/aware/test/cluster/lab"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once; the lab then ends by itself
	err := command().ExecuteContext(ctx)
	switch {
	case err == nil:
		return
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "demo: interrupted")
		os.Exit(130)
	}
	fmt.Fprintln(os.Stderr, "demo:", err)
	switch {
	case errors.As(err, new(usageError)):
		os.Exit(2)
	case errors.As(err, new(unfitError)):
		os.Exit(3)
	}
	os.Exit(1)
}

// usageError is an error of the command line. unfitError says that this machine cannot
// run the cluster.
type (
	usageError struct{ error }
	unfitError struct{ error }
)

// options are the flags.
type options struct {
	out       string
	name      string
	keep      bool
	runs      []string
	timeScale float64
	rps       float64
	seed      uint64
	slo       time.Duration

	hpaStabilization time.Duration
}

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:           "demo",
		Short:         "One application, one load, three ways to size it, on a real Kubernetes on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("argument %q: there are only flags", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return usageError{err}
			}
			return demo(c.Context(), o)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := c.Flags()
	f.StringVar(&o.out, "out", "out/demo", "folder for the results")
	f.StringVar(&o.name, "name", "demo", "name of the lab; one of that name that runs is replaced")
	f.BoolVar(&o.keep, "keep", os.Getenv("KEEP") == "1",
		"keep the cluster and the last run's application at the end (or KEEP=1)")
	f.StringSliceVar(&o.runs, "runs", slices.Clone(allRuns), "which runs, in this order")
	f.Float64Var(&o.timeScale, "time-scale", 1, "how long the trace of 3 minutes is to be, as a factor")
	f.Float64Var(&o.rps, "rps", 45,
		"mean rate of requests a second; a request costs about 6 ms of CPU, and the peak is 2.4 times the mean")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the arrivals, the same for all runs")
	f.DurationVar(&o.slo, "slo", 200*time.Millisecond, "latency that the 99th percentile of requests may take")
	f.DurationVar(&o.hpaStabilization, "hpa-stabilization", 5*time.Minute,
		"the HPA's window for scaling down; the default is Kubernetes' own")
	return c
}

func (o options) validate() error {
	if len(o.runs) == 0 {
		return fmt.Errorf("--runs is empty: it takes some of %v", allRuns)
	}
	for i, run := range o.runs {
		if !slices.Contains(allRuns, run) {
			return fmt.Errorf("--runs %q: it takes some of %v", run, allRuns)
		}
		if slices.Contains(o.runs[:i], run) {
			return fmt.Errorf("--runs has %q twice", run)
		}
	}
	switch {
	case !(o.timeScale >= 0.1 && o.timeScale <= 20):
		return fmt.Errorf("--time-scale %g: must be 0.1 to 20, which is 18 s to an hour", o.timeScale)
	case !(o.rps >= 1 && o.rps <= 1000):
		return fmt.Errorf("--rps %g: must be 1 to 1000", o.rps)
	case o.hpaStabilization < 0 || o.hpaStabilization > time.Hour:
		return fmt.Errorf("--hpa-stabilization %v: must be 0s to 1h", o.hpaStabilization)
	case o.slo < time.Millisecond || o.slo >= requestTimeout:
		return fmt.Errorf("--slo %v: must be 1ms or more, and less than a request's timeout, %v", o.slo,
			requestTimeout)
	}
	return nil
}

// demo makes the cluster, runs all runs, and writes the report.
func demo(ctx context.Context, o options) (err error) {
	if err := lab.Preflight(ctx, true); err != nil {
		return unfitError{fmt.Errorf("this machine cannot run the demo's cluster:\n%w\n"+
			"It takes root on Linux with a few Debian packages and no container engine; see go doc ./test/cluster/lab", err)}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making the folder of --out: %w", err)
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	screen := newScreen(os.Stdout)
	stage, err := raise(ctx, o, screen)
	if stage != nil {
		defer func() { err = errors.Join(err, stage.strike(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return err
	}

	results := newResults(o)
	for i, run := range o.runs {
		record, err := stage.play(ctx, run, i == len(o.runs)-1)
		if err != nil {
			return errors.Join(fmt.Errorf("run %s: %w", run, err), results.write(o.out))
		}
		results.add(record)
	}
	if err := errors.Join(results.write(o.out), writeReport(o.out, results),
		writeSummary(o.out, results)); err != nil {
		return err
	}
	screen.say("")
	screen.say("%s", results.table())
	screen.say("results  %s\nreport   %s\npicture  %s", filepath.Join(o.out, "result.json"),
		filepath.Join(o.out, "report.html"), filepath.Join(o.out, "summary.png"))
	return results.check()
}
