package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v5"
)

// Node gives reports and takes grants.
type Node interface {
	Report(now time.Time) api.Report
	Apply(now time.Time, m api.Grants)
}

// Client keeps one node's stream to central.
type Client struct {
	Node  Node
	URL   string        // of central, such as https://aware-central.aware-system.svc:9443
	Name  string        // that central's certificate must have
	Token string        // file of the projected token; read at each dial, because it is rotated
	Every time.Duration // between two reports
	Now   func() time.Time
	// CA gives the certificates that central's may be signed by, in PEM.
	CA func(context.Context) ([]byte, error)
	// Log is called when the link is lost, and when it is up again.
	Log func(err error, message string, keysAndValues ...any)
}

// silence is how long central may leave a stream unanswered before it is dialled again.
const silence = 30 * time.Second

// Run dials until the context ends. The agent goes on within its grants.
func (c *Client) Run(ctx context.Context) {
	retry := &backoff.ExponentialBackOff{
		InitialInterval: time.Second, Multiplier: 1.6, RandomizationFactor: 0.3, MaxInterval: 15 * time.Second,
	}
	retry.Reset()
	for ctx.Err() == nil {
		began := c.Now()
		err := c.exchange(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.Now().Sub(began) > time.Minute {
			retry.Reset()
		}
		c.Log(err, "No link to central: working on within the last grants", "central", c.URL)
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// exchange is one stream, from the dial to its end.
func (c *Client) exchange(ctx context.Context) error {
	token, err := os.ReadFile(c.Token)
	if err != nil {
		return fmt.Errorf("reading the token for central: %w", err)
	}
	pem, err := c.CA(ctx)
	if err != nil {
		return fmt.Errorf("reading central's certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("reading central's certificate authority: no certificate in it")
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: 5 * time.Second,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: c.Name, MinVersion: tls.VersionTLS13}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := linkv1.NewLinkClient(&http.Client{Transport: transport}, strings.TrimSuffix(c.URL, "/")).
		Exchange(ctx)
	defer stream.CloseResponse()
	stream.RequestHeader().Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))

	heard := make(chan error, 1)
	alive := make(chan struct{}, 1)
	go func() {
		for {
			w, err := stream.Receive()
			if err != nil {
				heard <- err
				return
			}
			m, err := api.GrantsFromWire(w)
			if err != nil {
				heard <- fmt.Errorf("central's grants: %w", err)
				return
			}
			c.Node.Apply(c.Now(), m)
			select {
			case alive <- struct{}{}:
			default:
			}
		}
	}()
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for {
		if err := stream.Send(api.ReportToWire(c.Node.Report(c.Now()))); err != nil {
			// The reason is on the receiving side.
			select {
			case reason := <-heard:
				return reason
			case <-time.After(time.Second):
				return fmt.Errorf("sending a report: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-heard:
			return err
		case <-alive:
			quiet.Reset(silence)
			<-tick.C
		case <-quiet.C:
			return fmt.Errorf("no message from central for %v", silence)
		case <-tick.C:
		}
	}
}

// Refused reports whether central refuses this agent. Then dialling again does not help
// until a person changes something.
func Refused(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied
}
