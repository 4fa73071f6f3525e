package decisions

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// TokenHeader has the caller's token. The API server's service proxy removes the
// header Authorization, and passes this one on. Who reaches central directly may
// use either.
const TokenHeader = "X-Aware-Token"

const (
	// reviewEvery is how often the caller of an open stream is reviewed again.
	reviewEvery = time.Minute
	// reviewRate and reviewBurst bound the reviews that callers cause, in a second and
	// at once. Behind the proxy all callers have its address.
	reviewRate  = 10
	reviewBurst = 50
	// followers is how many streams are open at once, at most.
	followers = 64
)

// Access says who may read decisions.
type Access interface {
	May(ctx context.Context, token string, object types.NamespacedName) error
}

// Server serves a log's decisions as lines of JSON, each a DecisionStatus, oldest
// first: GET /decisions/NAMESPACE/NAME[?last=N][&follow=true].
type Server struct {
	log     *Log
	access  Access
	serving func() bool
	reviews *rate.Limiter
	streams chan struct{}
}

// NewServer makes a server. serving reports whether this instance of central
// decides.
func NewServer(log *Log, access Access, serving func() bool) *Server {
	return &Server{
		log:     log,
		access:  access,
		serving: serving,
		reviews: rate.NewLimiter(reviewRate, reviewBurst),
		streams: make(chan struct{}, followers),
	}
}

// Pattern is where the server belongs in a mux.
const Pattern = "GET /decisions/{namespace}/{name}"

// ServeHTTP implements [http.Handler], with the path values of Pattern.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	object := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	last, err := strconv.ParseUint(r.URL.Query().Get("last"), 10, 32)
	if text := r.URL.Query().Get("last"); text == "" {
		last = perObject
	} else if err != nil {
		http.Error(w, "last="+strconv.Quote(text)+": it must be a whole number", http.StatusBadRequest)
		return
	}
	token := r.Header.Get(TokenHeader)
	if token == "" {
		token, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	if !s.may(w, r, token, object) {
		return
	}
	if !s.serving() {
		http.Error(w, "this instance of central does not decide now", http.StatusServiceUnavailable)
		return
	}
	_, count, _, known := s.log.after(object, 0)
	if !known {
		http.Error(w, "nothing was decided on MultidimPodAutoscaler "+object.String()+" since central started",
			http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	from := count - min(count, last)
	if r.URL.Query().Get("follow") != "true" {
		lines, _, _, _ := s.log.after(object, from)
		for _, line := range lines {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "too many streams of decisions are open", http.StatusServiceUnavailable)
		return
	}
	s.follow(w, r, token, object, from)
}

// may reports whether the caller may read; when not, it has answered.
func (s *Server) may(w http.ResponseWriter, r *http.Request, token string, object types.NamespacedName) bool {
	if token == "" {
		http.Error(w, "decisions need a token, in the header "+TokenHeader, http.StatusUnauthorized)
		return false
	}
	if !s.reviews.Allow() {
		http.Error(w, "too many tokens are reviewed: ask again later", http.StatusTooManyRequests)
		return false
	}
	err := s.access.May(r.Context(), token, object)
	var refused *RefusedError
	switch {
	case err == nil:
		return true
	case errors.As(err, &refused) && refused.Known:
		http.Error(w, refused.Why, http.StatusForbidden)
	case errors.As(err, &refused):
		http.Error(w, refused.Why, http.StatusUnauthorized)
	default:
		http.Error(w, "the caller cannot be reviewed now", http.StatusServiceUnavailable)
	}
	return false
}

// follow writes the decisions after the first n, and then each as it is made, until
// the caller leaves, may no longer read, or the object is gone.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, token string, object types.NamespacedName, n uint64) {
	flush := http.NewResponseController(w)
	again := time.NewTicker(reviewEvery)
	defer again.Stop()
	for {
		lines, count, changed, known := s.log.after(object, n)
		if !known || !s.serving() {
			return
		}
		n = count
		for _, line := range lines {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		if err := flush.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-again.C:
			var refused *RefusedError
			if errors.As(s.access.May(r.Context(), token, object), &refused) {
				return
			}
		}
	}
}
