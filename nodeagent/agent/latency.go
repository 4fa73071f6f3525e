package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	dto "github.com/prometheus/client_model/go"
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
	busy      bool      // the next attempt has begun
	next      time.Time // when the next attempt may begin
}

// scraper reads latency histograms from pods, a few at a time. Each is read in a
// goroutine that ends with its request: a pod that does not answer costs its own
// histogram only.
type scraper struct {
	client *http.Client
	every  time.Duration // between two readings of an endpoint
	// readers are not in use: as many as may read at once. They are kept, because each has
	// large buffers, and each pod is read every few seconds.
	readers chan *textReader
	wg      sync.WaitGroup

	mu       sync.Mutex
	readings map[endpoint]*reading
}

func newScraper(atOnce int, within, every time.Duration) *scraper {
	readers := make(chan *textReader, atOnce)
	for range atOnce {
		readers <- newTextReader()
	}
	return &scraper{
		every: every,
		client: &http.Client{
			Timeout: within,
			// A pod must not redirect the agent: the agent can reach what pods cannot.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				Proxy:               nil,
				MaxIdleConnsPerHost: 1,
				IdleConnTimeout:     30 * time.Second,
				DisableCompression:  true,
				// A connection to each pod is kept open. A request has some hundred bytes.
				WriteBufferSize: 1 << 10,
				// The default is 10 MB for each pod.
				MaxResponseHeaderBytes: maxHeader,
			},
		},
		readers:  readers,
		readings: make(map[endpoint]*reading),
	}
}

// want begins to read each of the endpoints whose time has come and that is not being
// read, and forgets all other endpoints.
func (s *scraper) want(ctx context.Context, now time.Time, all map[endpoint]bool) {
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
		if r.busy || now.Before(r.next) {
			continue
		}
		r.busy = true
		if r.next.IsZero() {
			// All pods are read at once when the agent starts, and then no more.
			r.next = now.Add(s.every/2 + time.Duration(rand.Int64N(int64(s.every/2))))
		} else {
			r.next = now.Add(s.every)
		}
		s.wg.Go(func() {
			var reader *textReader
			select {
			case reader = <-s.readers:
			case <-ctx.Done():
				return
			}
			h, err := s.read(ctx, reader, e)
			s.mu.Lock()
			defer s.mu.Unlock()
			r.at = time.Now()
			h.At = r.at
			r.histogram = h
			r.err = err
			r.busy = false
		})
	}
}

// read reads an endpoint, and gives the reader back. What a pod answers cannot end the agent.
func (s *scraper) read(ctx context.Context, r *textReader, e endpoint) (h api.Histogram, err error) {
	defer func() {
		if p := recover(); p != nil {
			r = newTextReader() // the other one is in the middle of something
			h, err = api.Histogram{}, fmt.Errorf("reading %s from %s: the reader failed: %v", e.Metric, e.url(), p)
		}
		s.readers <- r
	}()
	return scrape(ctx, s.client, r, e.url(), e.Metric)
}

// get is the newest reading. The histogram is unknown when there was none yet, when it
// failed, or when it is old.
func (s *scraper) get(now time.Time, e endpoint) (api.Histogram, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.readings[e]
	switch {
	case r == nil || r.at.IsZero():
		return api.Histogram{}, nil
	case r.err == nil && now.Sub(r.at) > staleAfter+s.every:
		return api.Histogram{}, fmt.Errorf("reading %s from %s: the last reading is %v old", e.Metric, e.url(),
			now.Sub(r.at).Round(time.Second))
	}
	return r.histogram, r.err
}

// wait waits for all readings to end. Their context must have ended.
func (s *scraper) wait() {
	s.wg.Wait()
	s.client.CloseIdleConnections()
}

const (
	// maxAnswer is how many bytes an answer may have. A pod's /metrics has about 100 kB.
	maxAnswer = 1 << 20
	// maxHeader is how long its status line and headers may be together.
	maxHeader = 16 << 10
	// maxLine is how long a line of our metric may be. Longer lines of others are skipped.
	maxLine = 16 << 10
	// staleAfter is how old a reading may be, beside the time between two of them.
	staleAfter = 20 * time.Second
)

