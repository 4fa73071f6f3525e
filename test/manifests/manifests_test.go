// Package manifests tests what is installed: which pods there are, with which account
// and in which role, and who can connect to them. test/rights has what the accounts may do.
package manifests

import (
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/admission"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// installed is what kustomizations make.
type installed struct {
	pods     map[string]corev1.PodTemplateSpec // by the name of their Deployment or DaemonSet
	services []corev1.Service
	policies []networkingv1.NetworkPolicy
	webhooks []admissionregistrationv1.MutatingWebhookConfiguration
}

// build builds kustomizations of the folder manifests.
func build(t *testing.T, folders ...string) *installed {
	t.Helper()
	all := &installed{pods: map[string]corev1.PodTemplateSpec{}}
	for _, folder := range folders {
		objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../manifests/"+folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects.Resources() {
			text, err := o.AsYAML()
			if err != nil {
				t.Fatal(err)
			}
			switch o.GetKind() {
			case "Deployment":
				all.pods[o.GetName()] = decode[appsv1.Deployment](t, text).Spec.Template
			case "DaemonSet":
				all.pods[o.GetName()] = decode[appsv1.DaemonSet](t, text).Spec.Template
			case "Service":
				all.services = append(all.services, decode[corev1.Service](t, text))
			case "MutatingWebhookConfiguration":
				all.webhooks = append(all.webhooks, decode[admissionregistrationv1.MutatingWebhookConfiguration](t, text))
			case "NetworkPolicy":
				all.policies = append(all.policies, decode[networkingv1.NetworkPolicy](t, text))
			}
		}
	}
	return all
}

func decode[T any](t *testing.T, text []byte) (one T) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, &one); err != nil {
		t.Fatal(err)
	}
	return one
}

// parts are the pods of AWARE.
var parts = []string{"aware-agent", "aware-autoscaler", "aware-scheduler"}

// Neither has the other's crashes, leaks or rights: they share the image and nothing else.
func TestTheSchedulerAndTheAutoscalerAreTwo(t *testing.T) {
	for _, folder := range []string{"default", "default-scheduler"} {
		all := build(t, folder)
		if len(all.pods) != len(parts) {
			t.Errorf("%s: %d kinds of pods, want %v", folder, len(all.pods), parts)
		}
		for _, name := range parts {
			if got := all.pods[name].Spec.ServiceAccountName; got != name {
				t.Errorf("%s: %s has the account %q", folder, name, got)
			}
		}
		for name, roles := range map[string]string{
			"aware-scheduler":  "--roles=scheduler",
			"aware-autoscaler": "--roles=autoscaler,learner",
		} {
			c := all.pods[name].Spec.Containers[0]
			if !slices.Contains(c.Args, roles) || !strings.HasPrefix(c.Image, "awarescale.dev/aware-central:") {
				t.Errorf("%s: %s runs %s %v, want %s", folder, name, c.Image, c.Args, roles)
			}
		}
	}
}

// A learner of its own is the same image beside what is installed, with the rights to take lessons and nothing else.
func TestLearnersAreBesideWhatIsInstalled(t *testing.T) {
	all := build(t, "learners")
	c := all.pods["aware-learner"].Spec.Containers
	if len(all.pods) != 1 || len(c) != 1 || !slices.Contains(c[0].Args, "--roles=learner") ||
		c[0].Image != build(t, "default").pods["aware-autoscaler"].Spec.Containers[0].Image {
		t.Errorf("it runs %+v", all.pods)
	}
	if got := all.pods["aware-learner"].Spec.ServiceAccountName; got != "aware-learner" {
		t.Errorf("its account is %q", got)
	}
	if autoscaler := build(t, "default").pods["aware-autoscaler"].Labels; len(all.services) != 0 ||
		labels.SelectorFromSet(labels.Set{"app.kubernetes.io/name": "aware-learner"}).Matches(labels.Set(autoscaler)) {
		t.Errorf("services %+v: agents must not be led to a learner", all.services)
	}
}

