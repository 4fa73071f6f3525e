package web

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// allowed and denied are how long the API server's answer for one token counts.
	allowed = time.Minute
	denied  = 10 * time.Second
	// verdicts is how many answers are remembered.
	verdicts = 1000
	// asking is how many requests may wait for the API server at the same time, and
	// askingIn how long each of them.
	asking   = 16
	askingIn = 5 * time.Second
	// askRate is how many questions a second the API server gets, and askBurst how many
	// at once: whoever sends us tokens cannot send them on to it faster.
	askRate  = 5
	askBurst = 10
)

// Readers is the users that may read a path. It asks the API server and remembers the
// answers for a short while. The official filter for this (controller-runtime's
// metrics/filters) would make the node agent's binary larger by 8 MB.
type Readers struct {
	client  reviewer
	answers *cache.LRUExpireCache // of verdict, by question
	waiting chan struct{}
}

// question is what was asked: the token is not kept.
type question struct {
	token  [sha256.Size]byte
	method string
	path   string
}

// verdict is an HTTP status and its reason.
type verdict struct {
	status int
	why    string
}

// NewReaders makes the readers of a process. Its questions to the API server have a
// limit of their own.
func NewReaders(c *rest.Config) (*Readers, error) {
	own := rest.CopyConfig(c)
	own.QPS, own.Burst, own.RateLimiter = askRate, askBurst, nil
	client, err := newReviews(own)
	if err != nil {
		return nil, fmt.Errorf("making a client for reviews of who reads metrics: %w", err)
	}
	return readersOf(client), nil
}

func readersOf(c reviewer) *Readers {
	return &Readers{client: c, answers: cache.NewLRUExpireCache(verdicts), waiting: make(chan struct{}, asking)}
}

// Guard lets a request pass when its user may do it.
func (r *Readers) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if v := r.judge(req); v.status != http.StatusOK {
			http.Error(w, v.why, v.status)
			return
		}
		h.ServeHTTP(w, req)
	})
}

// judge finds whether the user of a request may do it.
func (r *Readers) judge(req *http.Request) verdict {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !ok || token == "" {
		return verdict{http.StatusUnauthorized, req.URL.Path + " needs a token of the cluster as bearer"}
	}
	q := question{sha256.Sum256([]byte(token)), strings.ToLower(req.Method), req.URL.Path}
	if v, ok := r.answers.Get(q); ok {
		return v.(verdict)
	}
	select {
	case r.waiting <- struct{}{}:
		defer func() { <-r.waiting }()
	default:
		return verdict{http.StatusTooManyRequests, "too many requests wait for the API server: ask again later"}
	}
	ctx, cancel := context.WithTimeout(req.Context(), askingIn)
	defer cancel()
	v, err := r.ask(ctx, token, q)
	if err != nil {
		klog.FromContext(ctx).Error(err, "A request for metrics could not be judged", "path", q.path, "peer", req.RemoteAddr)
		return verdict{http.StatusServiceUnavailable, "the API server cannot be asked now: ask again later"}
	}
	ttl := denied
	if v.status == http.StatusOK {
		ttl = allowed
	}
	r.answers.Add(q, v, ttl)
	return v
}

// ask asks the API server whose the token is, and whether that user may do it.
func (r *Readers) ask(ctx context.Context, token string, q question) (verdict, error) {
	whose, err := r.client.token(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	})
	if err != nil {
		return verdict{}, fmt.Errorf("reviewing a token: %w", err)
	}
	user := whose.Status.User
	if !whose.Status.Authenticated {
		return verdict{http.StatusUnauthorized, "the token is not valid"}, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	may, err := r.client.access(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.method},
		},
	})
	if err != nil {
		return verdict{}, fmt.Errorf("reviewing whether %s may %s %s: %w", user.Username, q.method, q.path, err)
	}
	if !may.Status.Allowed {
		return verdict{http.StatusForbidden, fmt.Sprintf("user %s may not %s the URL %s", user.Username, q.method, q.path)}, nil
	}
	return verdict{http.StatusOK, ""}, nil
}
