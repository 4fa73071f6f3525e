// Command aware-agent is AWARE on one node. It reads the cgroups of the
// opted-in containers ten times a second, resizes them in place within
// central's grants, and restores what it touched when it ends.
//
// Exit codes: 0 it was asked to end, and everything is restored; 1 it cannot
// work here, or something could not be restored. The message says what was
// tried, with which value, and which flag matters.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"awarescale.dev/aware/cmd/web"
	"awarescale.dev/aware/nodeagent/agent"
	nodeapi "awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/link"
	"awarescale.dev/aware/nodeagent/pressure"
	"awarescale.dev/aware/nodeagent/restore"
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/version" // build_info
	"k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
)

func main() {
	frugal()
	os.Exit(cli.Run(command()))
}

// gcPercent is how much garbage may be there before it is collected, as a share of what is in
// use. The agent makes little garbage and has little in use: collecting at half of Go's default
// costs less than a millicore, and saves megabytes on every node (ADR 20).
const gcPercent = 50

// frugal sets it, unless $GOGC does, and lets one thread at a time run Go code, unless $GOMAXPROCS says
// more: each sample is a millisecond of work, and to wake a second thread for parts of it costs more
// than they do. Calls that block have threads of their own all the same.
func frugal() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

func command() *cobra.Command {
	s, logs := defaults(), logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use: "aware-agent", Short: "AWARE on one node", Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(logs, nil); err != nil {
				return err
			}
			if err := s.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return run(ctx, s)
		},
	}
	logsapi.AddFlags(logs, cmd.Flags())
	verflag.AddFlags(cmd.Flags())
	s.register(cmd.Flags())
	return cmd
}

// apiConfig is the configuration of $KUBECONFIG, or of the cluster that the
// agent runs in.
func apiConfig() (*rest.Config, error) {
	if file := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); file != "" {
		return clientcmd.BuildConfigFromFlags("", file)
	}
	return rest.InClusterConfig()
}

// run is the agent's life. It opens what the agent needs, each with its own
// error, runs the agent, and closes everything.
func run(ctx context.Context, s *settings) error {
	tree, err := cgroup.Open(s.cgroupRoot)
	if err != nil {
		return fmt.Errorf("flag --cgroup-root: %w", err)
	}
	journal, err := restore.Open(s.stateDir)
	if err != nil {
		return fmt.Errorf("flag --state-dir: %w", err)
	}
	defer journal.Close()
	log := klog.Background()
	if s.oldStateDir != "" {
		taken, err := journal.Import(s.oldStateDir)
		if err != nil {
			return fmt.Errorf("flag --old-state-dir: %w", err)
		}
		if taken > 0 {
			log.Info("Took over the journal of an earlier release", "folder", s.oldStateDir, "containers", taken)
		}
	}
	runtime, err := cri.Dial(ctx, s.criSocket)
	if err != nil {
		return fmt.Errorf("flag --cri-socket: %w", err)
	}
	defer runtime.Close()
	config, err := apiConfig()
	if err != nil {
		return fmt.Errorf("reading the configuration for the API server: %w", err)
	}
	config.UserAgent = "aware-agent"
	api, err := dial(config)
	if err != nil {
		return err
	}
	readers, err := web.NewReaders(config)
	if err != nil {
		return err
	}
	node, err := pressure.Open(s.procRoot)
	if err != nil {
		return fmt.Errorf("flag --proc-root: %w", err)
	}
	// The pods are watched until everything is restored, not only until the
	// agent is asked to end: changes of the API in between count.
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	pods := watch(watching, api, s.node, s.selector)

	c := agent.Default()
	c.Node = s.node
	c.Version = version.Get().GitVersion
	c.Envelope.OwnNamespace = s.namespace
	c.ScrapeEvery = s.scrapeEvery
	c.Runtime.Slow, c.Runtime.Deadline = s.runtimeSlow, 4*s.runtimeSlow
	a, err := agent.New(c, agent.Deps{
		Tree:     tree,
		Runtime:  runtime,
		Journal:  journal,
		Pods:     pods,
		Pressure: node,
		Memory:   node,
		Metrics:  legacyregistry.Registerer(),
		Log:      slog.New(logr.ToSlogHandler(log)),
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.webAddress)
	if err != nil {
		return fmt.Errorf("flag --web-bind-address: %w", err)
	}
	go serve(ctx, listener, a, readers)
	if s.central != "" {
		go s.client(a, api, log).Run(ctx)
	}
	log.Info("Agent", "version", c.Version, "node", s.node, "cgroup", tree.Version().String(), "cgroupRoot",
		s.cgroupRoot, "runtime", runtime.Version().String(), "central", s.central)
	return a.Run(ctx)
}

// client is the agent's side of the link to central. The CA that signs central's
// certificate is in a ConfigMap, and is read again for each connection.
func (s *settings) client(node *agent.Agent, api server, log klog.Logger) *link.Client {
	return &link.Client{
		Node:  node,
		URL:   s.central,
		Name:  s.centralName,
		Token: s.tokenFile,
		Every: nodeapi.ReportEvery,
		Now:   time.Now,
		CA:    func(ctx context.Context) ([]byte, error) { return api.authority(ctx, s.namespace) },
		Log:   func(err error, message string, kv ...any) { log.Error(err, message, kv...) },
	}
}
