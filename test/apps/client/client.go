// Package client makes the HTTP client of the test applications and of the load
// generator.
//
// It differs from net/http's in three ways, because the number of replicas changes
// while we measure:
//
//  1. A connection is closed after a number of requests (ConnMaxRequests).
//     A Kubernetes ClusterIP picks a pod per connection, not per request, so a
//     kept-alive connection stays at its pod: a replica that starts during a
//     burst would never get a request. With 20 requests to a
//     connection the load evens out within a second at 20 requests/s, and
//     setting up a connection is a small part of the cost.
//  2. The pool of idle connections is as large as the requests in flight, so a
//     burst does not open connections and close them at once. There is no HTTP/2,
//     which would send all requests over one connection.
//  3. It connects to loopback and private addresses only. The load generator
//     can send much load, which is permitted in the lab only.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
)

// Config is how a client keeps its connections. The zero value is usable.
type Config struct {
	// ConnMaxRequests is how many requests a connection serves before it is
	// closed. Default 20; 1 is a connection per request; a negative number is no
	// limit.
	ConnMaxRequests int

	// MaxInFlight is how many requests are expected at once, and the number of idle
	// connections that are kept per host. Default 100.
	MaxInFlight int
}

// ErrPublicAddress is wrapped by the error for a target outside of the lab.
var ErrPublicAddress = errors.New("neither a loopback nor a private address")

// New returns a client without a timeout: give each request a context with a
// deadline.
func New(c Config) *http.Client {
	if c.ConnMaxRequests == 0 {
		c.ConnMaxRequests = 20
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 100
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, ControlContext: refusePublic}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		Protocols:           protocols,
		MaxIdleConns:        0, // only the limit per host counts
		MaxIdleConnsPerHost: c.MaxInFlight,
		IdleConnTimeout:     30 * time.Second,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: conn}, nil
		},
	}
	if c.ConnMaxRequests < 0 {
		return &http.Client{Transport: transport}
	}
	return &http.Client{Transport: limited{transport, int64(c.ConnMaxRequests)}}
}

// refusePublic checks the address after name resolution.
func refusePublic(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("connecting to %q: %w", address, err)
	}
	if ip := at.Addr().Unmap(); !ip.IsLoopback() && !ip.IsPrivate() && !ip.IsLinkLocalUnicast() {
		return fmt.Errorf("connecting to %s: %w", address, ErrPublicAddress)
	}
	return nil
}

// countedConn counts the requests that a connection was chosen for.
type countedConn struct {
	net.Conn
	requests atomic.Int64
}

// limited marks the last request of a connection, so that the connection is closed
// after it.
type limited struct {
	transport *http.Transport
	most      int64
}

// RoundTrip learns from the trace hook which connection was chosen. The hook
// runs in this goroutine before the request is written, so it can still set
// Close on our copy, and the transport then closes the connection in an orderly
// way: closing it ourselves would race with its next request.
func (l limited) RoundTrip(req *http.Request) (*http.Response, error) {
	var last *http.Request
	last = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			if c, ok := got.Conn.(*countedConn); ok && c.requests.Add(1) >= l.most {
				last.Close = true
			}
		},
	}))
	return l.transport.RoundTrip(last)
}

// CloseIdleConnections is for http.Client.CloseIdleConnections.
func (l limited) CloseIdleConnections() { l.transport.CloseIdleConnections() }
