package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"awarescale.dev/aware/cmd/draw"
	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// simulation is the command line of one run.
type simulation struct {
	trace    string        // a name or a file
	times    float64       // factor of the trace's rates; 0 is the default
	policy   string        // a name or a file
	fidelity string        // fluid or requests
	length   time.Duration // simulated time; 0 is the trace's length
	seed     uint64
	out      string // folder of the report; empty for none
	json     bool
}

func simulateCommand() *cobra.Command {
	var s simulation
	names, _ := bench.Policies()
	cmd := &cobra.Command{
		Use:   "simulate APP",
		Short: "Run a policy on an application in the simulated world",
		Args:  cobra.ExactArgs(1),
		Long: "APP is one of " + strings.Join(workload.Apps(), ", ") + ", or a YAML file of your own.\n" +
			"The trace is one of " + strings.Join(workload.Traces(), ", ") +
			", or a file: a number a line, requests in each second; or a\n" +
			"file of Azure Functions invocations (.csv). The policy is one of " + strings.Join(names, ", ") +
			" as tuned for\n" +
			"the application, or a policy file, or the address of a program that serves one (docs/bench.md).",
		Example: "  aware simulate hotel-reservation --trace diurnal --times 10 --policy autothrottle",
		RunE:    func(cmd *cobra.Command, args []string) error { return s.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&s.trace, "trace", "diurnal", "requests per second over time: a name or a file")
	f.Float64Var(&s.times, "times", 0,
		"multiply the trace's rates; 0 is what the application has in the twelve cells, or 1")
	f.StringVar(&s.policy, "policy", "captain",
		"policy that decides: a name, a policy file, or the address of one that is served (grpc:// or http://)")
	f.StringVar(&s.fidelity, "fidelity", "fluid", "fluid, or requests (simulates every request; slower)")
	f.StringVar(&s.fidelity, "level", "fluid", "the former name of --fidelity")
	_ = f.MarkHidden("level")
	f.DurationVar(&s.length, "length", 0, "simulated time; 0 is the trace's length")
	f.Uint64Var(&s.seed, "seed", 1, "the same seed gives the same run")
	f.StringVar(&s.out, "out", "out/simulate", "folder of the report; empty for none")
	f.BoolVar(&s.json, "json", false, "print one line of JSON")
	return cmd
}

func (s *simulation) run(cmd *cobra.Command, name string) error {
	fidelity, ok := map[string]sim.Fidelity{"fluid": sim.Fluid, "requests": sim.Requests}[s.fidelity]
	if !ok {
		return usage(fmt.Errorf("--fidelity %q: it must be fluid or requests", s.fidelity))
	}
	if s.times < 0 || s.length < 0 {
		return usage(fmt.Errorf("--times %v, --length %v: they must not be negative", s.times, s.length))
	}
	cell, err := s.cell(name)
	if err != nil {
		return err
	}
	choice, err := s.choice(cell)
	if err != nil {
		return err
	}
	warm, err := bench.Warm(cmd.Context(), cell, choice, s.seed)
	if err != nil {
		return err
	}
	view := newView(cmd.ErrOrStderr(), cell)
	var points []bench.Point
	score, err := bench.Run(cmd.Context(), cell, choice, bench.Options{
		Seed:     s.seed,
		Fidelity: fidelity,
		Length:   s.length,
		Tower:    warm,
		Watch:    func(p bench.Point) { points = append(points, p); view.show(p) },
	})
	view.end()
	if err != nil {
		return err
	}
	if s.out != "" {
		title := fmt.Sprintf("%s under %s with %s, seed %d",
			cell.Application, cell.Trace.Name, choice.Policy, s.seed)
		if err := draw.Run(s.out, title, cell.App.SLO.Latency.Seconds(), score, points); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", filepath.Join(s.out, "index.html"))
	}
	if s.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(score)
	}
	verdict := "holds"
	if score.Violates {
		verdict = "violates"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(),
		"p99 %.1f ms %s the objective of %v; %.2f cores allocated, %.2f used, %.1f GiB; "+
			"%.2f %% of the windows over it; %d resizes, %d OOM kills\n",
		score.P99MS, verdict, cell.App.SLO.Latency, score.Cores, score.Used, score.MemoryGiB, 100*score.Ratio,
		score.Resizes, score.OOMKills)
	return err
}

// cell is the application, by its name or from its file, under the trace.
func (s *simulation) cell(name string) (bench.Cell, error) {
	t, err := workload.Open(s.trace)
	if err != nil {
		return bench.Cell{}, fmt.Errorf("--trace: %w", err)
	}
	app, err := openApp(name)
	if err != nil {
		return bench.Cell{}, err
	}
	return bench.Single(name, app, t, s.times)
}

// openApp is a built-in application, or one from a file.
func openApp(name string) (sim.App, error) {
	if !strings.ContainsAny(name, "./") {
		return workload.NamedApp(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return sim.App{}, fmt.Errorf("application: %w", err)
	}
	defer f.Close()
	return workload.Read(name, f)
}

// choice is the policy: a file, or a baseline with the settings that were tuned
// for the application, or with its defaults where none were.
func (s *simulation) choice(cell bench.Cell) (bench.Choice, error) {
	if strings.ContainsAny(s.policy, "./") {
		return openChoice(s.policy)
	}
	c, err := bench.Named(s.policy)
	if err != nil {
		return c, usage(fmt.Errorf("--policy: %w", err))
	}
	book, err := bench.Shipped()
	if err != nil {
		return c, err
	}
	if t, ok := book.Near(cell, s.policy); ok {
		return t.Choice, nil
	}
	return c, nil
}

// view shows the progress of a run: one line that changes on a terminal, otherwise
// a line every five minutes.
type view struct {
	out   io.Writer
	live  bool      // out is a terminal
	slo   float64   // the latency objective, in seconds
	all   float64   // length of the trace, in seconds
	begun time.Time // when the run began
	shown bool      // a line is on the terminal
}

func newView(out io.Writer, cell bench.Cell) *view {
	f, ok := out.(*os.File)
	return &view{
		out:   out,
		live:  ok && term.IsTerminal(int(f.Fd())),
		slo:   cell.App.SLO.Latency.Seconds(),
		all:   cell.Trace.Length().Seconds(),
		begun: time.Now(),
	}
}

func (v *view) show(p bench.Point) {
	if !v.live && int(p.Second)%300 != 0 {
		return
	}
	mark := " "
	if p.P99 > v.slo {
		mark = "!"
	}
	line := fmt.Sprintf("%5.1f min  %6.0f requests/s  p99 %7.1f ms %s  %6.2f cores (%.2f used) %s",
		p.Second/60, p.Rate, p.P99*1000, mark, p.Cores, p.Used,
		strings.Repeat("#", int(min(30, p.Cores/2))))
	if v.live {
		fmt.Fprintf(v.out, "\r\x1b[K%s", line)
		v.shown = true
		return
	}
	fmt.Fprintln(v.out, line)
}

func (v *view) end() {
	if v.shown {
		fmt.Fprintln(v.out)
	}
}
