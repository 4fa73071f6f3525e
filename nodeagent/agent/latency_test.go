package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
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
	h, err := newTextReader().histogram(strings.NewReader(exposition), "http_seconds")
	if err != nil || !slices.Equal(h.Upper, []float64{0.1, 0.5, math.Inf(1)}) || !slices.Equal(h.Counts, []uint64{11, 17, 23}) {
		t.Errorf("%+v, %v", h, err)
	}
	for name, c := range map[string]struct{ body, metric, says string }{
		"another name":    {exposition, "http_second", "no such metric"},
		"not a histogram": {exposition, "go_goroutines", "not a histogram"},
		"native only":     {"# TYPE h histogram\nh_sum 1\nh_count 3\n", "h", "no classic buckets"},
		"different buckets": {
			"# TYPE h histogram\nh_bucket{a=\"1\",le=\"1\"} 1\nh_bucket{a=\"1\",le=\"+Inf\"} 1\n" +
				"h_bucket{a=\"2\",le=\"2\"} 1\nh_bucket{a=\"2\",le=\"+Inf\"} 1\n",
			"h", "different buckets",
		},
		"too many buckets": {"# TYPE h histogram\n" + lines("h_bucket{le=\"%d\"} 1\n", 101), "h", "more than 100 buckets"},
		"a long line": {
			"# TYPE h histogram\nh_bucket{le=\"1\",a=\"" + strings.Repeat("x", 1<<15) + "\"} 1\n",
			"h", "a line of more than",
		},
		"counts that fall": {"# TYPE h histogram\nh_bucket{le=\"1\"} 5\nh_bucket{le=\"+Inf\"} 1\n", "h", "fewer"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := newTextReader().histogram(strings.NewReader(c.body), c.metric)
			if err == nil || !strings.Contains(err.Error(), c.says) || h.Known() {
				t.Errorf("%+v, %v; want %q", h, err, c.says)
			}
		})
	}
}

// lines is a line with each of the numbers below n.
func lines(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// A long line of another metric is not our business.
func TestLongLinesOfOtherMetricsAreSkipped(t *testing.T) {
	long := "other{a=\"" + strings.Repeat("http_seconds_bucket", 1<<14) + "\"} 1\n"
	h, err := newTextReader().histogram(strings.NewReader(long+exposition+long), "http_seconds")
	if err != nil || h.Total() != 23 {
		t.Errorf("%+v, %v", h, err)
	}
}

// hungry is an answer of 2 MiB that notes how much is alive while it is read.
type hungry struct {
	line  string
	read  int
	alive uint64 // most bytes
}

func (h *hungry) Read(p []byte) (int, error) {
	if h.read > 2<<20 {
		return 0, io.EOF
	}
	if h.read%(64<<10) < len(p) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		h.alive = max(h.alive, m.HeapAlloc)
	}
	n := 0
	for n+len(h.line)+20 < len(p) {
		n += copy(p[n:], fmt.Sprintf(h.line, h.read+n))
	}
	h.read += n
	return n, nil
}

// However much a pod answers, and whatever it is made of, the agent holds little of it.
func TestALongAnswerTakesLittleMemory(t *testing.T) {
	for what, line := range map[string]string{
		"one series":  "h_bucket{le=\"1\"} 1\n",
		"many series": "h_bucket{le=\"1\",path=\"/%d\"} 1\n",
		"others":      "other_%d 1\n",
	} {
		t.Run(what, func(t *testing.T) {
			body := &hungry{line: line}
			var before runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			text := io.MultiReader(strings.NewReader("# TYPE h histogram\n"), body)
			if _, err := newTextReader().histogram(text, "h"); body.read <= 2<<20 {
				t.Fatalf("%d bytes were read: %v", body.read, err)
			}
			if most := int64(body.alive) - int64(before.HeapAlloc); most > 2<<20 {
				t.Errorf("%d bytes are alive while 2 MiB are read", most)
			}
		})
	}
}

// served makes a pod that answers everything in one way, and its endpoint.
func served(t *testing.T, answer http.HandlerFunc) endpoint {
	t.Helper()
	pod := httptest.NewServer(answer)
	t.Cleanup(pod.Close)
	address := pod.Listener.Addr().(*net.TCPAddr)
	return endpoint{address.IP.String(), api.Source{Port: int32(address.Port), Path: "/metrics", Metric: "http_seconds"}}
}

