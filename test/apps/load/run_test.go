package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"awarescale.dev/aware/test/apps/trace"
)

// stalling answers at once, except while it stalls: then answers wait for the
// end of the stall.
type stalling struct {
	from     time.Time // of the stall
	until    time.Time // of the stall
	requests atomic.Int64
}

func (s *stalling) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	if now := time.Now(); now.After(s.from) && now.Before(s.until) {
		select {
		case <-time.After(time.Until(s.until)):
		case <-r.Context().Done():
		}
	}
	_, _ = io.WriteString(w, "ok")
}

func serve(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// constant is a trace of rate requests/s for the given seconds.
func constant(rate float64, seconds int) (rates []float64) {
	for range seconds {
		rates = append(rates, rate)
	}
	return rates
}

// closedLoopP99 measures with a closed loop, which is wrong: one user at the given pace
// waits for each answer, and the latency is measured from the time of writing.
func closedLoopP99(t *testing.T, url string, pace, length time.Duration) time.Duration {
	d := newDigest(time.Minute, time.Second)
	for start := time.Now(); time.Since(start) < length; {
		asked := time.Now()
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		d.add(time.Since(asked))
		time.Sleep(pace - time.Since(asked))
	}
	return d.quantile(0.99)
}

// A server stalls for one second of four, at 200 requests/s. A quarter of the
// requests fall into the stall, evenly from just before its end to just after
// its start, so the p99 is 0.96 s. The closed loop has one slow request in 600.
func TestAStallShowsInTheTail(t *testing.T) {
	t.Parallel()
	start := time.Now()
	server := &stalling{from: start.Add(1500 * ms), until: start.Add(2500 * ms)}
	url := serve(t, server)

	var closed time.Duration
	var other sync.WaitGroup
	other.Go(func() { closed = closedLoopP99(t, url, 5*ms, 4*time.Second) })
	got, err := Run(t.Context(), Config{Targets: []string{url}, Trace: steps(constant(200, 4)...)}, nil)
	other.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if got.P99MS < 700 {
		t.Errorf("p99 of the open loop is %v ms, want about 960", got.P99MS)
	}
	if milliseconds(closed) > got.P99MS/2 {
		t.Errorf("p99 of the closed loop is %v, of the open one %v ms: the stall should hide from the former",
			closed, got.P99MS)
	}
	if share := got.SLOViolationRatio; share < 0.1 || share > 0.5 {
		t.Errorf("%.2f of the requests took over 200 ms, want about 0.2", share)
	}
}

func TestAllIntendedRequestsAreSent(t *testing.T) {
	t.Parallel()
	server, second := &stalling{}, &stalling{}
	c := Config{
		Targets: []string{serve(t, server), serve(t, second)},
		Trace:   steps(100, 0, 50),
		Seed:    4,
		SLO:     4 * time.Second,
	}
	intended := len(Schedule(c.Trace, Poisson, 4))

	var seconds []Second
	got, err := Run(t.Context(), c, func(s Second) { seconds = append(seconds, s) })
	if err != nil {
		t.Fatal(err)
	}
	if a, b := int(server.requests.Load()), int(second.requests.Load()); a+b != intended || a-b > 1 || b-a > 1 {
		t.Errorf("%d and %d requests arrived, %d were intended", a, b, intended)
	}
	if got.Requests != intended || got.OK != intended || got.Abandoned != 0 || got.DurationS != 3 {
		t.Errorf("result %+v, %d requests were intended", got, intended)
	}
	sent := 0
	for i, s := range seconds {
		sent += s.Sent
		if s.Second != i || s.Sent+s.Dropped != s.IntendedRPS {
			t.Errorf("second %d: %+v", i, s)
		}
	}
	if len(seconds) != 3 || sent != intended {
		t.Errorf("%d seconds with %d requests, want 3 with %d", len(seconds), sent, intended)
	}
	if seconds[1].IntendedRPS != 0 || seconds[2].P99SoFarMS != got.P99MS {
		t.Errorf("seconds %+v, result %+v", seconds, got)
	}
}

// The server never answers, so the first 10 requests keep their places.
func TestRequestsOverTheLimitAreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int64
	url := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		<-r.Context().Done()
	}))
	got, err := Run(t.Context(), Config{
		Targets:     []string{url},
		Trace:       steps(100),
		Arrivals:    Uniform,
		MaxInFlight: 10,
		Timeout:     3 * time.Second,
		SLO:         time.Second,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Requests != 100 || got.Dropped != 90 || got.Timeouts != 10 || got.OK != 0 || arrived.Load() != 10 {
		t.Errorf("result %+v, %d arrived; want 90 dropped, 10 timed out", got, arrived.Load())
	}
	if got.P50MS != 3000 || got.SLOViolationRatio != 1 || got.SLOWindowsViolatedRatio != 1 {
		t.Errorf("result %+v: the dropped must count as the timeout, 3000 ms", got)
	}
}

func TestKindsOfFailuresAreCountedSeparately(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, c := range map[string]struct {
		target   string
		errors   int
		timeouts int
		first    string // a part of the first error
	}{
		"a status of 500": {
			target: serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
			})),
			errors: 20,
			first:  "answered 500 Internal Server Error",
		},
		"sent elsewhere": {
			target: serve(t, http.RedirectHandler("/there", http.StatusFound)),
			errors: 20,
			first:  "answered 302 Found",
		},
		"no listener": {target: gone.URL, errors: 20, first: "connection refused"},
		"a public address": {
			target: "http://192.0.2.1:9",
			errors: 20,
			first:  "neither a loopback nor a private address",
		},
		"an answer cut short": {
			target: serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "short")
			})),
			errors: 20,
			first:  "reading the answer of http://",
		},
		"an answer without end": {
			target: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})),
			timeouts: 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Run(t.Context(), Config{
				Targets:  []string{c.target},
				Trace:    steps(20),
				Arrivals: Uniform,
				Timeout:  2 * time.Second,
				SLO:      1999 * ms,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.Errors != c.errors || got.Timeouts != c.timeouts || got.Requests != 20 ||
				got.SLOViolationRatio != 1 {
				t.Errorf("result %+v, want %d errors, %d timeouts", got, c.errors, c.timeouts)
			}
			if !strings.Contains(got.FirstError, c.first) {
				t.Errorf("first error %q, want one with %q", got.FirstError, c.first)
			}
		})
	}
}

