package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/cmd/draw"
	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/sim/workload"
	"github.com/spf13/cobra"
)

// comparison is the command line of aware bench baselines.
type comparison struct {
	out, tuned string
	resume     string
	seeds      int
	best       int
	asJSON     bool
	apps       []string
	policies   []string
	traces     []string
	files      []string
	columns    string
	scarce     bool
	anomalies  bool
	metrics    time.Duration // how late they are
	floor      bool
	floorRuns  int
}

// columnSets are the values of --columns.
var columnSets = []string{"standard", "spiky", "all"}

func baselinesCommand() *cobra.Command {
	var c comparison
	cmd := &cobra.Command{
		Use:     "baselines",
		Aliases: []string{"anchors"},
		Short:   "Run every baseline, tuned, in the twelve cells",
		Args:    cobra.NoArgs,
		Long: "Three applications under four traces of an hour (Autothrottle's evaluation). The score is the mean of\n" +
			"allocated cores with what resizes cost, and counts only where every seed holds: the p99 over the hour, at\n" +
			"most 0.5 % of the requests lost, background work in time. Every rule is judged at the fluid level; the best\n" +
			"tuned ones of each cell and all others then at the request level, whose verdict counts.\n\n" +
			"With --columns spiky the traces are " + strings.Join(workload.Spiky(), ", ") + "\n" +
			"(--columns all: both). With --scarce the nodes have 1.2 times the CPU that static limits for the peak rate\n" +
			"take. Baselines have no built-in settings for these cells, so they are tuned first, which takes long;\n" +
			"--policies selects some. The marks used and floor of the twelve cells are built in; with --floor they are\n" +
			"searched, for all cells: docs/bench.md.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&c.out, "out", "out/anchors", "folder of the report; empty for none")
	f.StringVar(&c.tuned, "tuned", "",
		"file of aware bench tune, instead of the built-in settings")
	f.IntVar(&c.seeds, "seeds", 3, "runs of each policy in each cell")
	f.IntVar(&c.best, "best", 3, "rules of each cell that the request level judges; 0 leaves it out, for policy files too")
	f.StringVar(&c.resume, "resume", "",
		"file that keeps each row and floor when it is done, and from which a run that was cut short goes on")
	f.BoolVar(&c.asJSON, "json", false, "print one line of JSON")
	f.StringSliceVar(&c.apps, "app", nil,
		"only these applications ("+strings.Join(bench.Applications(), ", ")+")")
	f.StringSliceVar(&c.policies, "policies", nil, "only these baselines")
	f.StringSliceVar(&c.traces, "trace", nil,
		"more columns: names of traces, files of rates, or Azure Functions .csv; baselines are tuned for them first")
	f.StringSliceVar(&c.files, "policy", nil,
		"more rows: policy files, JSON or learned (.safetensors), or policies that other programs serve\n"+
			"(grpc://HOST:PORT, or http://HOST:PORT for JSON; docs/bench.md)")
	f.StringVar(&c.columns, "columns", "standard", "the traces: "+strings.Join(columnSets, ", "))
	f.BoolVar(&c.scarce, "scarce", false, "scarce nodes in every cell")
	f.BoolVar(&c.anomalies, "anomalies", false, "FIRM's seven anomalies at random times in every cell")
	f.DurationVar(&c.metrics, "metrics-delay", 0,
		"how late the metrics of rules are that act through the API; rules on the node read cgroups")
	f.BoolVar(&c.floor, "floor", false, "search the floor of every cell, by a policy that knows the next 10 s")
	f.IntVar(&c.floorRuns, "floor-runs", bench.FloorRuns, "limit of the simulated runs of a search for a floor")
	return cmd
}

// run compares the policies.
func (c *comparison) run(cmd *cobra.Command) error {
	if c.seeds < 1 || c.seeds > 1000 {
		return usage(fmt.Errorf("--seeds %d: it must be in [1, 1000]", c.seeds))
	}
	if c.floorRuns < 1 || c.floorRuns > 10_000 {
		return usage(fmt.Errorf("--floor-runs %d: it must be in [1, 10000]", c.floorRuns))
	}
	if c.metrics < 0 || c.metrics > time.Hour || c.metrics%time.Second != 0 {
		return usage(fmt.Errorf("--metrics-delay %v: it must be whole seconds, from 0s to 1h", c.metrics))
	}
	settings, err := openTuned(c.tuned)
	if err != nil {
		return err
	}
	all, err := contestants(c.policies, c.files)
	if err != nil {
		return err
	}
	cells, err := c.cells(cmd.Context(), settings)
	if err != nil {
		return err
	}
	rows, floors, err := c.results(cmd, cells, all, settings)
	if err != nil {
		return err
	}
	if c.out != "" {
		if err := draw.Baselines(c.out, rows, c.seeds); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", filepath.Join(c.out, "index.html"))
	}
	if c.asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{
			"cells": rows, "floors": floors, "verdicts": bench.Verdicts(rows),
		})
	}
	if err := bench.Print(cmd.OutOrStdout(), rows); err != nil {
		return err
	}
	if err := bench.PrintMarks(cmd.OutOrStdout(), rows, floors); err != nil {
		return err
	}
	return bench.PrintVerdicts(cmd.OutOrStdout(), bench.Verdicts(rows))
}

