package decisions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/decisions"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func decision(n int) v1alpha1.DecisionStatus {
	return v1alpha1.DecisionStatus{Action: fmt.Sprintf("replicas=%d", n), Effect: "pending"}
}

// central is a server of decisions on an API server in memory. Alice may get shop's
// objects, Bob may get none, and nobody else is known.
type central struct {
	*httptest.Server
	log     *decisions.Log
	api     *fake.Clientset
	down    atomic.Bool // the API server is away
	passive atomic.Bool // another instance of central decides
	asked   []authorizationv1.SubjectAccessReviewSpec
}

func start(t *testing.T) *central {
	t.Helper()
	c := &central{log: decisions.NewLog(), api: fake.NewClientset()}
	c.api.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if c.down.Load() {
			return true, nil, errors.New("it is away")
		}
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		user, ours := strings.CutSuffix(review.Spec.Token, "@"+decisions.Audience)
		wanted := slices.Contains(review.Spec.Audiences, decisions.Audience)
		if (user == "alice" || user == "bob") && ours == wanted {
			review.Status = authenticationv1.TokenReviewStatus{
				Authenticated: true,
				Audiences:     review.Spec.Audiences,
				User:          authenticationv1.UserInfo{Username: user, Groups: []string{"staff"}},
			}
		}
		return true, review, nil
	})
	c.api.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		c.asked = append(c.asked, review.Spec)
		review.Status.Allowed = review.Spec.User == "alice" && review.Spec.ResourceAttributes.Namespace == "shop"
		return true, review, nil
	})
	mux := http.NewServeMux()
	decides := func() bool { return !c.passive.Load() }
	mux.Handle(decisions.Pattern, decisions.NewServer(c.log, decisions.Reviews{Client: c.api}, decides))
	c.Server = httptest.NewServer(mux)
	t.Cleanup(c.Close)
	return c
}

