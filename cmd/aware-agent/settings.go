package main

import (
	"fmt"
	"net/url"
	"os"
	"time"

	"awarescale.dev/aware/nodeagent/agent"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
)

// settings is the agent's flags.
type settings struct {
	node        string
	namespace   string
	selector    string
	cgroupRoot  string
	criSocket   string
	procRoot    string
	stateDir    string
	oldStateDir string
	central     string
	centralName string
	tokenFile   string
	webAddress  string
	scrapeEvery time.Duration
	runtimeSlow time.Duration
}

func defaults() *settings {
	s := &settings{
		node:       os.Getenv("NODE_NAME"),
		namespace:  os.Getenv("POD_NAMESPACE"),
		selector:   "awarescale.dev/managed=true",
		cgroupRoot: "/sys/fs/cgroup",
		criSocket:  "/run/containerd/containerd.sock",
		procRoot:   "/proc",
		stateDir:   "/run/aware-agent",
		tokenFile:  "/var/run/secrets/aware/token",
		webAddress: ":10261",

		scrapeEvery: agent.Default().ScrapeEvery,
		runtimeSlow: agent.Default().Runtime.Slow,
	}
	if s.namespace == "" {
		s.namespace = "aware-system"
	}
	return s
}

func (s *settings) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.node, "node", s.node, "The name of this node. Default: $NODE_NAME.")
	flags.StringVar(&s.namespace, "namespace", s.namespace,
		"The namespace that AWARE is installed in; its pods are left alone. Default: $POD_NAMESPACE, or aware-system.")
	flags.StringVar(&s.selector, "selector", s.selector, "The label selector of opted-in pods.")
	flags.StringVar(&s.cgroupRoot, "cgroup-root", s.cgroupRoot,
		"Where the host's cgroup tree is mounted, v1 or v2.")
	flags.StringVar(&s.criSocket, "cri-socket", s.criSocket,
		"The socket of the container runtime, such as /run/containerd/containerd.sock or /run/crio/crio.sock.")
	flags.StringVar(&s.procRoot, "proc-root", s.procRoot,
		"Where the host's proc is mounted, for the node's pressure and the pods' network counters.")
	flags.StringVar(&s.stateDir, "state-dir", s.stateDir,
		"The folder of the journal of what was touched. It must outlive the agent, and be on this node only. A reboot may "+
			"empty it: limits do not survive one either.")
	flags.StringVar(&s.oldStateDir, "old-state-dir", s.oldStateDir,
		"The folder of an earlier release's journal, which is taken over and removed. Empty: none.")
	flags.StringVar(&s.central, "central", s.central, "The URL of aware-central's link. Empty: observe only.")
	flags.StringVar(&s.centralName, "central-name", s.centralName,
		"The name in central's certificate. Default: the host of --central.")
	flags.StringVar(&s.tokenFile, "token-file", s.tokenFile,
		"The file of the projected service-account token for central.")
	flags.DurationVar(&s.scrapeEvery, "scrape-every", s.scrapeEvery,
		"How often the latency histogram of a pod is read, from 1s to 5m.")
	flags.DurationVar(&s.runtimeSlow, "runtime-slow", s.runtimeSlow,
		"A call of the container runtime that takes longer than this is slow, from 50ms to 5s. When one of a hundred is, or one "+
			"takes four times as long, no limit shrinks for a minute. Raise it where the runtime is always that slow.")
	flags.StringVar(&s.webAddress, "web-bind-address", s.webAddress,
		"Where /metrics, /healthz, /livez and /readyz are served, over TLS. /metrics needs a token of a user that may get it.")
}

// check names the wrong flag, its value, and the rule.
func (s *settings) check() error {
	if s.node == "" {
		return fmt.Errorf("flag --node: it must name this node, and $NODE_NAME is not set either")
	}
	if selector, err := labels.Parse(s.selector); err != nil {
		return fmt.Errorf("flag --selector: %q: %w", s.selector, err)
	} else if selector.Empty() {
		return fmt.Errorf("flag --selector: %q: it would select every pod of the node", s.selector)
	}
	if s.scrapeEvery < time.Second || s.scrapeEvery > 5*time.Minute {
		return fmt.Errorf("flag --scrape-every: %v: it must be from 1s to 5m", s.scrapeEvery)
	}
	if s.runtimeSlow < 50*time.Millisecond || s.runtimeSlow > 5*time.Second {
		return fmt.Errorf("flag --runtime-slow: %v: it must be from 50ms to 5s", s.runtimeSlow)
	}
	if s.central != "" {
		u, err := url.Parse(s.central)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf(
				"flag --central: %q: it must be a URL such as https://aware-central.aware-system.svc:9443",
				s.central,
			)
		}
		if s.centralName == "" {
			s.centralName = u.Hostname()
		}
	}
	return nil
}
