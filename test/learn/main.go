// Command learn checks that the learners learn: it runs every gate of the list
// for some seeds, with one training per CPU at a time, and compares BCQ with
// cloning and DDPG on fixed data. It prints a table, writes
// out/learn/learn.json, and fails when a gate does not hold. (A unit test of
// learner/algo/dqn compares tabular Q-learning with value iteration.)
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"awarescale.dev/aware/learner/algo/bcq/evaluation"
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel/gemm"
	"awarescale.dev/aware/learner/train/presets"
	"github.com/google/renameio/v2"
	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/stat"
)

// gate is the return that an algorithm must reach in an environment within a number of
// steps. Some seeds may miss it.
type gate struct {
	env       string
	algorithm string
	steps     int
	least     float64 // mean return of 100 new episodes
	spare     int     // of three seeds, how many may miss it
}

var gates = []gate{
	{"CartPole-v1", "ppo", 100_000, 475, 0},
	{"CartPole-v1", "dqn", 100_000, 475, 0},
	{"Pendulum-v1", "ddpg", 30_000, -200, 0},
	{"MountainCarContinuous-v0", "ddpg", 100_000, 90, 1},
}

// offline is the result of learning from fixed data: mean returns of BCQ, of behaviour
// cloning, and of DDPG, on the same batches.
type offline struct {
	Seed  uint64  `json:"seed"`
	Data  float64 `json:"data"`
	BCQ   float64 `json:"bcq"`
	Clone float64 `json:"clone"`
	DDPG  float64 `json:"ddpg"`
	Wall  float64 `json:"wall_s"`
	Holds bool    `json:"holds"`
}

func (o *offline) run() error {
	begin := time.Now()
	p, err := evaluation.Evaluate(o.Seed, evaluation.Full())
	if err != nil {
		return err
	}
	o.Data = p.Data
	o.BCQ = p.BCQ
	o.Clone = p.Clone
	o.DDPG = p.DDPG
	o.Wall = time.Since(begin).Seconds()
	o.Holds = o.BCQ > o.Clone && o.BCQ > o.DDPG
	return nil
}

// result is the result of one training.
type result struct {
	Env   string  `json:"env"`
	Algo  string  `json:"algo"`
	Seed  uint64  `json:"seed"`
	Steps int     `json:"steps"`
	Mean  float64 `json:"mean100"`
	Std   float64 `json:"std100"`
	Wall  float64 `json:"wall_s"`
	Least float64 `json:"least"`
	Holds bool    `json:"holds"`
}

func main() {
	first := flag.Uint64("first", 1, "first seed")
	seeds := flag.Int("seeds", 3, "how many")
	only := flag.String("only", "", "only gates whose name, such as ppo/CartPole-v1, contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := prove(ctx, *first, *seeds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "learn:", err)
		os.Exit(1)
	}
}

func prove(ctx context.Context, first uint64, seeds int, only string) error {
	graph.Use(gemm.Choose().BLAS())
	var results []result
	for _, g := range gates {
		for s := range seeds {
			if strings.Contains(g.algorithm+"/"+g.env, only) {
				results = append(results, result{
					Env:   g.env,
					Algo:  g.algorithm,
					Seed:  first + uint64(s),
					Steps: g.steps,
					Least: g.least,
				})
			}
		}
	}
	var evaluations []offline
	if strings.Contains("bcq/Pendulum-v1", only) {
		for s := range seeds {
			evaluations = append(evaluations, offline{Seed: first + uint64(s)})
		}
	}
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range results {
		group.Go(func() error {
			r := &results[i]
			if err := r.run(ctx); err != nil {
				return err
			}
			fmt.Printf("%4.0f s  %-5s %-26s seed %d: %8.1f (at least %.0f), %d steps in %.0f s\n",
				time.Since(begin).Seconds(), r.Algo, r.Env, r.Seed, r.Mean, r.Least, r.Steps, r.Wall)
			return nil
		})
	}
	for i := range evaluations {
		group.Go(func() error {
			o := &evaluations[i]
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := o.run(); err != nil {
				return err
			}
			fmt.Printf("%4.0f s  bcq   Pendulum-v1, fixed data    seed %d: %8.1f "+
				"(cloning %.1f, ddpg %.1f, the data %.1f) in %.0f s\n",
				time.Since(begin).Seconds(), o.Seed, o.BCQ, o.Clone, o.DDPG, o.Data, o.Wall)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return report(results, evaluations)
}

func (r *result) run(ctx context.Context) error {
	begin := time.Now()
	run, err := presets.Make(r.Algo, r.Env, r.Steps, r.Seed)
	if err != nil {
		return err
	}
	if err := run.Train(ctx, r.Steps); err != nil {
		return err
	}
	returns, err := run.Final(100)
	if err != nil {
		return err
	}
	r.Mean, r.Std = stat.MeanStdDev(returns, nil)
	r.Wall, r.Holds = time.Since(begin).Seconds(), r.Mean >= r.Least
	return nil
}

func report(results []result, evaluations []offline) error {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nALGORITHM\tENVIRONMENT\tSEEDS\tMEAN OF 100\tAT LEAST\tSTEPS\tGATE")
	failed := 0
	for _, g := range gates {
		var means []string
		missed, all := 0, 0
		for _, r := range results {
			if r.Env == g.env && r.Algo == g.algorithm {
				means = append(means, fmt.Sprintf("%.1f", r.Mean))
				all++
				if !r.Holds {
					missed++
				}
			}
		}
		if all == 0 {
			continue
		}
		verdict := "holds"
		if missed > (g.spare*all+2)/3 {
			verdict = "FAILS"
			failed++
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%.0f\t%d\t%s\n", g.algorithm, g.env, all, strings.Join(means, " "),
			g.least, g.steps, verdict)
	}
	if len(evaluations) > 0 {
		var means []string
		verdict := "holds"
		for _, o := range evaluations {
			means = append(means, fmt.Sprintf("%.0f > %.0f, %.0f", o.BCQ, o.Clone, o.DDPG))
			if !o.Holds {
				verdict = "FAILS"
			}
		}
		if verdict == "FAILS" {
			failed++
		}
		fmt.Fprintf(t, "bcq\tPendulum-v1, fixed data\t%d\t%s\tcloning, ddpg\t\t%s\n", len(evaluations),
			strings.Join(means, "; "), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(map[string]any{"online": results, "offline": evaluations}, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll("out/learn", 0o755); err != nil {
		return err
	}
	if err := renameio.WriteFile("out/learn/learn.json", text, 0o644); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d gates do not hold", failed)
	}
	return nil
}
