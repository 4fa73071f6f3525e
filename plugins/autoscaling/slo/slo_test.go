package slo_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/autoscaling/slo"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// served is a pod's histogram after some fast (10 ms) and slow (1 s) requests.
func served(fast, slow uint64) api.Histogram {
	return api.Histogram{Upper: []float64{0.01, 0.1, 1, math.Inf(1)}, Counts: []uint64{fast, fast, fast + slow, fast + slow}}
}

func pods(h ...api.Histogram) map[string]api.Histogram {
	m := map[string]api.Histogram{}
	for i, one := range h {
		m[fmt.Sprint(i)] = one
	}
	return m
}

func TestMeterMergesTheNewRequestsOfAllPods(t *testing.T) {
	m := slo.NewMeter(99)
	if r := m.Read(noon, pods(served(1e6, 1e6), served(0, 0))); r.Observed != 0 {
		t.Fatalf("the first reading observed %v: how old the counts are is not known", r.Observed)
	}
	r := m.Read(noon.Add(10*time.Second), pods(served(1e6+500, 1e6), served(500, 0)))
	if r.Throughput != 100 || r.Latency > 10*time.Millisecond || !r.Observed.Has(mdp.Latency, mdp.Throughput) {
		t.Errorf("reading %+v, want 100 requests/s, all fast", r)
	}
	r = m.Read(noon.Add(20*time.Second), pods(served(1e6+500, 1e6+50), served(1000, 0)))
	if r.Latency < 100*time.Millisecond || math.Abs(float64(r.LoadChange-0.55)) > 1e-9 {
		t.Errorf("reading %+v, want a slow p99 and a load change of 0.55", r)
	}
}

func TestMeterNeedsEnoughRequestsForAPercentile(t *testing.T) {
	m := slo.NewMeter(99)
	m.Read(noon, pods(served(0, 0)))
	r := m.Read(noon.Add(10*time.Second), pods(served(3, 0)))
	if r.Observed.Has(mdp.Latency) || !strings.Contains(r.Problem, "3 requests") {
		t.Errorf("reading %+v, want no latency and why", r)
	}
	if !r.Observed.Has(mdp.Throughput) {
		t.Error("three requests are a throughput")
	}
}

func TestMeterWithoutAHistogramSaysWhy(t *testing.T) {
	m := slo.NewMeter(99)
	m.Read(noon, nil)
	r := m.Read(noon.Add(10*time.Second), pods(api.Histogram{}))
	if r.Observed != 0 || r.Problem == "" {
		t.Errorf("reading %+v, want nothing and why", r)
	}
}

// prometheus is a reader of a server that answers in one way.
func prometheus(t *testing.T, answer http.HandlerFunc) *slo.Prometheus {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	servers, err := slo.NewServers([]string{server.URL})
	if err != nil {
		t.Fatal(err)
	}
	p, err := servers.New(server.URL+"/", "http_request_duration_seconds", "shop", 99)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// eventually reads until the reading is as wanted. The server is asked beside the reader.
func eventually(t *testing.T, p *slo.Prometheus, what string, is func(slo.Reading) bool) {
	t.Helper()
	var r slo.Reading
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if r = p.Read(t.Context(), noon, []string{"web-1", "web-2"}); is(r) {
			return
		}
	}
	t.Errorf("not within 20 s: %s; the reading is %+v", what, r)
}

func TestPrometheusWithoutAnAnswerIsUnknown(t *testing.T) {
	var answer atomic.Value
	answer.Store("42")
	queries := make(chan string, 1000)
	p := prometheus(t, func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		select {
		case queries <- r.Form.Get("query"):
		default:
		}
		if answer.Load() == "" {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
			return
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[0,"%s"]}]}}`, answer.Load())
	})
	eventually(t, p, "an answer", func(r slo.Reading) bool { return r.Latency == 42*time.Second && r.Throughput == 42 })
	// Exactly these pods: web-api-1 is another workload's.
	if q := <-queries; !strings.Contains(q, `{namespace="shop",pod=~"web-1|web-2"}`) {
		t.Errorf("query %s", q)
	}
	for _, bad := range []string{"", "NaN", "+Inf", "-1"} {
		answer.Store(bad)
		eventually(t, p, "no value", func(r slo.Reading) bool { return r.Observed == 0 && strings.Contains(r.Problem, "no value") })
	}
}

// An answer of any length, or one that leads elsewhere, costs little and is a problem.
func TestPrometheusDoesNotReadEverything(t *testing.T) {
	var sent atomic.Int64
	endless := prometheus(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"string","result":[0,"`)
		for line := strings.Repeat("x", 1<<16); ; {
			n, err := fmt.Fprint(w, line)
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	})
	eventually(t, endless, "too long", func(r slo.Reading) bool { return strings.Contains(r.Problem, "too large") })
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes were sent", n)
	}
	elsewhere := prometheus(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
	})
	eventually(t, elsewhere, "a redirect", func(r slo.Reading) bool { return strings.Contains(r.Problem, "302") })
}

// A server that does not answer costs its first readers a moment, and nobody else.
func TestDeadServersBlockNobody(t *testing.T) {
	stop := make(chan struct{})
	dead := prometheus(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	})
	defer close(stop)
	eventually(t, dead, "the deadline", func(r slo.Reading) bool { return strings.Contains(r.Problem, "exceeded") })
	// It is known now. A hundred readers would have waited for 300 s together.
	begin := time.Now()
	for range 100 {
		dead.Read(t.Context(), noon, nil)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("a hundred readings took %v", took)
	}
	if r := dead.Read(t.Context(), noon.Add(time.Minute), nil); !strings.Contains(r.Problem, "no answer for 1m0s") {
		t.Errorf("a minute later: %+v", r)
	}
}

func TestOnlyListedServersAreAsked(t *testing.T) {
	servers, err := slo.NewServers([]string{"http://prometheus.monitoring.svc:9090"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ server, metric, want string }{
		{"http://169.254.169.254", "seconds", "the cluster's admin does not list it"},
		{"http://prometheus.monitoring.svc:9090", "x) or vector(1", "it is not the name of a metric"},
	} {
		if _, err := servers.New(c.server, c.metric, "shop", 99); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v, want %q", c.server, c.metric, err, c.want)
		}
	}
	if _, err := servers.New("http://prometheus.monitoring.svc:9090/", "seconds", "shop", 99); err != nil {
		t.Error(err)
	}
}
