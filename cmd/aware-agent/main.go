// Command aware-agent is AWARE on one node: it reads the cgroups of the opted-in containers ten times a second, resizes
// them in place within what central lets it, and puts back what it touched when it ends.
//
// Exit codes: 0 it was told to end, and everything is put back; 1 it cannot work here, or something could not be put
// back: the message says what was tried, with which value, and which flag to look at.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"awarescale.dev/aware/nodeagent/agent"
	nodeapi "awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/link"
	"awarescale.dev/aware/nodeagent/pressure"
	"awarescale.dev/aware/nodeagent/restore"
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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

func main() { os.Exit(cli.Run(command())) }

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

// apiConfig is the cluster's that the agent runs in, or $KUBECONFIG's.
func apiConfig() (*rest.Config, error) {
	if file := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); file != "" {
		return clientcmd.BuildConfigFromFlags("", file)
	}
	return rest.InClusterConfig()
}

// run is the agent's life: the node's things are opened one after another, each with its own error, and closed in turn.
func run(ctx context.Context, s *settings) error {
	log := klog.Background()
	tree, err := cgroup.Open(s.cgroupRoot)
	if err != nil {
		return fmt.Errorf("flag --cgroup-root: %w", err)
	}
	held, err := restore.Open(s.stateDir)
	if err != nil {
		return fmt.Errorf("flag --state-dir: %w", err)
	}
	defer held.Close()
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
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for the API server: %w", err)
	}
	stalls, err := pressure.Open(s.procRoot)
	if err != nil {
		return fmt.Errorf("flag --proc-root: %w", err)
	}
	// The pods are watched until everything is put back, not only until we are told to end: what the API has meanwhile counts.
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	pods := watch(watching, api, s.node, s.selector)

	c := agent.Default()
	c.Node, c.Version, c.Envelope.OwnNamespace = s.node, version.Get().GitVersion, s.namespace
	a, err := agent.New(c, agent.Deps{Tree: tree, Runtime: runtime, Journal: held, Pods: pods, Pressure: stalls,
		Metrics: legacyregistry.Registerer(), Log: slog.New(logr.ToSlogHandler(log))})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.webAddress)
	if err != nil {
		return fmt.Errorf("flag --web-bind-address: %w", err)
	}
	go serve(ctx, listener, a)
	if s.central != "" {
		client := &link.Client{Node: a, URL: s.central, Name: s.centralName, Token: s.tokenFile, Every: time.Second, Now: time.Now,
			CA: func(ctx context.Context) ([]byte, error) {
				m, err := api.CoreV1().ConfigMaps(s.namespace).Get(ctx, nodeapi.CAConfigMap, metav1.GetOptions{})
				if err != nil {
					return nil, err
				}
				return []byte(m.Data[nodeapi.CAKey]), nil
			},
			Log: func(err error, message string, kv ...any) { log.Error(err, message, kv...) }}
		go client.Run(ctx)
	}
	log.Info("Agent", "version", c.Version, "node", s.node, "cgroup", tree.Version().String(), "cgroupRoot", s.cgroupRoot, "runtime", runtime.Version().String(), "central", s.central)
	// The pods are known before anything is done: what is not among them would be put back.
	pods.wait(ctx)
	return a.Run(ctx)
}
