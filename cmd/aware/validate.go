package main

import (
	"encoding/json"
	"fmt"

	"awarescale.dev/aware/cmd/draw"
	"awarescale.dev/aware/learner/sim/calibrate"
	"github.com/spf13/cobra"
)

// validateCommand compares the simulator's formulas with public measurements. With
// --json the last line of the output is one JSON object. Progress is on stderr.
func validateCommand() *cobra.Command {
	var run validation
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "How well the simulator's formulas predict measurements that they were not fitted to",
		Long: `Fits the simulator to one part of public measurements and predicts the other part: the simulated
world predicts the p99 and the completed rate of an application from the offered load and its services' CPUs, with each
policy left out in turn. Beside it stand a constant, nearest neighbours, and a regression that reads the completed rate.
The formulas predict how long a function takes under other sizes, and how much
slower a workload is with a noisy neighbour. Without --data it uses the measurements that AWARE ships. Measurements of
interference may not be shipped and need --data.

A folder for --data has any of these files, in their authors' format:
  cilantro-hotelres/hotelres_measurements.csv
  chunkfunc-memory-profiles/profiles.csv
  aws-lambda-memory/s3_writer_runtimes.csv
  parsec-ibench-interference/parsec_interference.csv, and parsec_threads.csv`,
		Example: "  aware bench validate\n  aware bench validate --data measurements --json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 {
				return usage(fmt.Errorf("validate takes no arguments; %q was given", args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run.validate(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&run.data, "data", "", "folder of measurements; empty for those that AWARE ships")
	f.BoolVar(&run.json, "json", false, "print JSON instead of a table")
	f.StringVar(&run.out, "out", "out/validate",
		"folder for report.html, report.json and pictures; empty for none")
	f.Uint64Var(&run.seed, "seed", 1, "seed of the split into fitted and predicted data, and of the simulated world")
	f.IntVar(&run.windows, "windows", 100,
		"how many windows of each policy the simulated world predicts, evenly over its time; 0 for none")
	return cmd
}

// validation is the command line of one validation.
type validation struct {
	data    string // folder of measurements; empty for the built-in ones
	out     string // folder of the report; empty for none
	json    bool
	seed    uint64 // of the split into fitted and predicted data, and of the world
	windows int    // of each policy that the simulated world predicts
}

func (v *validation) validate(cmd *cobra.Command) error {
	from := calibrate.Shipped()
	if v.data != "" {
		var err error
		if from, err = calibrate.Dir(v.data); err != nil {
			return usage(err)
		}
	}
	progress := func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	result, err := calibrate.Validate(from, calibrate.Options{Seed: v.seed, Windows: v.windows}, progress)
	if err != nil {
		return err
	}
	if v.out != "" {
		if err := draw.Validation(v.out, from.String(), v.seed, result); err != nil {
			return err
		}
		progress("report: " + v.out + "/report.html")
	}
	if v.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(result)
	}
	return result.Print(cmd.OutOrStdout())
}
