package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/train/margins"
	"github.com/spf13/cobra"
)

// marginsOptions are the flags of train margins.
type marginsOptions struct {
	config marginsConfig
	rounds int
	out    string
	resume string
	into   string
	held   int // worlds in which parts of the margins are judged; 0 takes all of them
	json   bool
}

// marginsConfig is what decides the result, with the seed.
type marginsConfig struct {
	App    string         `json:"app"`
	Policy string         `json:"policy"`
	Length time.Duration  `json:"length_ns"`
	Config margins.Config `json:"config"`

	// Of the policy file, and of the worlds in which parts of the margins are judged.
	Share   float64 `json:"share"` // of the error budget; 0 is the policy's own
	Windows float64 `json:"windows"`
}

// marginsFile is what --resume takes.
type marginsFile struct {
	Encoding int           `json:"encoding"`
	Made     marginsConfig `json:"made"`
	State    margins.State `json:"state"`
}

func marginsCommand() *cobra.Command {
	o := marginsOptions{config: marginsConfig{Config: margins.Default}}
	cmd := &cobra.Command{
		Use:   "margins",
		Short: "Learn the margins of the demand policy for each service of an application",
		Args:  cobra.NoArgs,
		Long: "Each round lowers one service's margin after the other, in random worlds that are otherwise the same, and moves the\n" +
			"margins to where a core takes as many late requests away in one service as in another. The worlds are pieces of the\n" +
			"warm-up trace at random rates and speeds, with noise, and services whose work differs.\n\n" +
			"What was learned is then judged in hours of other worlds, with the error budget: the part of the margins with which the\n" +
			"policy needs the fewest cores is taken, or none.\n\n" +
			"It writes APPLICATION.json, a policy file that aware simulate --policy and aware bench baselines --policy take, and\n" +
			"APPLICATION.state.json after each round, from which --resume goes on.",
		Example: "  aware train margins --app social-network\n" +
			"  aware train margins --app social-network --rounds 30 --resume out/margins/social-network.state.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.config.App, "app", "social-network", "application ("+strings.Join(bench.Applications(), ", ")+")")
	f.StringVar(&o.config.Policy, "policy", "demand", "the demand policy: demand or demand-1s")
	f.DurationVar(&o.config.Length, "length", 10*time.Minute, "of each world")
	f.IntVar(&o.config.Config.Worlds, "worlds", margins.Default.Worlds, "worlds in each round")
	f.Uint64Var(&o.config.Config.Seed, "seed", margins.Default.Seed, "the same seed gives the same margins")
	f.Float64Var(&o.config.Share, "share", 0, "error budget in the policy file, as a share of requests; 0 is the policy's own")
	f.Float64Var(&o.config.Windows, "windows", 0.035,
		"share of windows of ten seconds that may be over the SLO, in the policy file")
	f.Float64Var(&o.config.Config.Late, "late", 0,
		"share of late requests at which margins are compared; 0 is what the error budget comes to without margins")
	f.IntVar(&o.held, "held-out", 10,
		"worlds of an hour in which parts of the margins, and levels, are judged; 0 takes what was learned")
	f.IntVar(&o.rounds, "rounds", 12, "rounds, with those before")
	f.StringVar(&o.out, "out", "out/margins", "folder of the results")
	f.StringVar(&o.resume, "resume", "", "state to go on from")
	f.StringVar(&o.into, "into", "", "file with the margins of several applications, into which these are written, too")
	f.BoolVar(&o.json, "json", false, "print one line of JSON")
	return cmd
}

func (o *marginsOptions) run(ctx context.Context, out, progress io.Writer) error {
	cell, err := o.cell()
	if err != nil {
		return err
	}
	judge, err := margins.InCell(cell, o.config.Policy, o.config.Length)
	if err != nil {
		return usage(fmt.Errorf("--policy: %w", err))
	}
	if err := o.late(ctx, progress, cell); err != nil {
		return err
	}
	from, err := o.from()
	if err != nil {
		return err
	}
	l, err := margins.New(o.config.Config, len(cell.App.Services), judge, from)
	if err != nil {
		return usage(err)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := newProgress(progress, o.rounds-len(from.Rounds))
	for len(l.State().Rounds) < o.rounds {
		n := 0
		r, err := l.Round(ctx, func(of int) {
			if n++; n%100 == 0 {
				fmt.Fprintf(progress, "  %d of about %d worlds\n", n, of)
			}
		})
		if err != nil {
			return errors.Join(err, o.write(cell, l.State(), l.State().Margins))
		}
		if err := o.write(cell, l.State(), l.State().Margins); err != nil {
			return err
		}
		p.step(fmt.Sprintf("%.3f cores, %.3f after, kept %v", r.Before, r.After, r.Kept))
	}
	taken, parts, err := o.judge(ctx, progress, cell, l.State())
	if err != nil {
		return err
	}
	if err := o.write(cell, l.State(), taken); err != nil {
		return err
	}
	if err := o.ship(cell, len(l.State().Rounds), taken); err != nil {
		return fmt.Errorf("--into: %w", err)
	}
	return o.say(out, cell, l.State(), taken, parts)
}

// lateWorlds is in how many hours it is found out what the error budget comes to.
const lateWorlds = 6

// late finds out at which share of late requests margins are compared, where no flag says it: that of the state to go on
// from, or what the error budget comes to.
func (o *marginsOptions) late(ctx context.Context, progress io.Writer, cell bench.Cell) error {
	if o.config.Config.Late != 0 {
		return nil
	}
	if o.resume != "" {
		f, err := o.read()
		o.config.Config.Late = f.Made.Config.Late
		return err
	}
	share, err := margins.Budgeted(ctx, cell, o.choice(cell, make([]float64, len(cell.App.Services))), lateWorlds)
	if err != nil {
		return err
	}
	// In steps, so that the figure is one that a person can give to --late.
	o.config.Config.Late = max(leastLate, math.Round(share/leastLate)*leastLate)
	fmt.Fprintf(progress, "margins are compared at %.2f %% of late requests, where the error budget comes to\n",
		100*o.config.Config.Late)
	return nil
}

// leastLate is the least share at which margins are compared: a world of ten minutes has a few such requests.
const leastLate = 0.0005

// judge takes the part of what was learned that is best in other worlds.
func (o marginsOptions) judge(ctx context.Context, progress io.Writer, cell bench.Cell, s margins.State) (
	taken []float64, parts []margins.Part, err error) {
	if o.held == 0 {
		return s.Margins, nil, nil
	}
	none := o.choice(cell, make([]float64, len(s.Margins)))
	try := func(some []margins.Part, of int) (margins.Part, error) {
		p := newProgress(progress, of*o.held)
		best, err := margins.HeldOut(ctx, cell, none, s.Margins, some, o.held, func(int) { p.step("hours of other worlds") })
		return some[best], err
	}
	parts = margins.Parts()
	best, err := try(parts, len(parts))
	if err != nil {
		return nil, nil, err
	}
	levels := margins.Levels(best.Of)
	with := append([]margins.Part{best}, levels...)
	best, err = try(with, len(levels))
	return best.Margins(s.Margins), append(parts, with[1:]...), err
}

// ship writes the margins into a file that has those of other applications, too.
func (o marginsOptions) ship(cell bench.Cell, rounds int, taken []float64) error {
	if o.into == "" {
		return nil
	}
	all, err := readMargins(o.into)
	if err != nil {
		return err
	}
	c := o.config
	mine := bench.ApplicationMargins{
		Made: fmt.Sprintf("aware train margins --app %s --policy %s --length %v --worlds %d --seed %d --rounds %d "+
			"--late %g --held-out %d --windows %g, on %s", c.App, c.Policy, c.Length, c.Config.Worlds, c.Config.Seed,
			rounds, c.Config.Late, o.held, c.Windows, time.Now().Format(time.DateOnly)),
		Margins: map[string]float64{},
	}
	for i, service := range cell.App.Services {
		mine.Margins[service.Name] = rounded(taken[i])
	}
	if all.Applications == nil {
		all.Applications = map[string]bench.ApplicationMargins{}
	}
	all.Applications[cell.App.Name] = mine
	return writeMargins(o.into, all)
}

// rounded is a margin as files have it: within what the policy takes.
func rounded(margin float64) float64 { return math.Round(1000*max(-5, min(5, margin)))/1000 + 0 }

// cell is a cell of the application, of which only the warm-up trace is used.
func (o marginsOptions) cell() (bench.Cell, error) {
	if o.rounds < 1 {
		return bench.Cell{}, usage(fmt.Errorf("--rounds %d: it must be 1 or more", o.rounds))
	}
	if o.held < 0 || o.held > 1000 {
		return bench.Cell{}, usage(fmt.Errorf("--held-out %d: it must be in [0, 1000]", o.held))
	}
	if !(o.config.Windows >= 0 && o.config.Windows <= 1) {
		return bench.Cell{}, usage(fmt.Errorf("--windows %v: it must be in [0, 1]; 0 is the policy's own", o.config.Windows))
	}
	if o.config.Length < time.Minute || o.config.Length > time.Hour || o.config.Length%(4*time.Second) != 0 {
		return bench.Cell{}, usage(fmt.Errorf("--length %v: it must be from 1m to 1h, in whole 4 s", o.config.Length))
	}
	cells, err := chosenCells([]string{o.config.App})
	if err != nil {
		return bench.Cell{}, err
	}
	return cells[0], nil
}

// from is the state to go on from. It must be of the same run.
func (o marginsOptions) from() (margins.State, error) {
	if o.resume == "" {
		return margins.State{}, nil
	}
	f, err := o.read()
	if err != nil {
		return margins.State{}, err
	}
	was, is := f.Made, o.config
	was.Share, is.Share, was.Windows, is.Windows = 0, 0, 0, 0
	if was != is {
		return margins.State{}, fmt.Errorf("--resume %s: it is of another run: %+v, and the flags say %+v", o.resume, was, is)
	}
	return f.State, nil
}

// read reads the file to go on from.
func (o marginsOptions) read() (f marginsFile, err error) {
	text, err := os.ReadFile(o.resume)
	if err != nil {
		return f, fmt.Errorf("--resume: %w", err)
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, fmt.Errorf("--resume %s: %w", o.resume, err)
	}
	if f.Encoding != bench.Encoding {
		return f, fmt.Errorf("--resume %s: encoding %d: this aware reads encoding %d", o.resume, f.Encoding, bench.Encoding)
	}
	return f, nil
}

// choice is the policy with the margins.
func (o marginsOptions) choice(cell bench.Cell, taken []float64) bench.Choice {
	c := bench.Choice{Encoding: bench.Encoding, Policy: o.config.Policy, Settings: map[string]float64{}}
	for i, service := range cell.App.Services {
		c.Settings["margin."+service.Name] = rounded(taken[i])
	}
	if o.config.Share > 0 {
		c.Settings["share"] = o.config.Share
	}
	if o.config.Windows > 0 {
		c.Settings["windows"] = o.config.Windows
	}
	return c
}

// write writes the state and the policy file.
func (o marginsOptions) write(cell bench.Cell, s margins.State, taken []float64) error {
	for name, v := range map[string]any{
		o.config.App + ".state.json": marginsFile{bench.Encoding, o.config, s},
		o.config.App + ".json":       o.choice(cell, taken),
	} {
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return err
		}
		if err := writeAtomically(filepath.Join(o.out, name), append(text, '\n')); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	return nil
}

// say prints the result.
func (o marginsOptions) say(out io.Writer, cell bench.Cell, s margins.State, taken []float64, parts []margins.Part) error {
	c := o.choice(cell, taken)
	if o.json {
		return json.NewEncoder(out).Encode(map[string]any{"made": o.config, "rounds": s.Rounds, "held_out": parts, "policy": c})
	}
	for _, p := range parts {
		fmt.Fprintf(out,
			"in other worlds with %.2f of the margins, %+.1f: %.3f cores, %.2f %% of requests late, %.2f %% of windows over\n",
			p.Of, p.Level, p.Cores, 100*p.Late, 100*p.Windows)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		fmt.Fprintf(out, "%-40s %6.2f\n", name, c.Settings[name])
	}
	_, err := fmt.Fprintf(out, "policy: %s\n", filepath.Join(o.out, o.config.App+".json"))
	return err
}
