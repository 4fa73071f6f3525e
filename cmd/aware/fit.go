package main

import (
	"encoding/json"
	"fmt"

	"awarescale.dev/aware/learner/sim/calibrate"
	"github.com/spf13/cobra"
)

// fitCommand fits the constants of the simulated applications to measurements.
func fitCommand() *cobra.Command {
	var data string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fit",
		Short: "Fit the constants of an application to measurements, and say what speaks for them",
		Long: `Fits the work and the waits of an application's operations to the windows of
cilantro-hotelres/hotelres_measurements.csv, as aware bench validate does for each policy that it leaves out. It takes some
seconds, and the same data give the same constants. It writes no file: docs/validation.md says which constants of an
application file come from here, and why the others do not.`,
		Example: "  aware bench fit\n  aware bench fit --data measurements --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from := calibrate.Shipped()
			if data != "" {
				var err error
				if from, err = calibrate.Dir(data); err != nil {
					return usage(err)
				}
			}
			fitted, err := calibrate.Fit(from, func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) })
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(fitted)
			}
			return fitted.Print(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", "", "folder of measurements; empty for those that AWARE ships")
	f.BoolVar(&asJSON, "json", false, "print JSON instead of a table")
	return cmd
}
