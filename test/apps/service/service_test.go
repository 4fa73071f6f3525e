package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/test/apps/client"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// running is a service in this process.
type running struct {
	url       string
	metrics   string             // URL
	terminate context.CancelFunc // like SIGTERM
	ended     chan error
}

// start starts the service with these flags and stops it after the test.
func start(t *testing.T, change func(*settings)) *running {
	t.Helper()
	s := defaults()
	s.listen = "127.0.0.1:0"
	s.metricsListen = "127.0.0.1:0"
	s.drain = 0
	s.segments, s.memory = nil, 0
	if change != nil {
		change(s)
	}
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	l, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{"http://" + l.work.Addr().String(), "http://" + l.metrics.Addr().String() + "/metrics", cancel,
		make(chan error, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.ended <- serve(ctx, s, l, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() { cancel(); <-over })
	return r
}

// get returns status and body, or 0 and the error.
func get(ctx context.Context, url string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	c := client.New(client.Config{ConnMaxRequests: 1})
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

func (r *running) expect(t *testing.T, path string, code int, text string) {
	t.Helper()
	if got, body := get(t.Context(), r.url+path); got != code || !strings.Contains(body, text) {
		t.Errorf("GET %s: %d %q, want %d with %q", path, got, body, code, text)
	}
}

// metric returns the metric with this name and, if not "", status.
func (r *running) metric(t *testing.T, name, code string) *dto.Metric {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.metrics, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Prometheus sends this header for native histograms.
	req.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	decoder := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header))
	for {
		var family dto.MetricFamily
		if err := decoder.Decode(&family); errors.Is(err, io.EOF) {
			t.Fatalf("no metric %s with code %q", name, code)
		} else if err != nil {
			t.Fatal(err)
		}
		if family.GetName() != name {
			continue
		}
		for _, m := range family.Metric {
			if code == "" || m.Label[0].GetValue() == code {
				return m
			}
		}
	}
}

// eventually waits for a state that the service reaches on its own.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestARequestChoosesItsWork(t *testing.T) {
	s := start(t, func(s *settings) {
		if err := s.segments.Set("json:0.1,float:0.1"); err != nil {
			t.Fatal(err)
		}
	})
	s.expect(t, "/", 200, "ok")
	s.expect(t, "/?segments=text:0.1,rotate:0.1", 200, "ok")
	s.expect(t, "/?segments=", 200, "ok")
	s.expect(t, "/?segments=cpu", 400, `unknown segment "cpu": known are float,`)
	s.expect(t, "/?segments=json:1e9", 400, `times "1e9"`)
	s.expect(t, "/elsewhere", 404, "")
	s.expect(t, "/healthz", 200, "ok")
	s.expect(t, "/readyz", 200, "ok")
}

func TestMetricsCoverWorkAndNotProbes(t *testing.T) {
	s := start(t, nil)
	if n := s.metric(t, "http_request_duration_seconds", "200").Histogram.GetSampleCount(); n != 0 {
		t.Errorf("%d requests before the first", n)
	}
	for range 3 {
		s.expect(t, "/?segments=sleep:30", 200, "ok")
	}
	s.expect(t, "/?segments=none", 400, "")
	s.expect(t, "/healthz", 200, "ok")

	eventually(t, "3 requests are counted", func() bool {
		return s.metric(t, "http_requests_total", "200").Counter.GetValue() == 3
	})
	h := s.metric(t, "http_request_duration_seconds", "200").Histogram
	if len(h.Bucket) != 24 && len(h.Bucket) != 25 { // with or without +Inf
		t.Errorf("%d classic buckets, want 24", len(h.Bucket))
	}
	if h.GetSampleCount() != 3 || h.GetSampleSum() < 0.09 {
		t.Errorf("%d requests took %v s, want 3 with at least 0.09 s", h.GetSampleCount(), h.GetSampleSum())
	}
	for _, b := range h.Bucket {
		if b.GetUpperBound() < 0.03 && b.GetCumulativeCount() > 0 {
			t.Errorf("%d requests of 30 ms took up to %v s", b.GetCumulativeCount(), b.GetUpperBound())
		}
	}
	if len(h.PositiveSpan) == 0 || len(h.PositiveDelta) == 0 {
		t.Error("no native histogram")
	}
	if n := s.metric(t, "http_requests_total", "400").Counter.GetValue(); n != 1 {
		t.Errorf("%v bad requests, want 1", n)
	}
	if n := s.metric(t, "http_requests_in_flight", "").Gauge.GetValue(); n != 0 {
		t.Errorf("%v requests in flight, want 0", n)
	}
}

// Four requests of 60 ms, one at a time: the k-th takes at least k times 60 ms.
func TestWaitingForASlotIsPartOfTheLatency(t *testing.T) {
	s := start(t, func(s *settings) { s.concurrency = 1 })
	began := time.Now()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { s.expect(t, "/?segments=sleep:60", 200, "ok") })
	}
	eventually(t, "a request waits for its turn", func() bool {
		return s.metric(t, "http_requests_queued", "").Gauge.GetValue() > 0 ||
			time.Since(began) > 200*time.Millisecond
	})
	all.Wait()
	if took := time.Since(began); took < 240*time.Millisecond {
		t.Errorf("all four took %v: some ran at the same time", took)
	}
	eventually(t, "4 requests are counted", func() bool {
		return s.metric(t, "http_requests_total", "200").Counter.GetValue() == 4
	})
	if sum := s.metric(t, "http_request_duration_seconds",
		"200").Histogram.GetSampleSum(); sum < 0.06*(1+1+1+1) {
		t.Errorf("latencies add up to %v s", sum)
	}
}

