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
	m := slo.NewMeter(99, 0)
	if r := m.Read(noon, pods(served(1e6, 1e6), served(0, 0))); r.Observed != 0 {
		t.Fatalf("the first reading observed %v: how old the counts are is not known", r.Observed)
	}
	r := m.Read(noon.Add(10*time.Second), pods(served(1e6+500, 1e6), served(500, 0)))
	if r.Throughput != 100 || r.Latency != 10*time.Millisecond || !r.Observed.Has(mdp.Latency, mdp.Throughput) {
		t.Errorf("reading %+v, want 100 requests/s, all fast", r)
	}
	r = m.Read(noon.Add(20*time.Second), pods(served(1e6+500, 1e6+50), served(1000, 0)))
	if r.Latency < 100*time.Millisecond || math.Abs(float64(r.LoadChange-0.55)) > 1e-9 {
		t.Errorf("reading %+v, want a slow p99 and a load change of 0.55", r)
	}
}

// The error budget counts requests, each once, and few of them count, too.
func TestMeterSaysWhatShareOfTheNewRequestsMissedTheSLO(t *testing.T) {
	m := slo.NewMeter(99, 100*time.Millisecond)
	if r := m.Read(noon, pods(served(1e6, 1e6))); r.Requests != 0 {
		t.Fatalf("the first reading has %v requests: how old the counts are is not known", r.Requests)
	}
	for i, c := range []struct {
		fast, slow uint64
		requests   float64
		missed     mdp.Ratio
	}{{1e6 + 8, 1e6 + 2, 10, 0.2}, {1e6 + 8, 1e6 + 2, 0, 0}, {1e6 + 9, 1e6 + 2, 1, 0}} {
		r := m.Read(noon.Add(time.Duration(i+1)*10*time.Second), pods(served(c.fast, c.slow)))
		if r.Requests != c.requests || math.Abs(float64(r.Missed-c.missed)) > 1e-9 {
			t.Errorf("reading %d: %v of %v requests missed, want %v of %v", i, r.Missed, r.Requests, c.missed, c.requests)
		}
	}
	coarse := slo.NewMeter(99, 5*time.Millisecond) // below the first bound
	coarse.Read(noon, pods(served(0, 0)))
	if r := coarse.Read(noon.Add(10*time.Second), pods(served(100, 0))); r.Requests != 0 {
		t.Errorf("%v of %v requests missed: the buckets do not say it", r.Missed, r.Requests)
	}
}

func TestMeterNeedsEnoughRequestsForAPercentile(t *testing.T) {
	m := slo.NewMeter(99, 0)
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
	m := slo.NewMeter(99, 0)
	m.Read(noon, nil)
	r := m.Read(noon.Add(10*time.Second), pods(api.Histogram{}))
	if r.Observed != 0 || r.Problem == "" {
		t.Errorf("reading %+v, want nothing and why", r)
	}
}

// answering is a reader of a server that answers in one way.
func answering(t *testing.T, answer http.HandlerFunc) *slo.Prometheus {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	servers, err := slo.NewServers([]string{server.URL})
	if err != nil {
		t.Fatal(err)
	}
	p, err := servers.New(server.URL+"/", "http_request_duration_seconds", "shop", 99, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// eventually reads until the reading is as wanted. The server is asked beside the reader.
func eventually(t *testing.T, what string, read func() slo.Reading, is func(slo.Reading) bool) {
	t.Helper()
	var r slo.Reading
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if r = read(); is(r) {
			return
		}
	}
	t.Errorf("not within a minute: %s; the reading is %+v", what, r)
}

// web reads two pods at noon.
func web(t *testing.T, p *slo.Prometheus) func() slo.Reading {
	return func() slo.Reading { return p.Read(t.Context(), noon, []string{"web-1", "web-2"}) }
}

func TestPrometheusWithoutAnAnswerIsUnknown(t *testing.T) {
	var answer atomic.Value
	answer.Store("42")
	queries := make(chan string, 1000)
	p := answering(t, func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		select {
		case queries <- r.Form.Get("query"):
		default:
		}
		if answer.Load() == "" {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
			return
		}
		var series []string
		for _, le := range []string{"0.1", "1", "60", "+Inf"} {
			v := answer.Load()
			if le == "0.1" || le == "1" && v == "42" {
				v = "0"
			}
			series = append(series, fmt.Sprintf(`{"metric":{"le":"%s"},"value":[0,"%s"]}`, le, v))
			if strings.Contains(r.Form.Get("query"), "_count") {
				series = []string{fmt.Sprintf(`{"metric":{},"value":[0,"%s"]}`, answer.Load())}
				break
			}
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(series, ","))
	})
	eventually(t, "an answer", web(t, p), func(r slo.Reading) bool { return r.Latency > 59*time.Second && r.Throughput == 42 })
	// Exactly these pods: web-api-1 is another workload's.
	if q := <-queries; !strings.Contains(q, `{namespace="shop",pod=~"web-1|web-2"}`) {
		t.Errorf("query %s", q)
	}
	for _, bad := range []string{"", "NaN", "+Inf", "-1"} {
		answer.Store(bad)
		eventually(t, "no value", web(t, p), func(r slo.Reading) bool {
			return r.Observed == 0 && strings.Contains(r.Problem, "no value")
		})
	}
}

