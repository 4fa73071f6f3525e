package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/sim/workload"
	"awarescale.dev/aware/learner/train/lesson"
	"github.com/spf13/cobra"
)

func proveCommand() *cobra.Command {
	var (
		workloads   int
		split, seed uint64
		asJSON      bool
	)
	cmd := &cobra.Command{
		Use:   "prove FILE",
		Short: "Compare what central's lessons begin with with central's rule, in workloads that its pretraining has not seen",
		Args:  cobra.ExactArgs(1),
		Long: "FILE is of aware train meta --central. It plays as it is, before any lesson, and central's rule in the same\n" +
			"episodes: half of the workloads are as published, and half after some of the seven updates.\n\n" +
			"Where it earns more in the mean, and for certain (95 %) in more than half of the workloads, FILE is marked as proven,\n" +
			"and central tries it after two episodes in a new workload, where the upper bounds of that one are within the range of\n" +
			"these; otherwise the mark is removed. What was found, and the range, are written to FILE, too.",
		Example: "  aware train prove out/start.safetensors",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, unseen := workload.Split(split); workloads < 2 || workloads > len(unseen) {
				return usage(fmt.Errorf("--workloads %d: it must be in [2, %d]", workloads, len(unseen)))
			}
			raw, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("aware train meta --central makes it: %w", err)
			}
			start, err := lesson.DecodeStart(raw)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if made := start.Provenance["split"]; made != fmt.Sprint(split) {
				return usage(fmt.Errorf("--split %d: %s was made with %s, and may have seen the workloads", split, args[0], made))
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			setting := aware.Published
			setting.Central = true
			p := newProgress(cmd.ErrOrStderr(), workloads)
			proof, err := setting.Prove(ctx, start, workloads, split, seed, p.step)
			if err != nil {
				return err
			}
			start.Proven, start.Within, start.Provenance["proof"] = proof.Holds(), proof.Within, proof.String()
			if err := start.Write(args[0]); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
					aware.Proof
					Proven bool `json:"proven"`
				}{proof, start.Proven})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%v\nproven: %v\n", proof, start.Proven)
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&workloads, "workloads", 100, "of the 200 that no pretraining may use")
	f.Uint64Var(&seed, "seed", 1, "the same seed gives the same result")
	f.Uint64Var(&split, "split", 1, "seed of the division of the applications; that of aware train meta")
	f.BoolVar(&asJSON, "json", false, "print one line of JSON")
	return cmd
}