func TestAnEndlessAnswerIsNotRead(t *testing.T) {
	e := served(t, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := io.WriteString(w, "other 1\n"); err != nil {
				return
			}
		}
	})
	s := newScraper(1, time.Minute, 10*time.Second)
	_, err := s.read(t.Context(), <-s.readers, e)
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("err = %v", err)
	}
}

// A status line may be as long as its pod likes. What is reported of it is short.
func TestALongStatusLineIsNotReported(t *testing.T) {
	g := newRig(t, cgroup.V1, 1)
	for want, status := range map[string]string{
		"headers exceeded":  "HTTP/1.1 200 " + strings.Repeat("x", 1<<20),
		"status 503":        "HTTP/1.1 503 \x1b[31m" + strings.Repeat("y", 1<<13),
		"malformed HTTP re": "no\nHTTP",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				// Who closes with a request unread resets the connection, and the answer may be lost.
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					io.WriteString(c, status+"\r\nContent-Length: 0\r\n\r\n")
				}
				c.Close()
			}
		}()
		address := l.Addr().(*net.TCPAddr)
		g.stage.change(0, func(p *Pod, _ *Container) { p.IP = address.IP.String() })
		g.grant(api.Observe, func(m *api.Grant) {
			m.Latency = api.Source{Port: int32(address.Port), Path: "/metrics", Metric: "http_seconds"}
		})
		g.run(time.Second)
		for begin := time.Now(); g.summary(0).Problem == "" && time.Since(begin) < 30*time.Second; {
			g.run(time.Second)
			time.Sleep(10 * time.Millisecond)
		}
		if p := g.summary(0).Problem; !strings.Contains(p, want) || len(p) > api.MaxProblem || strings.ContainsAny(p, "\x1b\n") {
			t.Errorf("the problem has %d bytes: %.300q, want it to say %q", len(p), p, want)
		}
		g.grant(api.Observe)
		g.run(time.Second)
	}
	g.agent.scraper.wait()
}

// One pod's answer is one pod's problem.
func TestAReadersPanicIsAnError(t *testing.T) {
	s := newScraper(1, time.Minute, 10*time.Second)
	s.client.Transport = panics{}
	was := <-s.readers
	_, err := s.read(t.Context(), was, endpoint{ip: "10.0.0.1"})
	if err == nil || !strings.Contains(err.Error(), "the reader failed: oh no") {
		t.Errorf("err = %v", err)
	}
	if len(s.readers) != 1 || <-s.readers == was {
		t.Error("the reader that failed is used again, or there is none")
	}
}

type panics struct{}

func (panics) RoundTrip(*http.Request) (*http.Response, error) { panic("oh no") }

func TestAnOldReadingIsUnknown(t *testing.T) {
	e := served(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, exposition) })
	s := newScraper(1, time.Minute, 10*time.Second)
	s.want(t.Context(), time.Now(), map[endpoint]bool{e: true})
	s.wait()
	if h, err := s.get(time.Now(), e); err != nil || h.Total() != 23 {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err := s.get(time.Now().Add(time.Minute), e); err == nil || h.Known() {
		t.Errorf("a minute later: %+v, %v", h, err)
	}
}

// byTheParser is a reader that lets the parser read every line.
func byTheParser(text []byte, metric string) (api.Histogram, error) {
	sum := sums{buckets: map[float64]bucket{}}
	for line := range bytes.Lines(text) {
		switch {
		case !lineOf(line, metric):
			continue
		case len(line) >= maxLine:
			return api.Histogram{}, fmt.Errorf("a line of more than %d bytes", maxLine)
		case line[0] == '#':
			if err := newTextReader().add(&sum, line, metric); err != nil {
				return api.Histogram{}, err
			}
			continue
		}
		h, err := newTextReader().parse(metric, bytes.TrimRight(line, "\r\n"))
		if err != nil {
			return api.Histogram{}, err
		}
		for _, b := range h.GetBucket() {
			if err := sum.add(series{upper: b.GetUpperBound(), bucket: true}, b.GetCumulativeCount()); err != nil {
				return api.Histogram{}, err
			}
		}
		if h != nil && h.SampleCount != nil {
			if err := sum.add(series{count: true}, h.GetSampleCount()); err != nil {
				return api.Histogram{}, err
			}
		}
	}
	return sum.histogram()
}