// A server that answers is waited for: its reading is of now, and not of the step before.
// On a busy machine an answer may come too late for its step; one of many must not.
func TestAServerThatAnswersIsReadNow(t *testing.T) {
	var rate atomic.Int64
	p := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"le":"+Inf"},"value":[0,"%d"]}]}}`,
			rate.Load())
	})
	read := web(t, p)
	eventually(t, "the rate of this very step", func() slo.Reading {
		rate.Add(1)
		return read()
	}, func(r slo.Reading) bool { return r.Throughput == mdp.Rate(rate.Load()) })
}

// The error budget counts requests, each once: an answer that is read twice, since the next one is late, counts once.
func TestWhatAServerSaysMissedCountsOnce(t *testing.T) {
	release := make(chan struct{})
	var late atomic.Bool
	p := answering(t, func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		if late.Load() {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		if strings.Contains(r.Form.Get("query"), "_count") {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[0,"20"]}]}}`)
			return
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[`+
			`{"metric":{"le":"0.1"},"value":[0,"570"]},{"metric":{"le":"+Inf"},"value":[0,"600"]}]}}`)
	})
	defer close(release)
	at := noon
	read := func() slo.Reading { return p.Read(t.Context(), at, []string{"web-1"}) }
	eventually(t, "a first answer", read, func(r slo.Reading) bool { return r.Observed.Has(mdp.Throughput) && r.Requests == 0 })
	at = noon.Add(10 * time.Second)
	eventually(t, "a second one", read, func(r slo.Reading) bool {
		return math.Abs(r.Requests-200) < 1e-9 && math.Abs(float64(r.Missed-0.05)) < 1e-3
	})
	late.Store(true)
	at = noon.Add(20 * time.Second)
	if r := read(); r.Requests != 0 || !r.Observed.Has(mdp.Throughput) {
		t.Errorf("while the server is late: %+v, want the rate as it was, and no requests", r)
	}
}

// An answer of any length, or one that leads elsewhere, costs little and is a problem.
func TestPrometheusDoesNotReadEverything(t *testing.T) {
	var sent atomic.Int64
	endless := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"string","result":[0,"`)
		for line := strings.Repeat("x", 1<<16); ; {
			n, err := fmt.Fprint(w, line)
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	})
	eventually(t, "too long", web(t, endless), func(r slo.Reading) bool { return strings.Contains(r.Problem, "too large") })
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes were sent", n)
	}
	elsewhere := answering(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
	})
	eventually(t, "a redirect", web(t, elsewhere), func(r slo.Reading) bool { return strings.Contains(r.Problem, "302") })
}

// A server that does not answer costs its first readers a moment, and nobody else.
func TestDeadServersBlockNobody(t *testing.T) {
	stop := make(chan struct{})
	dead := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	})
	defer close(stop)
	eventually(t, "the deadline", web(t, dead), func(r slo.Reading) bool { return strings.Contains(r.Problem, "exceeded") })
	// It is known now. A hundred readers would have waited for 300 s together.
	begin := time.Now()
	for range 100 {
		dead.Read(t.Context(), noon, []string{"web-1"})
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("a hundred readings took %v", took)
	}
	if r := dead.Read(t.Context(), noon.Add(time.Minute), []string{"web-1"}); !strings.Contains(r.Problem, "no answer for 1m0s") {
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
		if _, err := servers.New(c.server, c.metric, "shop", 99, 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v, want %q", c.server, c.metric, err, c.want)
		}
	}
	if _, err := servers.New("http://prometheus.monitoring.svc:9090/", "seconds", "shop", 99, 0); err != nil {
		t.Error(err)
	}
}

