package api

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/test/rights"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// may asks the API server whether an account of ours may do something. An empty
// namespace is a tenant's.
func may(t *testing.T, o rights.One, namespace string) bool {
	t.Helper()
	r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + rights.Namespace + ":" + o.Who,
		Groups: []string{
			"system:serviceaccounts", "system:serviceaccounts:" + rights.Namespace, "system:authenticated",
		},
	}}
	if strings.HasPrefix(o.Resource, "/") {
		r.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: o.Resource, Verb: o.Verb}
	} else {
		resource, sub, _ := strings.Cut(o.Resource, "/")
		r.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: namespace, Group: o.Group, Resource: resource, Subresource: sub, Name: o.Name, Verb: o.Verb,
		}
	}
	if err := kube.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r.Status.Allowed
}

// installRights applies the accounts, roles and bindings of manifests/default, and of what adds to it.
func installRights(t *testing.T) {
	t.Helper()
	text := ""
	for _, folder := range append([]string{"default"}, slices.Sorted(maps.Keys(rights.Apart))...) { // the namespace first
		m, err := rights.Read("../../manifests/" + folder)
		if err != nil {
			t.Fatal(err)
		}
		text += m.Text
	}
	file := filepath.Join(t.TempDir(), "rights.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl(t, "apply", "--server-side", "-f", file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The namespace stays: it is another test's, too, and its pods have no kubelet that ends them.
	t.Cleanup(func() {
		out, err := cluster.Kubectl(context.Background(), "delete", "clusterroles,clusterrolebindings,roles,rolebindings",
			"--all-namespaces", "--selector=app.kubernetes.io/part-of=aware", "--wait=false")
		if err != nil {
			t.Errorf("removing the rights: %v: %s", err, out)
		}
	})
}

// A real API server says of each account what the table says: what it must be able to
// do, where it may do it, and for which names.
func TestEachAccountMayDoWhatTheTableSays(t *testing.T) {
	installRights(t)
	accounts := map[string]bool{rights.Agent: true, rights.Autoscaler: true, rights.Scheduler: true, rights.Learner: true}
	asked := 0
	for _, line := range rights.Table {
		for _, one := range line.All() {
			if !accounts[one.Who] || one.Role != "" {
				continue
			}
			asked++
			if !may(t, one, rights.Namespace) {
				t.Errorf("the table says %s, and the API server refuses it", one)
			}
			if here := may(t, one, "shop"); here == one.Own {
				t.Errorf("%s: in a tenant's namespace the API server says %v", one, here)
			}
			if one.Name != "" {
				other := one
				other.Name = "another"
				if may(t, other, rights.Namespace) {
					t.Errorf("%s, and also of another name", one)
				}
			}
		}
	}
	if asked < 50 {
		t.Errorf("only %d rights were asked for", asked)
	}
	// Of Kubernetes' own roles, what each account needs.
	for _, one := range []rights.One{
		{Who: rights.Scheduler, Resource: "pods/binding", Verb: "create"},
		{Who: rights.Scheduler, Resource: "persistentvolumes", Verb: "patch"},
		{Who: rights.Scheduler, Group: "coordination.k8s.io", Resource: "leases", Verb: "create"},
		{Who: rights.Scheduler, Group: "coordination.k8s.io", Resource: "leases", Name: "kube-scheduler", Verb: "update"},
		{Who: rights.Scheduler, Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create"},
		{Who: rights.Scheduler, Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"},
		{Who: rights.Autoscaler, Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create"},
		{Who: rights.Autoscaler, Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"},
		{Who: rights.Agent, Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create"},
		{Who: rights.Agent, Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"},
	} {
		if !may(t, one, rights.Namespace) {
			t.Errorf("%s: the API server refuses it", one)
		}
	}
}

// What somebody could do harm with, and who may do it. Whoever is not named may not,
// neither in a tenant's namespace nor in ours.
func TestNoAccountMayDoMore(t *testing.T) {
	installRights(t)
	const a, s = rights.Autoscaler, rights.Scheduler
	for _, c := range []struct {
		verbs, group, resource, name string
		allowed                      string // accounts
	}{
		{"get list watch", "", "secrets", "", ""},
		{"get update patch delete", "", "secrets", "another", ""},
		{"list watch update patch delete", "", "configmaps", "", ""},
		{"get", "", "configmaps", "another", ""},
		{"create", "", "pods", "", ""},
		{"patch update", "", "pods", "", ""},
		{"delete", "", "pods", "", s}, // preemption
		{"create", "", "pods/binding", "", s},
		{"create", "", "pods/eviction", "", a},
		{"create get", "", "pods/exec", "", ""},
		{"create get", "", "pods/attach", "", ""},
		{"create get", "", "pods/portforward", "", ""},
		{"patch", "", "pods/status", "", s},
		{"patch", "", "pods/resize", "", a},
		{"update", "", "pods/resize", "", ""},
		{"patch update", "", "nodes", "", ""},
		{"patch update", "", "nodes/status", "", ""},
		{"get create", "", "nodes/proxy", "", ""},
		{"create patch delete", "", "namespaces", "", ""},
		{"patch", "apps", "deployments/scale", "", a},
		{"update", "apps", "deployments/scale", "", ""},
		{"create update patch delete", "apps", "deployments", "", ""},
		{"create update patch delete", "apps", "statefulsets", "", ""},
		{"create update patch delete", "apps", "daemonsets", "", ""},
		{"create update patch delete", "autoscaling.awarescale.dev", "multidimpodautoscalers", "", a},
		{"update patch", "coordination.k8s.io", "leases", "another", ""},
		{"update patch", "coordination.k8s.io", "leases", "aware-autoscaler", a},
		{"create", "", "serviceaccounts/token", "", ""},
		{"impersonate", "", "users", "", ""},
		{"impersonate", "", "serviceaccounts", "", ""},
		{"create update patch bind escalate", "rbac.authorization.k8s.io", "clusterroles", "", ""},
		{"create update patch", "rbac.authorization.k8s.io", "rolebindings", "", ""},
		{"create update patch", "rbac.authorization.k8s.io", "clusterrolebindings", "", ""},
		{"list watch create update patch delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", ""},
		{"get update patch delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "another", ""},
		{"get update", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "aware-autoscaler", a},
		{"patch delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "aware-autoscaler", ""},
		{"create update patch delete", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", ""},
		{"create update patch delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", ""},
		{"create update patch delete", "admissionregistration.k8s.io", "validatingadmissionpolicybindings", "", ""},
		{"create approve", "certificates.k8s.io", "certificatesigningrequests", "", ""},
		{"get", "", "/metrics", "", ""},
		{"get", "", "/debug/pprof", "", ""},
	} {
		for _, verb := range strings.Fields(c.verbs) {
			for _, who := range []string{rights.Agent, a, s, rights.Learner} {
				one := rights.One{Who: who, Group: c.group, Resource: c.resource, Name: c.name, Verb: verb}
				for _, namespace := range []string{rights.Namespace, "shop"} {
					want := c.allowed == who && (namespace == rights.Namespace || c.group != "coordination.k8s.io")
					if got := may(t, one, namespace); got != want {
						t.Errorf("%s, in %s: %v, want %v", one, namespace, got, want)
					}
				}
			}
		}
	}
}