func TestCancelingGivesTheResultSoFar(t *testing.T) {
	t.Parallel()
	url := serve(t, &stalling{})
	enough := errors.New("seen enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	start := time.Now()
	var seconds int
	got, err := Run(ctx, Config{Targets: []string{url}, Trace: steps(constant(50, 600)...)}, func(Second) {
		if seconds++; seconds == 2 {
			cancel(enough)
		}
	})
	if !errors.Is(err, enough) {
		t.Errorf("error %v, want the cause", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("stopped after %v, was canceled after 2 s", took)
	}
	if seconds < 2 || got.OK == 0 || got.DurationS < 2 || got.DurationS > 30 {
		t.Errorf("%d seconds, result %+v", seconds, got)
	}
	intended := len(Schedule(steps(constant(50, 600)...), Poisson, 0))
	if got.Requests+got.Abandoned != intended || got.OK+got.Errors+got.Timeouts+got.Dropped != got.Requests {
		t.Errorf("%d requests and %d abandoned, %d intended: %+v", got.Requests, got.Abandoned, intended, got)
	}
	if got.Errors != 0 {
		t.Errorf("giving up counted as %d errors, the first %q", got.Errors, got.FirstError)
	}
}

func TestConfigErrorsNameTheValue(t *testing.T) {
	good := Config{Targets: []string{"http://127.0.0.1:1"}, Trace: steps(1)}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no target": {func(c *Config) { c.Targets = nil }, "no targets"},
		"a target of no kind": {func(c *Config) { c.Targets = []string{"front:80"} },
			`target "front:80": want http`},
		"a target unreadable": {func(c *Config) { c.Targets = []string{"http://a b"} }, `"http://a b"`},
		"no trace":            {func(c *Config) { c.Trace.Rates = nil }, "trace of 0 steps"},
		"too long":            {func(c *Config) { c.Trace.Step = 7 * time.Hour }, "lasts 7h0m0s: at most 6h"},
		"too much": {func(c *Config) { c.Trace = steps(constant(1e6, 11)...) },
			"asks for 11000000 requests: at most 10000000"},
		"arrivals of no kind": {func(c *Config) { c.Arrivals = "pareto" },
			`arrivals "pareto": want poisson or uniform`},
		"SLO negative": {func(c *Config) { c.SLO = -1 }, "SLO -1ns"},
		"timeout below SLO": {func(c *Config) { c.Timeout = 100 * ms },
			"timeout 100ms: must be longer than the SLO, 200ms"},
		"endless timeout":       {func(c *Config) { c.Timeout = 2 * time.Hour }, "timeout 2h0m0s: at most 1h"},
		"none may be in flight": {func(c *Config) { c.MaxInFlight = -1 }, "at most -1 requests in flight"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			c.change(&bad)
			_, err := Run(t.Context(), bad, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// Any protocol can be measured. What its Do returns is judged as an answer of HTTP is.
func TestARequestCanBeOfAnyProtocol(t *testing.T) {
	var calls atomic.Int32
	r, err := Run(t.Context(), Config{
		Targets: []string{"a", "b"},
		Trace:   trace.Trace{Step: time.Second, Rates: []float64{100}},
		Timeout: 300 * time.Millisecond, SLO: 100 * time.Millisecond, Arrivals: Uniform,
		Do: func(ctx context.Context, target string) error {
			switch n := calls.Add(1); {
			case n%10 == 0:
				return errors.New("refused")
			case n%10 == 1:
				<-ctx.Done()
				return ctx.Err()
			case target != "a" && target != "b":
				return fmt.Errorf("target %q", target)
			}
			return nil
		},
	}, nil)
	if err != nil || r.Requests != 100 || r.Errors != 10 || r.Timeouts != 10 || r.OK != 80 || r.FirstError != "refused" {
		t.Errorf("%+v, %v", r, err)
	}
	if r.SLOViolationRatio < 0.2 {
		t.Errorf("%v over the SLO: failed requests must be", r.SLOViolationRatio)
	}
}
