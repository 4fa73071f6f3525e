package main

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/plugins/autoscaling/slo"
	"github.com/spf13/pflag"
)

// The roles of the binary.
const (
	scheduler  = "scheduler"
	autoscaler = "autoscaler"
	learner    = "learner"
)

var allRoles = []string{scheduler, autoscaler, learner}

// settings is our own flags.
type settings struct {
	roles        []string
	namespace    string // ours, for leases, certificates and the agents' account
	linkAddress  string
	linkName     string
	admitAddress string // of the webhook that sizes new pods; empty for none
	account      string // of the agents, in our namespace
	schedulers   string // account of the schedulers in other processes, in our namespace
	learners     string // account of the learners in other processes, in our namespace
	central      string // URL of the autoscaler's link, for a scheduler or a learner in another process
	tokenFile    string // of that process
	webAddress   string // metrics and health
	step         time.Duration
	patience     time.Duration
	statusEvery  time.Duration
	grantTTL     time.Duration
	trajectories string  // file or URL of the trajectory store; empty for none
	secretFile   string  // of an InfluxDB
	agentsFolder string  // for what was learned
	store        storeAt // of trajectories, once checked
	prometheus   []string
	servers      *slo.Servers // of prometheus, once checked
}

func defaults() *settings {
	s := &settings{
		roles:        allRoles,
		namespace:    os.Getenv("POD_NAMESPACE"),
		linkAddress:  ":9443",
		admitAddress: ":9444",
		account:      "aware-agent",
		schedulers:   "aware-scheduler",
		learners:     "aware-learner",
		tokenFile:    "/var/run/secrets/aware/token",
		webAddress:   ":10260",
		step:         10 * time.Second,
		patience:     30 * time.Second,
		statusEvery:  time.Minute,
		grantTTL:     10 * time.Minute,
	}
	if s.namespace == "" {
		s.namespace = "aware-system"
	}
	return s
}

func (s *settings) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.roles, "roles", s.roles, "What this process does: scheduler, autoscaler, learner.")
	flags.StringVar(&s.namespace, "namespace", s.namespace,
		"The namespace that AWARE is installed in. Default: $POD_NAMESPACE, or aware-system.")
	flags.StringVar(&s.linkAddress, "link-bind-address", s.linkAddress,
		"Where the link to the node agents is served (role autoscaler).")
	flags.StringVar(&s.linkName, "link-name", s.linkName,
		"The name in the link's certificate. Default: aware-central.NAMESPACE.svc.")
	flags.StringVar(&s.admitAddress, "admission-bind-address", s.admitAddress,
		"Where the API server asks for the sizes of new pods (role autoscaler). Empty: they start with their template's size.")
	flags.StringVar(&s.account, "agent-service-account", s.account, "The service account of the node agents.")
	flags.StringVar(&s.schedulers, "scheduler-service-account", s.schedulers,
		"The service account of schedulers that run without the role autoscaler.")
	flags.StringVar(&s.learners, "learner-service-account", s.learners,
		"The service account of learners that run without the role autoscaler.")
	flags.StringVar(&s.central, "central", s.central,
		"The URL of the autoscaler's link, for a process without role autoscaler. With role scheduler it reads there what pods "+
			"can use (empty: nodes are scored by the limits in the API), with role learner it takes lessons there.")
	flags.StringVar(&s.tokenFile, "token-file", s.tokenFile,
		"The file of the projected service-account token for --central.")
	flags.StringVar(&s.webAddress, "web-bind-address", s.webAddress,
		"Where /metrics, /healthz, /livez and /readyz of the autoscaler and the learner are served, over TLS. "+
			"/metrics needs a token of a user that may get it.")
	flags.StringVar(&s.trajectories, "trajectory-store", s.trajectories,
		"Where the transitions of all workloads are stored (role autoscaler): a file (SQLite), or an InfluxDB as "+
			"http://HOST:8086/DATABASE, with the parameters bucket and org (2.x, 3.x) or user (1.x). "+
			"Empty: nowhere, and nothing is learned.")
	flags.StringVar(&s.secretFile, "trajectory-secret-file", s.secretFile,
		"The file of the InfluxDB's token or password.")
	flags.StringVar(&s.agentsFolder, "agents-folder", s.agentsFolder,
		"The folder for what was learned. Default: agents, beside the file of --trajectory-store.")
	flags.StringSliceVar(&s.prometheus, "prometheus-servers", s.prometheus,
		"URLs of the Prometheus servers that owners may read their SLO from (slo-server). Empty: none.")
	flags.DurationVar(&s.step, "step", s.step, "Time between two decisions for a workload, from 1s to 10m.")
	flags.DurationVar(&s.patience, "deferred-patience", s.patience,
		"How long a resize may stay deferred before the workload is scaled out instead.")
	flags.DurationVar(&s.statusEvery, "status-every", s.statusEvery,
		"How often a workload's status is written while nothing material changes, from 1s to 1h; with many workloads less often.")
	flags.DurationVar(&s.grantTTL, "grant-ttl", s.grantTTL,
		"How long a node agent without new messages goes on within its last grants, from 10s to 24h.")
	flags.DurationVar(&s.grantTTL, "mandate-ttl", s.grantTTL, "The former name of --grant-ttl.")
	_ = flags.MarkDeprecated("mandate-ttl", "use --grant-ttl")
}

func (s *settings) has(role string) bool { return slices.Contains(s.roles, role) }

// check names the wrong flag, its value, and the rule.
func (s *settings) check() error {
	if len(s.roles) == 0 {
		return fmt.Errorf("flag --roles: it must name at least one of %s", strings.Join(allRoles, ", "))
	}
	for _, role := range s.roles {
		if !slices.Contains(allRoles, role) {
			return fmt.Errorf("flag --roles: %q: it must be one of %s", role, strings.Join(allRoles, ", "))
		}
	}
	if err := s.checkCentral(); err != nil {
		return err
	}
	within := func(flag string, v, low, high time.Duration) error {
		if v < low || v > high {
			return fmt.Errorf("flag --%s: %v: it must be from %v to %v", flag, v, low, high)
		}
		return nil
	}
	var err error
	if s.store, err = s.storeFlags(); err != nil {
		return err
	}
	if s.servers, err = slo.NewServers(s.prometheus); err != nil {
		return fmt.Errorf("flag --prometheus-servers: %w", err)
	}
	if s.linkName == "" {
		s.linkName = "aware-central." + s.namespace + ".svc"
	}
	for _, err := range []error{
		within("step", s.step, time.Second, 10*time.Minute),
		within("deferred-patience", s.patience, time.Second, time.Hour),
		within("status-every", s.statusEvery, time.Second, time.Hour),
		within("grant-ttl", s.grantTTL, 10*time.Second, 24*time.Hour),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkCentral checks --central.
func (s *settings) checkCentral() error {
	if s.central == "" {
		if s.has(learner) && !s.has(autoscaler) {
			return fmt.Errorf("flag --central: it is empty: "+
				"a learner without role autoscaler takes its lessons there, and --roles is %s", strings.Join(s.roles, ","))
		}
		return nil
	}
	if u, err := url.Parse(s.central); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("flag --central: %q: it must be a URL such as https://aware-central.aware-system.svc:9443", s.central)
	}
	if s.has(autoscaler) {
		return fmt.Errorf("flag --central: %q: it is for a process without role autoscaler, and --roles is %s",
			s.central, strings.Join(s.roles, ","))
	}
	return nil
}