func (c *central) add(t *testing.T, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := c.log.Add(web, decision(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *central) get(t *testing.T, path, header, token string) (status int, body io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set(header, token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response.StatusCode, response.Body
}

func actions(t *testing.T, body io.Reader) []string {
	t.Helper()
	var all []string
	for lines := bufio.NewScanner(body); lines.Scan(); {
		var d v1alpha1.DecisionStatus
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		all = append(all, d.Action)
	}
	return all
}

func TestWhoMayGetTheObjectReadsItsDecisions(t *testing.T) {
	for name, c := range map[string]struct {
		path, header, token string
		down, passive       bool
		want                int
	}{
		"who may get it": {"/decisions/shop/web", decisions.TokenHeader, "alice", false, false, 200},
		"with a token for this only": {
			"/decisions/shop/web", decisions.TokenHeader, "alice@" + decisions.Audience, false, false, 200,
		},
		"without the proxy":            {"/decisions/shop/web", "Authorization", "Bearer alice", false, false, 200},
		"who may not":                  {"/decisions/shop/web", decisions.TokenHeader, "bob", false, false, 403},
		"in another namespace":         {"/decisions/bank/web", decisions.TokenHeader, "alice", false, false, 403},
		"without a token":              {"/decisions/shop/web", "", "", false, false, 401},
		"with a token of nobody":       {"/decisions/shop/web", decisions.TokenHeader, "mallory", false, false, 401},
		"for another audience":         {"/decisions/shop/web", decisions.TokenHeader, "alice@elsewhere", false, false, 401},
		"nobody knows the object":      {"/decisions/shop/other", decisions.TokenHeader, "alice", false, false, 404},
		"nobody may ask what there is": {"/decisions/shop/other", decisions.TokenHeader, "bob", false, false, 403},
		"the API server is away":       {"/decisions/shop/web", decisions.TokenHeader, "alice", true, false, 503},
		"another instance decides":     {"/decisions/shop/web", decisions.TokenHeader, "alice", false, true, 503},
		"a number that is not one":     {"/decisions/shop/web?last=many", decisions.TokenHeader, "alice", false, false, 400},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.add(t, 1, 3)
			s.down.Store(c.down)
			s.passive.Store(c.passive)
			status, body := s.get(t, c.path, c.header, c.token)
			if status != c.want {
				text, _ := io.ReadAll(body)
				t.Fatalf("status %d, want %d: %s", status, c.want, text)
			}
			if c.want != 200 {
				return
			}
			if got := actions(t, body); !slices.Equal(got, []string{"replicas=1", "replicas=2", "replicas=3"}) {
				t.Errorf("decisions %v", got)
			}
			if a := s.asked[0]; a.ResourceAttributes.Verb != "get" || a.ResourceAttributes.Resource != "multidimpodautoscalers" ||
				a.ResourceAttributes.Group != "autoscaling.awarescale.dev" || a.ResourceAttributes.Name != "web" || a.Groups[0] != "staff" {
				t.Errorf("the API server was asked for %+v of %+v", a.ResourceAttributes, a)
			}
		})
	}
}

func TestTheLastDecisionsAreGivenOldestFirst(t *testing.T) {
	s := start(t)
	s.add(t, 1, 5)
	_, body := s.get(t, "/decisions/shop/web?last=2", decisions.TokenHeader, "alice")
	if got := actions(t, body); !slices.Equal(got, []string{"replicas=4", "replicas=5"}) {
		t.Errorf("decisions %v", got)
	}
}

func TestAFollowerSeesEachDecisionAsItIsMadeAndTheEndOfTheObject(t *testing.T) {
	s := start(t)
	s.add(t, 1, 2)
	_, body := s.get(t, "/decisions/shop/web?last=1&follow=true", decisions.TokenHeader, "alice")
	lines := bufio.NewScanner(body)
	for n := 2; n <= 5; n++ {
		if !lines.Scan() || !strings.Contains(lines.Text(), fmt.Sprintf("replicas=%d", n)) {
			t.Fatalf("line %q, want decision %d", lines.Text(), n)
		}
		s.add(t, n+1, n+1)
	}
	s.log.Forget(web)
	for lines.Scan() { // the last decision, and then the end
		if !strings.Contains(lines.Text(), "replicas=6") {
			t.Errorf("line %q after the end", lines.Text())
		}
	}
}

func TestTheLogIsBounded(t *testing.T) {
	s := start(t)
	s.add(t, 1, 700)
	_, body := s.get(t, "/decisions/shop/web", decisions.TokenHeader, "alice")
	if got := actions(t, body); len(got) != 600 || got[0] != "replicas=101" {
		t.Errorf("%d decisions, the first is %s", len(got), got[0])
	}
	for n := range 1999 { // many objects keep fewer
		if err := s.log.Add(types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(n)}, decision(n)); err != nil {
			t.Fatal(err)
		}
	}
	s.add(t, 701, 701)
	_, body = s.get(t, "/decisions/shop/web", decisions.TokenHeader, "alice")
	if got := actions(t, body); len(got) != 25 || got[24] != "replicas=701" {
		t.Errorf("%d decisions with 2,000 objects", len(got))
	}
}

func TestCallersCannotFloodTheAPIServerWithReviews(t *testing.T) {
	s := start(t)
	s.add(t, 1, 1)
	refused := 0
	for range 300 {
		if status, _ := s.get(t, "/decisions/shop/web", decisions.TokenHeader, "mallory"); status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("300 tokens were reviewed")
	}
}

func TestTooManyFollowersAreRefused(t *testing.T) {
	log := decisions.NewLog()
	if err := log.Add(web, decision(1)); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(decisions.Pattern, decisions.NewServer(log, anyone{}, func() bool { return true }))
	s := httptest.NewServer(mux)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open, refused := 0, 0
	for range 70 { // within what may be reviewed at once, and a little more
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/decisions/shop/web?follow=true", nil)
		r.Header.Set(decisions.TokenHeader, "x")
		for {
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode == http.StatusTooManyRequests {
				response.Body.Close()
				continue // the limit of reviews, which time lifts
			}
			if response.StatusCode == 200 {
				open++
				defer response.Body.Close()
			} else {
				refused++
				response.Body.Close()
			}
			break
		}
	}
	if open != 64 || refused != 6 {
		t.Errorf("%d streams are open, %d refused", open, refused)
	}
}

// anyone lets everyone read.
type anyone struct{}

func (anyone) May(context.Context, string, types.NamespacedName) error { return nil }