// Agents, the scheduler and learners dial a Service whose name is in the autoscaler's certificate.
func TestTheLinkLeadsToTheAutoscaler(t *testing.T) {
	all := build(t, "default", "learners")
	const url = "--central=https://aware-central.aware-system.svc:9443"
	for _, name := range []string{"aware-agent", "aware-scheduler", "aware-learner"} {
		if !slices.Contains(all.pods[name].Spec.Containers[0].Args, url) {
			t.Errorf("%s has not the argument %s", name, url)
		}
		if !slices.ContainsFunc(all.pods[name].Spec.Volumes, func(v corev1.Volume) bool {
			return v.Projected != nil && v.Projected.Sources[0].ServiceAccountToken.Audience == "aware-central"
		}) {
			t.Errorf("%s has no token for the autoscaler", name)
		}
	}
	for _, s := range all.services {
		if s.Name != "aware-central" {
			continue
		}
		for name, pod := range all.pods {
			leads := labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels))
			if leads != (name == "aware-autoscaler") {
				t.Errorf("the service %s leads to %s: %v", s.Name, name, leads)
			}
		}
		return
	}
	t.Error("there is no service aware-central")
}

// The API server asks the autoscaler about new pods of tenants that opted in, waits two
// seconds at most, and makes the pod without an answer. It is a part of what is installed,
// so that it is removed with it.
func TestTheWebhookIsAskedAboutNewPodsThatOptedInAndIsNeverInTheWay(t *testing.T) {
	for _, folder := range []string{"default", "default-scheduler"} {
		all := build(t, folder)
		if len(all.webhooks) != 1 || all.webhooks[0].Name != admission.ConfigurationName || len(all.webhooks[0].Webhooks) != 1 {
			t.Fatalf("%s: webhooks %+v, want one", folder, all.webhooks)
		}
		w := all.webhooks[0].Webhooks[0]
		if w.Name != admission.WebhookName || *w.FailurePolicy != admissionregistrationv1.Ignore || *w.TimeoutSeconds > 2 ||
			*w.SideEffects != admissionregistrationv1.SideEffectClassNone {
			t.Errorf("%s: %s, failurePolicy %s, %d s, side effects %s",
				folder, w.Name, *w.FailurePolicy, *w.TimeoutSeconds, *w.SideEffects)
		}
		if len(w.Rules) != 1 || !slices.Equal(w.Rules[0].Resources, []string{"pods"}) ||
			!slices.Equal(w.Rules[0].Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Create}) {
			t.Errorf("%s: rules %+v, want the creation of pods", folder, w.Rules)
		}
		matches := func(s *metav1.LabelSelector, set labels.Set) bool {
			selector, err := metav1.LabelSelectorAsSelector(s)
			if err != nil {
				t.Fatal(err)
			}
			return selector.Matches(set)
		}
		for label, want := range map[string]bool{"true": true, "false": false, "": false} {
			if matches(w.ObjectSelector, labels.Set{v1alpha1.ManagedLabel: label}) != want {
				t.Errorf("%s: a pod with %s=%q is asked about: %v", folder, v1alpha1.ManagedLabel, label, !want)
			}
		}
		for namespace, want := range map[string]bool{"shop": true, "kube-system": false, "aware-system": false} {
			if matches(w.NamespaceSelector, labels.Set{"kubernetes.io/metadata.name": namespace}) != want {
				t.Errorf("%s: a pod of %s is asked about: %v", folder, namespace, !want)
			}
		}
		all.leads(t, *w.ClientConfig.Service)
	}
}

// leads checks that a webhook's service is a port of the autoscaler.
func (all *installed) leads(t *testing.T, to admissionregistrationv1.ServiceReference) {
	t.Helper()
	if *to.Path != admission.Path || to.Namespace != "aware-system" {
		t.Errorf("the webhook is %+v", to)
	}
	for _, s := range all.services {
		for _, p := range s.Spec.Ports {
			named := func(c corev1.ContainerPort) bool { return c.Name == p.TargetPort.StrVal }
			if s.Name == to.Name && p.Port == *to.Port &&
				slices.ContainsFunc(all.pods["aware-autoscaler"].Spec.Containers[0].Ports, named) {
				return
			}
		}
	}
	t.Errorf("there is no service %s with port %d of the autoscaler", to.Name, *to.Port)
}

