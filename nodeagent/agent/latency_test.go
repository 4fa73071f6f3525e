package agent

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
)

const exposition = `# HELP go_goroutines Number of goroutines.
# TYPE go_goroutines gauge
go_goroutines 9
broken line that is not ours }{
# HELP http_seconds Latency.
# TYPE http_seconds histogram
http_seconds_bucket{code="200",le="0.1"} 10
http_seconds_bucket{code="200",le="0.5"} 15
http_seconds_bucket{code="200",le="+Inf"} 20
http_seconds_sum{code="200"} 5.5
http_seconds_count{code="200"} 20
http_seconds_bucket{code="500",le="0.1"} 1
http_seconds_bucket{code="500",le="0.5"} 2
http_seconds_bucket{code="500",le="+Inf"} 3
http_seconds_sum{code="500"} 5.5
http_seconds_count{code="500"} 3
# TYPE http_seconds_other histogram
http_seconds_other_bucket{le="+Inf"} 1000
`

func TestHistogramAddsUpSeries(t *testing.T) {
	h, err := histogram([]byte(exposition), "http_seconds")
	if err != nil || !slices.Equal(h.Upper, []float64{0.1, 0.5, math.Inf(1)}) || !slices.Equal(h.Counts, []uint64{11, 17, 23}) {
		t.Errorf("%+v, %v", h, err)
	}
	for name, c := range map[string]struct{ body, metric, says string }{
		"another name":    {exposition, "http_second", "no such metric"},
		"not a histogram": {exposition, "go_goroutines", "not a histogram"},
		"native only":     {"# TYPE h histogram\nh_sum 1\nh_count 3\n", "h", "no classic buckets"},
		"different buckets": {
			"# TYPE h histogram\nh_bucket{a=\"1\",le=\"1\"} 1\nh_bucket{a=\"1\",le=\"+Inf\"} 1\nh_bucket{a=\"2\",le=\"2\"} 1\nh_bucket{a=\"2\",le=\"+Inf\"} 1\n",
			"h", "different buckets",
		},
		"counts that fall": {"# TYPE h histogram\nh_bucket{le=\"1\"} 5\nh_bucket{le=\"+Inf\"} 1\n", "h", "fewer"},
	} {
		t.Run(name, func(t *testing.T) {
			if h, err := histogram([]byte(c.body), c.metric); err == nil || !strings.Contains(err.Error(), c.says) || h.Known() {
				t.Errorf("%+v, %v; want %q", h, err, c.says)
			}
		})
	}
}

func FuzzHistogram(f *testing.F) {
	f.Add([]byte(exposition))
	f.Add([]byte("# TYPE http_seconds histogram\nhttp_seconds_bucket{le=\"NaN\"} 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := histogram(b, "http_seconds")
		if err != nil {
			return
		}
		if !h.Known() || len(h.Upper) != len(h.Counts) || !slices.IsSorted(h.Counts) || !slices.IsSorted(h.Upper) ||
			!math.IsInf(h.Upper[len(h.Upper)-1], 1) {
			t.Errorf("%q gave %+v", b, h)
		}
		h.Quantile(99)
	})
}

func TestLatencyOfAPodIsReportedOrTheReasonWhyNot(t *testing.T) {
	accept := make(chan string, 100)
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case accept <- r.Header.Get("Accept"):
		default:
		}
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
			return
		}
		fmt.Fprint(w, exposition)
	}))
	defer pod.Close()
	ip, port, err := net.SplitHostPort(pod.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	g := newRig(t, cgroup.V1, 1)
	g.stage.change(0, func(p *Pod, _ *Container) { p.IP = ip })
	ask := func(port int, path string, done func(api.Summary) bool) api.Summary {
		t.Helper()
		g.grant(api.Observe, func(m *api.Grant) { m.Latency = api.Source{Port: int32(port), Path: path, Metric: "http_seconds"} })
		for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(10 * time.Millisecond) {
			g.run(time.Second)
			if s := g.summary(0); done(s) {
				return s
			}
		}
		t.Fatalf("not within 5 s: %+v", g.summary(0))
		return api.Summary{}
	}
	if s := ask(n, "/metrics", func(s api.Summary) bool { return s.Latency.Known() }); s.Latency.Total() != 23 ||
		s.Problem != "" {
		t.Errorf("latency %+v, problem %q", s.Latency, s.Problem)
	}
	if got := <-accept; !strings.HasPrefix(got, "text/plain") {
		t.Errorf("asked for %q, want the text format", got)
	}
	// A pod cannot redirect the agent.
	s := ask(n, "/away", func(s api.Summary) bool { return s.Problem != "" })
	if s.Latency.Known() || !strings.Contains(s.Problem, "302") {
		t.Errorf("problem %q", s.Problem)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr).Port
	l.Close()
	s = ask(closed, "/metrics", func(s api.Summary) bool { return s.Problem != "" })
	if s.Latency.Known() || !strings.Contains(s.Problem, fmt.Sprintf("http://%s:%d/metrics", ip, closed)) ||
		!strings.Contains(s.Problem, "refused") {
		t.Errorf("problem %q, want the URL and the error", s.Problem)
	}
	g.agent.scraper.wait()
}
