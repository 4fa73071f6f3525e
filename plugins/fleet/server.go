package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"connectrpc.com/connect"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Central takes in reports, and returns grants. ok is false when there are none
// to send.
type Central interface {
	Accept(now time.Time, r api.Report) (m api.Grants, ok bool)
}

// Reviewer finds the node that a token is bound to.
type Reviewer interface {
	Node(ctx context.Context, token string) (string, error)
}

// Server serves the link.
type Server struct {
	Central  Central
	Reviewer Reviewer
	Now      func() time.Time
	// Serving reports whether this instance decides. If not, agents must dial
	// another one.
	Serving func() bool
	// Log is called for refused agents.
	Log func(err error, message string, keysAndValues ...any)
}

// Handler is the server as HTTP.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(linkv1.NewLinkHandler(s, connect.WithReadMaxBytes(8<<20)))
	return mux
}

// Exchange is one agent's stream.
func (s *Server) Exchange(ctx context.Context, stream *connect.BidiStream[linkv1.Report, linkv1.Grants]) error {
	token, ok := strings.CutPrefix(stream.RequestHeader().Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return connect.NewError(connect.CodeUnauthenticated,
			errors.New("the link needs a service-account token as bearer"))
	}
	node, err := s.Reviewer.Node(ctx, token)
	if err != nil {
		s.Log(err, "An agent was refused", "peer", stream.Peer().Addr)
		return connect.NewError(connect.CodeUnauthenticated, err)
	}
	reviewed := s.Now()
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
			err := fmt.Errorf("the report is of node %q, but the token is bound to node %q", w.GetNode(), node)
			s.Log(err, "An agent was refused", "peer", stream.Peer().Addr)
			return connect.NewError(connect.CodePermissionDenied, err)
		}
		report, err := api.ReportFromWire(w)
		if err != nil {
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("report of node %s: %w", node, err))
		}
		// A token ends with its pod, and a stream must not outlive the token.
		now := s.Now()
		if now.Sub(reviewed) > reviewEvery {
			if _, err := s.Reviewer.Node(ctx, token); err != nil {
				return connect.NewError(connect.CodeUnauthenticated, err)
			}
			reviewed = now
		}
		grants, ok := s.Central.Accept(now, report)
		if !ok {
			continue
		}
		if err := stream.Send(api.GrantsToWire(grants)); err != nil {
			return err
		}
	}
}

// reviewEvery is how often the token of an open stream is reviewed again.
const reviewEvery = 5 * time.Minute

// TokenReviews is the Reviewer that asks the API server.
type TokenReviews struct {
	Client  kubernetes.Interface
	Account string // of the agents, as system:serviceaccount:NAMESPACE:NAME

	mu sync.Mutex
}

// nodeKey is where the API server writes the node that a token's pod runs on.
const nodeKey = "authentication.kubernetes.io/node-name"

// Node reviews a token. It must be valid, for our audience, of the agents'
// account, and bound to a pod on a node.
func (t *TokenReviews) Node(ctx context.Context, token string) (string, error) {
	t.mu.Lock() // after a restart a thousand agents come: one at a time
	defer t.mu.Unlock()
	review, err := t.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{api.Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("reviewing a token: %w", err)
	}
	switch status := review.Status; {
	case !status.Authenticated:
		return "", fmt.Errorf("the token is not valid for audience %q: %s", api.Audience, status.Error)
	case status.User.Username != t.Account:
		return "", fmt.Errorf("the token is %s's, not %s's", status.User.Username, t.Account)
	case len(status.User.Extra[nodeKey]) != 1:
		return "", errors.New(
			"the token is not bound to a pod on a node: agents need a projected service-account token",
		)
	default:
		return status.User.Extra[nodeKey][0], nil
	}
}
