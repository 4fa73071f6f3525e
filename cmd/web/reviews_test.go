package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// The API server gets both questions as it knows them, and its answers are read.
func TestReviewsAskTheAPIServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
			return
		}
		var answer runtime.Object
		switch q := asked.(type) {
		case *authenticationv1.TokenReview:
			q.Status.Authenticated = q.Spec.Token == "prometheus" && r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews"
			q.Status.User.Username = "system:prometheus"
			answer = q
		case *authorizationv1.SubjectAccessReview:
			q.Status.Allowed = q.Spec.User == "system:prometheus" && q.Spec.NonResourceAttributes.Path == "/metrics" &&
				r.URL.Path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
			answer = q
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if err := scheme.Codecs.LegacyCodec(scheme.Scheme.PrioritizedVersionsAllGroups()...).Encode(answer, w); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	readers, err := NewReaders(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	h := Pages{Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Readers: readers}.Handler()
	for token, want := range map[string]int{"prometheus": http.StatusOK, "stolen": http.StatusUnauthorized} {
		if status, body := get(h, "GET", "/metrics", "Bearer "+token); status != want {
			t.Errorf("%s: %d %s, want %d", token, status, body, want)
		}
	}
}