func TestKnownSeriesAreNotParsedAgain(t *testing.T) {
	r := newTextReader()
	page := strings.ReplaceAll(exposition, "_sum{code=\"200\"} 5.5\n", "_sum{code=\"200\"} 5.25\n")
	for i, text := range []string{exposition, page} {
		if h, err := r.histogram(strings.NewReader(text), "http_seconds"); err != nil || h.Total() != 23 {
			t.Fatalf("reading %d: %+v, %v", i, h, err)
		}
	}
	if n := len(r.known); n != 8 {
		t.Errorf("%d texts are known, want six buckets and two counts", n)
	}
	for i := range 3 * maxKnown {
		text := fmt.Sprintf("# TYPE h histogram\nh_bucket{a=\"%d\",le=\"+Inf\"} 1\n", i)
		if _, err := r.histogram(strings.NewReader(text), "h"); err != nil {
			t.Fatal(err)
		}
		if len(r.known) > maxKnown {
			t.Fatalf("%d texts are kept", len(r.known))
		}
	}
}

func FuzzHistogram(f *testing.F) {
	f.Add([]byte(exposition))
	f.Add([]byte("# TYPE http_seconds histogram\nhttp_seconds_bucket{le=\"NaN\"} 1\n"))
	for _, line := range []string{
		"http_seconds_bucket{le=\"+Inf\"} 1 1395066363000", // a time
		"http_seconds_bucket{le=\"+Inf\"} 2 1395066363000",
		"http_seconds_bucket{le=\"+Inf\"}\t7",
		"http_seconds_bucket{le=\"+Inf\"}  7 ",
		"http_seconds_bucket{le=\"+Inf\",a=\" 5\"} 7",
		"http_seconds_bucket{le=\"+Inf\"} 7e2",
		"http_seconds_bucket{le=\"+Inf\"} 99999999999999999999",
		"http_seconds_bucket{le=\"+Inf\"} -1",
		"http_seconds_bucket{le=\"+Inf\"} 007",
		"http_seconds_bucket 7",
		"http_seconds 7",
		"http_seconds_bucket{le=\"x\"} 7",
		"http_seconds_count{a=\"b} 7",
		"http_seconds_sum 7\nhttp_seconds_bucket{le=\"+Inf\"} 7\nhttp_seconds_count 7",
	} {
		f.Add([]byte("# TYPE http_seconds histogram\n" + line + "\n"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newTextReader()
		h, err := r.histogram(bytes.NewReader(b), "http_seconds")
		for _, known := range []string{"a new reader", "one that has read it before"} {
			want, wantErr := byTheParser(b, "http_seconds")
			if fmt.Sprint(h, err) != fmt.Sprint(want, wantErr) {
				t.Errorf("%q: %s says %v, %v; the parser %v, %v", b, known, h, err, want, wantErr)
			}
			h, err = r.histogram(bytes.NewReader(b), "http_seconds")
		}
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
	// The address of a pod on the node's network is the node's: whoever writes the
	// annotation could read the node's own ports.
	g.stage.change(0, func(p *Pod, _ *Container) { p.HostNetwork = true })
	if s := ask(n, "/metrics", func(s api.Summary) bool { return s.Problem != "" }); s.Latency.Known() ||
		!strings.Contains(s.Problem, "on the node's network") {
		t.Errorf("problem %q", s.Problem)
	}
	g.stage.change(0, func(p *Pod, _ *Container) { p.HostNetwork = false })
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

// BenchmarkHistogram is reading the page of a Go program, which has our metric and sixty others.
func BenchmarkHistogram(b *testing.B) {
	var text strings.Builder
	for i := range 60 {
		fmt.Fprintf(&text, "# HELP go_other_%d Something else.\n# TYPE go_other_%d gauge\ngo_other_%d %d\n", i, i, i, i)
	}
	text.WriteString("# TYPE http_request_duration_seconds histogram\n")
	for i := range 24 {
		fmt.Fprintf(&text, "http_request_duration_seconds_bucket{code=\"200\",le=\"%v\"} %d\n", float64(i+1)/100, 1000*i)
	}
	text.WriteString("http_request_duration_seconds_bucket{code=\"200\",le=\"+Inf\"} 24000\n" +
		"http_request_duration_seconds_sum{code=\"200\"} 53.4\nhttp_request_duration_seconds_count{code=\"200\"} 24000\n")
	page := text.String()
	b.ReportAllocs()
	r := newTextReader()
	for b.Loop() {
		if h, err := r.histogram(strings.NewReader(page), "http_request_duration_seconds"); err != nil || h.Total() != 24000 {
			b.Fatal(h, err)
		}
	}
}
