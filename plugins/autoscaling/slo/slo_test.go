package slo_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
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

func TestPrometheusWithoutAnAnswerIsUnknown(t *testing.T) {
	var queries []string
	answer := func(q string) string {
		if strings.HasPrefix(q, "histogram_quantile") {
			return `[{"metric":{},"value":[0,"0.042"]}]`
		}
		return `[{"metric":{},"value":[0,"12.5"]}]`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		queries = append(queries, r.Form.Get("query"))
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":%s}}`, answer(r.Form.Get("query")))
	}))
	defer server.Close()
	p, err := slo.NewPrometheus(server.URL, "http_request_duration_seconds", "shop", "web", 99)
	if err != nil {
		t.Fatal(err)
	}
	r := p.Read(t.Context(), noon)
	if r.Latency != 42*time.Millisecond || r.Throughput != 12.5 {
		t.Errorf("reading %+v", r)
	}
	if !strings.Contains(queries[1], `{namespace="shop",pod=~"web-.*"}`) {
		t.Errorf("query %s", queries[1])
	}
	answer = func(string) string { return `[]` }
	if r = p.Read(t.Context(), noon); r.Observed != 0 || !strings.Contains(r.Problem, "no value") {
		t.Errorf("reading of nothing: %+v", r)
	}
	server.Close()
	if r = p.Read(t.Context(), noon); r.Observed != 0 || !strings.Contains(r.Problem, "asking") {
		t.Errorf("reading of a dead server: %+v", r)
	}
}
