// Package rights is the table of what each part of AWARE may do with the API server.
// One test compares it with the rules of the manifests, so that no right is added
// without a line here; test/api asks a real API server about each line; README has it as
// its table.
package rights

import (
	"fmt"
	"slices"
	"strings"
)

// Namespace is AWARE's.
const Namespace = "aware-system"

// Right is a line of the table. Lists are separated by spaces.
type Right struct {
	Who       string // a service account of our namespace, or a role that an admin binds
	Role      string // of Kubernetes, whose rights these are; then Group, Resources, Names and Verbs are empty
	Own       bool   // in AWARE's namespace only
	Group     string
	Resources string // with their subresource; or URLs
	Names     string // of objects; empty for all
	Verbs     string
	Why       string
}

// The parts.
const (
	Agent      = "aware-agent"
	Autoscaler = "aware-autoscaler"
	Scheduler  = "aware-scheduler"
	Learner    = "aware-learner" // of its own, from manifests/learners; else the autoscaler is the learner
)

// Apart is the parts that a folder of manifests adds to what is installed.
var Apart = map[string]string{"learners": Learner}

const (
	read  = "get list watch"
	write = "get list watch create update patch delete"
	ours  = "autoscaling.awarescale.dev"
)

// Table is everything.
var Table = []Right{
	{Who: Agent, Resources: "pods", Verbs: read, Why: "to find the opted-in pods of its node"},
	{Who: Agent, Own: true, Resources: "configmaps", Names: "aware-central-ca", Verbs: "get",
		Why: "to trust the autoscaler's certificate"},
	{Who: Agent, Role: "system:auth-delegator", Why: "to ask who reads its metrics, and whether they may"},

	{Who: Scheduler, Role: "system:kube-scheduler", Why: "because it is one"},
	{Who: Scheduler, Role: "system:volume-scheduler", Why: "because it is one"},
	{Who: Scheduler, Own: true, Group: "coordination.k8s.io", Resources: "leases", Names: "aware-scheduler", Verbs: "get update",
		Why: "for leader election"},
	{Who: Scheduler, Own: true, Resources: "configmaps", Names: "aware-central-ca", Verbs: "get",
		Why: "to trust the autoscaler's certificate"},

	{Who: Autoscaler, Group: "apps", Resources: "deployments statefulsets replicasets", Verbs: read,
		Why: "to find what is opted in"},
	{Who: Autoscaler, Group: ours, Resources: "multidimpodautoscalers", Verbs: write, Why: "its own objects"},
	{Who: Autoscaler, Group: ours, Resources: "multidimpodautoscalers/status", Verbs: "patch", Why: "to report"},
	{Who: Autoscaler, Group: "apps", Resources: "deployments/finalizers statefulsets/finalizers replicasets/finalizers",
		Verbs: "update", Why: "to make a workload the owner of its object"},
	{Who: Autoscaler, Resources: "pods nodes", Verbs: read, Why: "to decide, and to know what an agent may report"},
	{Who: Autoscaler, Group: "policy", Resources: "poddisruptionbudgets", Verbs: read, Why: "to decide"},
	{Who: Autoscaler, Group: "autoscaling", Resources: "horizontalpodautoscalers", Verbs: read, Why: "to detect other autoscalers"},
	{Who: Autoscaler, Group: "autoscaling.k8s.io", Resources: "verticalpodautoscalers", Verbs: read,
		Why: "to detect other autoscalers"},
	{Who: Autoscaler, Group: "keda.sh", Resources: "scaledobjects", Verbs: read, Why: "to detect other autoscalers"},
	{Who: Autoscaler, Resources: "pods/resize", Verbs: "patch", Why: "to act: sizes"},
	{Who: Autoscaler, Resources: "pods/eviction", Verbs: "create", Why: "to evict a pod in an OOM loop, where its owner allows it"},
	{Who: Autoscaler, Group: "apps", Resources: "deployments/scale statefulsets/scale replicasets/scale", Verbs: "patch",
		Why: "to act: replicas"},
	{Who: Autoscaler, Group: "admissionregistration.k8s.io", Resources: "mutatingwebhookconfigurations",
		Names: "aware-autoscaler", Verbs: "get update", Why: "its certificate authority in its webhook's configuration"},
	{Who: Autoscaler, Resources: "events", Verbs: "create patch", Why: "to report"},
	{Who: Autoscaler, Group: "events.k8s.io", Resources: "events", Verbs: "create patch", Why: "to report"},
	{Who: Autoscaler, Own: true, Group: "coordination.k8s.io", Resources: "leases", Verbs: "create", Why: "for leader election"},
	{Who: Autoscaler, Own: true, Group: "coordination.k8s.io", Resources: "leases", Names: "aware-autoscaler",
		Verbs: "get update patch", Why: "for leader election"},
	{Who: Autoscaler, Own: true, Resources: "secrets", Verbs: "create", Why: "the key of the link's certificate"},
	{Who: Autoscaler, Own: true, Resources: "secrets", Names: "aware-central-tls", Verbs: "get update",
		Why: "the key of the link's certificate"},
	{Who: Autoscaler, Own: true, Resources: "configmaps", Verbs: "create", Why: "to publish the link's certificate authority"},
	{Who: Autoscaler, Own: true, Resources: "configmaps", Names: "aware-central-ca", Verbs: "get update",
		Why: "to publish the link's certificate authority"},
	{Who: Autoscaler, Role: "system:auth-delegator", Why: "to verify agents, the scheduler and readers of its metrics"},

	{Who: Learner, Own: true, Resources: "configmaps", Names: "aware-central-ca", Verbs: "get",
		Why: "to trust the autoscaler's certificate (manifests/learners)"},
	{Who: Learner, Role: "system:auth-delegator", Why: "to ask who reads its metrics, and whether they may (manifests/learners)"},

	{Who: "aware-edit", Group: ours, Resources: "multidimpodautoscalers", Verbs: write, Why: "part of the roles edit and admin"},
	{Who: "aware-view", Group: ours, Resources: "multidimpodautoscalers multidimpodautoscalers/status", Verbs: read,
		Why: "part of the role view"},
	{Who: "aware-decisions", Own: true, Resources: "services/proxy", Names: "https:aware-central:link", Verbs: "get",
		Why: "to reach the stream of decisions (aware explain); nobody has it at first"},
	{Who: "aware-metrics-reader", Resources: "/metrics", Verbs: "get", Why: "for a Prometheus server; nobody has it at first"},
}

