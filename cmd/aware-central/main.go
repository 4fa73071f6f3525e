// Command aware-central is AWARE's central binary: kube-scheduler with our
// plugins, the autoscaling controllers, and the learners. Each is a role that
// can be switched off. The manifests run the scheduler and the autoscaler (with
// the learner) as two Deployments, so that neither has the other's crashes, leaks or
// rights. In one process too scheduling never waits for the other two: the autoscaler
// runs under a lease of its own, and both are started again when they fail.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"awarescale.dev/aware/plugins/fleet"
	"awarescale.dev/aware/plugins/scheduling/headroom"
	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version" // build_info
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() { os.Exit(cli.Run(command())) }

// command is kube-scheduler's, with our plugins, our flags and our roles.
func command() *cobra.Command {
	settings := defaults()
	known := fleet.New(settings.grantTTL)
	reports := &reports{known}
	cmd := app.NewSchedulerCommand(app.WithPlugin(headroom.Name, headroom.New(reports, time.Now)))
	cmd.Use = "aware-central"
	cmd.Long = "AWARE's central binary. Role scheduler is kube-scheduler with the plugin " + headroom.Name + ".\n" +
		"Role autoscaler makes MultidimPodAutoscalers from annotations, decides, resizes and scales, and serves the link\n" +
		"to the node agents. Role learner learns of what workloads have done: in the autoscaler's process, or in one of\n" +
		"its own, which takes lessons from there.\n\n" +
		"All flags of kube-scheduler are flags of this command."
	settings.register(cmd.Flags())
	schedule := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		verflag.PrintAndExitIfRequested()
		if err := settings.check(); err != nil {
			return err
		}
		known.TTL = settings.grantTTL
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if !settings.has(scheduler) {
			if err := configureLogs(cmd); err != nil {
				return err
			}
		}
		ctrl.SetLogger(klog.Background())
		background, err := start(ctx, settings, known, reports)
		if err != nil {
			return err
		}
		defer func() {
			background.Wait()
			if err := background.episodes.close(); err != nil {
				klog.ErrorS(err, "Closing the trajectory store")
			}
		}()
		if settings.has(scheduler) {
			err = schedule(cmd, args)
			stop()
			return err
		}
		<-ctx.Done()
		return nil
	}
	return cmd
}

// configureLogs does what kube-scheduler does with its logging flags, for a
// process that does not schedule.
func configureLogs(cmd *cobra.Command) error {
	c := logsapi.NewLoggingConfiguration()
	c.Format = cmd.Flag("logging-format").Value.String()
	if err := logsapi.VerbosityLevelPflag(&c.Verbosity).Set(cmd.Flag("v").Value.String()); err != nil {
		return fmt.Errorf("flag --v: %w", err)
	}
	return logsapi.ValidateAndApply(c, nil)
}
