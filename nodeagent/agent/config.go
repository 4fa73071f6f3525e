package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/policy/heuristic/workingset"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/envelope"
	"awarescale.dev/aware/nodeagent/pressure"
	"awarescale.dev/aware/nodeagent/restore"
	"github.com/prometheus/client_golang/prometheus"
)

// Config is an agent's settings. Start from [Default].
type Config struct {
	// Node is the node's name.
	Node string
	// Version is the agent's version, for its reports.
	Version string
	// SampleEvery is how often the CPU usage is read. 100 ms is one CFS period;
	// less shows nothing more.
	SampleEvery time.Duration
	// StepEvery is the time between two decisions. The captain's settings are made
	// for one second, and above captain.MaxStep it decides nothing.
	StepEvery time.Duration
	// Captain decides CPU limits. Central changes its Target for each container.
	Captain captain.Config
	// Memory decides memory limits.
	Memory workingset.Config
	// Guards are the settings of the chain around every local policy.
	Guards guard.Settings
	// Runtime limits how often the container runtime is called.
	Runtime cri.Rules
	// Envelope says what is left alone on this node.
	Envelope envelope.Rules
	// Conflicts is how many times somebody else may change the limits of one
	// container before it is left alone for Backoff.
	Conflicts int
	// Backoff is how long a container is left alone after conflicts.
	Backoff time.Duration
	// ShutdownIn is how long the restores may take when the agent ends. It must fit
	// into the pod's terminationGracePeriodSeconds.
	ShutdownIn time.Duration
	// Scrapes is how many pods' latency histograms are read at once.
	Scrapes int
	// ScrapeIn is how long reading one histogram may take.
	ScrapeIn time.Duration
	// ScrapeEvery is how often one histogram is read.
	ScrapeEvery time.Duration
}

// Default is right for most nodes, except for Node, Version and
// Envelope.OwnNamespace.
func Default() Config {
	// The paper starts with a margin of three deviations. At targets of a few
	// percent it takes minutes to adapt, in every new pod: the samples are of
	// 100 ms, and their deviation is near their mean.
	//
	// Without lasting decreases a bursty service of the end-to-end test lost 2.5 %
	// of its requests to timeouts of two seconds, with them less than 1 %: asked
	// once a second, the captain is too slow for a burst otherwise.
	local := captain.Default
	local.Margin = 1
	local.Lasting = true
	return Config{
		SampleEvery: 100 * time.Millisecond,
		StepEvery:   time.Second,
		Captain:     local,
		Memory:      workingset.Default,
		Guards:      guard.Node,
		Runtime:     cri.DefaultRules,
		Conflicts:   3,
		Backoff:     5 * time.Minute,
		ShutdownIn:  20 * time.Second,
		Scrapes:     4,
		ScrapeIn:    time.Second,
		ScrapeEvery: 10 * time.Second,
	}
}

// Validate names every wrong field, its value and the rule.
func (c Config) Validate() error {
	var errs []error
	no := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	no(c.Node == "", "node name %q: it must be this node's", c.Node)
	no(c.SampleEvery < 10*time.Millisecond || c.SampleEvery > time.Second,
		"sample every %v: it must be in [10ms, 1s]", c.SampleEvery)
	no(c.StepEvery < c.SampleEvery || c.StepEvery > captain.MaxStep,
		"step every %v: it must be in [sample every, %v]", c.StepEvery, captain.MaxStep)
	no(!(c.Memory.Margin > 1), "memory margin %v: it must be above 1", float64(c.Memory.Margin))
	no(c.Conflicts < 1, "conflicts %d: it must be 1 or more", c.Conflicts)
	no(c.Backoff <= 0, "backoff %v: it must be above 0", c.Backoff)
	no(c.ShutdownIn <= 0, "shutdown in %v: it must be above 0", c.ShutdownIn)
	no(c.Scrapes < 1, "scrapes %d: it must be 1 or more", c.Scrapes)
	no(c.ScrapeIn <= 0, "scrape in %v: it must be above 0", c.ScrapeIn)
	no(c.ScrapeEvery < time.Second || c.ScrapeEvery > 5*time.Minute, "scrape every %v: it must be in [1s, 5m]", c.ScrapeEvery)
	return errors.Join(append(errs, c.Guards.Check(), c.Captain.Check(), c.Runtime.Check())...)
}

// Deps are what an agent works with. The caller opens and closes them.
type Deps struct {
	Tree     *cgroup.Tree
	Runtime  cri.Runtime
	Journal  *restore.Journal
	Pods     Pods
	Pressure Pressure              // nil: not known
	Memory   Memory                // nil: not known
	Metrics  prometheus.Registerer // nil: none
	Log      *slog.Logger          // nil: none
	// Policy makes a container's local policy. Nil is the captain for CPU and the
	// working set for memory. The guards are always around it. A policy with a
	// method Retarget(mdp.Ratio) gets the grant's throttle target.
	Policy func(api.ContainerRef) mdp.Policy
}

// Pressure reads the node's pressure, as pressure.Reader does.
type Pressure interface{ Read() (pressure.Node, error) }

// Memory reads the memory that the node has free, as pressure.Reader does.
type Memory interface {
	MemoryAvailable() (mdp.Bytes, error)
}

func (d Deps) check() error {
	for name, missing := range map[string]bool{
		"cgroup tree":       d.Tree == nil,
		"container runtime": d.Runtime == nil,
		"journal":           d.Journal == nil,
		"pods":              d.Pods == nil,
	} {
		if missing {
			return fmt.Errorf("agent without a %s", name)
		}
	}
	return nil
}