// One is one thing that somebody may do: one verb on one resource.
type One struct {
	Who      string
	Role     string // of Kubernetes; then the rest is empty
	Own      bool
	Group    string
	Resource string // or URL
	Name     string // empty for all
	Verb     string
}

func (o One) String() string {
	if o.Role != "" {
		return fmt.Sprintf("%s has the role %s", o.Who, o.Role)
	}
	where := "everywhere"
	if o.Own {
		where = "in " + Namespace
	}
	return fmt.Sprintf("%s may %s %s.%s %q %s", o.Who, o.Verb, o.Resource, o.Group, o.Name, where)
}

// All is each single thing that a line allows.
func (r Right) All() []One {
	if r.Role != "" {
		return []One{{Who: r.Who, Role: r.Role}}
	}
	var all []One
	for _, resource := range strings.Fields(r.Resources) {
		for _, verb := range strings.Fields(r.Verbs) {
			for _, name := range names(strings.Fields(r.Names)) {
				all = append(all, One{Who: r.Who, Own: r.Own, Group: r.Group, Resource: resource, Name: name, Verb: verb})
			}
		}
	}
	return all
}

// names is the names, or one that stands for all.
func names(of []string) []string {
	if len(of) == 0 {
		return []string{""}
	}
	return of
}

// Markdown is the table as README and docs/security.md have it.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| who | rights | reason |\n|---|---|---|\n")
	before := ""
	for _, r := range Table {
		who := r.Who
		if who == before {
			who = ""
		}
		before = r.Who
		fmt.Fprintf(&b, "| %s | %s | %s |\n", who, r.says(), r.Why)
	}
	return strings.ReplaceAll(b.String(), "|  |", "| |")
}

// says is the right in words.
func (r Right) says() string {
	if r.Role != "" {
		return "the rights of `" + r.Role + "`"
	}
	verbs := strings.Join(strings.Fields(r.Verbs), ", ")
	resources := strings.Fields(r.Resources)
	if r.Group != "" && r.Group != "apps" && r.Group != ours {
		for i := range resources {
			resources[i] += "." + r.Group
		}
	}
	text := verbs + " " + strings.Join(resources, ", ")
	if n := strings.Fields(r.Names); len(n) > 0 {
		slices.Sort(n)
		text += " " + strings.Join(n, ", ")
	}
	if r.Own {
		text += " in " + Namespace
	}
	return text
}
