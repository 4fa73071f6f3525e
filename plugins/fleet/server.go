package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"connectrpc.com/connect"
)

// Central takes in reports, and has grants.
type Central interface {
	Accept(now time.Time, r api.Report)
	// Grants is a node's grants; the version is 0 while there are none to send.
	// changed is closed when they change.
	Grants(node string) (m api.Grants, version uint64, changed <-chan struct{})
	// Permit makes the permit that is sent to a node now; it may be none.
	Permit(now time.Time, node string) api.Permit
	// Lost says that a node has no stream any more. No report of it is accepted after
	// that, before it has another one.
	Lost(node string)
}

// Reviewer finds whose a token is.
type Reviewer interface {
	// Review is an error for which [Refused] is true when the token is not an
	// agent's, and another error when that cannot be found out now.
	Review(ctx context.Context, peer, token string) (Identity, error)
}

// Identity is what a token says.
type Identity struct {
	Node    string    // that its pod runs on
	Expires time.Time // zero when the token does not say
}

// Server serves the link.
type Server struct {
	Central  Central
	Cluster  Cluster
	Reviewer Reviewer
	Now      func() time.Time
	// Serving reports whether this instance decides. If not, agents must dial
	// another one.
	Serving func() bool
	// Uppers answers schedulers at [UpperPath]; nil for none.
	Uppers http.Handler
	// Log is called for refused agents, and for what is left out of reports.
	Log func(err error, message string, keysAndValues ...any)

	mu      sync.Mutex
	streams map[string]*context.CancelCauseFunc // by node
	said    map[string]time.Time                // when what a node reports wrongly was logged last
}

const (
	// reviewEvery is how often the token of an open stream is reviewed again.
	reviewEvery = 5 * time.Minute
	// heartbeat is how long central sends nothing at most.
	heartbeat = 10 * time.Second
	// settle is how long central waits for more changes before it sends one.
	settle = 100 * time.Millisecond
	// complainEvery is how often what is left out of a node's reports is logged.
	complainEvery = time.Minute
	// complaints is how many containers such a line names.
	complaints = 3
	// maxReport is the size of the largest report that is read. One of 110 containers
	// with histograms has 150 kB.
	maxReport = 4 << 20
	// worthIt is the size from which a message is compressed. A sign of life has a few bytes.
	worthIt = 4 << 10
)

// Handler is the server as HTTP.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(linkv1.NewLinkHandler(s, connect.WithReadMaxBytes(maxReport), connect.WithCompressMinBytes(worthIt)))
	if s.Uppers != nil {
		mux.Handle(UpperPath, s.Uppers)
	}
	return mux
}

// Sync is one agent's stream. This goroutine sends and another one receives, so
// that neither waits for the other. What ends the stream is the context's cause.
func (s *Server) Sync(ctx context.Context, stream *connect.BidiStream[linkv1.Report, linkv1.Grants]) error {
	token, ok := strings.CutPrefix(stream.RequestHeader().Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return connect.NewError(connect.CodeUnauthenticated,
			errors.New("the link needs a service-account token as bearer"))
	}
	peer := stream.Peer().Addr
	is, err := s.Reviewer.Review(ctx, peer, token)
	if err != nil {
		s.Log(err, "An agent was refused", "peer", peer)
		return asConnect(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.only(is.Node, cancel)()
	reports := new(intake)
	defer reports.shut()
	if !is.Expires.IsZero() {
		// A token ends with its pod, and a stream must not outlive the token.
		expiry := time.AfterFunc(is.Expires.Sub(s.Now()), func() {
			cancel(connect.NewError(connect.CodeUnauthenticated, errors.New("the token has expired: dial with the new one")))
		})
		defer expiry.Stop()
	}
	go func() { cancel(s.receive(stream, is.Node, reports)) }()
	go s.review(ctx, cancel, peer, token)
	return s.send(ctx, stream, is.Node)
}

// intake is where a stream's reports go until the stream has ended.
type intake struct {
	mu    sync.Mutex
	ended bool
}

func (i *intake) shut() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
}

// take runs a function unless the stream has ended.
func (i *intake) take(accept func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.ended {
		accept()
	}
}

// only ends the node's other stream, which is one that was lost: a node has one agent.
func (s *Server) only(node string, cancel context.CancelCauseFunc) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = map[string]*context.CancelCauseFunc{}
	}
	if before := s.streams[node]; before != nil {
		(*before)(connect.NewError(connect.CodeAborted, fmt.Errorf("node %s has opened another stream", node)))
	}
	s.streams[node] = &cancel
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.streams[node] == &cancel {
			delete(s.streams, node)
			s.Central.Lost(node)
		}
	}
}

// send sends the grants when they change, and otherwise a sign of life. The first
// message goes at once: an agent cannot tell a central that is starting from a dead
// one before it has the headers.
func (s *Server) send(ctx context.Context, stream *connect.BidiStream[linkv1.Report, linkv1.Grants], node string) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	sent := uint64(0)
	for {
		m, version, changed := s.Central.Grants(node)
		if version == sent {
			m.All, m.Unchanged = nil, true
		}
		if version != 0 || sent == 0 { // once closed, the fleet has nothing more to say
			m.Permit = s.Central.Permit(s.Now(), node)
			if err := stream.Send(api.GrantsToWire(m)); err != nil {
				return err
			}
			sent = version
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beat.C:
		case <-changed:
			select {
			case <-ctx.Done():
			case <-time.After(settle):
			}
		}
	}
}

// receive takes in reports until the stream ends, and says why it did.
func (s *Server) receive(stream *connect.BidiStream[linkv1.Report, linkv1.Grants], node string, reports *intake) error {
	for {
		w, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !s.Serving() {
			return connect.NewError(connect.CodeUnavailable,
				errors.New("this instance of central is not the autoscaler now: dial again"))
		}
		if w.GetNode() != node {
			err := fmt.Errorf("the report is of node %.253q, but the token is bound to node %q", w.GetNode(), node)
			s.Log(err, "An agent was refused", "peer", stream.Peer().Addr)
			return connect.NewError(connect.CodePermissionDenied, err)
		}
		now := s.Now()
		report, err := api.ReportFromWire(w)
		s.complain(now, node, err)
		report, err = admit(s.Cluster, report)
		s.complain(now, node, err)
		if report.Node != "" {
			reports.take(func() { s.Central.Accept(now, report) })
		}
	}
}

// complain logs what is left out of a node's report, once in a while whatever streams the
// node opens: a node must not fill central's log.
func (s *Server) complain(now time.Time, node string, err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	if s.said == nil {
		s.said = map[string]time.Time{}
	}
	maps.DeleteFunc(s.said, func(_ string, at time.Time) bool { return now.Sub(at) >= complainEvery })
	_, recently := s.said[node]
	if !recently {
		s.said[node] = now
	}
	s.mu.Unlock()
	if !recently {
		s.Log(short(err), "A part of a node's report was left out", "node", node)
	}
}

// short is the first few of many errors, and how many there are.
func short(err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	var text []string
	for _, one := range all[:min(len(all), complaints)] {
		text = append(text, api.Clean(one.Error()))
	}
	if more := len(all) - complaints; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(text, "; "))
}

// review looks at the token again from time to time, and ends the stream when it is
// no longer an agent's. When the API server cannot be asked, the stream goes on.
func (s *Server) review(ctx context.Context, cancel context.CancelCauseFunc, peer, token string) {
	again := time.NewTicker(reviewEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		_, err := s.Reviewer.Review(ctx, peer, token)
		if Refused(err) {
			cancel(asConnect(err))
			return
		}
	}
}
