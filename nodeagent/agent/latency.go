package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// endpoint is where a histogram is read.
type endpoint struct {
	ip string
	api.Source
}

func (e endpoint) url() string {
	return "http://" + net.JoinHostPort(e.ip, strconv.Itoa(int(e.Port))) + "/" + strings.TrimPrefix(e.Path, "/")
}

// reading is the result of the last attempt to read an endpoint.
type reading struct {
	histogram api.Histogram // unknown when the attempt failed
	at        time.Time     // when it ended
	err       error
	busy      bool // the next attempt has begun
}

// scraper reads latency histograms from pods, a few at a time. Each is read in a
// goroutine that ends with its request: a pod that does not answer costs its own
// histogram only.
type scraper struct {
	client *http.Client
	slots  chan struct{}
	wg     sync.WaitGroup

	mu       sync.Mutex
	readings map[endpoint]*reading
}

func newScraper(atOnce int, within time.Duration) *scraper {
	return &scraper{
		client: &http.Client{
			Timeout: within,
			// A pod must not redirect the agent: the agent can reach what pods cannot.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				Proxy:               nil,
				MaxIdleConnsPerHost: 1,
				IdleConnTimeout:     30 * time.Second,
				DisableCompression:  true,
			},
		},
		slots:    make(chan struct{}, atOnce),
		readings: make(map[endpoint]*reading),
	}
}

// want begins to read each of the endpoints that is not being read, and forgets all
// other endpoints.
func (s *scraper) want(ctx context.Context, all map[endpoint]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.readings {
		if !all[e] {
			delete(s.readings, e)
		}
	}
	for e := range all {
		r := s.readings[e]
		if r == nil {
			r = &reading{}
			s.readings[e] = r
		}
		if r.busy {
			continue
		}
		r.busy = true
		s.wg.Go(func() {
			select {
			case s.slots <- struct{}{}:
				defer func() { <-s.slots }()
			case <-ctx.Done():
				return
			}
			h, err := scrape(ctx, s.client, e.url(), e.Metric)
			s.mu.Lock()
			defer s.mu.Unlock()
			r.histogram = h
			r.err = err
			r.busy = false
			r.at = time.Now()
		})
	}
}

// get is the newest reading. The histogram is unknown when there was none yet, or
// when it failed.
func (s *scraper) get(e endpoint) (api.Histogram, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.readings[e]; r != nil {
		return r.histogram, r.err
	}
	return api.Histogram{}, nil
}

// wait waits for all readings to end. Their context must have ended.
func (s *scraper) wait() {
	s.wg.Wait()
	s.client.CloseIdleConnections()
}

// maxAnswer is how many bytes an answer may have. A pod's /metrics has about
// 100 kB.
const maxAnswer = 8 << 20

// scrape reads one metric of one endpoint.
func scrape(ctx context.Context, client *http.Client, url, metric string) (api.Histogram, error) {
	fail := func(err error) (api.Histogram, error) {
		return api.Histogram{}, fmt.Errorf("reading %s from %s: %w", metric, url, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fail(err)
	}
	// In the text format histograms have classic buckets. Native histograms come
	// in protobuf only.
	req.Header.Set("Accept", "text/plain;version=0.0.4;q=1,*/*;q=0.1")
	resp, err := client.Do(req)
	if err != nil {
		var inner interface{ Unwrap() error }
		if errors.As(err, &inner) {
			err = inner.Unwrap() // the message names the URL already
		}
		return fail(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("status %s", resp.Status))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return fail(err)
	}
	if len(body) > maxAnswer {
		return fail(fmt.Errorf("more than %d bytes", maxAnswer))
	}
	h, err := histogram(body, metric)
	if err != nil {
		return fail(err)
	}
	return h, nil
}

// histogram finds one metric in the text format and adds up its series:
//
//	# TYPE http_request_duration_seconds histogram
//	http_request_duration_seconds_bucket{code="200",le="0.1"} 24054
//	http_request_duration_seconds_bucket{code="200",le="+Inf"} 144320
//	http_request_duration_seconds_sum{code="200"} 53423
//	http_request_duration_seconds_count{code="200"} 144320
func histogram(body []byte, metric string) (api.Histogram, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(linesOf(body, metric)))
	if err != nil {
		return api.Histogram{}, err
	}
	family := families[metric]
	if family == nil {
		return api.Histogram{}, errors.New("there is no such metric")
	}
	counts := make(map[float64]uint64)
	series := 0
	native := false
	for _, m := range family.GetMetric() {
		h := m.GetHistogram()
		if h == nil {
			return api.Histogram{}, fmt.Errorf("it is a %v, not a histogram", family.GetType())
		}
		if len(h.GetBucket()) == 0 {
			native = true
			continue
		}
		series++
		for _, b := range h.GetBucket() {
			if math.IsNaN(b.GetUpperBound()) {
				return api.Histogram{}, errors.New("a bucket's upper bound is not a number")
			}
			counts[b.GetUpperBound()] += b.GetCumulativeCount()
		}
		if n := len(h.GetBucket()); n != len(counts) && !(n == len(counts)-1 && !hasInf(h.GetBucket())) {
			return api.Histogram{}, errors.New("its series have different buckets")
		}
		if !hasInf(h.GetBucket()) {
			counts[math.Inf(1)] += h.GetSampleCount()
		}
	}
	if series == 0 {
		if native {
			return api.Histogram{}, errors.New("it has no classic buckets: native histograms are not read; " +
				"keep the classic buckets on")
		}
		return api.Histogram{}, errors.New("it has no series yet")
	}
	var sum api.Histogram
	for upper := range counts {
		sum.Upper = append(sum.Upper, upper)
	}
	slices.Sort(sum.Upper)
	last := uint64(0)
	for _, upper := range sum.Upper {
		n := counts[upper]
		if n < last {
			return api.Histogram{}, fmt.Errorf("bucket %v has %d, fewer than the %d of the one below it", upper,
				n, last)
		}
		sum.Counts = append(sum.Counts, n)
		last = n
	}
	return sum, nil
}

// hasInf reports whether there is a bucket without an upper bound.
func hasInf[B interface{ GetUpperBound() float64 }](buckets []B) bool {
	return slices.ContainsFunc(buckets, func(b B) bool { return math.IsInf(b.GetUpperBound(), 1) })
}

// linesOf keeps the lines of one metric. A pod may have thousands of other lines,
// and a bad one among them must not matter.
func linesOf(body []byte, metric string) []byte {
	var kept []byte
	for line := range bytes.Lines(body) {
		rest, comment := bytes.CutPrefix(line, []byte("# "))
		if comment {
			kind, after, _ := bytes.Cut(rest, []byte(" "))
			if k := string(kind); k != "TYPE" {
				continue
			}
			rest = after
		}
		after, ok := bytes.CutPrefix(rest, []byte(metric))
		if !ok {
			continue
		}
		if !comment {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if cut, ok := bytes.CutPrefix(after, []byte(suffix)); ok {
					after = cut
					break
				}
			}
		}
		if len(after) > 0 && (after[0] == ' ' || after[0] == '{' || after[0] == '\t') {
			kept = append(kept, line...)
		}
	}
	if n := len(kept); n > 0 && kept[n-1] != '\n' {
		kept = append(kept, '\n')
	}
	return kept
}
