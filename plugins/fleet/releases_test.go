package fleet_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"awarescale.dev/aware/plugins/fleet"
	"google.golang.org/protobuf/proto"
)

// An agent of the release before permits sends what it sent. Central knows its containers,
// and grants, as that release's central did. It promises nothing, and gives no permit.
func TestAnAgentOfAnEarlierReleaseIsServed(t *testing.T) {
	b, err := os.ReadFile("../../nodeagent/api/testdata/before-permits/report.binpb")
	if err != nil {
		t.Fatal(err)
	}
	var report linkv1.Report
	if err := proto.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	s := start(t, "node-1")
	s.server.Cluster = cluster{"node-1": {"u0", "u1"}}
	s.server.Log = func(err error, message string, _ ...any) { t.Errorf("%s: %v", message, err) }
	f := fleet.New(time.Minute)
	f.Grant("shop/Deployment/web", map[string][]api.Grant{"node-1": {{Mode: api.Auto, Throttle: 0.1}}})
	f.Open()
	s.server.Central = f
	pem, err := s.client.CA(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := linkv1.NewLinkClient(&http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, DialContext: s.client.Dial, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name},
	}}, s.client.URL)
	stream := client.Sync(t.Context())
	defer stream.CloseResponse()
	defer stream.CloseRequest()
	stream.RequestHeader().Set("Authorization", "Bearer good")
	for range 3 {
		if err := stream.Send(&report); err != nil {
			t.Fatal(err)
		}
	}
	got, err := stream.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if len(got.All) != 1 || got.Unchanged || got.Permit != nil {
		t.Errorf("it is sent %v", got)
	}
	eventually(t, "its containers are known", func() bool {
		one, ok := f.Summary("node-1", "u1", "app", time.Now(), time.Minute)
		return ok && one.State.Usage.CPU > 0 && one.Mode == api.Auto
	})
	if upper, ok := f.Upper("node-1", time.Now(), time.Minute); !ok || upper["u0"] != (mdp.Size{CPU: 900, Memory: 200 * mdp.MiB}) {
		t.Errorf("upper bounds %v, %v", upper, ok)
	}
	if sum, ok := f.Promised("node-1", time.Now(), time.Minute); ok {
		t.Errorf("%v is promised", sum)
	}
	if p := f.Permit(time.Now(), "node-1"); p.Known() {
		t.Errorf("permit %+v", p)
	}
}
