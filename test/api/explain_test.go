package api

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/decisions"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// central serves the controllers' decisions over TLS where the API server reaches
// this process, as the service aware-system/aware-central.
func central(t *testing.T) {
	t.Helper()
	where, err := url.Parse(cluster.REST().Host)
	if err != nil {
		t.Fatal(err)
	}
	way, err := net.Dial("udp", where.Host) // no packet is sent
	if err != nil {
		t.Fatal(err)
	}
	way.Close()
	host := way.LocalAddr().(*net.UDPAddr).IP.String()
	reviews := decisions.Reviews{Client: kubernetes.NewForConfigOrDie(cluster.REST())}
	mux := http.NewServeMux()
	mux.Handle(decisions.Pattern, decisions.NewServer(decided, reviews, func() bool { return true }))
	server := httptest.NewUnstartedServer(mux)
	if server.Listener, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
		t.Fatal(err)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	port := int32(server.Listener.Addr().(*net.TCPAddr).Port)
	name, ready, protocol := "link", true, corev1.ProtocolTCP
	in := metav1.ObjectMeta{Namespace: "aware-system", Name: "aware-central"}
	slice := in
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: in.Name}
	// The API server proxies to addresses of pods only.
	pod := &corev1.Pod{ObjectMeta: in, Spec: corev1.PodSpec{NodeName: ghost,
		Containers: []corev1.Container{{Name: "central", Image: "none"}}}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in.Namespace}},
		&corev1.Service{ObjectMeta: in, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: name, Port: 9443}}}},
		pod,
		&discoveryv1.EndpointSlice{ObjectMeta: slice, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{
				Addresses:  []string{host},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: in.Namespace, Name: in.Name},
			}},
			Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}}},
	} {
		err := kube.Create(t.Context(), o)
		if _, shared := o.(*corev1.Namespace); shared && apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if o.GetNamespace() != "" {
			t.Cleanup(func() {
				err := kube.Delete(context.Background(), o, client.GracePeriodSeconds(0)) // no kubelet ends the pod
				if client.IgnoreNotFound(err) != nil {
					t.Errorf("removing %T: %v", o, err)
				}
			})
		}
	}
	pod.Status.PodIPs = []corev1.PodIP{{IP: host}}
	pod.Status.PodIP = host
	if err := kube.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// Through a real API server: the proxy removes who asks, the token that is sent for
// it counts, and only what its account may get is read.
func TestExplainReadsTheStreamThroughTheAPIServersProxy(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "aware")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/aware").CombinedOutput(); err != nil {
		t.Fatalf("building aware: %v\n%s", err, out)
	}
	central(t)
	s := open(t, "mode", "recommend", "max-cpu", "900m")
	p := s.pod("one")
	s.reports(200, nil, p)
	s.condition(v1alpha1.Ready, metav1.ConditionTrue)
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"multidimpodautoscalers"}, Verbs: []string{"get"},
		}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "viewer"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "viewer", Namespace: s.namespace}}},
	} {
		o.SetNamespace(s.namespace)
		if err := kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	explain := func(ctx context.Context, args ...string) (out, notes string) {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, bin, append([]string{"explain", "deployment/web", "-n", s.namespace,
			"--kubeconfig", cluster.Kubeconfig()}, args...)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if ctx.Err() == nil && err != nil {
			t.Errorf("%v: %v: %s", args, err, &stderr)
		}
		return stdout.String(), stderr.String()
	}
	s.eventually("twelve decisions, which a status does not have", func() (bool, string) {
		s.reports(200, nil, p)
		out, notes := explain(t.Context(), "--last", "12", "--as-account", s.namespace+"/viewer")
		return strings.Count(out, "hpavpa/1") >= 12 && notes == "", out + notes
	})
	if out, notes := explain(t.Context(), "--as-account", s.namespace+"/nobody"); !strings.Contains(notes, "nobody may not get") ||
		!strings.Contains(out, "hpavpa/1") {
		t.Errorf("an account that may not get the object: notes %q, it printed\n%s", notes, out)
	}
	if _, notes := explain(t.Context(), "--send-token"); !strings.Contains(notes, "the kubeconfig has no bearer token") {
		t.Errorf("with a kubeconfig of certificates: notes %q", notes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "explain", "deployment/web", "-n", s.namespace, "--kubeconfig", cluster.Kubeconfig(),
		"--follow", "--last", "1", "--as-account", s.namespace+"/viewer")
	lines, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewScanner(lines)
	for n := range 4 { // as they are made; a stream that is held back gives none
		if !read.Scan() || !strings.Contains(read.Text(), "(hpavpa/1)") {
			t.Errorf("line %d of following: %q", n, read.Text())
		}
	}
	cancel()
	_ = cmd.Wait() // it was killed
}
