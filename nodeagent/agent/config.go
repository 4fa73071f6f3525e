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

// Config is an agent's settings. Begin with [Default].
type Config struct {
	// Node is the node's name, and Version the agent's, for its reports.
	Node, Version string
	// SampleEvery is how often CPU figures are read; 100 ms is one CFS period, less shows nothing more.
	SampleEvery time.Duration
	// StepEvery is how often is decided. The captain's figures are made for one second.
	StepEvery time.Duration
	// Captain decides CPU limits; its Target is central's to change, container by container.
	Captain captain.Config
	// Memory decides memory limits.
	Memory workingset.Config
	// Guards are the settings of the chain around every local policy.
	Guards guard.Settings
	// Runtime is how much the container runtime is asked to bear.
	Runtime cri.Rules
	// Envelope is what is left alone on this node.
	Envelope envelope.Rules
	// Conflicts of one container, changes of its limits by somebody else, after which it is left alone for Backoff.
	Conflicts int
	Backoff   time.Duration
	// ShutdownIn is how long putting everything back may take when the agent ends. It must fit into the pod's
	// terminationGracePeriodSeconds.
	ShutdownIn time.Duration
	// Scrapes is how many pods' latency histograms are read at once, each within ScrapeIn.
	Scrapes  int
	ScrapeIn time.Duration
}

// Default is right for most nodes but for Node, Version and Envelope.OwnNamespace.
func Default() Config {
	// A margin of three deviations, the paper's start, takes minutes to adapt at targets of a few percent, and every new
	// pod would begin with it: the samples are of 100 ms, and their deviation is near their mean.
	local := captain.Default
	local.Margin = 1
	return Config{
		SampleEvery: 100 * time.Millisecond, StepEvery: time.Second,
		Captain: local, Memory: workingset.Default,
		Guards: guard.Node, Runtime: cri.DefaultRules, Conflicts: 3, Backoff: 5 * time.Minute,
		ShutdownIn: 20 * time.Second, Scrapes: 4, ScrapeIn: time.Second,
	}
}

// Validate names every field that is wrong, its value and the rule.
func (c Config) Validate() error {
	var errs []error
	no := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	no(c.Node == "", "node name %q: it must be this node's", c.Node)
	no(c.SampleEvery < 10*time.Millisecond || c.SampleEvery > time.Second, "sample every %v: it must be in [10ms, 1s]", c.SampleEvery)
	no(c.StepEvery < c.SampleEvery || c.StepEvery > time.Minute, "step every %v: it must be in [sample every, 1m]", c.StepEvery)
	no(!(c.Memory.Margin > 1), "memory margin %v: it must be above 1", float64(c.Memory.Margin))
	no(c.Conflicts < 1, "conflicts %d: it must be 1 or more", c.Conflicts)
	no(c.Backoff <= 0, "backoff %v: it must be above 0", c.Backoff)
	no(c.ShutdownIn <= 0, "shutdown in %v: it must be above 0", c.ShutdownIn)
	no(c.Scrapes < 1, "scrapes %d: it must be 1 or more", c.Scrapes)
	no(c.ScrapeIn <= 0, "scrape in %v: it must be above 0", c.ScrapeIn)
	return errors.Join(append(errs, c.Guards.Check(), c.Captain.Check(), c.Runtime.Check())...)
}

// Deps are what an agent works with. The caller opens and closes them.
type Deps struct {
	Tree     *cgroup.Tree
	Runtime  cri.Runtime
	Journal  *restore.Journal
	Pods     Pods
	Pressure Pressure              // nil: not known
	Metrics  prometheus.Registerer // nil: none
	Log      *slog.Logger          // nil: none
	// Policy makes a container's local policy; nil is the captain for CPU and the working set for memory. Whatever it
	// is, the guards are around it. One that has a method Retarget(mdp.Ratio) is told the grant's throttle target.
	Policy func(api.ContainerRef) mdp.Policy
}

// Pressure tells the node's pressure; pressure.Reader does.
type Pressure interface{ Read() (pressure.Node, error) }

func (d Deps) check() error {
	for name, missing := range map[string]bool{"cgroup tree": d.Tree == nil, "container runtime": d.Runtime == nil,
		"journal": d.Journal == nil, "pods": d.Pods == nil} {
		if missing {
			return fmt.Errorf("agent without a %s", name)
		}
	}
	return nil
}