// A server that answers in 7 ms, whose first bucket ends at 100 ms: whether it keeps an
// SLO of 50 ms cannot be told, and an SLO of 100 ms it keeps.
func TestBucketsThatCannotTellAreNotAGuess(t *testing.T) {
	coarse := func(n uint64) api.Histogram {
		return api.Histogram{Upper: []float64{0.1, 0.5, math.Inf(1)}, Counts: []uint64{n, n, n}}
	}
	slow := func(n uint64) api.Histogram {
		return api.Histogram{Upper: []float64{0.1, 0.5, math.Inf(1)}, Counts: []uint64{0, n, n}}
	}
	never := func(n uint64) api.Histogram {
		return api.Histogram{Upper: []float64{0.1, 0.5, math.Inf(1)}, Counts: []uint64{0, 0, n}}
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		threshold  time.Duration
		h          func(uint64) api.Histogram
		unresolved bool
		lowest     time.Duration
		highest    time.Duration
		says       string
	}{
		"below the first bound": {50 * ms, coarse, true, 0, 0, "100ms, 500ms"},
		"at the first bound":    {100 * ms, coarse, false, 100 * ms, 100 * ms, "at most 100ms"},
		"above it":              {300 * ms, coarse, false, 100 * ms, 100 * ms, "at most 100ms"},
		"between two bounds":    {300 * ms, slow, false, 100 * ms, 500 * ms, "no bound at 300ms"},
		"violated for sure":     {50 * ms, slow, false, 100 * ms, 500 * ms, ""},
		"above the last bound":  {time.Second, never, true, 0, 0, "above 500ms"},
		"and below":             {500 * ms, never, false, 500 * ms, 500 * ms, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := slo.NewMeter(99, c.threshold)
			m.Read(noon, pods(c.h(100)))
			r := m.Read(noon.Add(10*time.Second), pods(c.h(1100)))
			if r.Unresolved != c.unresolved || r.Observed.Has(mdp.Latency) == c.unresolved ||
				r.Latency < c.lowest || r.Latency > c.highest || !strings.Contains(r.Problem, c.says) {
				t.Errorf("reading %+v", r)
			}
		})
	}
}

// A histogram without bounds counts requests, and its latencies are unknown, not zero.
func TestAHistogramWithoutBoundsHasNoLatency(t *testing.T) {
	m := slo.NewMeter(99, 0)
	counts := func(n uint64) map[string]api.Histogram {
		return pods(api.Histogram{Upper: []float64{math.Inf(1)}, Counts: []uint64{n}})
	}
	m.Read(noon, counts(0))
	r := m.Read(noon.Add(10*time.Second), counts(1000))
	if r.Observed.Has(mdp.Latency) || r.Throughput != 100 || !strings.Contains(r.Problem, "no bound but +Inf") {
		t.Errorf("reading %+v", r)
	}
}

// The agents read a histogram every ten seconds, and not when central looks.
func TestARateIsOfTheTimeBetweenTwoReadings(t *testing.T) {
	m := slo.NewMeter(99, 0)
	read := func(at, readAt int, n uint64) slo.Reading {
		h := served(n, 0)
		h.At = noon.Add(time.Duration(readAt) * time.Second)
		return m.Read(noon.Add(time.Duration(at)*time.Second), pods(h))
	}
	read(1, 0, 1000)
	if r := read(11, 8, 1800); r.Throughput != 100 {
		t.Errorf("800 requests in 8 s: %v/s", r.Throughput)
	}
	if r := read(16, 8, 1800); r.Throughput != 100 || r.Latency != 10*time.Millisecond {
		t.Errorf("the same reading again: %+v, want what it said before", r)
	}
	if r := read(21, 18, 3800); r.Throughput != 200 || r.LoadChange != 2 {
		t.Errorf("2000 requests in 10 s: %+v", r)
	}
}