// scrape reads one metric of one endpoint.
func scrape(ctx context.Context, client *http.Client, r *textReader, url, metric string) (api.Histogram, error) {
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
		return fail(fmt.Errorf("status %d", resp.StatusCode))
	}
	limited := &io.LimitedReader{R: resp.Body, N: maxAnswer + 1}
	h, err := r.histogram(limited, metric)
	if limited.N <= 0 {
		err = fmt.Errorf("more than %d bytes", maxAnswer)
	}
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
//
// It reads line by line and keeps the sums only: what a pod can make the agent hold
// is a line and a hundred buckets.
//
// Most lines were read ten seconds ago, with another count at their end. What the parser said of
// the text before the count is kept, and the count is read here.
type textReader struct {
	lines  *bufio.Reader
	parser expfmt.TextParser
	one    []byte // a text of one line, for the parser
	in     bytes.Reader
	known  map[seriesKey]series
}

// seriesKey is the text of a line before its count.
type seriesKey struct{ metric, text string }

// series is what such a text stands for.
type series struct {
	upper  float64 // bound of the bucket
	bucket bool
	count  bool // of all requests
}

const (
	// maxKnown is how many texts are kept, and maxText how long one may be.
	maxKnown = 256
	maxText  = 256
)

func newTextReader() *textReader {
	return &textReader{
		lines:  bufio.NewReaderSize(nil, maxLine),
		parser: expfmt.NewTextParser(model.UTF8Validation),
		known:  make(map[seriesKey]series),
	}
}

func (r *textReader) histogram(text io.Reader, metric string) (api.Histogram, error) {
	r.lines.Reset(text)
	defer r.lines.Reset(nil)
	lines := r.lines
	sum := sums{buckets: map[float64]bucket{}}
	for {
		line, err := lines.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if rest := lineOf(line, metric); rest && long {
			return api.Histogram{}, fmt.Errorf("a line of more than %d bytes", maxLine)
		} else if rest {
			if err := r.add(&sum, line, metric); err != nil {
				return api.Histogram{}, err
			}
		}
		for long { // a long line of another metric
			_, err = lines.ReadSlice('\n')
			long = errors.Is(err, bufio.ErrBufferFull)
		}
		if errors.Is(err, io.EOF) {
			return sum.histogram()
		}
		if err != nil {
			return api.Histogram{}, err
		}
	}
}

// sums is what was read of a metric's series so far.
type sums struct {
	kind    string // from the line TYPE
	buckets map[float64]bucket
	series  int // lines of the count of all requests
	count   uint64
}

// bucket is the sum of the series' buckets with one bound.
type bucket struct {
	series int // that have it
	count  uint64
}

// add adds a line of the metric.
func (r *textReader) add(s *sums, line []byte, metric string) error {
	if line[0] == '#' {
		if fields := bytes.Fields(line); len(fields) > 3 {
			s.kind = string(fields[3])
		}
		if s.kind != "histogram" {
			return fmt.Errorf("it is a %s, not a histogram", api.Clean(s.kind))
		}
		return nil
	}
	line = bytes.TrimRight(line, "\r\n")
	if text, n, ok := cutCount(line); ok {
		if one, ok := r.seriesOf(metric, text); ok {
			return s.add(one, n)
		}
	}
	h, err := r.parse(metric, line)
	if err != nil {
		return err
	}
	for _, b := range h.GetBucket() {
		if err := s.add(series{upper: b.GetUpperBound(), bucket: true}, b.GetCumulativeCount()); err != nil {
			return err
		}
	}
	if h != nil && h.SampleCount != nil {
		return s.add(series{count: true}, h.GetSampleCount())
	}
	return nil
}

// add adds a count of a series.
func (s *sums) add(one series, n uint64) error {
	if one.count {
		s.series++
		s.count += n
	}
	if !one.bucket {
		return nil
	}
	if math.IsNaN(one.upper) {
		return errors.New("a bucket's upper bound is not a number")
	}
	before := s.buckets[one.upper]
	s.buckets[one.upper] = bucket{before.series + 1, before.count + n}
	if len(s.buckets) > api.MaxBuckets {
		return fmt.Errorf("more than %d buckets", api.MaxBuckets)
	}
	return nil
}

