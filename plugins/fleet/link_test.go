package fleet_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/link"
	"awarescale.dev/aware/plugins/fleet"
	"google.golang.org/grpc/test/bufconn"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

const name = "aware-central.aware-system.svc"

// central has the same grants for every node.
type central struct {
	mu     sync.Mutex
	heard  []api.Report
	grants api.Grants
}

func (c *central) Accept(_ time.Time, r api.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, r)
}

func (c *central) Permit(time.Time, string) api.Permit { return c.grants.Permit }

func (c *central) Lost(string) {}

func (c *central) Grants(string) (api.Grants, uint64, <-chan struct{}) { return c.grants, 1, nil }

func (c *central) reports() []api.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.heard)
}

// cluster is nodes of 4 cores and 8 GiB, and the pods that were placed on each.
type cluster map[string][]string // pod UIDs by node

func (c cluster) Runs(node string, one api.ContainerRef) bool {
	return slices.Contains(c[node], one.PodUID)
}

func (c cluster) Capacity(node string) (mdp.Size, bool) {
	_, ok := c[node]
	return mdp.Size{CPU: 4000, Memory: 8 << 30}, ok
}

func (c cluster) Room(node string) (mdp.Size, bool) {
	_, ok := c[node]
	return mdp.Size{CPU: 3500, Memory: 6 << 30}, ok
}

// node gives the same report again and again.
type node struct {
	mu      sync.Mutex
	report  api.Report
	applied []api.Grants
	renewed atomic.Int32
	permit  api.Permit
	urgent  chan struct{} // nil: nothing ever is
}

func (n *node) Report(time.Time) api.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.report
}

// reports makes the node report these containers from now on.
func (n *node) reports(all []api.Summary) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.report.Containers = all
}

func (n *node) Renew(_ time.Time, p api.Permit) {
	n.renewed.Add(1)
	n.take(p)
}

// take takes in a permit. The next report says so.
func (n *node) take(p api.Permit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.permit = n.permit.Then(p)
	if n.report.Account != nil {
		account := *n.report.Account
		account.Holds = n.permit.ID
		n.report.Account = &account
	}
}

// asks makes the node ask for a permit.
func (n *node) asks(inForce, asked mdp.Size) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.report.Account = &api.Account{InForce: inForce, Asked: asked, Holds: n.permit.ID}
}

// permitted is what the node's permit allows; nothing without one.
func (n *node) permitted() mdp.Size {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.permit.Amount
}

func (n *node) Urgent() <-chan struct{} { return n.urgent }

func (n *node) Apply(_ time.Time, m api.Grants) {
	n.take(m.Permit)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.applied = append(n.applied, m)
}

// granted is how many grants the last set has.
func (n *node) granted() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.applied) == 0 {
		return 0
	}
	return len(n.applied[len(n.applied)-1].All)
}

func (n *node) heard() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.applied) > 0
}

// setup is a real server over TLS, with certificates from its secret, and a
// client that has them from the config map.
type setup struct {
	server  *fleet.Server
	central *central
	client  *link.Client
	node    *node
	cluster *fake.Clientset
	web     *http.Server
	problem chan error
}

func start(t *testing.T, tokenNode string) *setup {
	t.Helper()
	s := &setup{
		central: &central{grants: api.Grants{TTL: time.Minute}},
		node:    &node{},
		cluster: fake.NewClientset(),
		problem: make(chan error, 100),
	}
	s.cluster.PrependReactor("create", "tokenreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		review := a.(ktesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		review.Status.Authenticated = review.Spec.Token == "good" &&
			reflect.DeepEqual(review.Spec.Audiences, []string{"aware-central"})
		review.Status.Audiences = review.Spec.Audiences
		review.Status.User.Username = "system:serviceaccount:aware-system:aware-agent"
		if tokenNode != "" {
			review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {tokenNode}}
		}
		return true, review, nil
	})
	cert := &fleet.Certificate{Client: s.cluster, Namespace: "aware-system", Name: name, Now: time.Now}
	if err := cert.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.server = &fleet.Server{Central: s.central, Now: time.Now, Serving: func() bool { return true },
		Cluster:  cluster{"one": {"u"}, "two": {"v"}},
		Reviewer: fleet.NewTokenReviews(s.cluster, "system:serviceaccount:aware-system:aware-agent"),
		Log:      func(error, string, ...any) {}}
	// In memory, so that time can be virtual.
	l := bufconn.Listen(1 << 16)
	web := &http.Server{Handler: s.server.Handler(), TLSConfig: cert.Config()}
	s.web = web
	go web.ServeTLS(l, "", "")
	t.Cleanup(func() { web.Close() })
	token := filepath.Join(t.TempDir(), "token")
	os.WriteFile(token, []byte("good\n"), 0o600)
	s.client = &link.Client{
		Node:  s.node,
		URL:   "https://" + name,
		Name:  name,
		Token: token,
		Every: 10 * time.Millisecond,
		Now:   time.Now,
		Dial:  func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) },
		CA: func(ctx context.Context) ([]byte, error) {
			m, err := s.cluster.CoreV1().ConfigMaps("aware-system").Get(ctx, api.CAConfigMap, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return []byte(m.Data["ca.crt"]), nil
		},
		Log: func(err error, _ string, _ ...any) {
			select {
			case s.problem <- err:
			default:
			}
		}}
	s.node.report = api.Report{Node: "one", Agent: "v1", At: time.Unix(1, 0).UTC()}
	return s
}

