// Service is the test application: an HTTP server that does real work for each
// request, and calls others like it.
//
//	GET /                            does the default work (--segments)
//	GET /?segments=json:2,compress   does this work instead; see package segment
//	GET /healthz                     200 while the process lives
//	GET /readyz                      200 until SIGTERM, then 503
//	GET /metrics                     on --metrics-listen only, for Prometheus
//
// Four deployments of one image make a small application: a front that calls two
// services at the same time, which call a store:
//
//	service --segments page      --calls http://cart,http://search   front
//	service --segments json      --then http://store                 cart
//	service --segments text      --then http://store                 search
//	service --segments table                                         store
//
// On SIGTERM it keeps serving for --drain, because load balancers need some time to
// remove it. Then it ends when the last answer is sent. It exits with 2 for a wrong
// command line and with 1 if serving failed.
//
// GOMAXPROCS is not set. Since Go 1.25 the runtime derives it from the CPU limit of the
// container, at least 2 and rounded up, and follows a resize in place within about a
// second. An autoscaler meets this behaviour in every modern Go service.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// usageError is an error of the command line.
type usageError struct{ error }

// run is main with its surroundings as parameters; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := command(slog.New(slog.NewTextHandler(stderr, nil)))
	c.SetArgs(args)
	c.SetOut(stdout)
	c.SetErr(stderr)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "service:", err)
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}

func command(log *slog.Logger) *cobra.Command {
	s := defaults()
	c := &cobra.Command{
		Use:           "service",
		Short:         "An HTTP server that does real work for each request, and calls others like it",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("argument %q: there are only flags", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.validate(); err != nil {
				return usageError{err}
			}
			l, err := s.open()
			if err != nil {
				return err
			}
			return serve(c.Context(), s, l, log)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	s.register(c.Flags())
	return c
}
