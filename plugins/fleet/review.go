package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"connectrpc.com/connect"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"
)

// RefusedError says that a token is not one of the account that is asked for.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

// Refused reports whether an error of a Reviewer says that the token is not one of its
// account. Of any other error it is not known.
func Refused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}

// busyError says that a caller asks too often.
type busyError struct{ peer string }

func (e *busyError) Error() string {
	return fmt.Sprintf("too many tokens are reviewed for %s: dial again later", e.peer)
}

// asConnect is a Reviewer's error for the caller.
func asConnect(err error) error {
	var busy *busyError
	switch {
	case Refused(err):
		return connect.NewError(connect.CodeUnauthenticated, err)
	case errors.As(err, &busy):
		return connect.NewError(connect.CodeResourceExhausted, err)
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

const (
	// reviewGood and reviewBad are how long the API server's word on a token counts.
	reviewGood = 2 * time.Minute
	reviewBad  = 10 * time.Second
	// A caller, by its address, may have this many tokens reviewed in a second, and
	// this many at once. A proxy may stand for many nodes.
	reviewRate  = 10
	reviewBurst = 50
	// callers is how many callers are counted.
	callers = 10_000
)

// nodeKey is where the API server writes the node that a token's pod runs on.
const nodeKey = "authentication.kubernetes.io/node-name"

// TokenReviews is the Reviewer that asks the API server. It remembers answers for a
// short while, and asks for one token once at a time.
type TokenReviews struct {
	account string
	cached  authenticator.Token

	mu    sync.Mutex
	rates *lru.Cache // of *rate.Limiter, by address
}

// NewTokenReviews makes a reviewer of the tokens of one account, the agents' or the
// schedulers', as system:serviceaccount:NAMESPACE:NAME.
func NewTokenReviews(c kubernetes.Interface, account string) *TokenReviews {
	return &TokenReviews{
		account: account,
		cached:  cache.New(tokens{c}, false, reviewGood, reviewBad),
		rates:   lru.New(callers),
	}
}

// Review implements [Reviewer]. The token must be valid, for our audience, of the
// account, and bound to a pod on a node.
func (t *TokenReviews) Review(ctx context.Context, peer, token string) (Identity, error) {
	if !t.may(peer) {
		return Identity{}, &busyError{peer}
	}
	is, ok, err := t.cached.AuthenticateToken(authenticator.WithAudiences(ctx, authenticator.Audiences{api.Audience}), token)
	switch {
	case err != nil:
		return Identity{}, err
	case !ok:
		return Identity{}, &RefusedError{fmt.Sprintf("the token is not valid for audience %q", api.Audience)}
	case is.User.GetName() != t.account:
		return Identity{}, &RefusedError{fmt.Sprintf("the token is %s's, not %s's", is.User.GetName(), t.account)}
	case len(is.User.GetExtra()[nodeKey]) != 1:
		return Identity{}, &RefusedError{
			"the token is not bound to a pod on a node: it must be a projected service-account token",
		}
	}
	return Identity{Node: is.User.GetExtra()[nodeKey][0], Expires: expiry(token)}, nil
}

// may counts a caller's review, and reports whether it may be made.
func (t *TokenReviews) may(peer string) bool {
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		host = peer
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok := t.rates.Get(host)
	if !ok {
		one = rate.NewLimiter(reviewRate, reviewBurst)
		t.rates.Add(host, one)
	}
	return one.(*rate.Limiter).Allow()
}

// expiry is when a token ends by its own word, which the API server has checked;
// zero when it does not say.
func expiry(token string) time.Time {
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil || claims.ExpiresAt == nil {
		return time.Time{}
	}
	return claims.ExpiresAt.Time
}

// tokens asks the API server. An error says that it could not be asked.
type tokens struct{ client kubernetes.Interface }

// AuthenticateToken implements [authenticator.Token].
func (t tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	want, _ := authenticator.AudiencesFrom(ctx)
	review, err := t.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: want},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("reviewing a token: %w", err)
	}
	// An API server that knows nothing of audiences says that any token is valid.
	status := review.Status
	if !status.Authenticated || !slices.ContainsFunc(want, func(a string) bool { return slices.Contains(status.Audiences, a) }) {
		return nil, false, nil
	}
	extra := map[string][]string{}
	for k, v := range status.User.Extra {
		extra[k] = v
	}
	return &authenticator.Response{
		Audiences: want,
		User: &user.DefaultInfo{
			Name: status.User.Username, UID: status.User.UID, Groups: status.User.Groups, Extra: extra,
		},
	}, true, nil
}
