// Command demo is the program of "make demo". It runs one application under one bursty
// load, sized in five ways, on a real Kubernetes on this machine.
//
//	static          requests and limits that are set for the peak; two replicas
//	hpa-vpa         the HorizontalPodAutoscaler on CPU and the VerticalPodAutoscaler on memory
//	hpa-vpa-30s     the same, with a window of 30 s for scaling down instead of 5 min
//	aware           AWARE, opted in with annotations on the same pod template
//	static-at-mean  two replicas with the cores that aware had in the mean until then
//
// With --runs there are more, which "make bench-real" has:
//
//	k8s-cpu-fast    a limit of usage / 0.6, the highest of 20 s, set each second (Autothrottle, NSDI'24, section 5)
//	aware-demand    AWARE, whose nodes decide by the demand rule
//	aware-learned   AWARE, whose central has learned the application for --learn of the same load before the
//	                rounds, and goes on from that in each slice
//	static-at-learned  two replicas with the cores that it had in the mean until then
//
// Each is measured in short slices, one after the other, as in parallel they would
// disturb each other on a machine with two cores. A round has one slice of each, and one of each
// beside a neighbour: a pod that burns a core in bursts. The order changes from round to round, so
// that the machine's moods hit all alike, and each round has a seed of its own. Only what is being
// measured has load and a running autoscaler. The first minute of a slice has load and is not
// counted.
//
// The load is fitted to the machine: how much CPU a request costs is measured first, and the
// bursts then ask for a known share of a core. A slice whose requests met a machine that was more than a
// fifth slower than then is measured again, twice at most: others of its host were busy (see pace.go).
//
//	go run ./test/demo                                         # everything: three rounds
//	go run ./test/demo --seeds 1 --neighbour without           # one round without the neighbour
//	go run ./test/demo --runs aware --seeds 1 --keep           # one run, and the cluster stays
//
// It writes result.json, report.html, summary.png and the applied manifests into the
// folder --out, after each slice what there is until then. While it runs it shows a table.
//
// Exit codes: 0 all slices ended, and AWARE's with resizes on the node and through
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
	"awarescale.dev/aware/test/perf/pace"
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
	seeds     []uint
	neighbour string
	trace     string // empty: bursty
	timeScale float64
	peak      float64       // cores that the load asks for at its peak
	slo       time.Duration // 0: it is fitted
	rule      string        // of AWARE's nodes; empty: their own
	learn     time.Duration // how long the application of the learned run lives before the rounds
	learned   string        // file of what another demo's has learned, in its place; empty: none
}

// What --neighbour takes.
const (
	withNeighbour    = "with"
	withoutNeighbour = "without"
	bothNeighbours   = "both"
)

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:           "demo",
		Short:         "One application, one load, five ways to size it, on a real Kubernetes on this machine",
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
	f.StringSliceVar(&o.runs, "runs", slices.Clone(demoRuns), fmt.Sprintf("which runs, of %v", allRuns))
	f.UintSliceVar(&o.seeds, "seeds", []uint{1, 2, 3}, "seeds of the arrivals: a round for each")
	f.StringVar(&o.neighbour, "neighbour", bothNeighbours,
		"with, without, or both: whether a pod that burns a core in bursts runs beside the application")
	f.StringVar(&o.trace, "trace", bursty, "the load's shape: bursty, or pulses of one second in each twenty, 3 to 5 times as high")
	f.Float64Var(&o.timeScale, "time-scale", 0.5, "how long the trace of 3 minutes is to be, as a factor")
	f.Float64Var(&o.peak, "peak", 0.9, "cores that the load asks for at its peak; the mean is 0.22 of that")
	f.DurationVar(&o.slo, "slo", 0,
		"latency that the 99th percentile of requests may take; 0 is thirty times the CPU time of a request")
	f.StringVar(&o.rule, "rule", "", "by which AWARE's nodes decide on CPU limits: captain or demand; empty is their own")
	f.DurationVar(&o.learn, "learn", 100*time.Minute,
		"how long the application of the run "+learned+" has load before the rounds, for central to learn it")
	f.StringVar(&o.learned, "learned", "",
		"in place of --learn, go on from the learned.tar of another demo; it is of no use with another SLO than there (--slo),\n"+
			"and where it is older than two hours the rule decides for the next half hour: the load's peak is not known then")
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
	for _, run := range o.runs {
		if whose := meanOf(run); whose != "" && !slices.Contains(o.runs, whose) {
			return fmt.Errorf("--runs has %s without %s, whose mean it is", run, whose)
		}
	}
	if len(o.seeds) == 0 {
		return errors.New("--seeds is empty: a round needs one")
	}
	if o.learned != "" {
		if !slices.Contains(o.runs, learned) {
			return fmt.Errorf("--learned without the run %s in --runs, which it is for", learned)
		}
		if _, err := os.Stat(o.learned); err != nil {
			return fmt.Errorf("--learned: %w", err)
		}
	}
	switch {
	case !slices.Contains([]string{"", "captain", "demand"}, o.rule):
		return fmt.Errorf("--rule %q: must be captain or demand", o.rule)
	case !slices.Contains([]string{"", bursty, pulses}, o.trace):
		return fmt.Errorf("--trace %q: must be %s or %s", o.trace, bursty, pulses)
	case o.learn < 0:
		return fmt.Errorf("--learn %v: must not be negative", o.learn)
	case !slices.Contains([]string{withNeighbour, withoutNeighbour, bothNeighbours}, o.neighbour):
		return fmt.Errorf("--neighbour %q: must be with, without or both", o.neighbour)
	case !(o.timeScale >= 0.1 && o.timeScale <= 20):
		return fmt.Errorf("--time-scale %g: must be 0.1 to 20, which is 18 s to an hour", o.timeScale)
	case !(o.peak >= 0.05 && o.peak <= 64):
		return fmt.Errorf("--peak %g: must be 0.05 to 64 cores", o.peak)
	case o.slo != 0 && (o.slo < time.Millisecond || o.slo >= requestTimeout):
		return fmt.Errorf("--slo %v: must be 1ms or more, and less than a request's timeout, %v; or 0", o.slo,
			requestTimeout)
	}
	return nil
}