// cutCount cuts a line at its last space, if a whole number is behind it.
func cutCount(line []byte) (text []byte, n uint64, ok bool) {
	i := bytes.LastIndexByte(line, ' ')
	digits := line[i+1:]
	if i < 0 || i > maxText || len(digits) == 0 || len(digits) > 15 { // a float has that many exactly
		return nil, 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return nil, 0, false
		}
		n = 10*n + uint64(d-'0')
	}
	return line[:i], n, true
}

// seriesOf is what a text stands for. The parser is asked once.
func (r *textReader) seriesOf(metric string, text []byte) (series, bool) {
	one, ok := r.known[seriesKey{metric, string(text)}]
	if ok {
		return one, true
	}
	// With two counts: a text that has a count already, and a time behind it, keeps its own.
	for _, n := range []uint64{1, 2} {
		h, err := r.parse(metric, fmt.Appendf(nil, "%s %d", text, n))
		if err != nil {
			return series{}, false
		}
		switch b := h.GetBucket(); {
		case len(b) == 1 && b[0].GetCumulativeCount() == n:
			one = series{upper: b[0].GetUpperBound(), bucket: true}
		case len(b) == 0 && h.GetSampleCount() == n:
			one = series{count: true}
		default:
			return series{}, false
		}
	}
	if len(r.known) >= maxKnown {
		clear(r.known)
	}
	r.known[seriesKey{metric, string(text)}] = one
	return one, true
}

// parse lets the parser read one line of the metric. The histogram may be nil: the parser takes
// some lines for comments.
func (r *textReader) parse(metric string, line []byte) (*dto.Histogram, error) {
	r.one = append(append(append(r.one[:0], "# TYPE "...), metric...), " histogram\n"...)
	r.one = append(append(r.one, line...), '\n')
	r.in.Reset(r.one)
	families, err := r.parser.TextToMetricFamilies(&r.in)
	if err != nil {
		return nil, err
	}
	for _, m := range families[metric].GetMetric() {
		return m.GetHistogram(), nil
	}
	return nil, nil
}

// histogram is the sum of the series.
func (s *sums) histogram() (api.Histogram, error) {
	switch {
	case s.kind == "":
		return api.Histogram{}, errors.New("there is no such metric")
	case len(s.buckets) == 0 && s.series > 0:
		return api.Histogram{}, errors.New("it has no classic buckets: native histograms are not read; " +
			"keep the classic buckets on")
	case len(s.buckets) == 0:
		return api.Histogram{}, errors.New("it has no series yet")
	}
	if _, ok := s.buckets[math.Inf(1)]; !ok {
		s.buckets[math.Inf(1)] = bucket{s.series, s.count}
	}
	var sum api.Histogram
	sum.Upper = slices.Sorted(maps.Keys(s.buckets))
	if len(sum.Upper) > api.MaxBuckets {
		return api.Histogram{}, fmt.Errorf("more than %d buckets", api.MaxBuckets)
	}
	before := bucket{series: s.buckets[math.Inf(1)].series}
	for _, upper := range sum.Upper {
		b := s.buckets[upper]
		if b.series != before.series {
			return api.Histogram{}, errors.New("its series have different buckets")
		}
		if b.count < before.count {
			return api.Histogram{}, fmt.Errorf("bucket %v has %d, fewer than the %d of the one below it", upper,
				b.count, before.count)
		}
		sum.Counts = append(sum.Counts, b.count)
		before = b
	}
	return sum, nil
}

// lineOf reports whether a line is of the metric: its TYPE or a sample. A pod may
// have thousands of other lines, and a bad one among them must not matter.
func lineOf(line []byte, metric string) bool {
	rest, comment := bytes.CutPrefix(line, []byte("# TYPE "))
	after, ok := bytes.CutPrefix(rest, []byte(metric))
	if !ok {
		return false
	}
	if !comment {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := bytes.CutPrefix(after, []byte(suffix)); ok {
				after = cut
				break
			}
		}
	}
	return len(after) > 0 && (after[0] == ' ' || after[0] == '{' || after[0] == '\t')
}
