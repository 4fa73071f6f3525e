package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/plugins/autoscaling/decisions"
	authenticationv1 "k8s.io/api/authentication/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// proxied is an API server with the object of [shop] and the service proxy to
// central. Like a real one it takes the header Authorization for itself.
func proxied(t *testing.T, central http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"versions": []string{"v1"}})
	})
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		version := map[string]any{"groupVersion": "autoscaling.awarescale.dev/v1alpha1", "version": "v1alpha1"}
		answer(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{map[string]any{
			"name": "autoscaling.awarescale.dev", "versions": []any{version}, "preferredVersion": version}}})
	})
	mux.HandleFunc("GET /apis/autoscaling.awarescale.dev/v1alpha1", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1",
			"groupVersion": "autoscaling.awarescale.dev/v1alpha1", "resources": []any{map[string]any{
				"name": "multidimpodautoscalers", "kind": "MultidimPodAutoscaler", "namespaced": true,
				"verbs": []string{"list"},
			}}})
	})
	mux.HandleFunc("GET /apis/autoscaling.awarescale.dev/v1alpha1/namespaces/prod/multidimpodautoscalers",
		func(w http.ResponseWriter, _ *http.Request) {
			answer(w, map[string]any{"kind": "MultidimPodAutoscalerList", "apiVersion": "autoscaling.awarescale.dev/v1alpha1",
				"items": []any{shop()}})
		})
	mux.HandleFunc("POST /api/v1/namespaces/prod/serviceaccounts/viewer/token", func(w http.ResponseWriter, r *http.Request) {
		var request authenticationv1.TokenRequest
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, &request)
		}
		if err != nil {
			t.Error(err)
		}
		request.APIVersion, request.Kind = "authentication.k8s.io/v1", "TokenRequest"
		request.Status.Token = "made-for-" + strings.Join(request.Spec.Audiences, ",")
		answer(w, request)
	})
	const proxy = "GET /api/v1/namespaces/aware-system/services/{service}/proxy/{rest...}"
	mux.HandleFunc(proxy, func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Authorization")
		if r.PathValue("service") != "https:aware-central:link" || r.PathValue("rest") != "decisions/prod/shop" {
			http.NotFound(w, r)
			return
		}
		central(w, r)
	})
	server := httptest.NewTLSServer(mux) // a client sends no token without TLS
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: a, cluster: {server: %q, insecure-skip-tls-verify: true}}],
users: [{name: a, user: {token: mine}}], contexts: [{name: a, context: {cluster: a, user: a, namespace: prod}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// explained runs aware explain.
func explained(t *testing.T, kubeconfig string, args ...string) (out, notes string, err error) {
	t.Helper()
	cmd := explainCommand()
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(append([]string{"shop", "--kubeconfig", kubeconfig, "--cache-dir", t.TempDir()}, args...))
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestExplainReadsCentralsStreamAsTheCallerWantsToBeKnown(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		token string // that central is to see; empty: it is not asked
		note  string
	}{
		"the status is enough":       {nil, "", ""},
		"a token made for it":        {[]string{"--as-account", "prod/viewer"}, "made-for-" + decisions.Audience, ""},
		"the kubeconfig's own":       {[]string{"--last", "20", "--send-token"}, "mine", ""},
		"nobody":                     {[]string{"--last", "20"}, "", "--as-account"},
		"an account that is nowhere": {[]string{"--as-account", "prod/nobody"}, "", "prod/nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := ""
			kubeconfig := proxied(t, func(w http.ResponseWriter, r *http.Request) {
				seen = r.Header.Get(decisions.TokenHeader)
				fmt.Fprintln(w, `{"time": "2026-01-01T12:00:10Z", "effect": "applied", "policy": "one/1"}`)
				fmt.Fprintln(w, `{"time": "2026-01-01T12:00:20Z", "effect": "deferred", "policy": "two/1"}`)
			})
			out, notes, err := explained(t, kubeconfig, c.args...)
			if err != nil || seen != c.token || !strings.Contains(notes, c.note) || (notes == "") != (c.note == "") {
				t.Errorf("central saw the token %q, want %q; notes %q, want %q; %v", seen, c.token, notes, c.note, err)
			}
			first, second := strings.Index(out, "two/1"), strings.Index(out, "one/1")
			streamed := first > 0 && first < second
			if streamed != (c.token != "") || strings.Contains(out, "learned/3") == streamed {
				t.Errorf("it printed\n%s", out)
			}
		})
	}
}

func TestExplainSaysWhyItShowsTheStatus(t *testing.T) {
	kubeconfig := proxied(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "viewer may not get MultidimPodAutoscaler prod/shop", http.StatusForbidden)
	})
	for _, args := range [][]string{{"--send-token"}, {"--send-token", "--follow"}} {
		out, notes, err := explained(t, kubeconfig, args...)
		if err != nil || !strings.Contains(notes, "viewer may not get") || !strings.Contains(notes, "those of its status") ||
			!strings.Contains(out, "learned/3") {
			t.Errorf("%v: notes %q, %v, it printed\n%s", args, notes, err, out)
		}
	}
}

func TestExplainFollowsDecisionsAsTheyAreMade(t *testing.T) {
	kubeconfig := proxied(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") != "true" || r.URL.Query().Get("last") != "3" {
			t.Errorf("asked for %s", r.URL.RawQuery)
		}
		fmt.Fprintln(w, `{"time": "2026-01-01T12:00:10Z", "effect": "applied", "policy": "one/1"}`)
	})
	out, _, err := explained(t, kubeconfig, "--follow", "--last", "3", "--send-token")
	if err == nil || !strings.Contains(err.Error(), "ended the stream") || !strings.Contains(out, "applied - (one/1)") {
		t.Errorf("%v, it printed %q", err, out)
	}
}

func TestExplainRefusesFlagsThatMakeNoSense(t *testing.T) {
	for _, args := range [][]string{
		{"--last", "0"},
		{"--as-account", "viewer"},
		{"--as-account", "a/b", "--send-token"},
		{"--central", "a/b/c"},
	} {
		if _, _, err := explained(t, "/nowhere", args...); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
