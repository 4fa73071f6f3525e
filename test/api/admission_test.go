package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/admission"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/plugins/fleet"
	"awarescale.dev/aware/test/rights"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// installAdmission applies what the manifests say of the webhook: its configuration, the
// policy that holds the autoscaler's account to it, and the Service. The endpoint of the
// Service is an address of this process instead of a pod's.
func installAdmission(t *testing.T, address *net.TCPAddr) {
	t.Helper()
	installRights(t)
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../manifests/default")
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, o := range objects.Resources() {
		kinds := []string{"MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Service"}
		if slices.Contains(kinds, o.GetKind()) {
			one, err := o.AsYAML()
			if err != nil {
				t.Fatal(err)
			}
			text += "---\n" + string(one)
		}
	}
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl(t, "apply", "--server-side", "-f", file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := cluster.Kubectl(context.Background(), "delete", "-f", file, "--ignore-not-found"); err != nil {
			t.Errorf("removing the webhook: %v: %s", err, out)
		}
	})
	name, port, yes := "admission", int32(address.Port), true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rights.Namespace, GenerateName: "test-", Labels: map[string]string{discoveryv1.LabelServiceName: "aware-central"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address.IP.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	if err := kube.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kube.Delete(context.Background(), slice) })
}

// listen listens where the API server reaches this process.
func listen(t *testing.T) net.Listener {
	t.Helper()
	to := strings.TrimPrefix(cluster.REST().Host, "https://")
	c, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := net.Listen("tcp", net.JoinHostPort(c.LocalAddr().(*net.TCPAddr).IP.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// clientset is a client of a configuration.
func clientset(t *testing.T, account string) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(accountConfig(account))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// certificate makes the autoscaler's certificate, and registers its authority with the
// rights of the autoscaler's account.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	c := clientset(t, rights.Autoscaler)
	cert := &fleet.Certificate{Client: c, Namespace: rights.Namespace, Name: "aware-central.aware-system.svc", Now: time.Now}
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err = cert.Ensure(t.Context()); err != nil {
			continue // the rights were given a moment ago
		}
		var ok bool
		if ok, err = (admission.Registration{Client: c}).Ensure(t.Context(), cert.CA()); ok && err == nil {
			return cert.Config()
		}
	}
	t.Fatalf("registering the webhook with the autoscaler's rights: %v", err)
	return nil
}

// serveAdmission serves the webhook for the API server.
func serveAdmission(t *testing.T) {
	t.Helper()
	l := listen(t)
	installAdmission(t, l.Addr().(*net.TCPAddr))
	source := &admission.Source{Reader: cached, Now: time.Now, StatusEvery: step}
	handler := admission.NewHandler(func() *admission.Source { return source }, time.Now, func(admission.Result) {},
		func(err error, message string, kv ...any) { t.Log(err, message, kv) })
	web := &http.Server{Handler: handler, TLSConfig: certificate(t)}
	go web.ServeTLS(l, "", "")
	t.Cleanup(func() { web.Close() })
}

// scale makes the Deployment's controllers make that many pods, on the ghost.
func (s *shop) scale(replicas int32) {
	s.t.Helper()
	s.change(func(d *appsv1.Deployment) {
		d.Spec.Paused = false
		d.Spec.Replicas = &replicas
		d.Spec.Template.Spec.NodeName = ghost
	})
}

// made waits for a pod that the Deployment's controllers have made, besides others.
func (s *shop) made(besides ...*corev1.Pod) *corev1.Pod {
	s.t.Helper()
	var found *corev1.Pod
	s.eventually("a new pod", func() (bool, string) {
		var all corev1.PodList
		if err := kube.List(s.t.Context(), &all, client.InNamespace(s.namespace)); err != nil {
			return false, err.Error()
		}
		for i := range all.Items {
			p := &all.Items[i]
			if !slices.ContainsFunc(besides, func(o *corev1.Pod) bool { return o.UID == p.UID }) {
				found = p
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d pods", len(all.Items))
	})
	return found
}

// settled makes the Deployment's first pod grow to the most that its owner allows, and waits
// until the object says so.
func (s *shop) settled(most mdp.MilliCPU) *corev1.Pod {
	s.t.Helper()
	s.scale(1)
	p := s.made()
	s.runs(p)
	s.eventually("the first pod has grown", func() (bool, string) {
		s.reports(most-20, nil, p)
		s.get(p, p.Name)
		m, err := s.mpa()
		if err != nil || len(m.Status.Recommendation) == 0 {
			return false, fmt.Sprint(err)
		}
		of := recommender.Decided(m.Status.Recommendation[0])
		return size(p).CPU == most-1 && of.Reservation == most-1 && of.Limit.Memory == memory(p),
			fmt.Sprintf("%v, %+v", size(p), m.Status.Recommendation)
	})
	return p
}

// sizes reports whether the API server asks the webhook about a new pod like this one.
func (s *shop) sizes(like *corev1.Pod) bool {
	s.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, GenerateName: "try-", Labels: like.Labels, OwnerReferences: like.OwnerReferences,
		},
		Spec: corev1.PodSpec{Containers: template().Spec.Containers, NodeName: ghost},
	}
	if err := kube.Create(s.t.Context(), p, client.DryRunAll); err != nil {
		s.t.Fatal(err)
	}
	return size(p).CPU != 200
}

func TestANewPodOfADeploymentStartsAtThePresentSize(t *testing.T) {
	serveAdmission(t)
	s := open(t, "mode", "auto", "max-cpu", "900m")
	first := s.settled(900)
	if got := size(first); got.CPU != 899 {
		t.Fatalf("the first pod has %v", got)
	}
	s.eventually("the API server asks the webhook", func() (bool, string) {
		s.reports(880, nil, first)
		return s.sizes(first), ""
	})
	s.scale(2)
	second := s.made(first)
	was, is := first.Spec.Containers[0].Resources, second.Spec.Containers[0].Resources
	if !updater.Equal(was, is) || second.Generation > 1 {
		t.Errorf("the new pod has %v (generation %d), and its sibling %v", is, second.Generation, was)
	}
	if first.Status.QOSClass != second.Status.QOSClass {
		t.Errorf("QoS class %s, and its sibling's %s", second.Status.QOSClass, first.Status.QOSClass)
	}
	if got := updater.Resized(second, "web", updater.Manager); len(got) == 0 {
		t.Errorf("the new pod does not say that it was sized: %+v", second.ManagedFields)
	}
	// A pod that was sized when it was made is restored as one that was resized. The
	// Deployment is paused, so that another annotation replaces no pod.
	s.runs(second)
	s.change(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	s.annotate("mode", "observe")
	s.eventually("both pods have the template's size again", func() (bool, string) {
		s.get(first, first.Name)
		s.get(second, second.Name)
		return asTemplate(first) && asTemplate(second), fmt.Sprint(size(first), size(second))
	})
	if s.sizes(first) {
		t.Error("in mode observe a new pod is sized")
	}
}

// Without an answer of the webhook a pod is made at once, with its template's size, and
// central resizes it.
func TestWithoutTheWebhookAPodIsMadeAtOnceAndResizedLater(t *testing.T) {
	for name, c := range map[string]struct {
		hangs bool
		in    time.Duration
	}{
		"nothing listens":             {false, time.Second},
		"it listens and says nothing": {true, 4 * time.Second}, // the API server waits 2 s
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t)
			installAdmission(t, l.Addr().(*net.TCPAddr))
			certificate(t)
			if !c.hangs {
				l.Close()
			}
			s := open(t, "mode", "auto", "max-cpu", "900m")
			first := s.settled(900)
			begun := time.Now()
			if s.sizes(first) {
				t.Fatal("a pod is sized by nobody")
			}
			took := time.Since(begun)
			t.Logf("a pod is made in %v", took.Round(time.Millisecond))
			if took > c.in {
				t.Errorf("a pod is made in %v, want %v at most", took, c.in)
			}
			if c.hangs && took < time.Second {
				t.Error("the API server has not waited: nothing was tested")
			}
			s.scale(2)
			second := s.made(first)
			if second.Generation <= 1 && size(second).CPU != 200 {
				t.Errorf("the new pod starts with %v", size(second))
			}
			s.runs(second)
			s.eventually("the new pod is resized", func() (bool, string) {
				s.reports(880, func(sum *api.Summary) { sum.State.Limit.CPU = 900 }, first, second)
				s.get(second, second.Name)
				return size(second).CPU > 200, size(second).String()
			})
		})
	}
}

