package slo

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

const (
	// maxAnswer is how many bytes a Prometheus server may answer. An answer of ours
	// is a number, or a histogram.
	maxAnswer = 1 << 20
	// askIn is how long an answer may take.
	askIn = 3 * time.Second
	// atOnce is how many questions one server is asked at the same time.
	atOnce = 8
	// patience is how long a reading waits for a server that answered the last time.
	patience = 300 * time.Millisecond
	// oldest is how old an answer may be.
	oldest = 30 * time.Second
)

// Servers are the Prometheus servers that may be asked: those that the cluster's
// admin lists. An owner writes a URL into an annotation, and central can reach what
// owners cannot.
type Servers struct{ apis map[string]promv1.API }

// NewServers makes clients for servers, by URL.
func NewServers(urls []string) (*Servers, error) {
	s := &Servers{apis: map[string]promv1.API{}}
	for _, one := range urls {
		u, err := url.Parse(one)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("prometheus server %q: it must be a URL such as http://prometheus.monitoring.svc:9090", one)
		}
		c, err := promapi.NewClient(promapi.Config{Address: one, Client: &http.Client{
			Timeout:       askIn,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: limited{&http.Transport{
				MaxConnsPerHost: atOnce, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: time.Minute,
				MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
			}},
		}})
		if err != nil {
			return nil, fmt.Errorf("prometheus server %q: %w", one, err)
		}
		s.apis[strings.TrimSuffix(one, "/")] = promv1.NewAPI(c)
	}
	return s, nil
}

// limited reads no more than maxAnswer bytes of an answer.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}

// window is the time over which the server is asked.
const window = 30 * time.Second

// Prometheus reads a workload's indicators from a Prometheus server, which scrapes
// the pods with the usual labels namespace and pod. It asks beside its caller, who
// does not wait for a server that is slow or dead.
type Prometheus struct {
	api        promv1.API
	server     string
	metric     string
	namespace  string
	percentile float64
	threshold  time.Duration

	mu      sync.Mutex
	asking  chan struct{} // closed when the question is answered; nil when there is none
	last    Reading
	at      time.Time // of the last answer; zero before the first
	healthy bool      // the last answer was one

	rate     mdp.Rate // of the goroutine that asks
	rated    bool
	missedAt time.Time // of the last histogram; zero before the first
}

// New makes a reader of a histogram metric, in seconds and without suffix, of the
// pods of a namespace, for an SLO of a percentile with a threshold. A server that is not listed is an error; nil lists none.
func (s *Servers) New(server, metric, namespace string, percentile float64, threshold time.Duration) (*Prometheus, error) {
	var asked promv1.API
	if s != nil {
		asked = s.apis[strings.TrimSuffix(server, "/")]
	}
	if asked == nil {
		return nil, fmt.Errorf(
			"prometheus server %q: the cluster's admin does not list it (--prometheus-servers of aware-central)",
			server)
	}
	if !model.LegacyValidation.IsValidMetricName(metric) {
		return nil, fmt.Errorf("metric %q: it is not the name of a metric", metric)
	}
	return &Prometheus{
		api: asked, server: server, metric: metric, namespace: namespace, percentile: percentile,
		threshold: threshold, healthy: true,
	}, nil
}

// Read is the newest reading of these pods. It asks for the next one, and waits for it
// only a moment, and only while the server answers. What the server does not know
// is unknown, and the reading says why.
func (p *Prometheus) Read(ctx context.Context, now time.Time, pods []string) Reading {
	if len(pods) == 0 { // a selector without names selects what has no label pod
		return Reading{Problem: "the workload has no pods"}
	}
	p.mu.Lock()
	if p.asking == nil {
		p.asking = make(chan struct{})
		go p.ask(context.WithoutCancel(ctx), now, slices.Clone(pods), p.asking)
	}
	asking, healthy := p.asking, p.healthy
	p.mu.Unlock()
	if healthy {
		select {
		case <-asking:
		case <-time.After(patience):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.at.IsZero():
		return Reading{Problem: fmt.Sprintf("asking %s: no answer yet", p.server)}
	case now.Sub(p.at) > oldest:
		return Reading{Problem: fmt.Sprintf("asking %s: no answer for %v", p.server, now.Sub(p.at).Round(time.Second))}
	}
	r := p.last
	p.last.Requests = 0 // they count once, also when the next answer is late
	return r
}

// ask asks the server once.
func (p *Prometheus) ask(ctx context.Context, now time.Time, pods []string, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, askIn)
	defer cancel()
	r := p.reading(ctx, now, pods)
	p.mu.Lock()
	defer p.mu.Unlock()
	if unread := p.last; unread.Requests > 0 {
		all := unread.Requests + r.Requests
		r.Missed = mdp.Ratio((float64(unread.Missed)*unread.Requests + float64(r.Missed)*r.Requests) / all)
		r.Requests = all
	}
	p.last, p.at = r, now
	p.healthy = ctx.Err() == nil
	p.asking = nil
	close(done)
}

