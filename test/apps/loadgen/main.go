// Loadgen sends requests at the times that a trace of rates gives. It reports the
// latencies of each second as CSV and of the run as JSON. Package load documents
// the counts.
//
//	loadgen --target http://10.96.0.10 --trace test/apps/traces/bursty-3min.txt --rate-scale 50 \
//	    --slo 200ms --seconds seconds.csv
//
// It exits with 2 for a wrong command line and with 1 if the run failed or was
// interrupted; an interrupted run still prints its summary.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"awarescale.dev/aware/test/apps/load"
	"awarescale.dev/aware/test/apps/trace"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is an error of the command line.
type usageError struct{ error }

// run is main with its surroundings as parameters; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := command(stdout)
	c.SetArgs(args)
	c.SetOut(stdout)
	c.SetErr(stderr)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "loadgen:", err)
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}

// settings are the flags.
type settings struct {
	load      load.Config
	arrivals  string
	trace     string
	timeScale float64
	rateScale float64
	seconds   string
	summary   string
}

func command(stdout io.Writer) *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:           "loadgen --target URL --trace FILE",
		Short:         "Send requests at the times that a trace asks for, and report their latencies",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("argument %q: there are only flags", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context(), stdout) },
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := c.Flags()
	f.StringArrayVar(&s.load.Targets, "target", nil,
		"URL to GET; given several times, they are got in turn; loopback or private addresses only (required)")
	f.StringVar(&s.trace, "trace", "", "file with a rate in requests/s per line, one per second (required)")
	f.Float64Var(&s.timeScale, "time-scale", 1, "how many times as long the trace takes")
	f.Float64Var(&s.rateScale, "rate-scale", 1, "how many times as high its rates are")
	f.StringVar(&s.arrivals, "arrivals", string(load.Poisson),
		"how requests fall within the rate: poisson or uniform")
	f.Uint64Var(&s.load.Seed, "seed", 1, "of the poisson arrivals")
	f.DurationVar(&s.load.Timeout, "timeout", 5*time.Second,
		"of a request, from its intended start; failed requests count as having taken this long")
	f.DurationVar(&s.load.SLO, "slo", 200*time.Millisecond, "the latency that a request may take")
	f.IntVar(&s.load.MaxInFlight, "max-in-flight", 1000,
		"requests under way at once; more are dropped, and counted")
	f.IntVar(&s.load.ConnMaxRequests, "conn-max-requests", 20,
		"requests to a connection, so that new replicas get their share; -1 for no limit")
	f.StringVar(&s.seconds, "seconds", "", "file for the CSV with one line per second; - for standard output")
	f.StringVar(&s.summary, "summary", "-", "file for the JSON summary; - for standard output")
	return c
}

func (s settings) run(ctx context.Context, stdout io.Writer) (err error) {
	config, err := s.config()
	if err != nil {
		return usageError{err}
	}
	seconds, closeSeconds, err := create(s.seconds, stdout)
	if err != nil {
		return usageError{fmt.Errorf("--seconds: %w", err)}
	}
	defer func() { err = errors.Join(err, closeSeconds()) }()
	summary, closeSummary, err := create(s.summary, stdout)
	if err != nil {
		return usageError{fmt.Errorf("--summary: %w", err)}
	}
	defer func() { err = errors.Join(err, closeSummary()) }()

	table, err := load.NewCSV(seconds)
	if err != nil {
		return err
	}
	var tableError error
	result, err := load.Run(ctx, config, func(second load.Second) {
		tableError = errors.Join(tableError, table.Write(second))
	})
	lines := json.NewEncoder(summary)
	lines.SetIndent("", "  ")
	return errors.Join(err, tableError, lines.Encode(result))
}

// config reads the trace and checks everything before a request is sent.
func (s settings) config() (load.Config, error) {
	c := s.load
	if len(c.Targets) == 0 {
		return c, errors.New("--target is missing: want a URL")
	}
	if s.trace == "" {
		return c, errors.New("--trace is missing: want a file")
	}
	// In a Config, zero means the default; on a command line it is a mistake.
	if c.Timeout <= 0 || c.SLO <= 0 || c.MaxInFlight <= 0 || c.ConnMaxRequests == 0 {
		return c, fmt.Errorf(
			"--timeout %v, --slo %v, --max-in-flight %d, --conn-max-requests %d: none may be 0, only the last negative",
			c.Timeout,
			c.SLO,
			c.MaxInFlight,
			c.ConnMaxRequests,
		)
	}
	t, err := trace.ReadFile(s.trace)
	if err != nil {
		return c, fmt.Errorf("--trace: %w", err)
	}
	if c.Trace, err = t.Scale(s.timeScale, s.rateScale); err != nil {
		return c, fmt.Errorf("--time-scale %g, --rate-scale %g: %w", s.timeScale, s.rateScale, err)
	}
	c.Arrivals = load.Arrivals(s.arrivals)
	return c, c.Validate()
}

// create opens the file at path for writing: "" discards, "-" is standard
// output.
func create(path string, stdout io.Writer) (io.Writer, func() error, error) {
	nothing := func() error { return nil }
	switch path {
	case "":
		return io.Discard, nothing, nil
	case "-":
		return stdout, nothing, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}