// The account could have every object of the cluster sent to it, and change it, if it could
// write more of a webhook's configuration than the certificate authority.
func TestTheAutoscalersAccountMayWriteTheAuthorityOfItsWebhookAndNothingElse(t *testing.T) {
	l := listen(t)
	installAdmission(t, l.Addr().(*net.TCPAddr))
	certificate(t)
	all := clientset(t, rights.Autoscaler).AdmissionregistrationV1().MutatingWebhookConfigurations()
	change := func(edit func(*admissionregistrationv1.MutatingWebhookConfiguration)) error {
		c, err := all.Get(t.Context(), admission.ConfigurationName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		edit(c)
		_, err = all.Update(t.Context(), c, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	fail, once, secrets := admissionregistrationv1.Fail, admissionregistrationv1.IfNeededReinvocationPolicy, "secrets"
	ten, url := int32(10), "https://attacker.example.com/"
	exact := admissionregistrationv1.Exact
	some := admissionregistrationv1.SideEffectClassNoneOnDryRun
	type configuration = admissionregistrationv1.MutatingWebhookConfiguration
	edits := map[string]func(*configuration){
		"failurePolicy": func(c *configuration) { c.Webhooks[0].FailurePolicy = &fail },
		"more rules": func(c *configuration) {
			more := *c.Webhooks[0].Rules[0].DeepCopy()
			more.Resources = []string{secrets}
			c.Webhooks[0].Rules = append(c.Webhooks[0].Rules, more)
		},
		"other resources": func(c *configuration) { c.Webhooks[0].Rules[0].Resources = []string{secrets} },
		"other operations": func(c *configuration) {
			c.Webhooks[0].Rules[0].Operations = append(c.Webhooks[0].Rules[0].Operations, "UPDATE")
		},
		"all pods":          func(c *configuration) { c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{} },
		"all namespaces":    func(c *configuration) { c.Webhooks[0].NamespaceSelector = nil },
		"a longer timeout":  func(c *configuration) { c.Webhooks[0].TimeoutSeconds = &ten },
		"another service":   func(c *configuration) { c.Webhooks[0].ClientConfig.Service.Name = "other" },
		"another namespace": func(c *configuration) { c.Webhooks[0].ClientConfig.Service.Namespace = "shop" },
		"a URL": func(c *configuration) {
			c.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url}
		},
		"reinvocation":  func(c *configuration) { c.Webhooks[0].ReinvocationPolicy = &once },
		"another match": func(c *configuration) { c.Webhooks[0].MatchPolicy = &exact },
		"side effects":  func(c *configuration) { c.Webhooks[0].SideEffects = &some },
		"another name":  func(c *configuration) { c.Webhooks[0].Name = "other.awarescale.dev" },
		"no webhook":    func(c *configuration) { c.Webhooks = nil },
		"a match condition": func(c *configuration) {
			c.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "all", Expression: "true"}}
		},
		"a second webhook": func(c *configuration) {
			more := *c.Webhooks[0].DeepCopy()
			more.Name = "more.awarescale.dev"
			c.Webhooks = append(c.Webhooks, more)
		},
	}
	s := &shop{t: t}
	s.eventually("the policy is in force", func() (bool, string) {
		err := change(edits["failurePolicy"])
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err), fmt.Sprint(err)
	})
	for name, edit := range edits {
		err := change(edit)
		if err == nil || !strings.Contains(err.Error(), "the autoscaler may change the certificate authority") {
			t.Errorf("%s: err = %v, want the policy's refusal", name, err)
		}
	}
	if err := change(func(c *configuration) { c.Webhooks[0].ClientConfig.CABundle = nil }); err != nil {
		t.Errorf("another authority: %v", err)
	}
	if err := change(func(*configuration) {}); err != nil {
		t.Errorf("nothing changed: %v", err)
	}
	// An admin may change it as before.
	var c admissionregistrationv1.MutatingWebhookConfiguration
	if err := kube.Get(t.Context(), client.ObjectKey{Name: admission.ConfigurationName}, &c); err != nil {
		t.Fatal(err)
	}
	c.Webhooks[0].TimeoutSeconds = &ten
	if err := kube.Update(t.Context(), &c, client.DryRunAll); err != nil {
		t.Errorf("an admin's change: %v", err)
	}
	if m := c.Webhooks[0]; m.ObjectSelector.MatchLabels[v1alpha1.ManagedLabel] != "true" {
		t.Errorf("object selector %+v", m.ObjectSelector)
	}
}
