package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
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
	Renew(now time.Time, p api.Permit) // the last grants go on to hold, with this permit
	// Urgent gets a value when the next report may not wait.
	Urgent() <-chan struct{}
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
	// Dial connects to central; nil is over TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log is called when the link is lost, and when it is up again.
	Log func(err error, message string, keysAndValues ...any)
}

const (
	// silence is how long central may say nothing before it is dialled again. It says
	// something every 10 s.
	silence = 30 * time.Second
	// A dial, and its TLS handshake, may take this long.
	dialIn = 5 * time.Second
	// A connection on which nothing was received for pingAfter is asked for a sign of
	// life, and given up when there is none within pingIn.
	pingAfter = 15 * time.Second
	pingIn    = 10 * time.Second
	// worthIt is the size from which a report is compressed: full ones, once a minute.
	// Central keeps a few buffers of that size for each of its connections.
	worthIt = 4 << 10
	// urgentEvery is the least time between a report and an urgent one.
	urgentEvery = time.Second
)

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

// stream is the agent's end of a stream.
type stream = connect.BidiStreamForClient[linkv1.Report, linkv1.Grants]

// exchange is one stream, from the dial to its end. What ends it is the context's
// cause. The watchdog waits for nothing: neither for the API server or the dial, nor
// for a Send that central does not read.
func (c *Client) exchange(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(fmt.Errorf("no message from central for %v", silence)) })
	defer watchdog.Stop()
	s, err := c.open(ctx)
	if err != nil {
		return err
	}
	var receiving sync.WaitGroup
	defer func() {
		// Closing waits for the headers of the answer, which may never come: cancel first.
		// When they come just now nobody closes the answer: then what ends the stream is
		// that its request has ended and the context has, too.
		cancel(nil)
		s.CloseRequest()
		s.CloseResponse()
		receiving.Wait()
	}()
	receiving.Go(func() { cancel(c.receive(s, func() { watchdog.Reset(silence) })) })
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	var told told
	for {
		now := c.Now()
		// When central ends the stream Send says EOF, and the reason is on the receiving side.
		err := s.Send(api.ReportToWire(told.news(now, c.Node.Report(now))))
		if err != nil && !errors.Is(err, io.EOF) {
			cancel(fmt.Errorf("sending a report: %w", err))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		case <-c.Node.Urgent():
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(urgentEvery - c.Now().Sub(now)):
			}
		}
	}
}

// open begins a stream on a connection of its own, which ends with it.
func (c *Client) open(ctx context.Context) (*stream, error) {
	token, err := os.ReadFile(c.Token)
	if err != nil {
		return nil, fmt.Errorf("reading the token for central: %w", err)
	}
	pem, err := c.CA(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading central's certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("reading central's certificate authority: no certificate in it")
	}
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialIn}).DialContext
	}
	transport := &http.Transport{
		ForceAttemptHTTP2: true, DisableKeepAlives: true, DialContext: dial, TLSHandshakeTimeout: dialIn,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: c.Name, MinVersion: tls.VersionTLS13},
		HTTP2:           &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingIn},
	}
	client := linkv1.NewLinkClient(&http.Client{Transport: transport}, strings.TrimSuffix(c.URL, "/"),
		connect.WithSendGzip(), connect.WithCompressMinBytes(worthIt))
	s := client.Sync(ctx)
	s.RequestHeader().Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return s, nil
}

// receive takes in what central says until the stream ends, and says why it did.
func (c *Client) receive(s *stream, alive func()) error {
	granted := false // by this stream
	for {
		w, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return errors.New("central ended the stream")
		}
		if err != nil {
			return err
		}
		m, err := api.GrantsFromWire(w)
		if err != nil {
			return fmt.Errorf("central's grants: %w", err)
		}
		alive()
		switch {
		case !m.Unchanged:
			c.Node.Apply(c.Now(), m)
			granted = true
		case granted:
			c.Node.Renew(c.Now(), m.Permit)
		}
	}
}

// Refused reports whether central refuses this agent. Then dialling again does not help
// until a person changes something.
func Refused(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied
}