// The kubelet asks over TLS, because metrics and health share a port.
func TestTheKubeletAsksOverTLS(t *testing.T) {
	for name, pod := range build(t, "default", "learners").pods {
		c := pod.Spec.Containers[0]
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if p == nil || p.HTTPGet == nil || p.HTTPGet.Scheme != corev1.URISchemeHTTPS {
				t.Errorf("%s: probe %+v", name, p)
			}
		}
	}
}

// peer is where a connection comes from.
type peer struct {
	pod       labels.Set // nil for a pod that has none of AWARE's labels
	namespace labels.Set // nil for AWARE's own
}

// admits reports whether the policies let a peer connect to a port of a pod.
func (all *installed) admits(t *testing.T, from peer, to corev1.PodTemplateSpec, port string) bool {
	t.Helper()
	selected := false
	matches := func(s *metav1.LabelSelector, set labels.Set) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return selector.Matches(set)
	}
	for _, p := range all.policies {
		if !matches(&p.Spec.PodSelector, to.Labels) {
			continue
		}
		selected = true
		for _, rule := range p.Spec.Ingress {
			named := func(one networkingv1.NetworkPolicyPort) bool { return one.Port.StrVal == port }
			if !slices.ContainsFunc(rule.Ports, named) {
				continue
			}
			if len(rule.From) == 0 { // from everywhere
				return true
			}
			for _, f := range rule.From {
				inside := f.NamespaceSelector == nil && from.namespace == nil ||
					f.NamespaceSelector != nil && matches(f.NamespaceSelector, from.namespace)
				if inside && (f.PodSelector == nil || matches(f.PodSelector, from.pod)) {
					return true
				}
			}
		}
	}
	return !selected
}

func TestOnlyWhoMustConnects(t *testing.T) {
	all := build(t, "default", "learners", "network-policies")
	learner := peer{pod: all.pods["aware-learner"].Labels}
	agent, scheduler := peer{pod: all.pods["aware-agent"].Labels}, peer{pod: all.pods["aware-scheduler"].Labels}
	monitoring := peer{namespace: labels.Set{"awarescale.dev/metrics": "true"}}
	tenant := peer{namespace: labels.Set{"kubernetes.io/metadata.name": "shop"}}
	pretender := peer{pod: agent.pod, namespace: labels.Set{"kubernetes.io/metadata.name": "shop"}}
	for _, c := range []struct {
		what string
		from peer
		to   string
		port string
		want bool
	}{
		{"an agent reaches the link", agent, "aware-autoscaler", "link", true},
		{"the scheduler reaches the link", scheduler, "aware-autoscaler", "link", true},
		{"a learner reaches the link", learner, "aware-autoscaler", "link", true},
		{"a learner does not reach an agent", learner, "aware-agent", "web", false},
		{"metrics of a learner", monitoring, "aware-learner", "web", true},
		{"an agent does not reach a learner", agent, "aware-learner", "web", false},
		{"a tenant does not reach the link", tenant, "aware-autoscaler", "link", false},
		{"a tenant's pod with an agent's label does not reach the link", pretender, "aware-autoscaler", "link", false},
		{"who reads metrics does not reach the link", monitoring, "aware-autoscaler", "link", false},
		{"the API server, which has no label, reaches the webhook", peer{namespace: labels.Set{}},
			"aware-autoscaler", "admission", true},
		{"the API server does not reach the link", peer{namespace: labels.Set{}}, "aware-autoscaler", "link", false},
		{"metrics of an agent", monitoring, "aware-agent", "web", true},
		{"metrics of the autoscaler", monitoring, "aware-autoscaler", "web", true},
		{"metrics of the scheduler", monitoring, "aware-scheduler", "web", true},
		{"a tenant does not reach metrics", tenant, "aware-agent", "web", false},
		{"an agent does not reach another agent", agent, "aware-agent", "web", false},
		{"an agent does not reach the scheduler", agent, "aware-scheduler", "web", false},
	} {
		pod := all.pods[c.to]
		if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == c.port }) {
			t.Fatalf("%s: %s has no port %s", c.what, c.to, c.port)
		}
		if got := all.admits(t, c.from, pod, c.port); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	if !build(t, "default").admits(t, tenant, all.pods["aware-agent"], "web") {
		t.Error("without the policies a tenant does not connect: the test proves nothing")
	}
}
