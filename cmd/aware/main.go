// Command aware is the command-line tool. As kubectl-aware on the PATH it is also
// "kubectl aware".
//
// Exit codes: 0 done; 1 failed; 2 the command line is wrong; 3 the workload has a
// problem (status with --check).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := command()
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl aware"}
	}
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "aware:", err)
	var exit *exitError
	if errors.As(err, &exit) {
		os.Exit(exit.code)
	}
	os.Exit(1)
}

// exitError carries an exit code other than 1.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error { return &exitError{2, err} }

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "aware",
		Short:         "See what AWARE does with your workloads, and why",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddCommand(statusCommand(), explainCommand(), simulateCommand(), benchCommand(), gymCommand(),
		trainCommand())
	return root
}
