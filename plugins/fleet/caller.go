package fleet

import (
	"bytes"
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
)

// Caller makes requests to central's link, for a part of AWARE in another process. One goroutine uses it.
type Caller struct {
	URL   string // of central's link, such as https://aware-central.aware-system.svc:9443
	Name  string // that central's certificate must have
	Token string // file of the projected token; read for each request, because it is rotated
	// CA gives the certificates that central's may be signed by, in PEM.
	CA func(context.Context) ([]byte, error)
	// Dial connects to central; nil is over TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	client *http.Client
}

// Answer is what central answers.
type Answer struct {
	Header http.Header
	Body   []byte
}

// StatusError is an answer that refuses.
type StatusError struct {
	Status string // such as "503 Service Unavailable"
	Code   int
	Text   string // what central says, or the begin of it
}

func (e *StatusError) Error() string { return fmt.Sprintf("%s: %q", e.Status, e.Text) }

// Do sends a request, and reads an answer of at most that many bytes. A status from 300 on is a [*StatusError]. A connection on
// which something went wrong is not used again: behind the same name there may be another instance that answers.
func (c *Caller) Do(ctx context.Context, method, path string, body []byte, most int64) (a Answer, err error) {
	if c.client == nil {
		if c.client, err = c.connect(ctx); err != nil {
			return a, err
		}
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	token, err := os.ReadFile(c.Token)
	if err != nil {
		return a, fmt.Errorf("reading the token for central: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := c.client.Do(r)
	if err != nil {
		return a, err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusMultipleChoices {
		why, _ := io.ReadAll(io.LimitReader(answer.Body, 256)) // what there is of it
		return a, &StatusError{answer.Status, answer.StatusCode, string(bytes.TrimSpace(why))}
	}
	a.Header = answer.Header
	a.Body, err = io.ReadAll(io.LimitReader(answer.Body, most+1))
	switch {
	case err != nil:
		return a, fmt.Errorf("reading central's answer: %w", err)
	case int64(len(a.Body)) > most:
		return a, fmt.Errorf("reading central's answer: it has more than %d bytes", most)
	}
	return a, nil
}

// Close ends the connection. The next request makes another one.
func (c *Caller) Close() {
	if c.client != nil {
		c.client.CloseIdleConnections()
		c.client = nil
	}
}

// connect is a client that trusts central only.
func (c *Caller) connect(ctx context.Context) (*http.Client, error) {
	pem, err := c.CA(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading central's certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("reading central's certificate authority: no certificate in it")
	}
	return &http.Client{
		Transport: &http.Transport{
			ForceAttemptHTTP2: true, DialContext: c.Dial,
			TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: c.Name, MinVersion: tls.VersionTLS13},
		},
		// The token is for central only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