// slice is one measurement: a run in a round.
type slice struct {
	run       string
	seed      uint64
	neighbour bool
}

// name is the run's name in the results.
func (s slice) name() string {
	if s.neighbour {
		return s.run + "+neighbour"
	}
	return s.run
}

// slices are all slices in their order. In each round another run is the first; those at another's mean are
// the last ones, because they have the mean of what was measured until then.
func (o options) slices() []slice {
	var all []slice
	var neighbours []bool
	if o.neighbour != withNeighbour {
		neighbours = append(neighbours, false)
	}
	if o.neighbour != withoutNeighbour {
		neighbours = append(neighbours, true)
	}
	for i, seed := range o.seeds {
		for _, neighbour := range neighbours {
			var runs, means []string
			for _, run := range o.runs {
				if meanOf(run) == "" {
					runs = append(runs, run)
				} else {
					means = append(means, run)
				}
			}
			if n := len(runs); n > 0 {
				runs = append(runs[i%n:n:n], runs[:i%n]...)
			}
			runs = append(runs, means...)
			for _, run := range runs {
				all = append(all, slice{run, uint64(seed), neighbour})
			}
		}
	}
	return all
}

// demo makes the cluster, measures all slices, and writes the report.
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
	paces := pace.Watch(ctx)
	defer paces()
	stage, err := raise(ctx, o, screen)
	if stage != nil {
		defer func() { err = errors.Join(err, stage.strike(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return err
	}
	if stage.fit, err = stage.measureFit(ctx, pace.Fastest(paces())); err != nil {
		return fmt.Errorf("fitting the load to this machine: %w", err)
	}
	screen.say("%s", stage.fit)

	if slices.Contains(o.runs, learned) {
		if err := stage.learn(ctx); err != nil {
			return fmt.Errorf("learning the application: %w", err)
		}
	}
	results := newResults(o, stage.fit)
	all := o.slices()
	repeats := len(all) / 2 // a machine that is slow all the time is not waited for
	for i, slice := range all {
		began := time.Now()
		last := i == len(all)-1
		if last && o.keep {
			repeats = 0 // its application stays
		}
		record, err := steady(func() (*Record, error) { return stage.play(ctx, slice, results, last) }, &repeats, screen.say)
		if err != nil {
			return errors.Join(fmt.Errorf("run %s, seed %d: %w", slice.name(), slice.seed, err), results.writeAll(o.out))
		}
		results.add(record)
		if err := results.writeAll(o.out); err != nil {
			return err
		}
		if left := len(all) - i - 1; left > 0 {
			screen.say("%s of seed %d: %s; %d slices are left, about %v", slice.name(), slice.seed, record.brief(), left,
				(time.Duration(left) * time.Since(began) / time.Duration(record.Tries)).Round(time.Minute))
		}
	}
	screen.say("")
	screen.say("%s", results.table())
	screen.say("results  %s\nreport   %s\npicture  %s", filepath.Join(o.out, "result.json"),
		filepath.Join(o.out, "report.html"), filepath.Join(o.out, "summary.png"))
	return results.check()
}