// token gives the agent another token.
func (s *setup) token(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(s.client.Token, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refused is whether an agent must not expect that dialling again helps.
func refused(err error) bool { return link.Refused(err) }

func (s *setup) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.client.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("not within a minute: %s", what)
}

func TestReportsGoUpAndGrantsComeDown(t *testing.T) {
	s := start(t, "one")
	full := api.Grant{
		Container: api.ContainerRef{Namespace: "shop", Pod: "web-1", PodUID: "u", Container: "web"},
		Mode:      api.Auto, Paused: true, Throttle: 0.1,
		Bounds:  mdp.Bounds{CPU: mdp.Range[mdp.MilliCPU]{Min: 10, Max: 20}, Memory: mdp.Range[mdp.Bytes]{Min: 1, Max: 2}},
		Latency: api.Source{Port: 80, Path: "/metrics", Metric: "seconds"},
	}
	s.central.grants = api.Grants{TTL: time.Minute, All: []api.Grant{full}}
	s.run(t)
	eventually(t, "grants arrive", s.node.heard)
	want := s.central.grants
	if got := s.node.applied[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("grants\n%+v\nwant\n%+v", got, want)
	}
}

func TestAnAgentIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		tokenNode, token, want string
	}{
		"whose token is of another node": {"two", "good", `the report is of node "one", but the token is bound to node "two"`},
		"whose token is bound to none":   {"", "good", "not bound to a pod on a node"},
		"whose token is not valid":       {"one", "stolen and expired", "not valid for audience"},
	} {
		t.Run(what, func(t *testing.T) {
			s := start(t, c.tokenNode)
			os.WriteFile(s.client.Token, []byte(c.token), 0o600)
			s.run(t)
			err := <-s.problem
			if err == nil || !strings.Contains(err.Error(), c.want) || !link.Refused(err) {
				t.Errorf("err = %v, want a refusal that says %q", err, c.want)
			}
			if len(s.central.reports()) != 0 {
				t.Error("and yet its report was taken")
			}
		})
	}
}

func TestAnAgentIsSentToTheInstanceThatDecides(t *testing.T) {
	s := start(t, "one")
	s.server.Serving = func() bool { return false }
	s.run(t)
	if err := <-s.problem; err == nil || !strings.Contains(err.Error(), "dial again") || link.Refused(err) {
		t.Errorf("err = %v, want the advice to dial again", err)
	}
}

func TestAnAgentTrustsOnlyCentralsAuthority(t *testing.T) {
	s := start(t, "one")
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	s.client.URL, s.client.Dial = other.URL, nil
	s.run(t)
	var unknown *tls.CertificateVerificationError
	if err := <-s.problem; !errors.As(err, &unknown) {
		t.Errorf("err = %v, want a certificate that is not trusted", err)
	}
}

func TestTheCertificateIsSharedAndRenewed(t *testing.T) {
	cluster := fake.NewClientset()
	now := time.Now()
	ensure := func() string {
		c := &fleet.Certificate{Client: cluster, Namespace: "aware-system", Name: name, Now: func() time.Time { return now }}
		if err := c.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		secret, _ := cluster.CoreV1().Secrets("aware-system").Get(t.Context(), fleet.SecretName, metav1.GetOptions{})
		return string(secret.Data["tls.crt"])
	}
	first := ensure()
	if ensure() != first {
		t.Error("a second instance made a certificate of its own")
	}
	now = now.Add(340 * 24 * time.Hour)
	if ensure() == first {
		t.Error("25 days before its end the certificate was not renewed")
	}
	m, _ := cluster.CoreV1().ConfigMaps("aware-system").Get(t.Context(), api.CAConfigMap, metav1.GetOptions{})
	if n := strings.Count(m.Data["ca.crt"], "BEGIN CERTIFICATE"); n != 2 {
		t.Errorf("%d authorities are published, want the new one and the old", n)
	}
}
