package main

import "github.com/spf13/cobra"

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench SUITE",
		Short: "Measure the simulated world, and policies in it",
		Args:  cobra.NoArgs,
	}
	addProducts(cmd)
	cmd.AddCommand(
		validateCommand(), fitCommand(), tuneCommand(), baselinesCommand(), fig1Command(), fig3Command(), fig8Command(),
		fig9Command(), fig10Command(), embeddingCommand(), correctionsCommand(),
	)
	return cmd
}
