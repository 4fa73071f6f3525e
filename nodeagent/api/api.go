package api

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Mode says how far AWARE may go with a workload.
type Mode string

// The modes, from nothing to everything. An owner who opts in without a mode
// gets Observe.
const (
	Off       Mode = "off"       // nothing is read; what was changed is restored
	Observe   Mode = "observe"   // read and report
	Recommend Mode = "recommend" // also say what would be done
	Canary    Mode = "canary"    // also do it to one replica; revert it when the SLO is violated
	Auto      Mode = "auto"      // do it to all replicas
)

// ParseMode reads a mode as an owner writes it.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Off, Observe, Recommend, Canary, Auto:
		return m, nil
	}
	return "", fmt.Errorf("mode %q: it must be one of off, observe, recommend, canary, auto", s)
}

// ContainerRef names one running container of one pod.
type ContainerRef struct {
	Namespace string
	Pod       string
	PodUID    string
	Container string
}

func (c ContainerRef) String() string { return c.Namespace + "/" + c.Pod + "/" + c.Container }

// Compare orders by namespace, pod and container, and pods of one name by their UID.
func (c ContainerRef) Compare(other ContainerRef) int {
	return cmp.Or(strings.Compare(c.Namespace, other.Namespace), strings.Compare(c.Pod, other.Pod),
		strings.Compare(c.Container, other.Container), strings.Compare(c.PodUID, other.PodUID))
}

// Summary is what a node reports of one container: the signals of its last
// local step and the result of that step.
type Summary struct {
	Container ContainerRef
	State     mdp.State  // of this one container; Replicas is not observed
	Bounds    mdp.Bounds // the envelope in force: CPU and memory
	Mode      Mode       // in force on the node
	Want      mdp.Action // what the local policy asked for, after the guards
	Effect    mdp.Effect // of Want
	Resizes   uint64     // by the agent, since it started
	Conflicts uint64     // changes of the limits by somebody else since the agent started
	Latency   Histogram  // cumulative since the pod's process started; unknown when it is not scraped
	Problem   string     // why something could not be done or read, for people; empty when all is well
	Course    Course     // of the CPU use; not of agents of before it
}

// pressing is the share of throttled periods from which a container at its ceiling counts.
const pressing mdp.Ratio = 0.1

// AtCeiling reports whether the container is throttled at its ceiling: it has all the CPU
// that it may have, and it is not enough.
func (s Summary) AtCeiling() bool {
	return s.State.Knows(mdp.CPULimit, mdp.Throttled) && s.State.Throttled >= pressing &&
		s.Bounds.CPU.Max > 0 && s.State.Limit.CPU >= s.Bounds.CPU.Max
}

// ReportEvery is how often an agent reports: 5,000 nodes with 110 containers each then
// cost central half a core.
const ReportEvery = 5 * time.Second

// Report is what a node's agent sends to central: all its containers, or those that
// have changed since the report before.
type Report struct {
	Node       string
	Agent      string // version
	At         time.Time
	Full       bool // Containers are all of the node
	Containers []Summary
	Gone       []ContainerRef // nothing is known of them any more
	Account    *Account       // nil: the agent knows no permits, or not yet what is in force
}

// Grant is what central lets a node do with one container, until the time to
// live of its [Grants] ends.
type Grant struct {
	Container ContainerRef
	Mode      Mode
	Paused    bool       // hold what is in force: neither change it nor restore it
	Bounds    mdp.Bounds // CPU and memory; never wider than the container's API values, which the agent checks itself
	Throttle  mdp.Ratio  // the local policy's target: the share of CFS periods that may be throttled, in [0, 1)
	Rule      Rule       // the local policy for CPU
	Margin    float64    // of the rule Demand: the logarithm of the deviations between demand and limit, in [-MaxMargin, MaxMargin]
	// Patience is of the rule Demand: how long the container may be throttled without a break before it is relieved, in whole
	// milliseconds, in [0, MaxPatience]. 0: relief comes as soon as it can.
	Patience time.Duration
	// LateWindows is of the rule Demand: in how many windows of ten seconds so far at least 30 % of the workload's requests missed
	// the SLO. When it grows, the container's highest demand is held for an hour. Central counts from 0 when it starts.
	LateWindows uint32
	Latency     Source // where the container's latency histogram is read; zero when it has none
	// Keep says that the grant that the node has for the container goes on to hold, and
	// nothing else: central has started, and could not decide on the workload yet.
	Keep bool
}

// Rule names the policy by which a node decides on a container's CPU limit, beneath its ceiling.
type Rule string

// The rules. An agent that does not know the one that it is told takes the captain.
const (
	Captain Rule = ""       // by the share of throttled periods
	Demand  Rule = "demand" // by the container's demand, its scatter, and the grant's margin
)

// Known reports whether this version has the rule.
func (r Rule) Known() bool { return r == Captain || r == Demand }

// MaxMargin is the largest margin: a factor of 20,000 of the deviations.
const MaxMargin = 10

// MaxPatience is the longest patience.
const MaxPatience = time.Minute

// Source is an endpoint of a pod with Prometheus metrics.
type Source struct {
	Port   int32
	Path   string // such as /metrics
	Metric string // a histogram in seconds, such as http_request_duration_seconds
}

// Grants is the full set of grants for one node. A container that is not in it
// is not AWARE's, and is restored.
type Grants struct {
	TTL time.Duration // how long the grants hold without a new message
	All []Grant
	// Unchanged says that the last set of the same stream goes on to hold, for TTL
	// from now; All is empty. Before the first set it only says that central lives.
	Unchanged bool
	// Permit holds for TTL, too. Zero is none: the one before holds until its end.
	Permit Permit
}

// Central publishes the certificates that sign its link in this config map of
// its namespace, under this key.
const (
	CAConfigMap = "aware-central-ca"
	CAKey       = "ca.crt"
)

// Audience is what an agent's service-account token must be made for.
const Audience = "aware-central"