// reading is what the server says now.
func (p *Prometheus) reading(ctx context.Context, now time.Time, pods []string) Reading {
	var r Reading
	selector := p.selector(pods)
	if v, err := p.number(ctx, now, fmt.Sprintf("sum(rate(%s_count%s))", p.metric, selector)); err != nil {
		r.Problem = err.Error()
		p.rated = false
	} else {
		r.Throughput = mdp.Rate(v)
		r.Observed |= mdp.SetOf(mdp.Throughput)
		if p.rated && p.rate > 0 {
			r.LoadChange = mdp.Ratio(r.Throughput / p.rate)
			r.Observed |= mdp.SetOf(mdp.LoadChange)
		}
		p.rate, p.rated = r.Throughput, true
	}
	h, err := p.histogram(ctx, now, fmt.Sprintf("sum by (le) (increase(%s_bucket%s))", p.metric, selector))
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	r.judge(h, p.percentile, p.threshold)
	if r.Observed.Has(mdp.Throughput) && !p.missedAt.IsZero() { // the window is longer than the time between two questions
		r.miss(h, p.threshold, float64(r.Throughput)*min(now.Sub(p.missedAt), window).Seconds())
	}
	p.missedAt = now
	return r
}

// histogram is the requests in each bucket. The server's own histogram_quantile says a
// number even where the buckets do not.
func (p *Prometheus) histogram(ctx context.Context, now time.Time, query string) (api.Histogram, error) {
	fail := func(err any) (api.Histogram, error) {
		return api.Histogram{}, fmt.Errorf("asking %s for %.200s: %v", p.server, query, err)
	}
	value, _, err := p.api.Query(ctx, query, now)
	if err != nil {
		return fail(err)
	}
	all, ok := value.(model.Vector)
	if !ok || len(all) == 0 {
		return fail("no value")
	}
	if len(all) > api.MaxBuckets {
		return fail(fmt.Sprintf("more than %d buckets", api.MaxBuckets))
	}
	var h api.Histogram
	count := map[float64]float64{}
	for _, one := range all {
		upper, err := strconv.ParseFloat(string(one.Metric["le"]), 64)
		if v := float64(one.Value); err != nil || math.IsNaN(upper) || !(v >= 0) || math.IsInf(v, 0) {
			return fail(fmt.Sprintf("no value: bucket %.20q has %v", one.Metric["le"], one.Value))
		}
		count[upper] = float64(one.Value)
	}
	h.Upper = slices.Sorted(maps.Keys(count))
	if !math.IsInf(h.Upper[len(h.Upper)-1], 1) {
		return fail("a histogram without its bucket +Inf")
	}
	// An increase is extrapolated, so it is not a whole number, and a bucket may be a
	// little below the one before it.
	const parts = 1000
	most := 0.0
	for _, upper := range h.Upper {
		most = max(most, count[upper])
		h.Counts = append(h.Counts, uint64(min(most*parts, math.MaxInt64)))
	}
	return h, nil
}

// selector selects the pods by their names. Those of other workloads whose names begin
// alike are not among them.
func (p *Prometheus) selector(pods []string) string {
	names := make([]string, len(pods))
	for i, name := range pods {
		names[i] = regexp.QuoteMeta(name)
	}
	return fmt.Sprintf("{namespace=%q,pod=~%q}[%s]", p.namespace, strings.Join(names, "|"), window)
}

// number is the answer to a query, which must be one number that is not negative.
func (p *Prometheus) number(ctx context.Context, now time.Time, query string) (float64, error) {
	fail := func(err any) (float64, error) {
		return 0, fmt.Errorf("asking %s for %.200s: %v", p.server, query, err)
	}
	value, _, err := p.api.Query(ctx, query, now)
	if err != nil {
		return fail(err)
	}
	all, ok := value.(model.Vector)
	if !ok || len(all) != 1 {
		return fail("no value")
	}
	v := float64(all[0].Value)
	if !(v >= 0) || math.IsInf(v, 0) {
		return fail("no value")
	}
	return v, nil
}