func TestWithoutALimitRequestsRunAtTheSameTime(t *testing.T) {
	s := start(t, nil)
	var all sync.WaitGroup
	began := time.Now()
	for range 20 {
		all.Go(func() { s.expect(t, "/?segments=sleep:100,sleep:100,sleep:100,sleep:100,sleep:100", 200, "ok") })
	}
	all.Wait()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("20 requests of 0.5 s took %v: one after the other would be 10 s", took)
	}
}

func TestACanceledRequestFreesItsSlot(t *testing.T) {
	s := start(t, func(s *settings) { s.concurrency = 1 })
	long := "/?segments=" + strings.Repeat("sleep:100,", 20) + "sleep" // 2 s and something
	ctx, leave := context.WithCancel(t.Context())
	var caller sync.WaitGroup
	caller.Go(func() { get(ctx, s.url+long) })
	eventually(t, "the request is in flight", func() bool {
		return s.metric(t, "http_requests_in_flight", "").Gauge.GetValue() == 1
	})
	leave()
	caller.Wait()
	s.expect(t, "/", 200, "ok")
	eventually(t, "the request is counted as left", func() bool {
		return s.metric(t, "http_requests_total", "499").Counter.GetValue() == 1
	})
}

// front asks two at the same time; each asks the store.
func TestACallGraphOfFourServices(t *testing.T) {
	store := start(t, nil)
	middle := func(s *settings) { s.then = addresses{store.url + "/?segments=sleep:20"} }
	cart, search := start(t, middle), start(t, middle)
	front := start(t, func(s *settings) { s.calls = addresses{cart.url, search.url} })
	for range 5 {
		front.expect(t, "/", 200, "ok")
	}
	for name, c := range map[string]struct {
		service *running
		want    float64
	}{"front": {front, 5}, "cart": {cart, 5}, "search": {search, 5}, "store": {store, 10}} {
		eventually(t, fmt.Sprintf("%s has answered %v requests", name, c.want), func() bool {
			return c.service.metric(t, "http_requests_total", "200").Counter.GetValue() == c.want
		})
	}
	if sum := front.metric(t, "http_request_duration_seconds", "200").Histogram.GetSampleSum(); sum < 5*0.02 {
		t.Errorf("five answers of the front took %v s, the store alone 0.02 s each", sum)
	}
}

func TestAFailingCallFailsTheRequestAndNamesTheCall(t *testing.T) {
	broken := start(t, nil)
	bad := broken.url + "/?segments=none"
	front := start(t, func(s *settings) { s.calls = addresses{broken.url, bad} })
	front.expect(t, "/", 502, "calling "+bad+": it answered 400 Bad Request")

	slow := start(t, func(s *settings) {
		s.then = addresses{broken.url + "/?segments=sleep:100,sleep:100,sleep:100"}
		s.callTimeout = 50 * time.Millisecond
	})
	slow.expect(t, "/", 502, "context deadline exceeded")
}

func TestSIGTERMDrainsAndThenEnds(t *testing.T) {
	s := start(t, func(s *settings) { s.drain = time.Second })
	var inFlight sync.WaitGroup
	// 1.5 s: it outlasts the drain and must still get its answer.
	inFlight.Go(func() { s.expect(t, "/?segments="+strings.Repeat("sleep:100,", 14)+"sleep:100", 200, "ok") })
	eventually(t, "the request is in flight", func() bool {
		return s.metric(t, "http_requests_in_flight", "").Gauge.GetValue() == 1
	})
	s.terminate()
	eventually(t, "the service is not ready, or gone", func() bool {
		code, _ := get(t.Context(), s.url+"/readyz")
		return code != 200
	})
	inFlight.Wait()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("still serving")
	}
	if code, body := get(t.Context(), s.url); code != 0 {
		t.Errorf("answered %d %q after its end", code, body)
	}
}

func TestWhileDrainingNewRequestsAreServedAndConnectionsAreClosed(t *testing.T) {
	w := newWorker(defaults())
	w.leaving.Store(true)
	s := newServer(w.handler())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	url := "http://" + l.Addr().String()
	resp, err := http.Get(url + "/?segments=")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || !resp.Close {
		t.Errorf("status %d, connection closed %v, want 200 and closed", resp.StatusCode, resp.Close)
	}
	if code, _ := get(t.Context(), url+"/readyz"); code != 503 {
		t.Errorf("readyz says %d, want 503", code)
	}
	if code, _ := get(t.Context(), url+"/healthz"); code != 200 {
		t.Errorf("healthz says %d, want 200", code)
	}
}

func TestHeldMemoryIsResident(t *testing.T) {
	before := resident(t)
	held, err := holdMemory(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if got := resident(t) - before; got < 60<<20 {
		t.Errorf("%d bytes more are resident, want about %d", got, len(held))
	}
	if none, err := holdMemory(0); none != nil || err != nil {
		t.Errorf("holding nothing: %d bytes, %v", len(none), err)
	}
}

// resident is this process's resident memory in bytes.
func resident(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
