package web

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// token and access implement [reviewer] by the fake clientset.
func (c *cluster) token(ctx context.Context, q *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	return c.AuthenticationV1().TokenReviews().Create(ctx, q, metav1.CreateOptions{})
}

func (c *cluster) access(
	ctx context.Context, q *authorizationv1.SubjectAccessReview,
) (*authorizationv1.SubjectAccessReview, error) {
	return c.AuthorizationV1().SubjectAccessReviews().Create(ctx, q, metav1.CreateOptions{})
}

// cluster knows two users, whose tokens are their names: prometheus, whose group may
// get /metrics, and jane. It counts what it is asked.
type cluster struct {
	*fake.Clientset
	asked atomic.Int32
	fails atomic.Bool // the API server is away
	gone  atomic.Bool // nobody may get anything any more
}

func newCluster() *cluster {
	c := &cluster{Clientset: fake.NewClientset()}
	c.PrependReactor("create", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		c.asked.Add(1)
		if c.fails.Load() {
			return true, nil, errors.New("connection refused")
		}
		switch review := a.(ktesting.CreateAction).GetObject().DeepCopyObject().(type) {
		case *authenticationv1.TokenReview:
			review.Status.Authenticated = review.Spec.Token == "prometheus" || review.Spec.Token == "jane"
			review.Status.User.Username = review.Spec.Token
			review.Status.User.Groups = []string{review.Spec.Token + "-group"}
			review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"node": {"one"}}
			return true, review, nil
		case *authorizationv1.SubjectAccessReview:
			s := review.Spec
			review.Status.Allowed = !c.gone.Load() && s.User == s.Groups[0][:len(s.User)] && s.Groups[0] == "prometheus-group" &&
				s.NonResourceAttributes.Path == "/metrics" && s.NonResourceAttributes.Verb == "get" && s.Extra["node"][0] == "one"
			return true, review, nil
		}
		return false, nil, nil
	})
	return c
}

func pages(c *cluster, ill error) http.Handler {
	return Pages{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "aware_secret 7\n") }),
		Live:    func() error { return nil },
		Ready:   func() error { return ill },
		Readers: readersOf(c),
	}.Handler()
}

// get asks for a path with an Authorization header.
func get(h http.Handler, method, path, authorization string) (int, string) {
	r := httptest.NewRequest(method, path, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestMetricsAreForWhoeverTheAPIServerAllows(t *testing.T) {
	for what, c := range map[string]struct {
		method, path, authorization string
		status                      int
		says                        string
	}{
		"Prometheus":                 {"GET", "/metrics", "Bearer prometheus", 200, "aware_secret"},
		"a user without the right":   {"GET", "/metrics", "Bearer jane", 403, "user jane may not get the URL /metrics"},
		"a token that is not valid":  {"GET", "/metrics", "Bearer stolen", 401, "not valid"},
		"nobody":                     {"GET", "/metrics", "", 401, "needs a token"},
		"an empty token":             {"GET", "/metrics", "Bearer ", 401, "needs a token"},
		"a password":                 {"GET", "/metrics", "Basic cHJvbWV0aGV1cw==", 401, "needs a token"},
		"another verb":               {"POST", "/metrics", "Bearer prometheus", 403, "may not post"},
		"the kubelet, is it alive":   {"GET", "/livez", "", 200, "ok"},
		"the kubelet, is it healthy": {"GET", "/healthz", "", 200, "ok"},
		"the kubelet, is it ready":   {"GET", "/readyz", "", 503, "no link yet"},
	} {
		status, body := get(pages(newCluster(), errors.New("no link yet")), c.method, c.path, c.authorization)
		if status != c.status || !strings.Contains(body, c.says) || c.status != 200 && strings.Contains(body, "secret") {
			t.Errorf("%s: %d %s; want %d saying %q", what, status, body, c.status, c.says)
		}
	}
}

// A scrape every few seconds costs the API server two questions a minute. A right that
// was taken away ends within a minute, one that was given begins within ten seconds.
func TestAnswersAreRememberedForAShortWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		h := pages(c, nil)
		for range 11 {
			if status, body := get(h, "GET", "/metrics", "Bearer prometheus"); status != 200 {
				t.Fatal(status, body)
			}
			time.Sleep(5 * time.Second)
		}
		if n := c.asked.Load(); n != 2 {
			t.Errorf("%d questions for eleven scrapes within a minute, want 2", n)
		}
		c.gone.Store(true)
		time.Sleep(time.Minute)
		if status, _ := get(h, "GET", "/metrics", "Bearer prometheus"); status != 403 {
			t.Errorf("a minute after the right was taken away: %d", status)
		}
		c.gone.Store(false)
		time.Sleep(11 * time.Second)
		if status, _ := get(h, "GET", "/metrics", "Bearer prometheus"); status != 200 {
			t.Errorf("11 s after the right was given again: %d", status)
		}
	})
}

// Without the API server nobody reads metrics who has not read them just before, and
// the process says that it is well.
func TestAnOutageOfTheAPIServerRefusesNobodyForLong(t *testing.T) {
	c := newCluster()
	h := pages(c, nil)
	c.fails.Store(true)
	if status, body := get(h, "GET", "/metrics", "Bearer prometheus"); status != 503 || strings.Contains(body, "secret") {
		t.Errorf("during an outage: %d %s", status, body)
	}
	if status, _ := get(h, "GET", "/livez", ""); status != 200 {
		t.Errorf("the process is not alive during an outage: %d", status)
	}
	c.fails.Store(false)
	if status, _ := get(h, "GET", "/metrics", "Bearer prometheus"); status != 200 {
		t.Errorf("after it: %d; an outage is not an answer to remember", status)
	}
}

// However many strangers ask, few wait for the API server. The others are told at once,
// and whoever was answered before does not wait with them.
func TestStrangersCannotFillTheMemory(t *testing.T) {
	readers := readersOf(newCluster())
	h := Pages{Metrics: http.NotFoundHandler(), Readers: readers}.Handler()
	if status, body := get(h, "GET", "/metrics", "Bearer prometheus"); status != 404 {
		t.Fatal(status, body)
	}
	for range asking {
		readers.waiting <- struct{}{}
	}
	if status, _ := get(h, "GET", "/metrics", "Bearer guess"); status != 429 {
		t.Errorf("beside %d who wait: %d, want 429", asking, status)
	}
	if status, _ := get(h, "GET", "/metrics", "Bearer prometheus"); status != 404 {
		t.Errorf("who was answered before: %d, want the page", status)
	}
	<-readers.waiting
	for _, token := range []string{"a", "b", "c"} { // each leaves its place
		if status, _ := get(h, "GET", "/metrics", "Bearer guess-"+token); status != 401 {
			t.Errorf("with a place: %d, want 401", status)
		}
	}
	if n := len(readers.waiting); n != asking-1 {
		t.Errorf("%d places are taken, want %d", n, asking-1)
	}
}

func TestPagesAreServedOverTLSOnly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, pages(newCluster(), nil)) }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // as the kubelet
	answer, err := client.Get("https://" + l.Addr().String() + "/readyz")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", answer, err)
	}
	answer.Body.Close()
	plain, err := http.Get("http://" + l.Addr().String() + "/readyz")
	if err == nil {
		plain.Body.Close()
		if plain.StatusCode == http.StatusOK {
			t.Error("the pages are served without TLS")
		}
	}
	stop()
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("at the end: %v", err)
	}
}