// results runs the policies, and searches the floors if they are asked for. What an
// earlier run has kept is not done again.
func (c *comparison) results(
	cmd *cobra.Command, cells []bench.Cell, all []bench.Contestant, settings bench.TunedSettings,
) ([]bench.Row, []bench.Floor, error) {
	made := fmt.Sprintf("%d seeds, settings %x, scarce %v", c.seeds, settings.Fingerprint(), c.scarce)
	for _, file := range c.files {
		mark, err := markOf(file)
		if err != nil {
			return nil, nil, err
		}
		made += ", policy " + mark
	}
	kept, err := openKept(c.resume, made)
	if err != nil {
		return nil, nil, err
	}
	defer kept.Close()
	p := newProgress(cmd.ErrOrStderr(), 0)
	rows, err := bench.Contest{
		Cells: cells, Contestants: all, Tuned: settings, Seeds: c.seeds, Best: c.best,
		Known: kept.row,
		Done: func(r bench.Row, of int) {
			p.all = of
			kept.keep(r)
			p.step(fmt.Sprintf("%s under %s: %s by %s %.1f cores, p99 %.0f ms",
				r.App, r.Trace, r.Policy, r.Fidelity, r.Cores, r.P99MS))
		},
	}.Run(cmd.Context())
	if err = errors.Join(err, kept.err); err != nil {
		return rows, nil, err
	}
	var floors []bench.Floor
	if c.floor {
		floors, err = c.floors(cmd.Context(), cmd.ErrOrStderr(), cells, kept)
	} else {
		floors, err = bench.ShippedFloors(cells)
	}
	bench.Marks(rows, floors)
	return rows, floors, errors.Join(err, kept.err)
}

// markOf tells a policy of the command line from others: a served one by its
// address, one in a file by its content too.
func markOf(file string) (string, error) {
	if isServed(file) {
		return file, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("policy: %w", err)
	}
	return fmt.Sprintf("%s %08x", filepath.Base(file), crc32.ChecksumIEEE(content)), nil
}

// cells are the cells of the command line.
func (c *comparison) cells(ctx context.Context, tuned bench.TunedSettings) ([]bench.Cell, error) {
	if !slices.Contains(columnSets, c.columns) {
		return nil, usage(fmt.Errorf("--columns %q: known are %s", c.columns, strings.Join(columnSets, ", ")))
	}
	cells, err := chosenCells(c.apps)
	if err != nil {
		return nil, err
	}
	if c.columns == "spiky" {
		cells = nil
	}
	if c.columns != "standard" {
		more, err := bench.Spiky()
		if err != nil {
			return nil, err
		}
		cells = append(cells, more...)
	}
	for _, file := range c.traces {
		t, err := workload.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		t.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		more, err := bench.Columns(t)
		if err != nil {
			return nil, fmt.Errorf("--trace %s: %w", file, err)
		}
		cells = append(cells, more...)
	}
	cells = slices.DeleteFunc(cells, func(cell bench.Cell) bool {
		return len(c.apps) > 0 && !slices.Contains(c.apps, cell.Application)
	})
	for i := range cells {
		if c.scarce {
			if cells[i], err = bench.Scarce(ctx, cells[i], tuned); err != nil {
				return nil, err
			}
		}
		if c.anomalies {
			cells[i] = bench.Disturb(cells[i])
		}
		if c.metrics > 0 {
			cells[i] = bench.Delay(cells[i], c.metrics)
		}
	}
	return cells, nil
}

// floors searches the floor of every cell.
func (c *comparison) floors(
	ctx context.Context, progress io.Writer, cells []bench.Cell, kept *kept,
) ([]bench.Floor, error) {
	steps := make(chan struct{}, 1)
	p := newProgress(progress, len(cells))
	return bench.Floors(ctx, cells, bench.FloorOptions{
		Seeds: c.seeds,
		Runs:  c.floorRuns,
		Known: func(app, trace string) (bench.Floor, bool) {
			f, ok := kept.floors[floorKey{app, trace, c.floorRuns}]
			return f, ok
		},
		Step: func(what string) {
			steps <- struct{}{}
			fmt.Fprintf(progress, "floor of %s\n", what)
			<-steps
		},
	}, func(f bench.Floor) {
		kept.keepFloor(f, c.floorRuns)
		steps <- struct{}{}
		p.step(fmt.Sprintf("%s under %s: floor %.2f cores, %.2f used, %d runs", f.App, f.Trace, f.Searched, f.Used, f.Runs))
		<-steps
	})
}
