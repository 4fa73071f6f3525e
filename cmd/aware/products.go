package main

import (
	"fmt"

	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel/gemm"
	"github.com/spf13/cobra"
)

// addProducts adds the flag --blas to a command and to those below it. It takes effect before they run: learners spend most of
// their time in matrix products (package gemm).
func addProducts(cmd *cobra.Command) {
	var name string
	f := cmd.PersistentFlags()
	f.StringVar(&name, "blas", "", "matrix products by gonum, avx2 or avx512; the best that the CPU has when empty. The same\n"+
		"seed gives the same result with the same ones")
	f.StringVar(&name, "gemm", "", "the former name of --blas")
	_ = f.MarkHidden("gemm")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error { return multiplyBy(name) }
}

// multiplyBy has the program multiply matrices by a set of kernels; "" is the best one for this CPU.
func multiplyBy(name string) error {
	kernels := gemm.Choose()
	if name != "" {
		var err error
		if kernels, err = gemm.Named(name); err != nil {
			return usage(fmt.Errorf("--blas: %w", err))
		}
	}
	graph.Use(kernels.BLAS())
	return nil
}
